"""bench_smoke: on pinned small cases the head needs no more instructions, allocations, planned bytes or steps
than the base, and no more time.

Counters repeat exactly, so they are compared as they are. Times do not: base and head take turns in fresh
processes, the host's own noise is measured first, and what stays undecided is no verdict.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, Verdict, judged
from gates.law.files import in_force
from gates.law.limits import PATH as LIMITS
from gates.law.limits import Counters, Limits, Timing
from gates.timing import statistics
from gates.timing.sampling import (
    BASE,
    HEAD,
    JUDGE,
    Measure,
    Series,
    Stopwatch,
    Times,
    collect,
    environment_of,
    looks,
    quiet_cpu,
    worker,
)
from gates.timing.statistics import Decision, Judged
from gates.timing.worker import CASES
from gates.trees.checkout import sources_hash

RESERVE_S = 120.0  # no pair is begun with less of the gate's time left
# Of libc. Under PYTHONMALLOC=malloc each of Python's objects is a call of one of them, too.
ALLOCATORS = frozenset({"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign"})
NAMED = re.compile(r"(c?)fn=\((\d+)\)(?: (.*))?")
Counts = dict[str, dict[str, Any]]  # case -> counter -> count; `failed`: why there is none; `outputs`: sha256


@dataclass
class Part:
    """Of the answer. open: what could not be found out, and why."""

    findings: list[Finding] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    figure: str = ""
    samples: Times = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def check(context: Context) -> Outcome:
    same = engine_hash(context.base.path) == engine_hash(context.head.path)
    if same and not context.alone:
        return Outcome(Verdict.NOT_APPLICABLE, "the engine is the base's in every byte")
    limits = in_force(context.base.path, context.head.path, LIMITS, Limits)
    for which in (context.base, context.head):
        context.build(which)
    counted = counters(context, limits.counters)
    cases = [case for case in CASES if case not in counted.notes.get("not in the base", {})]
    timed = Part() if same else timing(context, limits.timing, cases, Stopwatch(context, quiet_cpu()))
    return outcome(counted, timed)


def outcome(counted: Part, timed: Part) -> Outcome:
    """Whatever is wrong fails; else a counter that is missing leaves it unproven, a time undecided."""
    figure = "; ".join(part.figure for part in (timed, counted) if part.figure)
    notes = {"counters": counted.notes, "time": timed.notes, "open": [*counted.open, *timed.open]}
    findings = [*counted.findings, *timed.findings]
    if findings or not notes["open"]:
        return judged(findings, figure, samples=timed.samples, notes=notes)
    verdict = Verdict.UNPROVEN if counted.open else Verdict.INCONCLUSIVE
    more = len(counted.open) + len(timed.open) - 1
    why = f"{[*counted.open, *timed.open][0]}{f' ({more} more)' if more else ''}"
    return Outcome(verdict, f"{why}; {figure}" if figure else why, samples=timed.samples, notes=notes)


def engine_hash(root: Path) -> str:
    """sha256 of all that an engine runs: its kernels' sources and its own files, names included."""
    content = hashlib.sha256(sources_hash(root).encode())
    for file in sorted((root / "engine" / "volta").rglob("*")):
        if file.is_file() and file.suffix not in (".so", ".pyc", ".partial"):
            data = file.read_bytes()
            content.update(f"{file.relative_to(root)} {len(data)}\n".encode() + data)
    return content.hexdigest()


# --- counters ----------------------------------------------------------------------------------------------


class CountError(Exception):
    """A worker that gave no counts: why."""


def counters(context: Context, limits: Counters) -> Part:
    """Base and head at once: what is counted does not depend on what else the machine does."""
    part = Part()
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        part.open.append("valgrind is not installed: instructions and allocations were not counted")
    elif platform.machine() != "x86_64":
        valgrind = None
        part.open.append(f"instructions are counted on x86_64, this is {platform.machine()}")
    with ThreadPoolExecutor(2) as both:
        asked = {side: both.submit(count, context, side, valgrind) for side in (BASE, HEAD)}
    found: dict[str, Counts] = {}
    for side, answer in asked.items():
        try:
            found[side] = answer.result()
        except CountError as error:
            part.open += [f"{side}: {error}"] if side == BASE else []
            part.findings += [Finding(f"{side}: {error}")] if side == HEAD else []
    if len(found) == 2:
        compare(found[BASE], found[HEAD], limits, part)
    for side, counts in found.items():
        part.notes[side] = {
            case: {name: value for name, value in row.items() if name != "outputs"}
            for case, row in counts.items()
        }
    return part


def count(context: Context, side: str, valgrind: str | None) -> Counts:
    """Runs every case of one side. Raises CountError."""
    checkout = context.base if side == BASE else context.head
    isa = "avx2" if "avx2" in cpu_flags() else "ref"  # valgrind has no AVX-512
    command = worker("plan" if valgrind is None else "count", checkout.path / "engine")
    environment = environment_of(context, side, VOLTA_ISA=isa)
    directory = context.evidence / f"callgrind-{side}"
    if valgrind is not None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        command = [
            valgrind,
            "--quiet",
            "--tool=callgrind",
            "--instr-atstart=no",
            "--vgdb=no",
            f"--callgrind-out-file={directory / 'out'}",
            *command,
        ]
        environment["PYTHONMALLOC"] = "malloc"
    done = context.run(command, cwd=JUDGE, env=environment)
    lines = [line for line in done.output.splitlines() if line.startswith("{")]
    if done.code or not lines:
        raise CountError(f"exit code {done.code} while counting: {done.tail(1) or 'nothing printed'}")
    counts: Counts = json.loads(lines[-1])
    if valgrind is not None:
        for file in directory.glob("out.*"):
            case, counter = dump(file)
            if case not in counts or "instructions" in counts[case]:
                raise CountError(f"callgrind was told of {case!r}, which is none of its cases or came twice")
            counts[case] |= counter
    return counts


def cpu_flags() -> frozenset[str]:
    text = Path("/proc/cpuinfo").read_text(errors="replace")
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return frozenset(found[1].split()) if found else frozenset()


def dump(file: Path) -> tuple[str, dict[str, int]]:
    """A dump of callgrind (its manual, "Callgrind Format"): the name it was given, instructions, and calls of
    allocators. `cfn=(7) malloc` names what the next `calls=` line counts; later `cfn=(7)` means the same."""
    case, called, instructions, allocations = "", "", 0, 0
    names: dict[str, str] = {}
    for line in file.read_text(errors="replace").splitlines():
        if line.startswith("desc: Trigger: Client Request: "):
            case = line.removeprefix("desc: Trigger: Client Request: ")
        elif line.startswith("totals: "):
            instructions = int(line.split()[1])
        elif line.startswith("calls=") and called in ALLOCATORS:
            allocations += int(line.removeprefix("calls=").split()[0])
        elif match := NAMED.match(line):
            called_here, number, name = match.groups()
            if name:
                names[number] = name.partition("'")[0]  # malloc'2: called by itself
            called = names[number] if called_here else called
    return case, {"instructions": instructions, "allocations": allocations}


def compare(base: Counts, head: Counts, limits: Counters, part: Part) -> None:
    """Adds to `part` what has grown beyond its limit."""
    compared, growth = 0, []
    for case, before in base.items():
        after = head.get(case, {"failed": "it was not run"})
        if "failed" in before:
            part.notes.setdefault("not in the base", {})[case] = before["failed"]
            continue
        if "failed" in after:
            part.findings.append(Finding(f"{case}: {after['failed']}"))
            continue
        compared += 1
        if before["outputs"] != after["outputs"]:
            part.findings.append(Finding(f"{case}: other bits than the base for the same inputs"))
        for counter, limit in limits.model_dump().items():
            if counter not in before:
                continue
            old, new = before[counter], after.get(counter, 0)
            if counter == "instructions":
                growth.append(new / max(old, 1) - 1)
            if new > old * (1 + limit):
                grown = f"{new / old - 1:+.2%}" if old else "there were none"
                part.findings.append(
                    Finding(f"{case}: {new:,} {counter}, {old:,} in the base: {grown}, allowed {limit:+.0%}")
                )
    part.figure = f"{compared} cases counted"
    if growth:
        part.figure += f", instructions {max(growth):+.2%} at most"


# --- time --------------------------------------------------------------------------------------------------


def timing(context: Context, limits: Timing, cases: list[str], measure: Measure) -> Part:
    """The base beside itself, then beside the head. What the first series cannot tell apart is no slowdown in
    the second."""

    def going() -> bool:
        return context.left_s > RESERVE_S

    part = Part()
    at = looks(limits.least_pairs, limits.most_pairs)
    same = collect(
        measure, (BASE, BASE), cases, context.seed, at, lambda series: list(unfit(series, limits)), going
    )
    excluded = unfit(same, limits)
    part.open += [f"{case}: {why}" for case, why in excluded.items()]
    cases = [case for case in cases if case not in excluded]
    margins = margins_of(same.times(), cases, limits)
    decide = partial(judge, margins=margins, limits=limits, looks=len(at))
    series = collect(
        measure,
        (BASE, HEAD),
        cases,
        context.seed + 1,
        at,
        lambda series: [
            case for case, one in decide(series.times()).items() if one.decision is Decision.UNDECIDED
        ],
        going,
    )
    for case, (side, what) in series.problems.items():
        if side == HEAD:
            part.findings.append(Finding(f"{case}: {what}"))
        else:
            part.open.append(f"{case}: the base: {what}")
    found = decide(series.times())
    by_wall = judge(series.walls(), margins_of(same.walls(), cases, limits), limits, len(at))
    for case in cases:
        if case in found:
            verdict(case, found[case], by_wall[case], part)
        elif case not in series.problems:
            part.open.append(f"{case}: {len(series.first[case])} pairs, too few to judge")
    if found:
        worst = max(found.values(), key=lambda one: one.paired.mean)
        part.figure = f"worst case {worst.paired} of the base's time"
    part.samples = {
        f"{case} {side}": [sample.seconds for sample in samples[case]]
        for side, samples in ((BASE, series.first), (HEAD, series.second))
        for case in cases
    }
    return part


def unfit(same: Series, limits: Timing) -> dict[str, str]:
    """The cases on which this host can judge nothing, and why."""
    why = {case: f"the base: {what}" for case, (_, what) in same.problems.items()}
    first, second = same.times()
    for case, times in first.items():
        if len(times) < statistics.LEAST_PAIRS:
            why[case] = f"{len(times)} pairs of the base with itself, too few to judge"
            continue
        one = statistics.paired(times, second[case], limits.confidence)
        if reason := statistics.void(one, limits.noise):
            why[case] = reason
    return why


def margins_of(same: tuple[Times, Times], cases: list[str], limits: Timing) -> dict[str, float]:
    """By case, the law's margin or the host's noise, whichever is greater."""
    first, second = same
    return {
        case: max(
            limits.margin, statistics.noise(statistics.paired(first[case], second[case], limits.confidence))
        )
        for case in cases
    }


def judge(
    times: tuple[Times, Times], margins: Mapping[str, float], limits: Timing, looks: int
) -> dict[str, Judged]:
    """Of the cases with enough pairs."""
    base, head = times
    enough = [case for case, samples in base.items() if len(samples) >= statistics.LEAST_PAIRS]
    return statistics.judge(
        {case: base[case] for case in enough},
        {case: head[case] for case in enough},
        margins,
        limits.confidence,
        looks,
    )


def verdict(case: str, one: Judged, by_wall: Judged, part: Part) -> None:
    """One case's times, by the process's clock and by ours."""
    part.notes[case] = {
        "ratio": one.paired.ratio,
        "wall_ratio": by_wall.paired.ratio,
        "p": one.p,
        "pairs": one.paired.pairs,
        "margin": one.paired.margin,
        "decision": one.decision.value,
    }
    said = f"{case}: {one.paired} of the base's time over {one.paired.pairs} pairs"
    if one.decision is Decision.SLOWER:
        part.findings.append(Finding(f"{said}, allowed {1 + one.paired.margin:.3f}, p = {one.p:.2g}"))
    elif by_wall.decision is Decision.SLOWER:
        part.findings.append(
            Finding(f"{said} by its own clock, but {by_wall.paired} by the judge's: patched timer")
        )
    elif one.decision is Decision.UNDECIDED:
        part.open.append(f"{said}, allowed {1 + one.paired.margin:.3f}: undecided")
