"""What "the same" means in every test of a kernel: equal in every bit, NaN equal to NaN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.backends.cpu import native

Array = npt.NDArray[Any]

THREADS = (1, 2, 3, 7)
CANARY = 0xA5
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def isas() -> tuple[str, ...]:
    """The instruction sets of this machine, ref first."""
    return native.cpu_info().isas


def bits(values: Array) -> Array:
    """The bit patterns, every NaN replaced by one: its payload is not defined."""
    contiguous = np.ascontiguousarray(values)
    if contiguous.dtype.kind == "f":
        contiguous = np.where(np.isnan(contiguous), contiguous.dtype.type(np.nan), contiguous)
    return np.ascontiguousarray(contiguous).view(_UNSIGNED[contiguous.dtype.itemsize])


def assert_same_bits(actual: Array, expected: Array, context: str = "") -> None:
    assert actual.shape == expected.shape, f"{context}: shape {actual.shape}, expected {expected.shape}"
    assert actual.dtype == expected.dtype, f"{context}: dtype {actual.dtype}, expected {expected.dtype}"
    if actual.size == 0:
        return
    differ = np.argwhere(bits(actual).reshape(actual.shape) != bits(expected).reshape(expected.shape))
    if len(differ):
        at = tuple(int(i) for i in differ[0])
        raise AssertionError(
            f"{context}: {len(differ)} of {actual.size} elements differ, first at {at}: "
            f"{actual[at]!r} ({float(actual[at]).hex()}), expected {expected[at]!r} "
            f"({float(expected[at]).hex()})"
        )


class Guarded:
    """An array between two canaries that `check` finds intact unless something wrote outside it."""

    def __init__(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, margin: int = 256) -> None:
        count = int(np.prod(shape, dtype=np.int64))
        size = count * np.dtype(dtype).itemsize
        self.memory = np.full(margin + size + margin, CANARY, np.uint8)
        self.margin = margin
        self.array: Array = np.frombuffer(self.memory.data, dtype, count, margin).reshape(shape)

    def check(self) -> None:
        assert (self.memory[: self.margin] == CANARY).all(), "something was written before the output"
        assert (self.memory[-self.margin :] == CANARY).all(), "something was written after the output"


def assert_parity(
    run: Callable[[str, int, list[Array]], None], outputs: list[Array], context: str = ""
) -> list[Array]:
    """`run(isa, threads, outputs)` writes the same bits on every instruction set and thread count.

    `outputs` give shapes and dtypes. Returns what the reference wrote on one thread.
    """
    expected: list[Array] = []
    for isa in isas():
        for threads in THREADS:
            guarded = [Guarded(output.shape, output.dtype) for output in outputs]
            run(isa, threads, [one.array for one in guarded])
            for index, one in enumerate(guarded):
                one.check()
                if len(expected) < len(guarded):
                    expected.append(one.array)
                assert_same_bits(
                    one.array, expected[index], f"{context} {isa} threads={threads} output {index}"
                )
    return expected
