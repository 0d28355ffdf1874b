"""What the tests of the three contractions share: operands, layouts, and a step with blocks of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.backends.cpu import native
from volta.backends.cpu.native import run_kernel
from volta.dtypes import bfloat16_from_float32

Array = npt.NDArray[Any]
SMALLEST = np.float32(2.0**-126)  # the smallest normal number
# ints of a matmul step: cpu/matmul_problem.h
OUTPUTS, TILE, KC, MC, NC, AHEAD, COPIES, MOST_THREADS = range(8)
B_NEVER, B_ALWAYS, B_DONE, A_NEVER, A_ALWAYS = 1, 2, 3, 4, 8


def bf16(*shape: int, seed: int = 0, exponent: int = 0) -> npt.NDArray[np.uint16]:
    """Normal numbers in bf16, times 2^exponent."""
    values = np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)
    return bfloat16_from_float32(values * np.float32(2.0**exponent))


def any_bf16(*shape: int, seed: int = 0) -> npt.NDArray[np.uint16]:
    """Ordinary numbers, and among them every kind of bit pattern: NaN, infinities, subnormals, zeros."""
    values = bf16(*shape, seed=seed)
    rng = np.random.default_rng([seed, 1, *shape])
    chosen = rng.random(shape) < 0.05
    values[chosen] = rng.integers(0, 1 << 16, int(chosen.sum())).astype(np.uint16)
    return values


def int8(*shape: int, seed: int = 0) -> npt.NDArray[np.int8]:
    """All of -127 .. 127, and -128, which `quantize` does not make but a file may hold."""
    return np.random.default_rng([seed, *shape]).integers(-128, 128, shape).astype(np.int8)


def scales(groups: int, n: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng([seed, groups, n]).standard_normal((groups, n), dtype=np.float32)


LAYOUTS: dict[str, Callable[[Array], Array]] = {
    "rows": lambda x: x,
    "turned": lambda x: np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2),
    "gaps": lambda x: np.repeat(np.repeat(x, 2, -2), 3, -1)[..., ::2, ::3],
    "reversed": lambda x: np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1],
}


def kind_of(a: Array) -> str:
    return {"f": "f32", "u": "bf16", "i": "i8"}[a.dtype.kind]


def multiply(
    a: Array,
    b: Array,
    isa: str = "ref",
    threads: int = 1,
    scale: Array | None = None,
    settings: Sequence[int] = (),
) -> npt.NDArray[np.float32]:
    """a @ b by one step; `settings`: its ints after the first."""
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    out = np.full(shape, np.nan, np.float32)
    left, right = (np.broadcast_to(x, (*shape[:-2], *x.shape[-2:])) for x in (a, b))
    operands = [out, left, right] if scale is None else [out, left, b, scale]
    kernel = "matmul" if scale is None else "matmul_scaled"
    run_kernel(kernel, operands, 1, ints=[1, *settings], isa=isa, threads=threads)
    return out


def packed(w: Array, tile: native.Tile, isa: str, group: int = 1) -> npt.NDArray[np.int8]:
    """w in the order that the tile reads it."""
    count = native.packed_bytes(tile.id, tile.kind, isa, *w.shape, group)
    out = np.zeros(count, np.int8)
    ints = [native.KINDS.index(tile.kind), tile.id, group]
    run_kernel("pack_weights", [out, w], 1, ints=ints, isa=isa, threads=2)
    return out
