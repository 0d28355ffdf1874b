"""Learning rates: the same number on every machine.

Computed in binary64 with + - * / only, rounded once to binary32. No library function is called: their
last bits differ between machines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from volta.errors import UsageError

Kind = Literal["constant", "linear", "cosine"]
KINDS: tuple[Kind, ...] = ("constant", "linear", "cosine")


@dataclass(frozen=True, slots=True)
class Schedule:
    """Linear warmup to `peak` over `warmup` updates, then `kind` down to `peak * final` at the last.

    constant ignores `final`. steps is the number of updates; past them the rate stays.
    """

    kind: Kind
    peak: float
    steps: int
    warmup: int = 0
    final: float = 0.0

    def __post_init__(self) -> None:
        for name, given, good, expected in (
            ("schedule", self.kind, self.kind in KINDS, f"one of {', '.join(KINDS)}"),
            ("learning rate", self.peak, 0.0 < self.peak < math.inf, "a finite number above 0"),
            ("steps", self.steps, self.steps >= 1, "at least 1"),
            ("warmup", self.warmup, 0 <= self.warmup <= self.steps, f"0 .. {self.steps} (steps)"),
            ("final fraction", self.final, 0.0 <= self.final <= 1.0, "0 .. 1"),
        ):
            if not good:
                raise UsageError(f"[schedule] {name} is {given!r}: expected {expected}")


def learning_rate(schedule: Schedule, step: int) -> float:
    """The rate of update `step` (0 is the first), a binary32 value.

    step < warmup: peak * (step + 1) / warmup. After that t = (step - warmup) / (steps - 1 - warmup),
    at most 1, and peak * (final + (1 - final) * f(t)): f = 1, 1 - t, or (1 + cos(pi t)) / 2.
    """
    if step < 0:
        raise UsageError(f"[schedule] step is {step}: expected at least 0")
    if step < schedule.warmup:
        return _binary32(schedule.peak * (step + 1) / schedule.warmup)
    if schedule.kind == "constant":
        return _binary32(schedule.peak)
    t = min(1.0, (step - schedule.warmup) / max(1, schedule.steps - 1 - schedule.warmup))
    share = 1.0 - t if schedule.kind == "linear" else 0.5 * (1.0 + cosine_of_pi(t))
    return _binary32(schedule.peak * (schedule.final + (1.0 - schedule.final) * share))


def cosine_of_pi(t: float) -> float:
    """cos(pi t) for 0 <= t <= 1: exactly 1 and -1 at the ends, within 4e-16 between.

    Taylor's series to y^22 in Horner's form for y = pi t <= pi/2 (the first term left out is below
    1e-19), and cos(pi t) = -cos(pi (1 - t)) beyond.
    """
    if t > 0.5:
        return -cosine_of_pi(1.0 - t)
    y = math.pi * t
    square = y * y
    cosine = 1.0
    for k in range(21, 0, -2):
        cosine = 1.0 - square / (k * (k + 1)) * cosine
    return cosine


def _binary32(value: float) -> float:
    return float(np.float32(value))
