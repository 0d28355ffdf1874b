"""coverage: the tests run the lines that a change adds to the package.

The floor of whole packages is the gate `tests`'; a large package hides a new function that nothing runs.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path

from gates.context import Context
from gates.evidence import record
from gates.evidence.verdict import Finding, Outcome, Verdict, judged
from gates.law.files import in_force
from gates.law.limits import PATH as LIMITS
from gates.law.limits import Limits
from gates.tests import COVERAGE, run_measured
from gates.trees.lines import added_lines

PACKAGE = "engine/volta"
MOST_NAMED = 40  # lines of a file in one finding


def check(context: Context) -> Outcome:
    added: dict[str, set[int]] = defaultdict(set)
    for line in added_lines(
        context.repository, context.base.tree, context.head.tree, [PACKAGE], renames=True
    ):
        if line.path.endswith(".py"):
            added[line.path].add(line.number)
    if not added and not context.alone:
        return Outcome(Verdict.NOT_APPLICABLE, f"no line of {PACKAGE} was added")
    data = measured_before(context)
    if data is None:
        context.build(context.head)
        findings, _, data = run_measured(context)
        if findings:
            return judged(findings, "the tests fail: what they run says nothing")
    limits = in_force(context.base.path, context.head.path, LIMITS, Limits)
    return covered(added, lines_of(context, data), limits.changed_lines, context)


def measured_before(context: Context) -> Path | None:
    """What the gate `tests` measured on this very head, where it ran just before."""
    place = context.evidence.parent / "tests"
    try:
        before = record.read(place / "record.json")
    except (OSError, ValueError, KeyError, TypeError):
        return None
    data = place / COVERAGE
    same = before.head.tree == context.head.tree.tree
    return data if same and before.outcome.verdict is Verdict.PASS and data.is_file() else None


def lines_of(context: Context, data: Path) -> dict[str, tuple[set[int], set[int]]]:
    """By path, the statements that ran and those that did not, by the number of their line. What was never
    imported counts as well. The page of each file lies in the evidence."""
    report = context.evidence / "coverage.json"
    settings = (f"--data-file={data}", f"--rcfile={context.head.path / 'pyproject.toml'}")
    for what in (("json", "-q", "-o", report), ("html", "-q", "-d", context.evidence / "html")):
        context.run(
            (sys.executable, "-m", "coverage", *what, *settings), env=context.environment(context.head)
        )
    files = json.loads(report.read_text())["files"]
    return {
        path: (set(found["executed_lines"]), set(found["missing_lines"])) for path, found in files.items()
    }


def covered(
    added: dict[str, set[int]], lines: dict[str, tuple[set[int], set[int]]], least: float, context: Context
) -> Outcome:
    ran = missed = 0
    findings = []
    for path, numbers in sorted(added.items()):
        executed, missing = lines.get(path, (set(), set()))
        ran += len(numbers & executed)
        if left := sorted(numbers & missing):
            missed += len(left)
            said = ", ".join(map(str, left[:MOST_NAMED])) + (", .." if len(left) > MOST_NAMED else "")
            findings.append(Finding(f"added and run by no test: lines {said}", path, left[0]))
    total = ran + missed
    share = 100.0 * ran / total if total else 100.0
    figure = f"{share:.1f}% of {total:,} added statements run, the floor is {least:g}%"
    notes = {"ran": ran, "missed": missed}
    return judged(findings if share < least else [], figure, notes=notes)
