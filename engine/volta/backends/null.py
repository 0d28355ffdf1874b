"""A backend that plans but never computes: for tests of everything above the device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from volta.backends.base import Array
from volta.errors import DeviceError
from volta.plan.steps import Plan, Step


class NullTarget:
    """No workspace, no code."""

    signature = "null"

    def workspace_bytes(self, step: Step) -> int:
        return 0

    def blocks(self, step: Step) -> tuple[int, ...]:
        return ()

    def packing(self, step: Step) -> None:
        return None


class NullProgram:
    """Accepts bindings of the planned sizes and refuses to run."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def bind(self, buffers: Sequence[Array]) -> NullProgram:
        return self

    def refresh(self) -> None:
        """Nothing to make."""

    def run(self) -> None:
        raise DeviceError("[null] this backend plans only: it computes nothing")

    def run_traced(self) -> npt.NDArray[np.float64]:
        raise DeviceError("[null] this backend plans only: it computes nothing")

    @property
    def measured_arena_bytes(self) -> int:
        return 0


class NullBackend:
    """`Backend` without a device."""

    target = NullTarget()

    def compile(self, plan: Plan) -> NullProgram:
        return NullProgram(plan)
