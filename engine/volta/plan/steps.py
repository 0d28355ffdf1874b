"""What a plan is made of: buffers, operands, instructions, steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from volta.ir.graph import Graph, Node
from volta.plan.layout import View

ALIGNMENT = 64  # VOLTA_ALIGNMENT


class Memory(StrEnum):
    """Who owns a buffer and for how long."""

    INPUT = "input"  # bound by the caller, read
    PARAMETER = "parameter"  # bound by the caller, persistent
    STATE = "state"  # bound by the caller: optimizer state, caches
    CONSTANT = "constant"  # part of the program
    PERSISTENT = "persistent"  # made once from persistent inputs, kept beside them
    TEMPORARY = "temporary"  # in the arena, from lifetimes
    WORKSPACE = "workspace"  # in the arena, for one step
    OUTPUT = "output"  # bound by the caller, written


@dataclass(frozen=True, slots=True)
class Instruction:
    """register[to] = op(registers[sources]); registers below the operand count are operands."""

    op: str
    to: int
    sources: tuple[int, ...]
    immediates: tuple[float, ...] = ()


@dataclass(slots=True)
class Step:
    """One kernel call. Operands list outputs first. `node` is the graph node it computes."""

    kernel: str
    operands: tuple[View, ...]
    n_outputs: int
    node: Node
    ints: tuple[int, ...] = ()
    floats: tuple[float, ...] = ()
    code: tuple[Instruction, ...] = ()
    temporaries: int = 0
    workspace: int | None = None  # the buffer that holds it
    barrier: bool = True

    def reads(self) -> tuple[View, ...]:
        return self.operands[self.n_outputs :]

    def writes(self) -> tuple[View, ...]:
        return self.operands[: self.n_outputs]


@dataclass(slots=True)
class Buffer:
    """first and last: the steps between which its bytes must stay; offset: where in the arena."""

    index: int
    name: str
    memory: Memory
    nbytes: int
    offset: int = 0
    first: int = -1
    last: int = -1

    @property
    def in_arena(self) -> bool:
        return self.memory in (Memory.TEMPORARY, Memory.WORKSPACE)


@dataclass(frozen=True, slots=True)
class Packing:
    """How a matmul's weights are laid out for one register tile: native.packed_bytes."""

    tile: int
    kind: int
    group: int
    nbytes: int


class Target(Protocol):
    """What the plan must know of the backend it is made for."""

    @property
    def signature(self) -> str:
        """Device, instruction set, threads and kernel version: all that changes code or bytes."""

    def workspace_bytes(self, step: Step) -> int:
        """Scratch memory the step needs, all threads together; a multiple of ALIGNMENT."""

    def blocks(self, step: Step) -> tuple[int, ...]:
        """How this matmul is best cut up: ints after its first, () for the kernel's own choice."""

    def packing(self, step: Step) -> Packing | None:
        """How the weights of this matmul are best packed once, or None where they are read as they are."""


@dataclass(slots=True)
class Plan:
    """inputs[i]: the buffer of graph input i; outputs[j]: the buffer that holds output j after a run
    (an input's buffer where it was donated); constants: buffer -> node with the literal."""

    graph: Graph
    steps: list[Step]
    buffers: list[Buffer]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, Node]
    arena_bytes: int
    fingerprint: str
    early: int = 0  # so many first steps depend on persistent inputs and literals alone: run once
    passes: tuple[tuple[str, int, int], ...] = field(default=())  # name, nodes before, nodes after

    def bytes_by_memory(self) -> dict[str, int]:
        """Bytes per memory class; arena classes count the arena once, under "temporary"."""
        totals = {memory.value: 0 for memory in Memory if memory is not Memory.WORKSPACE}
        for buffer in self.buffers:
            if not buffer.in_arena:
                totals[buffer.memory.value] += buffer.nbytes
        totals[Memory.TEMPORARY.value] = self.arena_bytes
        return totals

    @property
    def peak_bytes(self) -> int:
        """Every byte that exists while the plan runs: bound buffers, constants and the arena."""
        return sum(self.bytes_by_memory().values())
