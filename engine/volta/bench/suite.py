"""Runs cases: every side in its own process, in turn, checked before it is timed."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from volta import __version__
from volta.bench import quiet
from volta.bench import roofline as rooflines
from volta.bench.cases import AbsentError, Case
from volta.bench.machine import machine
from volta.bench.report import Measurement, Report, Timing, counted
from volta.bench.sides import Side, Sides
from volta.bench.statistics import paired_ratio
from volta.errors import UsageError, VoltaError
from volta.ir.cost import Work
from volta.ir.ops import work_of
from volta.runtime import gateway
from volta.runtime.policy import current, runtime
from volta.transform import compile

Array = npt.NDArray[Any]
ROTATED_BYTES = 32 << 20  # working sets go round until they are so much, which no L2 holds
MOST_COPIES = 32
CHECKED_ROWS = 8
MOST_ROUNDS = 1000
ORDER = "sides alternate, the first one last in the next round"


@dataclass(frozen=True, slots=True)
class Method:
    """How a suite is measured. seconds: of one sample; rounds: samples of each side, in pairs; seed: of the
    inputs, drawn anew for every run unless it is given."""

    rounds: int = 11
    seconds: float = 0.03
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.rounds <= MOST_ROUNDS:
            raise UsageError(f"[bench] rounds is {self.rounds}: expected 1 to {MOST_ROUNDS}")
        rooflines.check_seconds(self.seconds)
        if self.seed < 0:
            raise UsageError(f"[bench] seed is {self.seed}: expected 0 or more")

    def document(self) -> dict[str, Any]:
        return {
            "rounds": self.rounds,
            "sample_seconds": self.seconds,
            "seed": self.seed,
            "order": ORDER,
            "rotated_bytes": ROTATED_BYTES,
            "most_copies": MOST_COPIES,
        }


class Skipped:
    """Peers that are not installed, and cases that a peer does not have."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        self._cases: dict[tuple[str, str], set[str]] = {}

    def add(self, peer: str, case: str, why: AbsentError) -> None:
        if why.everywhere:
            self.missing.add(peer)
        self._cases.setdefault((peer, str(why)), set()).add(case)

    def lines(self) -> tuple[str, ...]:
        return tuple(
            f"{peer}: {why}" + ("" if peer in self.missing else f" ({counted(len(cases), 'case')})")
            for (peer, why), cases in self._cases.items()
        )


def fresh_seed() -> int:
    return int(np.random.SeedSequence().generate_state(1)[0])


def run(
    suite: str,
    cases: Sequence[Case],
    threads: Sequence[int],
    peers: Sequence[str],
    method: Method,
    watch: Callable[[str], None] = lambda line: None,
) -> Report:
    """Measures every case on every number of threads. A peer that is not there is skipped by name. What no
    run could do is refused before the first."""
    if not cases or not threads:
        raise UsageError(
            f"[bench] {suite} has {len(cases)} cases, {len(threads)} numbers of threads: expected 1"
        )
    gateway.resolve(current())
    for case in cases:
        refuse_too_large(case, 1 + len(peers))
    skipped = Skipped()
    measurements: list[Measurement] = []
    ceilings = {}
    for count in threads:
        watch(f"measuring the roofline of {counted(count, 'thread')}")
        ceilings[count] = rooflines.measure(count)
    with TemporaryDirectory(prefix="volta-bench-") as scratch, Sides() as sides:
        for count in threads:
            for case in cases:
                watch(f"{case.name}, {counted(count, 'thread')}")
                measurements.append(
                    measure(case, count, peers, method, sides, Path(scratch), ceilings[count], skipped)
                )
            for name in ("volta", *peers):
                sides.drop(name, count)
    return Report(
        suite=suite,
        command="volta " + shlex.join(sys.argv[1:]),
        version=__version__,
        machine=machine(),
        method=method.document(),
        rooflines=tuple(ceiling.document() for ceiling in ceilings.values()),
        measurements=tuple(measurements),
        skipped=skipped.lines(),
    )


def measure(
    case: Case,
    threads: int,
    peers: Sequence[str],
    method: Method,
    sides: Sides,
    scratch: Path,
    ceiling: rooflines.Roofline,
    skipped: Skipped,
) -> Measurement:
    """Checks every side on the same fresh inputs, then times them in turn."""
    work, held, _ = extent(case)
    copies = copies_of(held)
    ready: dict[str, Side] = {}
    descriptions: dict[str, str] = {}
    checks: dict[str, str] = {}
    arrays = case.arrays(method.seed)
    truth = case.true_outputs(arrays)
    for name in ("volta", *peers):
        if name in skipped.missing:
            continue
        out = scratch / f"{name}.npz"
        try:
            side = sides.get(name, threads)
            answer = side.ask(
                "prepare",
                suite=case.suite,
                parameters=dict(case.parameters),
                seed=method.seed,
                copies=copies,
                out=str(out),
            )
        except AbsentError as why:
            skipped.add(name, case.name, why)
            continue
        with np.load(out) as found:
            outputs = [found[key] for key in found]
        ready[name], descriptions[name] = side, answer["description"]
        checks[name] = check(case, name, outputs, truth, arrays)
    samples = alternate(ready, method)
    limit = ceiling.limit(work, case.dtype, float(copies * held))
    return Measurement(
        name=case.name,
        parameters=case.parameters,
        threads=threads,
        flops=work.flops,
        bytes=work.bytes,
        sides={name: timing(descriptions[name], values, checks[name]) for name, values in samples.items()},
        ratios={
            name: paired_ratio(samples["volta"], values)
            for name, values in samples.items()
            if name != "volta"
        },
        limit=limit.seconds,
        bound=limit.bound,
    )


def alternate(ready: dict[str, Side], method: Method) -> dict[str, list[float]]:
    """One sample of each side per round, in an order that turns round after round (A B B A ..)."""
    samples: dict[str, list[float]] = {name: [] for name in ready}
    quiet.wait()  # the truth took this process's own BLAS threads
    for round_ in range(method.rounds):
        names = list(ready) if round_ % 2 == 0 else list(reversed(ready))
        for name in names:
            samples[name].append(ready[name].ask("run", seconds=method.seconds)["seconds"])
    return samples


def timing(description: str, seconds: Sequence[float], check: str) -> Timing:
    return Timing(description, tuple(seconds), float(np.median(seconds)), min(seconds), max(seconds), check)


def copies_of(held: int) -> int:
    """How many copies of a working set of so many bytes the runs go round."""
    return max(1, min(MOST_COPIES, ROTATED_BYTES // max(1, held)))


def extent(case: Case) -> tuple[Work, int, int]:
    """Operations of the traced graph and the bytes that it must move; the bytes of one copy of its operands
    and results, and their elements."""
    graph = compile(case.volta).traced(*case.blank()).graph
    works = [work_of(node) for node in graph.nodes]
    ends = (*graph.inputs, *graph.outputs)
    held = sum(node.type.nbytes for node in ends)
    work = Work(sum(one.contraction for one in works), sum(one.steps for one in works), held)
    return work, held, sum(math.prod(node.shape) for node in ends)


def refuse_too_large(case: Case, sides: int) -> None:
    """UsageError where the sides and the truth together need more than the machine's memory."""
    _, held, elements = extent(case)
    needed = held * copies_of(held) * sides + 8 * (3 * elements + case.between)
    there = machine()["memory_bytes"]
    if needed > there:
        raise UsageError(
            f"[bench] {case.name} needs about {needed * 1e-9:.3g} GB on {counted(sides, 'side')}: "
            f"this machine has {there * 1e-9:.3g} GB"
        )


# --- correctness -----------------------------------------------------------------------------------


def check(
    case: Case, side: str, outputs: Sequence[Array], truth: Sequence[Array], arrays: Sequence[Array]
) -> str:
    """Every output near the truth; Volta's equal to the plain C reference's in every bit, too. Peers may lack
    the results that only a gradient needs: Volta's own statistics of rows."""
    least = len(truth) if side == "volta" else 1
    if not least <= len(outputs) <= len(truth):
        raise VoltaError(f"[bench] {side} gave {len(outputs)} results for {case.name}: expected {len(truth)}")
    worst = 0.0
    for found, true in zip(outputs, truth, strict=False):
        if found.shape != true.shape:
            raise VoltaError(f"[bench] {side} gave {found.shape} for {case.name}: expected {true.shape}")
        scale = float(np.max(np.abs(true), initial=0.0)) or 1.0
        with np.errstate(all="ignore"):
            error = float(np.max(np.abs(found.astype(np.float64) - true), initial=0.0)) / scale
        worst = max(worst, error if error == error else float("inf"))
    if not worst <= case.tolerance:
        raise VoltaError(
            f"[bench] {side} is wrong in {case.name}: largest error {worst:.1e} of the largest value, "
            f"expected {case.tolerance:.1e} at most"
        )
    said = f"largest error {worst:.1e} (allowed {case.tolerance:.1e})"
    return f"{bits(case, outputs, arrays)}; {said}" if side == "volta" else said


def bits(case: Case, outputs: Sequence[Array], arrays: Sequence[Array]) -> str:
    """Compares with the plain C reference: a few rows where rows are independent, else everything."""
    chosen: Array | slice = slice(None)
    if case.rows:
        count = arrays[case.rows[0]].shape[0]
        generator = np.random.default_rng()
        chosen = np.sort(generator.choice(count, min(CHECKED_ROWS, count), replace=False))
    given = [
        np.ascontiguousarray(array[chosen]) if index in case.rows else array
        for index, array in enumerate(arrays)
    ]
    with runtime(isa="ref", threads=1):
        results = compile(case.volta)(*case.tensors(given))
    expected = results if isinstance(results, tuple) else (results,)
    differ = total = 0
    for found, wanted in zip(outputs, expected, strict=True):
        part, true = np.ascontiguousarray(found[chosen]), wanted.numpy()
        same = part == true if part.dtype.kind == "i" else _same(part, true)
        differ += int(np.size(same) - np.count_nonzero(same))
        total += true.size
    if differ:
        raise VoltaError(
            f"[bench] {differ} of {total} elements of {case.name} differ from the plain C reference"
        )
    return f"0 of {total:,} elements{' (of some rows)' if case.rows else ''} differ from plain C"


def _same(a: Array, b: Array) -> Array:
    equal: Array = (a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))
    return equal
