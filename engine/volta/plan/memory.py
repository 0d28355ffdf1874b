"""The arena: one block of memory for all temporaries, laid out from their lifetimes.

Largest first, each at the lowest offset where it overlaps no placed buffer that lives at the same
time (greedy by size: Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
Inference", 2020).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from volta.plan.steps import ALIGNMENT, Buffer


def align(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def lay_out(buffers: Iterable[Buffer]) -> int:
    """Sets `offset` on every arena buffer that some step uses; gives the arena's size in bytes."""
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last; sorted by offset
    total = 0
    live = [buffer for buffer in buffers if buffer.in_arena and buffer.first >= 0]
    for buffer in sorted(live, key=lambda b: (-b.nbytes, b.first, b.index)):
        size, first, last = align(buffer.nbytes), buffer.first, buffer.last
        if size == 0:
            buffer.offset = 0
            continue
        offset = 0
        for low, high, other_first, other_last in placed:
            if other_last < first or last < other_first:
                continue
            if low - offset >= size:
                break
            offset = max(offset, high)
        buffer.offset = offset
        insort(placed, (offset, offset + size, first, last))
        total = max(total, offset + buffer.nbytes)
    return total
