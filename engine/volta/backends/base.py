"""What a backend is: it describes itself as a target for plans and turns a plan into a program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from volta.plan.steps import Plan, Target

Array = npt.NDArray[Any]


class Bound(Protocol):
    """A program with its memory bound and what it makes once (Plan.early) made: `run` is one call, without
    allocation."""

    def run(self) -> None: ...

    def refresh(self) -> None:
        """Makes that again, after persistent inputs were written."""

    def run_traced(self) -> npt.NDArray[np.float64]:
        """Runs once; when each thread began and ended each step, [threads, steps, 2], in seconds."""


class Program(Protocol):
    """A compiled plan. Buffers are bound in the order of Plan.buffers, arena and constants left out."""

    def bind(self, buffers: Sequence[Array]) -> Bound: ...

    @property
    def measured_arena_bytes(self) -> int:
        """The highest byte of the arena that the last run used, plus one."""


class Backend(Protocol):
    """One device with one instruction set and a number of threads."""

    @property
    def target(self) -> Target: ...

    def compile(self, plan: Plan) -> Program: ...
