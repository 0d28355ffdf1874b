"""What repeats exactly: instructions and allocations by callgrind, bytes and steps of plans."""

from __future__ import annotations

import json
import platform
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gates.context import Context
from gates.evidence.verdict import Finding, Verdict
from gates.law.limits import Counters
from gates.performance.answer import Part
from gates.performance.sampling import BASE, HEAD, JUDGE, environment_of, worker

# Of libc. Under PYTHONMALLOC=malloc each of Python's objects is a call of one of them, too.
ALLOCATORS = frozenset({"malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "memalign"})
NAMED = re.compile(r"(c?)fn=\((\d+)\)(?: (.*))?")
Counts = dict[str, dict[str, Any]]  # case -> counter -> count; `failed`: why there is none; `outputs`: sha256


class CountError(Exception):
    """A worker that gave no counts: why."""


def counters(context: Context, limits: Counters) -> Part:
    """Base and head at once: what is counted does not depend on what else the machine does."""
    part = Part(Verdict.UNPROVEN)
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
