"""One fresh process that runs pinned cases on one engine: against a stopwatch, or for a counter.

    python -m gates.performance.worker time ENGINE CPUS  answers requests: see gates.performance.sampling
    python -m gates.performance.worker plan ENGINE       what every case's plan holds
    python -m gates.performance.worker count ENGINE      the same under callgrind, every case's runs marked

ENGINE is the directory that holds the package `volta`. The engine is not trusted: it goes onto the path after
everything else was imported, the clock is taken before it, and every run has inputs that no run had before.
What it can still do from inside this process, the asking one must notice, by its own clock and by another
engine's outputs for the same inputs.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import json
import mmap
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TextIO

import numpy as np

from gates.performance.cases import FULL, SMOKE, Case

CASES = {**SMOKE, **FULL}
WARM = 3  # runs before the first that counts
BLOCKS = 5  # so many times the runs of a case are timed together
COUNTED = 2  # runs that a counter sees


# --- against the stopwatch ---------------------------------------------------------------------------------


class Bench:
    """A case made ready: inputs drawn, memory for every run's results touched, the caches warm."""

    def __init__(self, vt: Any, case: Case, seed: int, runs: int, warm: int = WARM) -> None:
        self.program = case.make(vt)
        self._pools = case.pools(self.program, seed)
        self._kept = [
            [np.ones_like(array) for array in self.program.results.values()] for _ in range(runs + warm)
        ]
        self._loaded = 0
        for _ in range(warm):
            self.load()
            self.program.run()
            self.keep()

    def load(self) -> None:
        for pool in self._pools:
            pool.load(self._loaded)

    def keep(self) -> None:
        for array, kept in zip(self.program.results.values(), self._kept[self._loaded], strict=True):
            np.copyto(kept, array)
        self._loaded += 1

    def timed(self, runs: int, clock: Callable[[], int] = perf_counter_ns) -> dict[str, Any]:
        """Nanoseconds of each run, and of the whole with the copies between the runs."""
        took = []
        begin = clock()
        for _ in range(runs):
            self.load()
            start = clock()
            self.program.run()
            took.append(clock() - start)
            self.keep()
        return {"took": took, "whole": clock() - begin}

    def outputs(self) -> list[str]:
        """sha256 of each run's results, warming ones included."""
        found = []
        for kept in self._kept[: self._loaded]:
            content = hashlib.sha256()
            for array in kept:
                content.update(np.ascontiguousarray(array).data)
            found.append(content.hexdigest())
        return found


def answer(vt: Any, requests: TextIO, answers: TextIO) -> None:
    """Every request names a case and a seed. Each block of runs begins with a line of the asking one's and
    ends with one of ours, so that it can time them too."""

    def say(what: Mapping[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    for line in requests:
        request = json.loads(line)
        case = CASES[request["case"]]
        gc.enable()
        gc.collect()
        gc.disable()  # a collection would count for whatever runs just then
        try:
            bench = Bench(vt, case, request["seed"], case.runs * BLOCKS)
            say({"ready": BLOCKS})
            for _ in range(BLOCKS):
                requests.readline()
                say(bench.timed(case.runs))
            say({"outputs": bench.outputs()})
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is the answer
            say({"failed": " ".join(f"{type(error).__name__}: {error}".split())})


# --- for a counter -----------------------------------------------------------------------------------------


class Callgrind:
    """Callgrind's client requests (valgrind/callgrind.h, valgrind.h). A request is a sequence of rotations
    that together do nothing, which valgrind recognises; outside of valgrind it does nothing."""

    DUMP_AT, START, STOP = 3, 4, 5  # after DUMP_STATS, ZERO_STATS, TOGGLE_COLLECT
    TOOL = ord("C") << 24 | ord("T") << 16
    CODE = bytes.fromhex(
        "4889f8"  # mov rax, rdi: the request's words
        "31d2"  # xor edx, edx: the answer outside of valgrind
        "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi by 3, 13, 61, 51: 128 in all
        "4887db"  # xchg rbx, rbx
        "4889d0 c3"  # mov rax, rdx; ret
    )

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(self.CODE)
        kind = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
        self._call = kind(ctypes.addressof(ctypes.c_char.from_buffer(self._page)))
        self._start, self._stop = self._words(self.START), self._words(self.STOP)

    def _words(self, request: int, text: bytes | None = None) -> Any:
        address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value if text is not None else 0
        return (ctypes.c_uint64 * 6)(self.TOOL + request, address or 0)

    def count(self, run: Callable[[], object]) -> None:
        self._call(self._start)
        run()
        self._call(self._stop)

    def dump(self, name: str) -> None:
        """Writes what was counted since the last dump, under this name."""
        text = name.encode()
        self._call(self._words(self.DUMP_AT, text))


def counted(vt: Any, marks: Callgrind | None) -> dict[str, dict[str, Any]]:
    """What each case's plan holds; with marks, after one run that does not count, COUNTED that do."""
    found: dict[str, dict[str, Any]] = {}
    gc.disable()
    for name, case in SMOKE.items():
        try:
            bench = Bench(vt, case, 0, COUNTED, warm=1)
            if marks is not None:
                for _ in range(COUNTED):
                    bench.load()
                    marks.count(bench.program.run)
                    bench.keep()
                marks.dump(name)
            plan = bench.program.executable.plan
            found[name] = {
                "planned_bytes": int(plan.peak_bytes),
                "steps": len(plan.steps),
                "outputs": bench.outputs(),
            }
        except Exception as error:  # noqa: BLE001 - as above
            found[name] = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
    return found


# --- this process ------------------------------------------------------------------------------------------


def engine(path: Path) -> Any:
    """Imports `volta` from this directory and from nowhere else."""
    sys.path.insert(0, str(path))
    volta = importlib.import_module("volta")
    if not Path(str(volta.__file__)).resolve().is_relative_to(path.resolve()):
        raise ImportError(f"volta is {volta.__file__}: expected it below {path}")
    return volta


def main(arguments: Sequence[str]) -> None:
    mode, path, *rest = arguments
    # what an engine prints must not look like an answer
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if rest:
        os.sched_setaffinity(0, {int(cpu) for cpu in rest[0].split(",")})
    volta = engine(Path(path))
    if mode == "time":
        answer(volta, sys.stdin, answers)
    else:
        json.dump(counted(volta, Callgrind() if mode == "count" else None), answers)
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
