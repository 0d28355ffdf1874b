"""copy, fill, reduce and check_finite: every instruction set and thread count, every layout."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import THREADS, Guarded, assert_parity, assert_same_bits, isas

from volta.backends.cpu.native import run_kernel
from volta.dtypes import bfloat16_from_float32, float32_from_bfloat16
from volta.errors import NotFiniteError, VerifyError

Array = npt.NDArray[Any]
SUM, SUM_SQUARES, MAX, ARGMAX = range(4)
SHAPES = [
    (),
    (1,),
    (33,),
    (0, 3),
    (3, 0),
    (5, 7),
    (16, 16),
    (17, 35),
    (3, 5, 7),
    (2, 1, 31, 6),
    (2, 3, 2, 5, 2, 3),
]


def values(shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def layouts(x: Array) -> list[tuple[str, Array]]:
    """Views with x's values: contiguous, every order of axes reversed, backwards, every other element."""
    if x.ndim == 0:
        return [("contiguous", x)]
    reverse = tuple(range(x.ndim))[::-1]
    swapped = (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2) if x.ndim > 1 else reverse
    twice = np.zeros(tuple(2 * size for size in x.shape), x.dtype)
    every_other = twice[tuple(slice(None, None, 2) for _ in x.shape)]
    every_other[...] = x
    backwards = tuple(slice(None, None, -1) for _ in x.shape)
    return [
        ("contiguous", x),
        ("reversed axes", np.ascontiguousarray(x.transpose(reverse)).transpose(reverse)),
        ("swapped axes", np.ascontiguousarray(x.transpose(swapped)).transpose(np.argsort(swapped))),
        ("every other", every_other),
        ("backwards", np.ascontiguousarray(x[backwards])[backwards]),
    ]


# --- copy ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [*SHAPES, (1025,), (40, 130), (3, 64, 50), (1, 300, 1, 20)], ids=str)
def test_copy_moves_every_element_between_all_layouts(shape: tuple[int, ...]) -> None:
    x = values(shape)
    for (name, source), isa, threads in itertools.product(layouts(x), isas(), THREADS):
        for to_name, target in layouts(np.zeros(shape, np.float32)):
            run_kernel("copy", [target, source], 1, isa=isa, threads=threads)
            assert_same_bits(np.asarray(target), x, f"{name} to {to_name} {isa} {threads}")


def test_copy_writes_nothing_outside_a_strided_output() -> None:
    for isa, threads in itertools.product(isas(), THREADS):
        wide = np.full((37, 90), -1, np.float32)
        run_kernel("copy", [wide[3:35, 5:77], values((32, 72))], 1, isa=isa, threads=threads)
        outside = np.ones(wide.shape, bool)
        outside[3:35, 5:77] = False
        assert (wide[outside] == -1).all()
        assert_same_bits(wide[3:35, 5:77], values((32, 72)))


def test_copy_broadcasts_an_input_of_stride_zero() -> None:
    x = values((1, 19, 1))
    for isa in isas():
        out = np.zeros((4, 19, 33), np.float32)
        run_kernel("copy", [out, np.broadcast_to(x, out.shape)], 1, isa=isa, threads=2)
        assert_same_bits(out, np.ascontiguousarray(np.broadcast_to(x, out.shape)))


def test_copy_keeps_the_bits_of_integers_and_of_nan() -> None:
    patterns = np.random.default_rng(1).integers(0, 2**32, (50, 41), np.uint32)
    patterns[0, :3] = 0x7F800001, 0xFFC00123, 0x80000000
    for isa in isas():
        for view in (np.int32, np.float32):
            source = patterns.view(view)
            out = np.zeros_like(source)
            run_kernel("copy", [out, source], 1, isa=isa)
            assert (out.view(np.uint32) == patterns).all()
        half = patterns.view(np.uint16)
        out = np.zeros_like(half)
        run_kernel("copy", [out, half], 1, isa=isa)
        assert (out == half).all()


def test_bf16_rounds_to_nearest_even_and_back_exactly() -> None:
    """N9, over every bf16 pattern and the patterns around the ties between neighbours."""
    every = np.arange(2**16, dtype=np.uint16)
    exact = every.astype(np.uint32) << np.uint32(16)
    near = (exact[:, None] + np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).view(np.float32)
    for isa, threads in itertools.product(isas(), (1, 3)):
        rounded = np.zeros(near.shape, np.uint16)
        run_kernel("copy", [rounded, near], 1, isa=isa, threads=threads)
        assert (rounded == bfloat16_from_float32(near)).all()
        wide = np.zeros(every.shape, np.float32)
        run_kernel("copy", [wide, every], 1, isa=isa, threads=threads)
        assert_same_bits(wide, float32_from_bfloat16(every))
        strided = np.zeros((near.shape[1], near.shape[0]), np.uint16)
        run_kernel("copy", [strided.T, near], 1, isa=isa, threads=threads)
        assert (rounded == strided.T).all()


def test_copy_refuses_other_shapes_and_dtypes() -> None:
    for isa in isas():
        with pytest.raises(VerifyError, match=r"\[copy\]"):
            run_kernel("copy", [values((3, 4)), values((4, 3))], 1, isa=isa)
        with pytest.raises(VerifyError, match=r"\[copy\]"):
            run_kernel("copy", [np.zeros(3, np.int32), values((3,))], 1, isa=isa)


# --- fill ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (1,), (1025,), (7, 33)], ids=str)
def test_fill_writes_the_value_and_nothing_else(shape: tuple[int, ...]) -> None:
    """bf16 is held as uint16: -3 is 0xC040, 5 is 0x40A0."""
    dtypes = {np.float32: (-3, 5), np.int32: (-3, 5), np.int8: (-3, 5), np.uint16: (0xC040, 0x40A0)}
    for isa, threads, (dtype, (low, high)) in itertools.product(isas(), THREADS, dtypes.items()):
        guarded = Guarded(shape, dtype)
        run_kernel("fill", [guarded.array], 1, floats=[-3.0], isa=isa, threads=threads)
        guarded.check()
        assert (guarded.array == low).all()
        wide = np.zeros((*shape, 2), dtype)
        run_kernel("fill", [wide[..., 1]], 1, floats=[5.0], isa=isa, threads=threads)
        assert (wide[..., 1] == high).all()
        assert (wide[..., 0] == 0).all()


# --- reduce ----------------------------------------------------------------------------------------


def lanes_sum(x: npt.NDArray[np.float32], axis: int) -> npt.NDArray[np.float32]:
    """N2, written once more in NumPy."""
    rows = np.moveaxis(x, axis, -1)
    lane = np.zeros((*rows.shape[:-1], 32), np.float32)
    for i in range(rows.shape[-1]):
        lane[..., i % 32] += rows[..., i]
    for width in (16, 8, 4, 2, 1):
        lane[..., :width] += lane[..., width : 2 * width]
    return np.expand_dims(lane[..., 0], axis)


def reduced(x: Array, axis: int, kind: int, factor: float | None = None) -> Array:
    shape = tuple(1 if a == axis else size for a, size in enumerate(x.shape))
    output = np.zeros(shape, np.int32 if kind == ARGMAX else np.float32)
    floats = [] if factor is None else [factor]

    def run(isa: str, threads: int, outputs: list[Array]) -> None:
        ints = [kind, axis, int(factor is not None)]
        run_kernel("reduce", [outputs[0], x], 1, ints=ints, floats=floats, isa=isa, threads=threads)

    return assert_parity(run, [output], f"reduce {kind} axis {axis} of {x.shape} {x.strides}")[0]


REDUCE_SHAPES = [
    (1,),
    (31,),
    (32,),
    (33,),
    (100,),
    (0, 3),
    (3, 0),
    (5, 64),
    (70, 3),
    (65, 129),
    (9, 300),
    (2, 40, 17),
]


@pytest.mark.parametrize("shape", REDUCE_SHAPES, ids=str)
def test_every_reduction_is_the_same_on_every_isa_thread_count_and_layout(shape: tuple[int, ...]) -> None:
    x = values(shape)
    for axis in range(x.ndim):
        for kind in (SUM, SUM_SQUARES, MAX, ARGMAX):
            if kind == ARGMAX and x.shape[axis] == 0:
                continue
            first, *others = (reduced(view, axis, kind) for _, view in layouts(x))
            for other in others:
                assert_same_bits(other, first)


@pytest.mark.parametrize("shape", [(7, 100), (100, 7), (3, 45, 70)], ids=str)
def test_sums_follow_n2_and_are_accurate(shape: tuple[int, ...]) -> None:
    x = values(shape)
    for axis in range(x.ndim):
        assert_same_bits(reduced(x, axis, SUM), lanes_sum(x, axis))
        assert_same_bits(reduced(x, axis, SUM_SQUARES), lanes_sum(x * x, axis))
        exact = x.astype(np.float64).sum(axis, keepdims=True)
        scale = np.abs(x.astype(np.float64)).sum(axis, keepdims=True)
        assert (np.abs(reduced(x, axis, SUM) - exact) <= 1e-6 * scale).all()


def test_a_mean_is_the_sum_times_the_rounded_reciprocal() -> None:
    x = values((6, 45))
    factor = np.float32(1) / np.float32(45)
    assert_same_bits(reduced(x, 1, SUM, float(factor)), reduced(x, 1, SUM) * factor)


def test_an_empty_axis_sums_to_zero_and_its_maximum_is_minus_infinity() -> None:
    x = np.zeros((4, 0), np.float32)
    assert_same_bits(reduced(x, 1, SUM), np.zeros((4, 1), np.float32))
    assert_same_bits(reduced(x, 1, MAX), np.full((4, 1), -np.inf, np.float32))
    for isa in isas():
        with pytest.raises(VerifyError, match=r"\[reduce\]"):
            run_kernel("reduce", [np.zeros((4, 1), np.int32), x], 1, ints=[ARGMAX, 1], isa=isa)


@pytest.mark.parametrize("axis", [0, 1])
def test_the_first_of_equal_maxima_and_the_first_nan_win(axis: int) -> None:
    count = 70
    rows = np.zeros((6, count), np.float32)
    rows[0, [3, 40]] = 2, 2
    rows[1, 5] = -0.0
    rows[2, 0] = -0.0
    rows[3, [20, 33, 60]] = 9, np.nan, np.nan
    rows[4] = -np.inf
    rows[5, 69] = np.inf
    x = rows if axis == 1 else np.ascontiguousarray(rows.T)
    index, largest = reduced(x, axis, ARGMAX).ravel(), reduced(x, axis, MAX).ravel()
    assert index.tolist() == [3, 0, 0, 33, 0, 69]
    assert largest[:3].tolist() == [2, 0, 0]
    assert np.isnan(largest[3])
    assert largest[4:].tolist() == [-np.inf, np.inf]
    assert np.signbit(largest).tolist()[1:3] == [False, True]


# --- check_finite ----------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", [[0], [1023], [1024], [4999], [700, 3500], [1, 2, 4998]])
def test_check_finite_reports_the_first_element_whatever_the_threads(bad: float, where: list[int]) -> None:
    x = values((50, 100))
    x.ravel()[where] = bad
    for isa, threads in itertools.product(isas(), THREADS):
        for _, view in layouts(x):
            with pytest.raises(NotFiniteError, match=rf"element {where[0]} is"):
                run_kernel("check_finite", [view], 0, isa=isa, threads=threads)


def test_check_finite_accepts_every_finite_number() -> None:
    extremes = np.array([3.4028235e38, -3.4028235e38, 1e-45, -0.0], np.float32)
    for isa, threads in itertools.product(isas(), THREADS):
        run_kernel("check_finite", [np.tile(extremes, 1000)], 0, isa=isa, threads=threads)
        run_kernel("check_finite", [np.zeros((0, 4), np.float32)], 0, isa=isa, threads=threads)
