"""Clause N10: products of int8 add up exactly, scales apply in the written order; and its rounding of f32
to int8."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops import matmuls
from tests.ops.matmuls import int8, multiply, scales
from tests.ops.parity import Array, Guarded, assert_parity, assert_same_bits, isas
from tests.ops.test_matmul import contract

from volta.backends.cpu import native
from volta.backends.cpu.native import run_kernel
from volta.errors import VerifyError


def clause(a: Array, w: Array, scale: Array) -> Array:
    """acc = acc + sum * scale, group by group, each operation rounded to float32."""
    groups = scale.shape[0]
    acc = np.zeros((a.shape[0], w.shape[1]), np.float32)
    for part, row in zip(np.split(np.arange(w.shape[0]), groups), scale, strict=True):
        if a.dtype == np.int8:
            exact = a[:, part].astype(np.int64) @ w[part].astype(np.int64)
            total = exact.astype(np.float32)
        else:
            total = contract(a[:, part], w[part].astype(np.float32))
        acc = acc + total * row
    return acc


def operands(m: int, n: int, k: int, groups: int, weights_alone: bool) -> tuple[Array, Array, Array]:
    a = int8(m, k, seed=1)
    if weights_alone:
        a = np.random.default_rng(k).standard_normal((m, k), dtype=np.float32)
    return a, int8(k, n, seed=2), scales(groups, n)


SHAPES = [(1, 1, 1, 1), (5, 7, 33, 1), (5, 7, 33, 3), (14, 32, 64, 2), (37, 70, 128, 4), (3, 50, 6, 3)]


@pytest.mark.parametrize("weights_alone", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "groups"), SHAPES)
def test_the_reference_is_n10(m: int, n: int, k: int, groups: int, weights_alone: bool) -> None:
    a, w, scale = operands(m, n, k, groups, weights_alone)
    assert_same_bits(multiply(a, w, scale=scale), clause(a, w, scale))


@pytest.mark.parametrize("weights_alone", [False, True])
@pytest.mark.parametrize(("m", "n", "k", "groups"), [*SHAPES, (130, 67, 512, 8), (2, 1100, 96, 3)])
def test_every_tile_gives_the_bits_of_the_reference(
    m: int, n: int, k: int, groups: int, weights_alone: bool
) -> None:
    a, w, scale = operands(m, n, k, groups, weights_alone)
    expected = multiply(a, w, scale=scale)
    for isa in isas()[1:]:
        usable = native.tiles_of("f32" if weights_alone else "i8", isa)
        width = {"avx2": 16}.get(isa, 32)  # tiles with scales are at most two vectors wide
        for tile in (0, *(tile.id for tile in usable if tile.nr <= width)):
            for layout in matmuls.LAYOUTS.values():
                found = multiply(layout(a), layout(w), isa, 2, scale, [tile])
                assert_same_bits(found, expected, f"{isa} tile {tile}")


def test_the_largest_products_do_not_overflow() -> None:
    """-128 * -128, 2^17 times, is 2^31: more than an int32 holds, so a group has at most 2^17 - 1."""
    k = (1 << 17) - 1
    a, w = np.full((2, k), -128, np.int8), np.full((k, 3), -128, np.int8)
    scale = np.ones((1, 3), np.float32)
    expected = np.full((2, 3), 16384.0 * k, np.float32)
    for isa in isas():
        assert_same_bits(multiply(a, w, isa, scale=scale), expected, isa)
    with pytest.raises(VerifyError, match="matmul_scaled"):
        multiply(
            np.ones((1, k + 1), np.int8), np.ones((k + 1, 1), np.int8), scale=np.ones((1, 1), np.float32)
        )


def test_an_empty_contraction_is_plus_zero() -> None:
    for isa in isas():
        for a in (int8(3, 0), np.zeros((3, 0), np.float32)):
            out = multiply(a, int8(0, 5), isa, scale=scales(1, 5))
            assert_same_bits(out, np.zeros((3, 5), np.float32), isa)


BAD_SCALES = {
    "groups that do not divide k": ((3, 8), np.float32),
    "another n": ((1, 7), np.float32),
    "no group": ((0, 8), np.float32),
    "rank": ((8,), np.float32),
    "dtype": ((1, 8), np.int32),
}


@pytest.mark.parametrize("name", BAD_SCALES)
def test_scales_that_do_not_fit_are_refused(name: str) -> None:
    shape, dtype = BAD_SCALES[name]
    for isa in isas():
        with pytest.raises(VerifyError, match="matmul_scaled"):
            multiply(int8(4, 16), int8(16, 8), isa, scale=np.ones(shape, dtype))


# --- rounding to int8 ------------------------------------------------------------------------------


def quantized(x: Array, groups: int) -> tuple[Array, Array]:
    """N10's rounding, on every instruction set and number of threads; what the reference gave."""

    def run(isa: str, threads: int, outputs: list[Array]) -> None:
        run_kernel("quantize", [*outputs, x], 2, isa=isa, threads=threads)

    q, scale = assert_parity(run, [np.empty(x.shape, np.int8), np.empty((x.shape[0], groups), np.float32)])
    return q, scale


@given(
    rows=st.integers(1, 5),
    group=st.sampled_from([1, 3, 16, 33, 64]),
    groups=st.integers(1, 4),
    seed=st.integers(0, 1000),
    exponent=st.sampled_from([0, -20, 60, 120, -126]),
)
@settings(max_examples=60, deadline=None)
def test_rounding_is_the_clause(rows: int, group: int, groups: int, seed: int, exponent: int) -> None:
    values = np.random.default_rng(seed).standard_normal((rows, groups * group)) * 2.0**exponent
    x = values.astype(np.float32)
    q, scale = quantized(x, groups)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        parts = x.reshape(rows, groups, group)
        m = np.abs(parts).max(-1, keepdims=True)
        inverse = np.float32(127) / m
        inverse = np.where(np.isfinite(inverse), inverse, np.float32(0))
        expected = np.clip(np.rint(parts * inverse), -127, 127)
    assert_same_bits(scale, (m * (np.float32(1) / np.float32(127)))[..., 0])
    np.testing.assert_array_equal(q.reshape(parts.shape), expected)
    if exponent in (0, -20, 60):
        error = np.abs(parts - q.reshape(parts.shape) * scale[..., None])
        assert (error <= scale[..., None] * 0.5001).all()  # half a step, and the rounding of the steps


def test_special_values_are_seen_in_the_scale() -> None:
    """A NaN or infinity gives whole numbers 0 and a scale that is NaN or infinite, so products show it."""
    x = np.array([[1, np.nan, 2], [1, np.inf, 2], [0, 0, 0], [-0.0, 1e-45, 0]], np.float32)
    q, scale = quantized(x, 1)
    np.testing.assert_array_equal(q, np.zeros((4, 3)))
    np.testing.assert_array_equal(scale[:, 0], np.array([np.nan, np.inf, 0, 0], np.float32))


def test_nothing_beyond_a_row_is_written() -> None:
    x = np.random.default_rng(0).standard_normal((3, 37)).astype(np.float32)
    for isa in isas():
        memory = Guarded((3, 40), np.int8)
        memory.array[...] = 99
        run_kernel("quantize", [memory.array[:, :37], np.empty((3, 1), np.float32), x], 2, isa=isa)
        memory.check()
        assert (memory.array[:, 37:] == 99).all()
