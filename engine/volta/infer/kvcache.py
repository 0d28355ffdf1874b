"""The key/value cache: per layer [B, G, S, D], as wide as the key heads, never expanded to query heads.

Append-only: a length per sequence says what is valid, so that truncating moves a number and the decode
plan stays static.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from volta.dtypes import aligned_copy
from volta.errors import UsageError
from volta.model.config import Config


class KVCache:
    """Memory for `batch` sequences of up to config.context tokens."""

    def __init__(self, config: Config, batch: int) -> None:
        shape = (batch, config.kv_heads, config.context, config.head_width)
        self.keys = [aligned_copy(np.zeros(shape, np.float32)) for _ in range(config.depth)]
        self.values = [aligned_copy(np.zeros(shape, np.float32)) for _ in range(config.depth)]
        self.lengths: npt.NDArray[np.int32] = np.zeros(batch, np.int32)
        self.capacity = config.context

    @property
    def nbytes(self) -> int:
        arrays: list[npt.NDArray[Any]] = [*self.keys, *self.values]
        return sum(array.nbytes for array in arrays)

    def truncate(self, lengths: npt.ArrayLike) -> None:
        """Forgets every sequence's tokens from `lengths` [B] on."""
        wanted = np.broadcast_to(np.asarray(lengths, np.int32), self.lengths.shape)
        if (wanted < 0).any() or (wanted > self.lengths).any():
            raise UsageError(
                f"[kvcache] lengths are {self.lengths.tolist()}: cannot truncate to {wanted.tolist()}"
            )
        self.lengths[...] = wanted
