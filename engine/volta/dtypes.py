"""The element types that a plan may hold."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class DType:
    """name: as printed and stored; code: volta_dtype in volta.h; numpy: the array that carries it.

    bfloat16 has no NumPy type: its bit patterns travel as uint16.
    """

    name: str
    code: int
    itemsize: int
    numpy: npt.DTypeLike

    def __repr__(self) -> str:
        return self.name

    @property
    def integer(self) -> bool:
        """Integers carry no gradient."""
        return self.name.startswith("i")


float32 = DType("f32", 0, 4, np.dtype(np.float32))
bfloat16 = DType("bf16", 1, 2, np.dtype(np.uint16))
int32 = DType("i32", 2, 4, np.dtype(np.int32))
int8 = DType("i8", 3, 1, np.dtype(np.int8))

ALIGNMENT = 64  # bytes: a cache line, and a vector of AVX-512

BY_NAME = {dtype.name: dtype for dtype in (float32, bfloat16, int32, int8)}


def bfloat16_from_float32(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even; NaN becomes the quiet NaN 0x7FC0 with its sign (N9)."""
    bits = np.asarray(values, np.float32, order="C").view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    quiet = (bits >> np.uint32(16)) & np.uint32(0x8000) | np.uint32(0x7FC0)
    return np.where(nan, quiet, rounded).astype(np.uint16)


def float32_from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Exact: a bfloat16 is the upper half of a float32."""
    return (np.asarray(bits, np.uint32, order="C") << np.uint32(16)).view(np.float32)


def aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """An uninitialised array in C order whose first element starts a cache line: NumPy promises only 16
    bytes, and kernels then split every other line. Values do not depend on it, speed does."""
    kind = np.dtype(dtype)
    nbytes = math.prod(shape) * kind.itemsize
    block = np.empty(nbytes + ALIGNMENT, np.uint8)
    start = -block.__array_interface__["data"][0] % ALIGNMENT
    return block[start : start + nbytes].view(kind).reshape(shape)


def aligned_copy(values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> npt.NDArray[Any]:
    """The values in an array of their own, as `aligned` makes it."""
    source = np.asarray(values)
    array = aligned(source.shape, source.dtype if dtype is None else dtype)
    array[...] = source
    return array
