"""Philox4x32-10 on Python's integers, written from the paper (Salmon et al., SC 2011, section 3.3)."""

from __future__ import annotations

import numpy as np

MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)  # the golden ratio and sqrt(3) - 1, times 2^32
WORD = 2**32


def philox(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    left0, right0, left1, right1 = counter
    for turn in range(10):
        product0, product1 = MULTIPLIERS[0] * left0, MULTIPLIERS[1] * left1
        key0, key1 = ((word + turn * step) % WORD for word, step in zip(key, WEYL, strict=True))
        left0, right0 = product1 // WORD ^ right0 ^ key0, product1 % WORD
        left1, right1 = product0 // WORD ^ right1 ^ key1, product0 % WORD
    return left0, right0, left1, right1


def uniform(word: int) -> np.float32:
    """The top 24 bits as a multiple of 2^-24: exact."""
    return np.float32(word >> 8) * np.float32(2.0**-24)


def words(count: int, rng: tuple[int, int, int], stream: int) -> list[int]:
    """Clause N8: element i of a tensor; rng = seed low, seed high, step as they lie in i32."""
    low, high, step = (value % WORD for value in rng)
    blocks = (philox((i % WORD, i // WORD, stream, step), (low, high)) for i in range(-(-count // 4)))
    return [word for block in blocks for word in block][:count]
