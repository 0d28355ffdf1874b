"""Lifetimes and barriers, derived from what each step reads and writes."""

from __future__ import annotations

from collections.abc import Sequence

from volta.plan.layout import View
from volta.plan.steps import Buffer, Step

CHECK = "check_finite"
Range = tuple[int, int, int]  # memory (the arena is -1, a bound buffer its index), low, high


def lifetimes(steps: Sequence[Step], buffers: Sequence[Buffer]) -> None:
    """Sets first and last of every buffer to the first and last step that touches it."""
    for buffer in buffers:
        buffer.first = buffer.last = -1
    for index, step in enumerate(steps):
        touched = [operand.buffer for operand in step.operands]
        if step.workspace is not None:
            touched.append(step.workspace)
        for number in touched:
            buffer = buffers[number]
            if buffer.first < 0:
                buffer.first = index
            buffer.last = index


def barriers(steps: Sequence[Step], buffers: Sequence[Buffer]) -> None:
    """Marks the steps before which all threads must meet: those whose memory conflicts with any step
    since the last barrier (read after write, write after read, write after write), by address, since
    the arena gives the same bytes to buffers that live at different times."""
    written: list[Range] = []
    read: list[Range] = []
    for step in steps:
        writes = [_range(view, buffers) for view in step.writes()]
        if step.workspace is not None:
            buffer = buffers[step.workspace]
            writes.append((-1, buffer.offset, buffer.offset + buffer.nbytes))
        reads = [_range(view, buffers) for view in step.reads()]
        if step.kernel == CHECK:  # a failed check stops the program at the next barrier:
            writes += reads  # who reads the checked value must stand behind one
        step.barrier = _meet(writes, written) or _meet(writes, read) or _meet(reads, written)
        if step.barrier:
            written, read = [], []
        written += writes
        read += reads


def _range(view: View, buffers: Sequence[Buffer]) -> Range:
    low, high = view.extent()
    buffer = buffers[view.buffer]
    return (-1, buffer.offset + low, buffer.offset + high) if buffer.in_arena else (view.buffer, low, high)


def _meet(some: Sequence[Range], others: Sequence[Range]) -> bool:
    return any(
        a == b and low < other_high and other_low < high
        for a, low, high in some
        for b, other_low, other_high in others
    )
