"""Whether a change is what its task asked for: gates by the base's code, its commands, its statements."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gates.evidence import record
from gates.evidence.verdict import Verdict as GateVerdict
from gates.registry import GATES
from gates.trees.checkout import build, checkout, release
from gates.trees.repository import Repository, Tree

from gates import court
from tasks.agents.process import Ending, Limits, run
from tasks.agents.sandbox import environment
from tasks.files import Entry
from tasks.model import COMMAND, GATE, Expectation
from tasks.verdict import Verdict

KERNELS = "engine/csrc/build_ffi.py"  # where the tree has it, its kernels are compiled before commands run
OUTPUT_BYTES, DISK_BYTES = 64 << 20, 8 << 30
Watch = Callable[[str], None]


@dataclass
class Judgement:
    """verdict: None where everything holds. findings: a line each, for people and the next prompt. data: for
    the ledger."""

    verdict: Verdict | None = None
    findings: list[str] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)

    def reject(self, verdict: Verdict, *findings: str) -> None:
        self.verdict = self.verdict or verdict
        self.findings += findings


def judge(
    repository: Repository,
    entry: Entry,
    base: Tree,
    head: Tree,
    place: Path,
    watch: Watch,
    seed: int | None = None,
) -> Judgement:
    """place: for logs and evidence. Gates first: what they reject is not run."""
    found = Judgement(
        data={
            "base": base.tree, "base_commit": base.commit, "head": head.tree, "head_commit": head.commit,
            "task": entry.digest,
        }
    )  # fmt: skip
    ask_gates(repository, entry, base, head, place / "gates", watch, seed, found)
    if found.verdict is None:
        run_commands(repository, entry, head, place / "commands", watch, found)
    bind(entry, found)
    return found


def ask_gates(
    repository: Repository, entry: Entry, base: Tree, head: Tree, place: Path, watch: Watch, seed: int | None,
    found: Judgement,
) -> None:  # fmt: skip
    """Those of the change's tier and those that the task names, in their order."""
    case = court.open_case(repository.root, base.commit, head.commit, True, place, seed)
    tier, asked = court.tier_gates(case)
    names = [name for name in GATES if name in asked or name in entry.task.gates]
    unchanged = base.tree == head.tree  # what is there already is judged all the same
    records = court.run(case, names, unchanged, watch)
    report = court.publish(case, records, f"{entry.task.id}, {tier}")
    found.data |= {
        "tier": tier,
        "seed": case.seed,
        "machine": record.machine(),
        "report": str(report.relative_to(repository.root)),
        "gates": [
            {
                "gate": one.gate, "version": one.version, "judge": one.judge, "figure": one.outcome.figure,
                "verdict": str(one.outcome.verdict), "seconds": one.seconds, "exit": one.exit_code,
                "argv": portable(one.argv), "outputs": dict(one.outcome.outputs),
                "samples": {name: list(values) for name, values in one.outcome.samples.items()},
            }
            for one in records
        ],
    }  # fmt: skip
    for one in records:
        if not one.outcome.verdict.merges:
            lines = [str(finding) for finding in one.outcome.findings] or [one.outcome.figure]
            found.reject(Verdict.REJECTED_GATES, *(f"{one.gate}: {line}" for line in lines))


def run_commands(
    repository: Repository, entry: Entry, head: Tree, place: Path, watch: Watch, found: Judgement
) -> None:
    """Each on a copy of the head's files: what one writes, the next sees, and nobody else."""
    task = entry.task
    if not task.commands:
        return
    exact = checkout(repository, head)
    try:
        if (exact.path / KERNELS).is_file():
            build(repository, exact)
        files = place / "tree"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        shutil.copytree(exact.path, files, symlinks=True)
    finally:
        release(exact.path)
    limits = Limits(task.budget.minutes * 60, task.budget.minutes * 60, OUTPUT_BYTES, DISK_BYTES)
    expected = {one.command: one for one in task.expect}
    done = found.data.setdefault("commands", [])
    for name, command in task.commands.items():
        watch(f"command {name}: {command}")
        log = place / f"{name}.log"
        ended = run(words(command), files, surroundings(files), "", log, limits, watch)
        output = log.read_text(errors="replace") if log.is_file() else ""
        digest = hashlib.sha256(output.encode()).hexdigest()
        wrong, metrics = [], dict[str, float]()
        if ended.ending is not Ending.FINISHED:
            wrong = [ended.said]
        else:
            wrong, metrics = differences(expected.get(name, Expectation(command=name)), ended.code, output)
        done.append(
            {
                "command": name, "argv": portable(words(command)), "exit": ended.code,
                "seconds": ended.seconds, "output": digest, "metrics": metrics, "passed": not wrong,
            }
        )  # fmt: skip
        if wrong:
            found.reject(Verdict.REJECTED_EXPECTATION, *(f"command {name}: {line}" for line in wrong))
    shutil.rmtree(files, ignore_errors=True)


def words(command: str) -> list[str]:
    """`python` is the interpreter that judges, as on a machine where only that one has the tools."""
    first, *rest = shlex.split(command)
    return [sys.executable if first in ("python", "python3") else first, *rest]


def portable(argv: Sequence[str]) -> list[str]:
    """Without where this machine keeps its interpreter."""
    return ["python" if word == sys.executable else word for word in argv]


def surroundings(files: Path) -> dict[str, str]:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)))
    python = os.pathsep.join((str(files / "engine"), str(files)))
    return environment((), {"PATH": path, "PYTHONPATH": python, "PYTHONDONTWRITEBYTECODE": "1"})


def differences(expected: Expectation, code: int | None, output: str) -> tuple[list[str], dict[str, float]]:
    """What is not as expected, and the figures that were read."""
    wrong, metrics = [], dict[str, float]()
    if code != expected.exit:
        last = (output.strip().splitlines() or ["nothing printed"])[-1]
        wrong.append(f"exit code {code}, expected {expected.exit}: {last[:200]}")
    wrong += [
        f"it printed nothing that matches {pattern!r}"
        for pattern in expected.output
        if not re.search(pattern, output, re.MULTILINE)
    ]
    document = last_json(output) if expected.metrics else None
    for path, bounds in expected.metrics.items():
        value = figure(document, path)
        if value is None:
            wrong.append(f"{path}: no number of that name in the JSON that it printed, expected {bounds}")
            continue
        metrics[path] = value
        if not bounds.hold(value):
            wrong.append(f"{path} is {value:g}, expected {bounds}")
    return wrong, metrics


def last_json(output: str) -> Any:
    """The last JSON object or list that a line begins with; None where there is none."""
    decoder = json.JSONDecoder()
    found, place = None, 0
    for match in re.finditer(r"^\s*[{\[]", output, re.MULTILINE):
        if match.end() - 1 >= place:
            try:
                found, place = decoder.raw_decode(output, match.end() - 1)
            except (ValueError, RecursionError):
                continue
    return found


def figure(document: Any, path: str) -> float | None:
    """`results.0.ratio`; None where there is no finite number."""
    for part in path.split("."):
        if isinstance(document, list) and part.isdigit() and int(part) < len(document):
            document = document[int(part)]
        elif isinstance(document, Mapping) and part in document:
            document = document[part]
        else:
            return None
    number = isinstance(document, int | float) and not isinstance(document, bool)
    return float(document) if number and math.isfinite(document) else None


def bind(entry: Entry, found: Judgement) -> None:
    """Every statement passes or fails with its gate or command; one that was not asked has not passed."""
    passed = {f"{GATE}{one['gate']}" for one in found.data.get("gates", ()) if merges(one["verdict"])}
    passed |= {f"{COMMAND}{one['command']}" for one in found.data.get("commands", ()) if one["passed"]}
    found.data["acceptance"] = [
        {"says": one.says, "by": one.by, "passed": one.by in passed} for one in entry.task.acceptance
    ]
    if found.verdict is None:
        for one in entry.task.acceptance:
            if one.by not in passed:
                found.reject(Verdict.REJECTED_EXPECTATION, f"{one.says}: {one.by} was not asked")


def merges(verdict: str) -> bool:
    return GateVerdict(verdict).merges
