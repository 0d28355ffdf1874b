"""Clause N9: products of bf16 in blocks of 32, two chains each, subnormals flushed; and N1 over bf16
weights, which are widened exactly."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from tests.ops import matmuls
from tests.ops.matmuls import any_bf16, bf16, multiply
from tests.ops.parity import Array, Guarded, assert_same_bits, isas

from volta.backends.cpu import native
from volta.backends.cpu.native import run_kernel
from volta.dtypes import bfloat16_from_float32, float32_from_bfloat16

TINY = Fraction(1, 1 << 126)  # the smallest normal number


def rounded(value: Fraction, sign: float) -> float:
    """To 24 bits and any exponent, ties to even; flushed to the zero of its sign where that is subnormal."""
    if value == 0:
        return math.copysign(0.0, sign)
    size = abs(value)
    exponent = math.frexp(float(size))[1] if size > Fraction(1, 1 << 1000) else -1000
    while Fraction(2) ** exponent <= size:
        exponent += 1
    while Fraction(2) ** (exponent - 1) > size:
        exponent -= 1
    step = Fraction(2) ** (exponent - 24)
    whole = size / step
    count = whole.numerator // whole.denominator
    rest = whole - count
    if rest > Fraction(1, 2) or (rest == Fraction(1, 2) and count % 2):
        count += 1
    result = count * step
    sign = 1.0 if value > 0 else -1.0
    return math.copysign(0.0, sign) if result < TINY else sign * float(result)


def fma(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    product_sign = math.copysign(1.0, a) * math.copysign(1.0, b)
    both_negative = product_sign < 0 and math.copysign(1.0, c) < 0
    return rounded(exact, -1.0 if both_negative else 1.0)


def add(a: float, b: float) -> float:
    return fma(a, 1.0, b)


def flushed(x: float) -> float:
    return math.copysign(0.0, x) if abs(x) < float(TINY) else x


def clause(a: Array, b: Array) -> float:
    """N9 for one row and one column, in exact rational arithmetic."""
    acc = 0.0
    size = -(-len(a) // 32) * 32
    left, right = (
        [flushed(float(v)) for v in float32_from_bfloat16(x)] + [0.0] * (size - len(x)) for x in (a, b)
    )
    for block in range(0, size, 32):
        chains = [0.0, 0.0]
        for k in range(block, block + 32):
            chains[k % 2] = fma(left[k], right[k], chains[k % 2])
        acc = add(acc, add(*chains))
    return acc


def product(a: Array, b: Array) -> Array:
    rows, columns = range(a.shape[0]), range(b.shape[1])
    return np.array([[clause(a[i], b[:, j]) for j in columns] for i in rows], np.float32)


@pytest.mark.parametrize("exponent", [0, -40, -62, -64, -66])
@pytest.mark.parametrize("k", [1, 2, 31, 32, 33, 64, 95])
def test_the_reference_is_n9(k: int, exponent: int) -> None:
    """Also where products and sums are subnormal: about 2^-124 to 2^-132 here."""
    a, b = bf16(4, k, seed=1, exponent=exponent), bf16(k, 5, seed=2, exponent=exponent)
    assert_same_bits(multiply(a, b), product(a, b), f"k={k} exponent={exponent}")


def test_what_lies_just_below_the_smallest_normal_number_is_flushed() -> None:
    """2^-126 + 2^-126 * 2^-7 - .. : sums whose rounding decides whether they are subnormal."""
    values = np.array([2.0**-63, -(2.0**-87), 2.0**-87, -(2.0**-88), 2.0**-76], np.float32)
    small = bfloat16_from_float32(values)
    one = bfloat16_from_float32(np.array([2.0**-63, 2.0**-64, -(2.0**-63), 2.0**-75], np.float32))
    for first, second, third, fourth in np.ndindex(5, 5, 4, 4):
        a = np.array([[small[first], 0, small[second], 0]], np.uint16)
        b = np.array([[one[third]], [0], [one[fourth]], [0]], np.uint16)
        expected = product(a, b)
        assert_same_bits(multiply(a, b), expected)
        for isa in isas()[1:]:
            for tile in native.tiles_of("bf16", isa):
                assert_same_bits(multiply(a, b, isa, 1, None, [tile.id]), expected, tile.name)


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 35, 40), (4, 100, 33), (17, 50, 200), (70, 33, 65)])
@pytest.mark.parametrize("make", ["ordinary", "tiny", "any"])
def test_every_tile_gives_the_bits_of_the_reference(m: int, n: int, k: int, make: str) -> None:
    """Ordinary numbers, products near 2^-126, and every bit pattern."""
    if make == "any":
        a, b = any_bf16(m, k, seed=3), any_bf16(k, n, seed=4)
    else:
        exponent = 0 if make == "ordinary" else -63
        a, b = (bf16(*shape, seed=5, exponent=exponent) for shape in ((m, k), (k, n)))
    expected = multiply(a, b)
    for isa in isas()[1:]:
        for tile in (0, *(tile.id for tile in native.tiles_of("bf16", isa))):
            for threads in (1, 3):
                found = multiply(a, b, isa, threads, None, [tile])
                assert_same_bits(found, expected, f"{isa} tile {tile} threads={threads}")


def test_a_row_alone_is_the_row_in_a_batch() -> None:
    """Streaming B for few rows and tiling many give the same bits."""
    a, b = bf16(40, 300, seed=6), bf16(300, 1100, seed=7)
    for isa in isas()[1:]:
        together = multiply(a, b, isa, 2)
        for rows in (1, 2, 3, 4, 5):
            assert_same_bits(multiply(a[:rows], b, isa, 2), together[:rows], f"{isa} {rows} rows")


def test_an_empty_contraction_is_plus_zero() -> None:
    for isa in isas():
        assert_same_bits(multiply(bf16(3, 0), bf16(0, 5), isa), np.zeros((3, 5), np.float32), isa)


def test_the_caller_keeps_its_subnormals_and_the_epilogue_too() -> None:
    """N9 flushes within the contraction alone: what the epilogue adds is not flushed (N0)."""
    a, b = bf16(20, 64, seed=8, exponent=-70), bf16(64, 40, seed=9, exponent=-70)
    tiny = np.full((20, 40), 3e-42, np.float32)
    for isa in isas():
        out = np.empty((20, 40), np.float32)
        run_kernel("matmul", [out, a, b, tiny], 1, ints=[1], code=[("add", 0, (0, 3), ())], isa=isa)
        assert_same_bits(out, tiny, isa)


def test_bf16_results_of_the_epilogue_are_rounded_as_they_are_stored() -> None:
    a, b = bf16(19, 64, seed=10), bf16(64, 70, seed=11)
    plain = multiply(a, b)
    for isa in isas():
        for threads in (1, 3):
            wide, narrow = np.empty((19, 70), np.float32), Guarded((19, 70), np.uint16)
            code = [("bf16", 1, (0,), ())]
            run_kernel("matmul", [wide, narrow.array, a, b], 2, ints=[2], code=code, isa=isa, threads=threads)
            narrow.check()
            assert_same_bits(narrow.array, bfloat16_from_float32(plain), isa)


# --- N1 over bf16 weights --------------------------------------------------------------------------


@pytest.mark.parametrize("layout", matmuls.LAYOUTS)
@pytest.mark.parametrize("m", [1, 3, 8, 9, 40])
def test_bf16_weights_are_widened_exactly(layout: str, m: int) -> None:
    """N1: f32 by bf16 is f32 by the same numbers in f32, streamed or tiled, in place or turned."""
    a = np.random.default_rng(m).standard_normal((m, 130), dtype=np.float32)
    w = any_bf16(130, 1060, seed=12)
    expected = multiply(a, float32_from_bfloat16(w))
    b = matmuls.LAYOUTS[layout](w)
    assert_same_bits(multiply(a, b), expected, "ref")
    for isa in isas()[1:]:
        for tile in (0, *(tile.id for tile in native.tiles_of("f32", isa))):
            assert_same_bits(multiply(a, b, isa, 2, None, [tile]), expected, f"{isa} {layout} {tile}")
