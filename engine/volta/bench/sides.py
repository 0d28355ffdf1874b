"""The parent's end of the workers: started once, asked in turn, ended with the benchmark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from types import TracebackType
from typing import Any

from volta.bench.cases import AbsentError
from volta.errors import VoltaError

# So that a library uses as many threads as it is given, from its first instruction on.
THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class Side:
    """One worker process. kind: what it serves, of volta.bench.worker.SERVERS."""

    def __init__(self, name: str, threads: int, kind: str) -> None:
        self.name, self.threads = name, threads
        # what it prints, for when it fails; closed with the side
        self._said = TemporaryFile("w+", errors="replace")  # noqa: SIM115
        environment = {**os.environ, **dict.fromkeys(THREAD_VARIABLES, str(threads))}
        # a session of its own: Ctrl-C comes to the parent alone, which ends the worker and what that started
        self._process = subprocess.Popen(
            [sys.executable, "-m", "volta.bench.worker", name, str(threads), kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def ask(self, action: str, **request: Any) -> dict[str, Any]:
        """The answer of one request. Raises AbsentError, or VoltaError where the side failed."""
        try:
            if self._process.stdin is not None:
                self._process.stdin.write(json.dumps({"do": action, **request}) + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline() if self._process.stdout is not None else ""
        except BrokenPipeError:
            line = ""
        if not line:
            raise VoltaError(f"[bench] {self.name} ended ({self._process.wait()}): {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "absent" in answer:
            raise AbsentError(answer["absent"], answer["everywhere"])
        if "failed" in answer:
            raise VoltaError(f"[bench] {self.name}: {answer['failed']}")
        return answer

    def _last_words(self) -> str:
        self._said.seek(0)
        lines = self._said.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def close(self, patience: float = 10.0) -> None:
        """Ends the worker: it has so many seconds to come to the end of its input."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # a request that it did not live to read
                    stream.close()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=patience)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._said.close()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Ctrl-C comes after the block, not in it. (Signals reach Python in its main thread alone.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(signal.SIGINT, None)


class Sides:
    """Workers by name and number of threads, each started when it is first needed."""

    def __init__(self, kind: str = "cases") -> None:
        self._kind = kind
        self._open: dict[tuple[str, int], Side] = {}

    def get(self, name: str, threads: int) -> Side:
        if (name, threads) not in self._open:
            with uninterrupted():  # a worker that nobody knows yet could not be ended
                self._open[name, threads] = Side(name, threads, self._kind)
        return self._open[name, threads]

    def drop(self, name: str, threads: int) -> None:
        """Ends a worker; the next `get` starts a new one."""
        side = self._open.pop((name, threads), None)
        if side is not None:
            side.close()

    def __enter__(self) -> Sides:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            self._open.popitem()[1].close(10.0 if error is None else 0.0)
