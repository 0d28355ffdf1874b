"""Batches of tokens: each a pure function of (seed, step), so resuming needs only the step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from volta.errors import DataError, UsageError
from volta.train.draws import DATA_STREAM, integers

Tokens: TypeAlias = npt.NDArray[Any]  # integers [n]; uint8 keeps a text of bytes at its own size
Batch: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]  # inputs, targets [B, T]

_LONGEST = (1 << 32) - 1
AT_ONCE = 64  # steps whose windows are drawn together


def split(tokens: Tokens, validation_fraction: float) -> tuple[Tokens, Tokens]:
    """(training, validation): views; the last floor(n * fraction) tokens validate."""
    if not 0.0 <= validation_fraction < 1.0:
        raise UsageError(f"[data] validation fraction is {validation_fraction}: expected 0 <= fraction < 1")
    cut = len(tokens) - math.floor(len(tokens) * validation_fraction)
    return tokens[:cut], tokens[cut:]


@dataclass(frozen=True, eq=False)
class Batches:
    """Random windows of `context` tokens; targets are the inputs one token later.

    Row r of step s starts at floor(w * n / 2^64), n = len(tokens) - context, where w is the 64-bit
    draw r of (seed, "data", s) (N8, draws.integers). Windows are drawn with replacement.
    """

    tokens: Tokens
    batch: int
    context: int
    seed: int

    def __post_init__(self) -> None:
        _check(self.tokens, self.batch, self.context, "training text")

    def at(self, step: int) -> Batch:
        """inputs, targets i32 [B, T] of step 0 .. 2^32 - 1 (of micro-step, when gradients accumulate)."""
        starts = _starts(self.seed, step // AT_ONCE, self.batch, len(self.tokens) - self.context)
        return _windows(self.tokens, starts[step % AT_ONCE], self.context)


@lru_cache(maxsize=2)
def _starts(seed: int, chunk: int, batch: int, below: int) -> npt.NDArray[np.int64]:
    """[AT_ONCE, batch] for steps from chunk * AT_ONCE: a call costs NumPy more than its numbers do."""
    steps = range(chunk * AT_ONCE, (chunk + 1) * AT_ONCE)
    return integers(seed, DATA_STREAM, steps, batch, below)


@dataclass(frozen=True, eq=False)
class Validation:
    """Fixed windows, evenly spaced from the first token to the last: the same at every evaluation.

    As many whole batches as the text fills without overlap, at most `limit` of them, at least one
    (of overlapping windows when the text is short). Window i starts at floor(i * last / (count - 1)).
    """

    tokens: Tokens
    batch: int
    context: int
    limit: int = 8

    def __post_init__(self) -> None:
        _check(self.tokens, self.batch, self.context, "validation text")
        if self.limit < 1:
            raise UsageError(f"[data] limit is {self.limit}: expected at least 1 batch")

    def __len__(self) -> int:
        windows = (len(self.tokens) - 1) // self.context
        return min(self.limit, max(1, windows // self.batch))

    def at(self, index: int) -> Batch:
        """inputs, targets i32 [B, T] of batch 0 .. len - 1."""
        if not 0 <= index < len(self):
            raise IndexError(f"[data] validation batch {index}: expected 0 .. {len(self) - 1}")
        count, last = len(self) * self.batch, len(self.tokens) - self.context - 1
        rows = np.arange(index * self.batch, (index + 1) * self.batch, dtype=np.int64)
        return _windows(self.tokens, rows * last // max(count - 1, 1), self.context)


def _windows(tokens: Tokens, starts: npt.NDArray[np.int64], context: int) -> Batch:
    positions = starts[:, np.newaxis] + np.arange(context + 1)
    windows = tokens[positions].astype(np.int32)
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


def _check(tokens: Tokens, batch: int, context: int, what: str) -> None:
    for name, value in (("batch", batch), ("context", context)):
        if value < 1:
            raise UsageError(f"[data] {name} is {value}: expected at least 1")
    if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
        raise DataError(f"[data] {what} is {tokens.dtype} {tokens.shape}: expected integers of one axis")
    if len(tokens) < context + 1:
        raise DataError(
            f"[data] {what} has {len(tokens)} tokens: expected at least {context + 1} (context {context} + 1)"
        )
    if len(tokens) > _LONGEST:
        raise DataError(f"[data] {what} has {len(tokens)} tokens: expected at most {_LONGEST}")
