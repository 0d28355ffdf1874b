"""The contract's row arithmetic written a second time, in NumPy, and the rows that tests try it on.

Only exp and log come from the engine, as elementwise chains: the tests of vmath.h answer for those.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from volta.backends.cpu.native import run_kernel

Floats = npt.NDArray[np.float32]

LANES = 32
# around 0, both vector widths and the lanes; several blocks with and without a tail
LENGTHS = (0, 1, 2, 15, 16, 17, 31, 32, 33, 63, 64, 65, 96, 127, 257, 1000)
ROWS = (0, 1, 3, 32, 33, 70, 97)
IGNORE = -100
ULP = 2.0**-24  # the relative error of one rounding


def n2(values: Floats) -> Floats:
    """Clause N2 along the last axis."""
    lanes = np.zeros((*values.shape[:-1], LANES), np.float32)
    for start in range(0, values.shape[-1], LANES):
        part = values[..., start : start + LANES]
        lanes[..., : part.shape[-1]] += part
    for width in (16, 8, 4, 2, 1):
        lanes = lanes[..., :width] + lanes[..., width : 2 * width]
    return lanes[..., 0]


def row_max(x: Floats) -> Floats:
    """The m of N4: NaN ignored, -inf of nothing, +0 for any zero."""
    m: Floats = np.fmax.reduce(x, axis=-1, initial=np.float32(-np.inf)) + np.float32(0)
    return m


def _chain(op: str, x: Floats) -> Floats:
    contiguous = np.ascontiguousarray(x)
    out = np.empty_like(contiguous)
    if out.size:
        run_kernel("chain", [out, contiguous], 1, code=[(op, 0, (1,), ())])
    return out


def exp(x: Floats) -> Floats:
    return _chain("exp", x)


def log(x: Floats) -> Floats:
    return _chain("log", x)


def reciprocal_of_count(count: int) -> np.float32:
    """1/C rounded once."""
    with np.errstate(divide="ignore"):
        return np.float32(1) / np.float32(count)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Floats:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def awkward(rows: int, width: int, seed: int = 0) -> Floats:
    """Ordinary rows, and among them ones of zeros of both signs, subnormals, infinities, NaN, overflow."""
    x = normal(rows, width, seed=seed, scale=3.0)
    if width == 0:
        return x
    largest = np.finfo(np.float32).max
    tiny = np.finfo(np.float32).smallest_subnormal
    signs = np.where(np.arange(width) % 3 == 0, np.float32(-1), np.float32(1))
    special = (
        np.zeros(width, np.float32) * signs,
        np.full(width, -0.0, np.float32),
        signs * tiny * np.arange(1, width + 1, dtype=np.float32),
        np.where(np.arange(width) == width // 2, np.float32(np.nan), x[0] if rows else np.float32(0)),
        np.full(width, -np.inf, np.float32),
        np.where(np.arange(width) == width - 1, np.float32(np.inf), np.float32(1)),
        np.where(np.arange(width) == 0, np.float32(-np.inf), np.float32(-1)),
        np.full(width, largest, np.float32),
        signs * largest,
        np.full(width, np.nan, np.float32),
        np.linspace(-200, 0, width, dtype=np.float32),
    )
    for row in range(2, rows, 3):
        x[row] = special[row // 3 % len(special)]
    return x


def spaced(x: Floats, gap: int = 5) -> Floats:
    """The same rows with `gap` floats between one and the next, so that the row stride exceeds the width."""
    memory = np.full((x.shape[0], x.shape[1] + gap), np.float32(777))
    memory[:, : x.shape[1]] = x
    return memory[:, : x.shape[1]]
