"""The runtime policy: device, threads, instruction set, determinism. Explicit, never hidden."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from volta.errors import UsageError

DEVICES = ("auto", "cpu", "opencl", "cuda")
ISAS = ("auto", "ref", "avx2", "avx512", "amx")
DETERMINISM = ("strict", "balanced", "fast")
MOST_THREADS = 256  # VOLTA_MAX_THREADS


@dataclass(frozen=True, slots=True)
class Policy:
    """What the user asked for. threads 0: as many as the process may use. max_bytes: refuse plans
    that need more. passes: names to run, None for all."""

    device: str = "auto"
    threads: int = 0
    isa: str = "auto"
    determinism: str = "strict"
    max_bytes: int | None = None
    passes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _choice("device", self.device, DEVICES)
        _choice("isa", self.isa, ISAS)
        _choice("determinism", self.determinism, DETERMINISM)
        if type(self.threads) is not int or not 0 <= self.threads <= MOST_THREADS:
            raise UsageError(f"[runtime] threads is {self.threads!r}: expected 0 (all) to {MOST_THREADS}")
        if self.max_bytes is not None and self.max_bytes < 0:
            raise UsageError(f"[runtime] max_bytes is {self.max_bytes}: expected a number of bytes")


def _choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise UsageError(f"[runtime] {name} is {value!r}: expected one of {', '.join(choices)}")


def from_environment() -> Policy:
    """VOLTA_DEVICE, VOLTA_NUM_THREADS, VOLTA_ISA, VOLTA_DETERMINISM; defaults where unset."""
    names = ("VOLTA_DEVICE", "VOLTA_NUM_THREADS", "VOLTA_ISA", "VOLTA_DETERMINISM")
    return _parsed(*(os.environ.get(name) or None for name in names))


@lru_cache(maxsize=16)
def _parsed(device: str | None, threads: str | None, isa: str | None, determinism: str | None) -> Policy:
    if threads is not None and not threads.isdecimal():
        raise UsageError(f"[runtime] VOLTA_NUM_THREADS is {threads!r}: expected a whole number")
    return Policy(device or "auto", int(threads or 0), isa or "auto", determinism or "strict")


_current: ContextVar[Policy | None] = ContextVar("volta_policy", default=None)


def current() -> Policy:
    """The innermost `runtime(...)`, else the environment's."""
    return _current.get() or from_environment()


@contextmanager
def runtime(
    device: str | None = None,
    threads: int | None = None,
    isa: str | None = None,
    determinism: str | None = None,
    max_bytes: int | None = None,
    passes: tuple[str, ...] | None = None,
) -> Iterator[Policy]:
    """Sets the policy for a block; what is not given stays as it is outside.

    >>> with vt.runtime(device="cpu", threads=2, isa="avx2", determinism="strict"):
    ...     y = vt.matmul(a, b)
    """
    given: dict[str, Any] = {
        "device": device,
        "threads": threads,
        "isa": isa,
        "determinism": determinism,
        "max_bytes": max_bytes,
        "passes": passes,
    }
    policy = replace(current(), **{name: value for name, value in given.items() if value is not None})
    token = _current.set(policy)
    try:
        yield policy
    finally:
        _current.reset(token)
