"""The measured ceilings: what no kernel can pass, and how near one comes (Williams, Waterman, Patterson,
"Roofline", CACM 2009)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from volta.errors import UsageError
from volta.ir.cost import Work
from volta.runtime import gateway

KIB, MIB = 1 << 10, 1 << 20
ARITHMETIC = ("fma", "add", "divide", "sqrt", "bf16", "i8")
WALKS = ("read", "write", "copy")


@dataclass(frozen=True, slots=True)
class Level:
    """A cache level, or memory: `upto` is the most bytes per thread that stay in it; rates in bytes/s."""

    name: str
    upto: float
    measured_bytes: int
    read: float
    write: float
    copy: float


@dataclass(frozen=True, slots=True)
class Limit:
    """The least time a piece of work can take here, and what binds it."""

    seconds: float
    bound: str


@dataclass(frozen=True, slots=True)
class Roofline:
    """Ceilings of `threads` threads together under one instruction set. peaks: operations/s, a fused
    multiply-add counting two; 0 where the processor has no such instruction."""

    threads: int
    isa: str
    peaks: dict[str, float]
    levels: tuple[Level, ...]
    barrier_seconds: float

    def level(self, nbytes: float) -> Level:
        """Where a working set of so many bytes, spread over the threads, stays."""
        return next(level for level in self.levels if nbytes / self.threads <= level.upto)

    def limit(self, work: Work, dtype: str = "f32", working_set: float | None = None) -> Limit:
        """Arithmetic: contractions at the peak of their dtype, other operations at that of additions.
        Memory: each byte once, at the copy rate of the level that holds the working set."""
        fma = self.peaks["fma"]
        products = {"f32": fma, "bf16": max(fma, self.peaks["bf16"]), "i8": max(fma, self.peaks["i8"])}[dtype]
        arithmetic = work.contraction / products + work.steps / self.peaks["add"]
        memory = work.bytes / self.level(work.bytes if working_set is None else working_set).copy
        return Limit(max(arithmetic, memory), "arithmetic" if arithmetic >= memory else "memory")

    def document(self) -> dict[str, Any]:
        """As plain data."""
        found = asdict(self)
        for level in found["levels"]:
            level["upto"] = None if level["upto"] == float("inf") else int(level["upto"])
        return found


def levels_of(cache_bytes: tuple[int, int, int], threads: int) -> list[tuple[str, float, int]]:
    """(name, most bytes per thread, bytes to measure with). The threads share the third level; a virtual
    machine may share what it claims with others, too: no more than 32 MiB are believed."""
    first, second, third = cache_bytes
    share = min(third, 32 * MIB) // 2 // threads
    levels = [("L1", first, first // 2), ("L2", second, second // 2)]
    if share >= 2 * second:  # else no thread's share of it holds more than its L2
        levels.append(("L3", share, max(share // 4, 3 * second // 2)))
    found = [(name, float(upto), size) for name, upto, size in levels if size >= 4 * KIB]
    return [*found, ("memory", float("inf"), 128 * MIB)]


def check_seconds(seconds: float) -> None:
    """Of one sample."""
    if not 0 < seconds <= 60:
        raise UsageError(f"[bench] seconds is {seconds}: expected more than 0, up to 60")


def measure(threads: int, isa: str = "auto", seconds: float = 0.01) -> Roofline:
    """Takes a second or so; each figure is the best of some samples of so many seconds."""
    check_seconds(seconds)
    chosen = gateway.cpu_info().isas[-1] if isa == "auto" else isa
    peaks = {kind: gateway.probe(kind, chosen, threads, 0, seconds) or 0.0 for kind in ARITHMETIC}
    levels = []
    for name, upto, size in levels_of(gateway.cpu_info().cache_bytes, threads):
        rates = [gateway.probe(kind, chosen, threads, size, seconds) or 0.0 for kind in WALKS]
        levels.append(Level(name, upto, size, *rates))
    meetings = gateway.probe("barrier", chosen, threads, 0, seconds)
    return Roofline(threads, chosen, peaks, tuple(levels), 1.0 / meetings if meetings else 0.0)
