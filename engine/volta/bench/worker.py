"""One side of a benchmark in its own process, so that the libraries' threads and settings stay apart.

A line of JSON in, a line of JSON out: `prepare` makes a case's memory and gives what one run wrote,
`run` times it. The answer comes when the library's threads have gone to sleep. What a library prints goes to
standard error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from volta.bench import cases, quiet
from volta.bench.cases import AbsentError, Case
from volta.bench.peers.cases import CASES, Prepared
from volta.bench.peers.training import TrainingPeer, training_peer
from volta.dtypes import float32_from_bfloat16
from volta.errors import VoltaError
from volta.model.config import named
from volta.runtime.policy import runtime
from volta.train.synthetic import synthetic_text
from volta.transform import compile

Array = npt.NDArray[Any]
LEAST_SECONDS = 1e-7
TEXT_BYTES = 200_000


class VoltaCase:
    """A case as one compiled program with its memory bound."""

    def __init__(self, case: Case, arrays: Sequence[Array], threads: int) -> None:
        with runtime(threads=threads):
            self._call = compile(case.volta).bind(*case.tensors(arrays))
        self.description = f"Volta, {self._call.executable.signature}"
        results = self._call.results
        self._outputs = list(results) if isinstance(results, tuple) else [results]
        self._dtypes = [kind.dtype.name for kind in self._call.executable.output_types]

    def run(self) -> None:
        self._call.run()

    def outputs(self) -> list[Array]:
        return [
            float32_from_bfloat16(array) if dtype == "bf16" else array
            for array, dtype in zip(self._outputs, self._dtypes, strict=True)
        ]

    def poison(self) -> None:
        for array in self._outputs:
            array.view(np.uint8).reshape(-1)[:] = 0xFF  # NaN, or -1


MAKERS: dict[str, Callable[[Case, Sequence[Array], int], Prepared]] = {"volta": VoltaCase, **CASES}


class Server:
    """Keeps the copies of the current case: runs go round over them, so that no cache holds them all."""

    def __init__(self, side: str, threads: int) -> None:
        self.side, self.threads = side, threads
        self.copies: list[Prepared] = []
        self.turn = 0

    def prepare(
        self, suite: str, parameters: dict[str, Any], seed: int, copies: int, out: str
    ) -> dict[str, Any]:
        """Makes the copies and saves what a run of the first wrote into memory that was poisoned before."""
        self.copies.clear()
        case = cases.make(suite, parameters)
        for copy in range(copies):
            self.copies.append(MAKERS[self.side](case, case.arrays(seed, copy), self.threads))
        first = self.copies[0]
        first.run()
        first.poison()
        first.run()
        np.savez(out, *first.outputs())
        self.turn = 0
        return {"description": first.description}

    def run(self, seconds: float) -> dict[str, Any]:
        """Seconds per run over about so many seconds, after a tenth of it as warm-up."""
        self._runs(1)
        once = max(self._runs(1), LEAST_SECONDS)
        self._runs(max(1, int(0.1 * seconds / once)))
        count = max(1, int(seconds / once))
        return {"seconds": self._runs(count), "runs": count}

    def _runs(self, count: int) -> float:
        copies, turn = self.copies, self.turn
        begin = time.perf_counter()
        for index in range(turn, turn + count):
            copies[index % len(copies)].run()
        self.turn = (turn + count) % len(copies)
        return (time.perf_counter() - begin) / count


class TrainingServer:
    """Keeps a training peer and runs its steps."""

    def __init__(self, side: str, threads: int) -> None:
        self.side, self.threads = side, threads
        self._peer: TrainingPeer | None = None

    def prepare(self, config: str, batch: int, dtype: str) -> dict[str, Any]:
        chosen = named(config, dtype=dtype)
        printable = bytes(max(0, byte - 32) % chosen.vocabulary for byte in range(256))  # ASCII from 0
        text = synthetic_text(TEXT_BYTES).translate(printable)
        self._peer = training_peer(self.side, chosen, batch, text, self.threads)
        return {"description": self._peer.description}

    def run(self, steps: int) -> dict[str, Any]:
        """Seconds and loss of each step."""
        if self._peer is None:
            raise VoltaError("[bench] no training peer was prepared")
        seconds, losses = [], []
        for _ in range(steps):
            begin = time.perf_counter()
            losses.append(self._peer.step())
            seconds.append(time.perf_counter() - begin)
        return {"seconds": seconds, "losses": losses}


SERVERS: dict[str, Callable[[str, int], Any]] = {"cases": Server, "train": TrainingServer}


def serve(server: Any, answers: TextIO) -> None:
    """Answers every line until the input ends. A failure is an answer too."""
    for line in sys.stdin:
        request = json.loads(line)
        action = request.pop("do")
        try:
            answer = getattr(server, action)(**request)
        except AbsentError as reason:
            answer = {"absent": str(reason), "everywhere": False}
        except ImportError as error:
            why = f"not installed ({error}): pip install 'volta-runtime[peers]'"
            answer = {"absent": why, "everywhere": True}
        except (VoltaError, RuntimeError, MemoryError, ValueError, TypeError) as error:
            answer = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
        quiet.wait()
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def answering() -> TextIO:
    """The real standard output, kept for answers; whatever else is printed goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def main() -> None:
    side, threads, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    serve(SERVERS[kind](side, threads), answering())


if __name__ == "__main__":
    main()
