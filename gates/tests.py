"""tests: the head's tests pass on the head, the base's tests pass on it too, and coverage keeps its floor."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, judged
from gates.law.files import in_force
from gates.law.limits import PATH as LIMITS
from gates.law.limits import Limits
from gates.trees.checkout import Checkout

SUITE = "tests"
COVERAGE = "coverage"  # in the evidence: what the tests ran
BASE_ONLY = re.compile(r"^tests/.*\.py$")


def check(context: Context) -> Outcome:
    context.build(context.head)
    limits = in_force(context.base.path, context.head.path, LIMITS, Limits)
    findings, passed, data = run_measured(context)
    findings += covered(context, limits, str(data))
    again = changed_tests(context)
    if again:
        more, passed_again = pytest(context, context.base, "base", again, ())
        findings += [Finding(f"as the base has it: {one.message}", one.path, one.line) for one in more]
        passed += passed_again
    return judged(findings, f"{passed:,} passed", notes={"base_tests": again})


def run_measured(context: Context) -> tuple[list[Finding], int, Path]:
    """The head's tests: what failed, how many passed, and which lines they ran, as `coverage` keeps it."""
    data = context.evidence / COVERAGE
    measured = ("--cov", "--cov-report=", f"--cov-config={context.head.path / 'pyproject.toml'}")
    findings, passed = pytest(context, context.head, "head", [], measured, COVERAGE_FILE=str(data))
    return findings, passed, data


def changed_tests(context: Context) -> list[str]:
    """The base's test files that the head has changed or removed: they still judge the head."""
    return sorted(
        path
        for change in context.changes
        for path in (change.before or change.path,)
        if change.kind != "added"
        and BASE_ONLY.match(path)
        and Path(path).name.startswith("test_")
        and not path.startswith("tests/gates/")
    )


def pytest(
    context: Context, suite: Checkout, name: str, files: list[str], more: tuple[str, ...], **env: str
) -> tuple[list[Finding], int]:
    """Runs a checkout's tests on the head's engine. Gives what failed, and how many passed."""
    report = context.evidence / f"junit-{name}.xml"
    report.unlink(missing_ok=True)
    cpus = len(os.sched_getaffinity(0))
    done = context.run(
        (sys.executable, "-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider",
         f"--junit-xml={report}", *(("-n", str(cpus)) if cpus > 1 else ()), *more, *(files or [SUITE])),
        cwd=suite.path,
        env={
            **context.environment(context.head, **env),
            "PYTHONPATH": os.pathsep.join((str(context.head.path / "engine"), str(suite.path))),
        },
    )  # fmt: skip
    findings, passed = [], 0
    if report.is_file():
        for case in ElementTree.parse(report).iter("testcase"):
            bad = case.find("failure") if case.find("failure") is not None else case.find("error")
            if bad is None:
                passed += case.find("skipped") is None
                continue
            first = (bad.get("message") or "").strip().splitlines()
            where = str(case.get("classname", "")).replace(".", "/") + ".py"
            findings.append(Finding(f"{case.get('name')}: {first[0] if first else 'failed'}", where))
    if done.code and not findings:
        findings.append(Finding(f"pytest: exit code {done.code}: {done.tail(1)}"))
    if not done.code and not passed:
        findings.append(Finding("no test ran"))
    return findings, passed


def covered(context: Context, limits: Limits, data: str) -> list[Finding]:
    """Each package on its own: one that is well covered must hide no other."""
    low = []
    for package, floor in limits.coverage.items():
        done = context.run(
            (sys.executable, "-m", "coverage", "report", f"--include=*/volta/{package}/*", "--format=total",
             f"--data-file={data}", f"--rcfile={context.head.path / 'pyproject.toml'}"),
            env=context.environment(context.head),
        )  # fmt: skip
        try:
            share = float(done.output.strip().splitlines()[-1])
        except (ValueError, IndexError):
            low.append(Finding(f"volta.{package}: its coverage was not measured: {done.tail(1)}"))
            continue
        if share < floor:
            low.append(Finding(f"volta.{package}: {share}% of lines covered, the floor is {floor}%"))
    return low
