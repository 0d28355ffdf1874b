"""Draws of the training loop from Philox (N8): pure functions of (seed, stream, step, index)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from volta.errors import UsageError
from volta.ir.philox import philox

DATA_STREAM = 0x64617461  # "data" in ASCII: windows of a batch
TEXT_STREAM = 0x74657874  # "text": the synthetic text

_HALF = np.uint64(32)


def blocks(seed: int, stream: int, steps: int | range, count: int) -> npt.NDArray[np.uint64]:
    """Words [count, 4], each below 2^32; block i has the counter (i low, i high, stream, step).

    Of a range of S steps: [S, count, 4]. The key is the seed modulo 2^64; stream and step must be in
    0 .. 2^32 - 1.
    """
    first, last = (steps, steps) if isinstance(steps, int) else (steps[0], steps[-1])
    for name, value in (("stream", stream), ("step", first), ("step", last)):
        if not 0 <= value < 1 << 32:
            raise UsageError(f"[draws] {name} is {value}: expected 0 .. 2^32 - 1")
    index = np.arange(count, dtype=np.uint64)
    step = np.array(steps, np.uint64)[..., np.newaxis]
    counter = (index & np.uint64(0xFFFFFFFF), index >> _HALF, stream, step)
    return philox(counter, (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF)).reshape(*step.shape[:-1], count, 4)


def integers(seed: int, stream: int, steps: int | range, count: int, below: int) -> npt.NDArray[np.int64]:
    """`count` integers in 0 .. below - 1, or so many for each of a range of steps: number i is
    floor(w * below / 2^64).

    w = word 0 + 2^32 * word 1 of block i. Each value's probability is within 2^-64 of 1 / below.
    """
    if not 0 < below < 1 << 32:
        raise UsageError(f"[draws] below is {below}: expected 1 .. 2^32 - 1")
    words = blocks(seed, stream, steps, count)
    low, high, n = words[..., 0], words[..., 1], np.uint64(below)
    # high * n + floor(low * n / 2^32) < 2^64 because n < 2^32: no carry is lost
    return ((high * n + (low * n >> _HALF)) >> _HALF).astype(np.int64)
