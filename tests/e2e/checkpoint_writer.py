"""A program that saves checkpoints until somebody kills it; test_checkpoint_kill.py drives it.

    checkpoint_writer.py serve RUN    reads commands, forks one child per command:
        loop STEP                     save STEP, STEP + 1, ... for ever
        crash STEP CALL WHEN          save STEP, dying at system call number CALL: before, in or after it
    checkpoint_writer.py fill RUN     save ever larger checkpoints until one is refused

It prints `pid N`, `saved STEP` (only once save has returned) and `dead STATUS`, unbuffered.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from volta.errors import CheckpointError
from volta.train import checkpoint as ck

CALLS = ("mkdir", "open", "write", "fsync", "replace", "unlink", "close")


def content(step: int, size: int = 1 << 16) -> ck.Checkpoint:
    """What step `step` must hold: every value depends on it."""
    return ck.Checkpoint(
        step=step,
        config={"step": step},
        parameters={
            "small": np.full(3, step, np.int32),
            "large": np.arange(step, step + size, dtype=np.float32),
        },
        optimizer={"m/large": np.arange(size, dtype=np.int32) * np.int32(step)},
    )


def same(one: ck.Checkpoint, other: ck.Checkpoint) -> bool:
    """Equal in every bit that `content` sets."""
    return (
        (one.step, one.config) == (other.step, other.config)
        and ck.weights_sha256(one.parameters) == ck.weights_sha256(other.parameters)
        and ck.weights_sha256(one.optimizer) == ck.weights_sha256(other.optimizer)
    )


def _say(line: str) -> None:
    sys.__stdout__.write(line + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _arm(call: int, when: str) -> None:
    """From now on, die at system call number `call` (from 0) of those that atomic writing makes."""
    counter = itertools.count()

    def wrap(module: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def counted(*given: Any, **named: Any) -> Any:
            mine = next(counter) == call
            if mine and when == "in" and name == "write":
                real(given[0], given[1][: len(given[1]) // 2])
            if mine and when != "after":
                _die()
            result = real(*given, **named)
            if mine:
                _die()
            return result

        setattr(module, name, counted)

    for name in CALLS:
        wrap(os, name)
    wrap(fcntl, "flock")


def _child(run: Path, command: list[str]) -> None:
    step = int(command[1])
    if command[0] == "loop":
        for now in itertools.count(step):
            ck.save(run, content(now), keep=2)
            _say(f"saved {now}")
    prepared = content(step, 16)
    _arm(int(command[2]), command[3])
    ck.save(run, prepared, keep=1)


def _serve(run: Path) -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _child(run, line.split())
                status = 0
            finally:
                os._exit(status)
        _say(f"pid {pid}")
        _say(f"dead {os.waitpid(pid, 0)[1]}")


def _fill(run: Path, limit: int) -> None:
    """Reports the refusal, and what is left on the disk before and after a small save."""
    if limit:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    step = 0
    try:
        for step in itertools.count(1):
            ck.save(run, content(step, 4096 << step), keep=1)
    except CheckpointError as error:
        left = sorted(path.name for path in run.iterdir())
        intact = same(ck.load(run), content(step - 1, 4096 << (step - 1)))
        ck.save(run, content(step, 16), keep=1)
        again = same(ck.load(run), content(step, 16))
        _say(json.dumps({"error": str(error), "step": step, "left": left, "intact": intact, "again": again}))


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve(Path(sys.argv[2]))
    else:
        _fill(Path(sys.argv[2]), int(sys.argv[3]))
