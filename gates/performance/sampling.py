"""Pairs of fresh, pinned processes in the order A B, B A, A B, ..., one sample each, until they are enough.

Believed is what two clocks and two engines agree on: the process's clock with ours around the same runs, and
each run's outputs with those of the base for the same inputs.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any, Protocol

from gates.context import Context

JUDGE = Path(__file__).resolve().parents[2]  # the gates that ask are the gates that run in the processes
BASE, HEAD = "base", "head"
PROCESS_LIMIT_S = 120.0
STRIKES = 5  # refused samples of one side and case: more than the machine's hiccups explain
# Shares of the time by our clock, of the best block. The rest is the way through two pipes and, for the runs,
# copies in between.
LEAST_WHOLE = 0.5
LEAST_RUNS = 0.05


class RefusedError(Exception):
    """A sample that cannot be believed, or does not exist: why."""


class FailedError(RefusedError):
    """The engine cannot run the case: what it says. Asking again would not help."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One process's time for one case. seconds: the median of its runs, by its clock. wall: the median of its
    blocks, by ours, per run, with the copies in between. outputs: sha256 of each run's."""

    seconds: float
    wall: float
    outputs: tuple[str, ...]


# --- one process -------------------------------------------------------------------------------------------


class Child(Protocol):
    """Lines to and from a worker; hear gives an empty one when it has ended."""

    def say(self, line: str) -> None: ...

    def hear(self) -> str: ...


def ask(child: Child, case: str, seed: int, clock: Callable[[], int] = time.perf_counter_ns) -> Sample:
    """One case in a running worker. clock: nanoseconds. Raises RefusedError."""
    child.say(json.dumps({"case": case, "seed": seed}))
    blocks: list[tuple[list[int], int, int]] = []
    for _ in range(count_of(heard(child), "ready")):
        begin = clock()
        child.say("go")
        answer = heard(child)
        blocks.append((*timed(answer), clock() - begin))
    outputs = heard(child).get("outputs")
    if not isinstance(outputs, list) or len(outputs) < sum(len(took) for took, _, _ in blocks):
        raise RefusedError("it does not say what every run gave")
    return believed(blocks, tuple(map(str, outputs)))


def heard(child: Child) -> dict[str, Any]:
    """Its next line. Raises RefusedError, or FailedError where the case cannot be run."""
    line = child.hear()
    try:
        found = json.loads(line)
    except ValueError:
        raise RefusedError(f"it said {line.strip()[:80]!r}" if line else "its process ended") from None
    if not isinstance(found, dict):
        raise RefusedError(f"it said {line.strip()[:80]!r}")
    if "failed" in found:
        raise FailedError(str(found["failed"]))
    return found


def count_of(answer: Mapping[str, Any], name: str) -> int:
    found = answer.get(name)
    if type(found) is not int or found < 1:
        raise RefusedError(f"{name} is {str(found)[:80]!r}: expected a whole number above 0")
    return found


def timed(answer: Mapping[str, Any]) -> tuple[list[int], int]:
    """Nanoseconds of each run of a block, and of the block."""
    took = answer.get("took")
    if not (isinstance(took, list) and took and all(type(one) is int and one > 0 for one in took)):
        raise RefusedError("patched timer: a run took no time")
    return took, count_of(answer, "whole")


def believed(blocks: Sequence[tuple[list[int], int, int]], outputs: tuple[str, ...]) -> Sample:
    """The sample of blocks: nanoseconds of the runs, of all by the worker's clock, of all by ours, which
    holds all of the worker's since it runs from before `go` to after the answer. Raises RefusedError where
    that cannot be."""
    for took, whole, wall in blocks:
        if not sum(took) <= whole <= wall:
            raise RefusedError(
                f"patched timer: runs of {sum(took)} ns within {whole} ns, while {wall} ns went by outside"
            )
    # a busy host delays some blocks on their way; a clock that is wrong is wrong in all of them
    inside = max(whole / wall for _, whole, wall in blocks)
    runs = max(sum(took) / wall for took, _, wall in blocks)
    if inside < LEAST_WHOLE or runs < LEAST_RUNS:
        raise RefusedError(
            f"patched timer: of the time that went by outside, at most {inside:.0%} went by inside, and "
            f"{runs:.0%} in the runs"
        )
    seconds = statistics.median(one for took, _, _ in blocks for one in took)
    per_run = statistics.median(wall / len(took) for took, _, wall in blocks)
    return Sample(seconds * 1e-9, per_run * 1e-9, outputs)


Times = dict[str, list[float]]  # by case
Answer = Sample | RefusedError
Measure = Callable[[str, Sequence[str], int], Mapping[str, Answer]]


@dataclass(frozen=True)
class Stopwatch:
    """A Measure: a fresh process of one side (base, head) that runs cases one after another, with a thread on
    each of these CPUs."""

    context: Context
    cpus: tuple[int, ...]

    def __call__(self, side: str, cases: Sequence[str], seed: int) -> dict[str, Answer]:
        checkout = self.context.base if side == BASE else self.context.head
        argv = worker("time", checkout.path / "engine", self.cpus)
        if argv not in self.context.commands:
            self.context.commands.append(argv)
        with (self.context.evidence / "workers.txt").open("a") as log:
            process = subprocess.Popen(
                argv,
                cwd=JUDGE,
                env=environment_of(self.context, side, len(self.cpus)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                errors="replace",
            )
        limit = Timer(min(PROCESS_LIMIT_S, self.context.left_s), process.kill)
        limit.start()
        try:
            return {case: answer_of(Pipes(process), case, seed) for case in cases}
        finally:
            limit.cancel()
            process.kill()
            with contextlib.suppress(BrokenPipeError):  # what it did not read is lost
                process.communicate()


@dataclass(frozen=True, slots=True)
class Pipes:
    process: subprocess.Popen[str]

    def say(self, line: str) -> None:
        if self.process.stdin is not None:
            try:
                self.process.stdin.write(line + "\n")
                self.process.stdin.flush()
            except BrokenPipeError:
                raise RefusedError("its process ended") from None

    def hear(self) -> str:
        return self.process.stdout.readline() if self.process.stdout is not None else ""


def answer_of(child: Child, case: str, seed: int) -> Answer:
    try:
        return ask(child, case, seed)
    except RefusedError as why:
        return why


def worker(mode: str, engine: Path, cpus: tuple[int, ...] = ()) -> list[str]:
    """The command line of gates.performance.worker for an engine's directory."""
    pinned = [",".join(map(str, cpus))] if cpus else []
    return [sys.executable, "-m", "gates.performance.worker", mode, str(engine), *pinned]


def environment_of(context: Context, side: str, threads: int = 1, **more: str) -> dict[str, str]:
    """Of a worker. Its path is the judge's alone: an engine's directory on it could hold a `gates`, or a
    `json`, of its own. The worker puts it there once it has imported what it needs. Each side has a cache of
    its own: what the head writes there must not slow the base down."""
    checkout = context.base if side == BASE else context.head
    cache = str(context.evidence / f"cache-{side}")
    return context.environment(
        checkout, PYTHONPATH=str(JUDGE), VOLTA_CACHE=cache, VOLTA_NUM_THREADS=str(threads), **more
    )


def quiet_cpu() -> int:
    """The CPU to pin to: the last one, as most systems serve interrupts on the first."""
    return max(os.sched_getaffinity(0))


# --- many processes ----------------------------------------------------------------------------------------


@dataclass
class Series:
    """Samples by case, in the order of their pairs. problems: what was wrong with a case, whose sampling
    ended there, and with which side; the second side's are the head's where that was measured."""

    sides: tuple[str, str]
    first: dict[str, list[Sample]] = field(default_factory=dict)
    second: dict[str, list[Sample]] = field(default_factory=dict)
    problems: dict[str, tuple[str, str]] = field(default_factory=dict)
    strikes: dict[tuple[int, str], int] = field(default_factory=dict)

    def times(self) -> tuple[Times, Times]:
        """Seconds of both sides, of the cases without a problem."""
        return self._of(lambda sample: sample.seconds)

    def walls(self) -> tuple[Times, Times]:
        """The same, by our clock."""
        return self._of(lambda sample: sample.wall)

    def _of(self, take: Callable[[Sample], float]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
        first, second = (
            {
                case: [take(one) for one in samples]
                for case, samples in side.items()
                if case not in self.problems
            }
            for side in (self.first, self.second)
        )
        return first, second

    def add(self, case: str, answers: tuple[Answer, Answer]) -> None:
        """A pair, if both can be believed."""
        for index, one in enumerate(answers):
            if isinstance(one, RefusedError):
                strikes = self.strikes[index, case] = self.strikes.get((index, case), 0) + 1
                # a host so busy that the base is refused, too, says nothing against the head
                alone = index == 0 or strikes > 2 * self.strikes.get((0, case), 0)
                if isinstance(one, FailedError) or (strikes >= STRIKES and alone):
                    self.problems[case] = (self.sides[index], str(one))
                    return
        first, second = answers
        if isinstance(first, RefusedError) or isinstance(second, RefusedError):
            return
        wrong = stale(second) or differing(first, second)
        if wrong:
            self.problems[case] = (self.sides[1], wrong)
            return
        self.first[case].append(first)
        self.second[case].append(second)


def stale(sample: Sample) -> str:
    """What is wrong with outputs that came twice, as no two runs had the same inputs; empty: nothing."""
    again = len(sample.outputs) - len(set(sample.outputs))
    return f"{again} of {len(sample.outputs)} runs gave what a run on other inputs had given" if again else ""


def differing(first: Sample, second: Sample) -> str:
    if len(first.outputs) != len(second.outputs):
        return f"{len(second.outputs)} runs: expected {len(first.outputs)}"
    wrong = sum(one != other for one, other in zip(first.outputs, second.outputs, strict=True))
    return f"{wrong} of {len(first.outputs)} runs gave other bits than the base" if wrong else ""


def looks(least: int, most: int) -> tuple[int, ...]:
    """How many pairs there are whenever the series is looked at: the fewest, half of the way, the most."""
    return tuple(sorted({least, (least + most) // 2, max(least, most)}))


def collect(
    measure: Measure,
    sides: tuple[str, str],
    cases: Sequence[str],
    seed: int,
    at: Sequence[int],
    unsettled: Callable[[Series], Collection[str]],
    going: Callable[[], bool] = lambda: True,
) -> Series:
    """Samples every case until at[0] pairs, then those that are unsettled until at[1], and so on. going:
    asked before each pair; once it says no, the series is what it is."""
    series = Series(sides, {case: [] for case in cases}, {case: [] for case in cases})
    wanted, number = list(cases), 0
    for pairs in at:
        while True:
            behind = [
                case for case in wanted if case not in series.problems and len(series.first[case]) < pairs
            ]
            if not behind or not going():
                break
            one_pair(measure, series, behind, seed, number)
            number += 1
        if not going():
            break
        wanted = list(unsettled(series))
    return series


def one_pair(measure: Measure, series: Series, cases: Sequence[str], seed: int, number: int) -> None:
    """A process of each side with the same inputs and the same order of cases; the side that goes first
    alternates, so that a machine that slows down or warms up favours neither."""
    chance = random.Random(f"{seed} {number}")
    order = chance.sample(list(cases), len(cases))
    inputs = chance.getrandbits(63)
    answers: dict[int, Mapping[str, Answer]] = {}
    for index in (0, 1) if number % 2 == 0 else (1, 0):
        answers[index] = measure(series.sides[index], order, inputs)
    for case in cases:
        series.add(case, (answers[0][case], answers[1][case]))
