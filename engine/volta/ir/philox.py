"""N8: Philox4x32-10 in NumPy, word for word the generator of csrc/philox.h.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Words: TypeAlias = npt.NDArray[np.uint64]
LOW = 0xFFFFFFFF


def _halves(word: Words, multiplier: int) -> tuple[Words, Words]:
    product = word * np.uint64(multiplier)
    return product >> np.uint64(32), product & np.uint64(LOW)


def philox(counter: Sequence[npt.ArrayLike], key: tuple[int, int]) -> Words:
    """Blocks of four 32-bit words: four counters that broadcast -> their shape and an axis of 4."""
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(word, np.uint64) for word in counter))
    k0, k1 = key
    for _ in range(10):
        high0, low0 = _halves(c0, 0xD2511F53)
        high1, low1 = _halves(c2, 0xCD9E8D57)
        c0, c1, c2, c3 = high1 ^ c1 ^ np.uint64(k0), low1, high0 ^ c3 ^ np.uint64(k1), low0
        k0, k1 = (k0 + 0x9E3779B9) & LOW, (k1 + 0xBB67AE85) & LOW
    return np.stack((c0, c1, c2, c3), axis=-1)


def words(count: int, rng: npt.NDArray[np.generic], stream: int) -> Words:
    """The first `count` words of a stream; rng i32 [3] = seed low, seed high, step.

    Element i is word i % 4 of the block with counter (i/4 low, i/4 high, stream, step).
    """
    seed_low, seed_high, step = (int(value) & LOW for value in rng)
    block = np.arange(-(-count // 4), dtype=np.uint64)
    counter = (block & np.uint64(LOW), block >> np.uint64(32), stream, step)
    return philox(counter, (seed_low, seed_high)).reshape(-1)[:count]


def uniform(bits: Words) -> npt.NDArray[np.float64]:
    """The top 24 bits as a multiple of 2^-24 in [0, 1): exact in f32 too."""
    return (bits >> np.uint64(8)).astype(np.float64) * 2.0**-24


def normal(count: int, rng: npt.NDArray[np.generic], stream: int) -> npt.NDArray[np.float64]:
    """Box and Muller: words (0, 1) of a block give z0, z1 and words (2, 3) give z2, z3."""
    pairs = words(-(-count // 2) * 2, rng, stream).reshape(-1, 2)
    u1 = ((pairs[:, 0] >> np.uint64(8)) + np.uint64(1)).astype(np.float64) * 2.0**-24
    radius, angle = np.sqrt(-2.0 * np.log(u1)), 2.0 * np.pi * uniform(pairs[:, 1])
    return np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1).reshape(-1)[:count]
