"""The CPU as a backend: instruction set and threads chosen, plans lowered to the C tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.backends.base import Array
from volta.backends.cpu import native, tuned
from volta.backends.cpu.tuned import Table, key_of
from volta.errors import DeviceError
from volta.plan.layout import View
from volta.plan.memory import align
from volta.plan.steps import Buffer, Memory, Packing, Plan, Step

STREAMED_ROWS = 4  # so few rows read weights in place: cpu/matmul_plan.h
KERNEL_VERSION = 2  # raised when a kernel's workspace or operands change


class CpuTarget:
    """The processor as plans see it."""

    def __init__(self, isa: str, threads: int, table: Table) -> None:
        self.isa = isa
        self.threads = threads
        self.table = table
        versions = f"abi {native.ABI_VERSION}/kernels {KERNEL_VERSION}"
        found = f"/tuned {table.digest}" if table.digest else ""
        self.signature = f"cpu/{isa}/{threads} threads/{versions}{found}"

    def workspace_bytes(self, step: Step) -> int:
        return native.workspace_bytes(lower_step(step, ()), self.isa, self.threads)

    def blocks(self, step: Step) -> tuple[int, ...]:
        key = key_of(step, self.isa, self.threads)
        found = self.table.blocks.get(key) if key is not None else None
        return found.ints() if found is not None else ()

    def packing(self, step: Step) -> Packing | None:
        """Weights are worth packing but where a few rows stream them as they are: f32 sums of few rows over
        weights by rows, which packing would only widen."""
        if self.isa == "ref":
            return None
        out, a, w = step.operands[0], *step.operands[step.ints[0] : step.ints[0] + 2]
        kind = a.dtype.name
        rows = out.numel // max(1, out.shape[-1])
        by_rows = w.strides[1] == 1 or w.shape[1] == 1
        if kind == "f32" and rows <= STREAMED_ROWS and (by_rows or w.dtype.name != "f32"):
            return None
        tile = native.tiles_of(kind, self.isa)[0]
        groups = step.operands[step.ints[0] + 2].shape[0] if step.kernel == "matmul_scaled" else 1
        group = max(1, w.shape[0] // groups)
        k, n = w.shape
        nbytes = native.packed_bytes(tile.id, kind, self.isa, k, n, group)
        return Packing(tile.id, native.KINDS.index(kind), group, nbytes)


class CpuBackend:
    """isa "auto": the best this processor has; threads 0: all that the process may use; table: blocks of
    matmuls (those that `volta tune` found, by default)."""

    def __init__(self, isa: str = "auto", threads: int = 0, table: Table | None = None) -> None:
        chosen = native.best_isa() if isa == "auto" else isa
        if chosen not in native.ISAS:
            raise DeviceError(f"[cpu] isa is {isa!r}: this version has {', '.join(native.ISAS)}")
        native.isa_code(chosen)  # raises DeviceError where the processor lacks it
        self.target = CpuTarget(
            chosen, threads or native.default_threads(), tuned.current() if table is None else table
        )

    def compile(self, plan: Plan) -> CpuProgram:
        return CpuProgram(plan, self.target)


class CpuProgram:
    """A plan as C tables. Buffer 0 is the arena, 1 holds the literals, then the caller's buffers."""

    def __init__(self, plan: Plan, target: CpuTarget) -> None:
        self._literals, offsets = _pack_literals(plan)
        self._bound = [b for b in plan.buffers if not b.in_arena and b.memory is not Memory.CONSTANT]
        number = {b.index: position for position, b in enumerate(self._bound, start=2)}
        places = [_place(buffer, number, offsets) for buffer in plan.buffers]
        self._early = plan.early
        self._native = native.NativeProgram(
            [lower_step(step, places) for step in plan.steps],
            n_buffers=2 + len(self._bound),
            arena_bytes=plan.arena_bytes,
            isa=target.isa,
            threads=target.threads,
        )

    def bind(self, buffers: Sequence[Array]) -> CpuBound:
        return CpuBound(self._native, [self._literals, *buffers], self._early)

    @property
    def measured_arena_bytes(self) -> int:
        return self._native.high_water


class CpuBound:
    """Addresses checked once; keeps the arrays alive. The first `early` steps have run."""

    def __init__(self, program: native.NativeProgram, arrays: list[Array], early: int) -> None:
        self._program = program
        self._arrays = arrays
        self._early = early
        self._addresses: Any = program.bind(arrays)
        self.refresh()

    def refresh(self) -> None:
        if self._early:
            self._program.run_bound(self._addresses, 0, self._early)

    def run(self) -> None:
        self._program.run_bound(self._addresses, self._early)

    def run_traced(self) -> npt.NDArray[np.float64]:
        return self._program.run_traced(self._addresses, self._early)


def lower_step(step: Step, places: Sequence[tuple[int, int]]) -> native.Step:
    """One planned step in the ABI's terms. places[b]: C buffer and byte offset of plan buffer b; empty
    while the plan is still being made (only shapes matter then)."""
    return native.Step(
        kernel=step.kernel,
        operands=tuple(_operand(view, places) for view in step.operands),
        n_outputs=step.n_outputs,
        ints=step.ints,
        floats=step.floats,
        code=tuple(native.Instruction(i.op, i.to, i.sources, i.immediates) for i in step.code),
        workspace=places[step.workspace][1] if places and step.workspace is not None else 0,
        barrier=step.barrier,
    )


def _operand(view: View, places: Sequence[tuple[int, int]]) -> native.Operand:
    buffer, offset = places[view.buffer] if places else (view.buffer, 0)
    return native.Operand(buffer, view.dtype, offset + view.offset, view.shape, view.strides)


def _place(buffer: Buffer, number: dict[int, int], literals: dict[int, int]) -> tuple[int, int]:
    if buffer.in_arena:
        return 0, buffer.offset
    if buffer.memory is Memory.CONSTANT:
        return 1, literals[buffer.index]
    return number[buffer.index], 0


def _pack_literals(plan: Plan) -> tuple[Array, dict[int, int]]:
    """All literals in one aligned block, and where each starts."""
    offsets: dict[int, int] = {}
    total = 0
    for index, node in plan.constants.items():
        offsets[index] = total
        total += align(node.type.nbytes)
    block = np.zeros(total, np.uint8)
    for index, node in plan.constants.items():
        data = np.ascontiguousarray(node.attrs["value"]).view(np.uint8).reshape(-1)
        block[offsets[index] : offsets[index] + data.size] = data
    block.setflags(write=False)
    return block, offsets
