"""Clause N9, storage: chains read bf16 exactly, round what they store in bf16 to nearest even, and give the
same bits on every instruction set whatever the layout of their operands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.ops.matmuls import LAYOUTS, any_bf16, bf16, int8, scales
from tests.ops.parity import Array, Guarded, assert_parity, assert_same_bits, isas

import volta as vt
from volta.backends.cpu.native import run_kernel
from volta.dtypes import bfloat16_from_float32, float32_from_bfloat16
from volta.errors import VerifyError
from volta.runtime.policy import runtime

TILE = 1024
Code = list[tuple[str, int, Sequence[int], Sequence[float]]]
Halves = npt.NDArray[np.uint16]


def nearest(x: npt.NDArray[np.float32]) -> Halves:
    """N9 by the numbers themselves: x to the nearest multiple of its last place, ties to the even one.

    A bf16 has 8 significant bits, and no place below 2^-133. In float64 every step is exact.
    """
    with np.errstate(invalid="ignore"):  # a signalling NaN
        wide = x.astype(np.float64)
        _, exponent = np.frexp(wide)
        place = np.ldexp(1.0, np.maximum(exponent - 8, -133))
        value = np.rint(wide / place) * place  # rint takes the even one
    value = np.where(np.isfinite(wide), value, wide)
    value = np.where(np.abs(value) >= 2.0**128, np.copysign(np.inf, wide), value)
    bits = np.copysign(value, wide).astype(np.float32).view(np.uint32)
    sign = np.where(np.signbit(x), np.uint32(0x8000), np.uint32(0))
    return np.where(np.isnan(x), sign | 0x7FC0, bits >> 16).astype(np.uint16)


def stored(x: npt.NDArray[np.float32]) -> list[Halves]:
    """x in bf16 by every way there is: chains, copies, a cast, on the way into a tensor."""
    found = []
    for isa, threads in itertools.product(isas(), (1, 3)):
        for kernel, code in (
            ("chain", [("bf16", 0, (1,), ())]),
            ("chain", [("copy", 0, (1,), ())]),
            ("copy", []),
        ):
            out = Guarded(x.shape, np.uint16)
            run_kernel(kernel, [out.array, x], 1, code=code, isa=isa, threads=threads)
            out.check()
            found.append(out.array)
    tensor = vt.asarray(x)
    return [*found, vt.astype(tensor, "bf16").storage(), vt.asarray(x, "bf16").storage()]


def around_ties() -> npt.NDArray[np.float32]:
    """Every bf16, and what lies just above it, at its tie with the next one, and beside that tie."""
    exact = np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)
    return (exact[:, np.newaxis] + np.array([0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF], np.uint32)).view(
        np.float32
    )


def test_every_way_to_bf16_rounds_to_nearest_even() -> None:
    x = around_ties()
    expected = nearest(x)
    for out in stored(x):
        np.testing.assert_array_equal(out, expected)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=70))
@example([0x7F7F8000, 0xFF7F8000, 0x7F7F7FFF])  # the tie with infinity, both signs; below it
@example([0x00008000, 0x00018000, 0x00000001, 0x80008000])  # ties of subnormals
@example([0x7F800001, 0xFFFFFFFF, 0x7FC00000])  # NaN stays NaN, also where its upper bits are infinity's
@settings(max_examples=100, deadline=None)
def test_any_bit_pattern_is_rounded_to_nearest_even(patterns: list[int]) -> None:
    x = np.array(patterns, np.uint32).view(np.float32)
    expected = nearest(x)
    for out in stored(x):
        np.testing.assert_array_equal(out, expected)


# --- operands --------------------------------------------------------------------------------------


def parity(outputs: Sequence[Array], inputs: Sequence[Array], code: Code) -> list[Array]:
    """The chain's outputs, the same on every instruction set and number of threads, and nothing beside."""

    def run(isa: str, threads: int, out: list[Array]) -> None:
        run_kernel("chain", [*out, *inputs], len(outputs), code=code, isa=isa, threads=threads)

    return assert_parity(run, list(outputs), str(code))


SHAPES = [(), (0,), (1,), (7,), (TILE - 1,), (TILE + 1,), (3 * TILE + 17,), (5, 31), (40, 130), (3, 1, 45)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bf16_in_and_out_is_f32_between_two_exact_ends(shape: tuple[int, ...]) -> None:
    """Rounded once, when it is stored: a * b + a of widened numbers, NaN, infinities and subnormals too."""
    a, b = any_bf16(*shape, seed=1), any_bf16(*shape, seed=2)
    code: Code = [("mul", 3, (1, 2), ()), ("add", 0, (3, 1), ())]
    wide = [np.asarray(float32_from_bfloat16(x)) for x in (a, b)]
    full = parity([np.empty(shape, np.float32)], wide, code)[0]
    assert_same_bits(parity([np.empty(shape, np.float32)], [a, b], code)[0], full)
    half = parity([np.empty(shape, np.uint16)], [a, b], code)[0]
    np.testing.assert_array_equal(half, nearest(full))
    mixed = parity([np.empty(shape, np.uint16)], [wide[0], b], code)[0]
    np.testing.assert_array_equal(mixed, half)


VIEWS: dict[str, Callable[[Array], Array]] = {
    **LAYOUTS,
    "one row": lambda x: np.broadcast_to(x[:1], x.shape),
    "one column": lambda x: np.broadcast_to(x[:, :1], x.shape),
    "one element": lambda x: np.broadcast_to(x[:1, :1], x.shape),
    "backward": lambda x: x[::-1, ::-1],
    "every other column": lambda x: np.repeat(x, 2, 1)[:, 1::2],
}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (33, 70), (3, TILE), (2, 1536), (700, 3)], ids=str)
def test_strides_and_broadcasts_of_bf16_inputs_change_no_bit(view: str, shape: tuple[int, int]) -> None:
    a, b = any_bf16(*shape, seed=3), any_bf16(*shape, seed=4)
    x = VIEWS[view](b)
    wide = float32_from_bfloat16(np.ascontiguousarray(x))
    code: Code = [("add", 3, (1, 2), ()), ("maximum", 0, (3, 2), ())]
    expected = parity([np.empty(shape, np.uint16)], [float32_from_bfloat16(a), wide], code)[0]
    found = parity([np.empty(shape, np.uint16)], [a, x], code)[0]
    np.testing.assert_array_equal(found, expected)
    swapped = parity(
        [np.empty(shape, np.uint16)], [x, a], [("add", 3, (2, 1), ()), ("maximum", 0, (3, 1), ())]
    )
    np.testing.assert_array_equal(swapped[0], expected)


def test_outputs_of_both_dtypes_and_what_is_read_again() -> None:
    """A value that was rounded goes on rounded; one that is only stored in bf16 goes on as it was."""
    a, b = bf16(2 * TILE + 9, seed=5), bf16(2 * TILE + 9, seed=6)
    wide_a, wide_b = float32_from_bfloat16(a), float32_from_bfloat16(b)
    shape = a.shape
    code: Code = [
        ("mul", 5, (3, 4), ()),
        ("bf16", 0, (5,), ()),
        ("add", 1, (0, 3), ()),
        ("add", 2, (5, 3), ()),
    ]
    outputs: list[Array] = [
        np.empty(shape, np.uint16),
        np.empty(shape, np.float32),
        np.empty(shape, np.uint16),
    ]
    half, full, other = parity(outputs, [a, b], code)
    np.testing.assert_array_equal(half, nearest(wide_a * wide_b))
    assert_same_bits(full, float32_from_bfloat16(half) + wide_a)
    np.testing.assert_array_equal(other, nearest(wide_a * wide_b + wide_a))


@pytest.mark.parametrize("count", [1, 31, TILE, 5 * TILE + 3])
def test_a_bf16_output_may_be_its_input(count: int) -> None:
    for isa, threads in itertools.product(isas(), (1, 3)):
        a, b = any_bf16(count, seed=7), any_bf16(count, seed=8)
        with np.errstate(all="ignore"):
            expected = nearest(float32_from_bfloat16(a) - float32_from_bfloat16(b))
        run_kernel("chain", [a, a, b], 1, code=[("sub", 0, (1, 2), ())], isa=isa, threads=threads)
        np.testing.assert_array_equal(a, expected)


def test_integers_and_bf16_outputs_with_gaps_are_refused() -> None:
    x = bf16(6, 8)
    refused: list[list[Array]] = [
        [np.zeros((6, 8), np.int32), x],
        [np.zeros((6, 8), np.uint16), np.zeros((6, 8), np.int8)],
        [np.zeros((8, 6), np.uint16).T, x],
        [np.zeros((6, 16), np.uint16)[:, ::2], x],
        [np.zeros((8, 6), np.uint16), x],
    ]
    for isa, operands in itertools.product(isas(), refused):
        with pytest.raises(VerifyError, match="chain"):
            run_kernel("chain", operands, 1, code=[("copy", 0, (1,), ())], isa=isa)


# --- around a tile of a matmul -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["f32", "bf16", "i8"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 37, 20), (17, 70, 65), (40, 33, 96)])
def test_a_chain_on_a_finished_tile_reads_and_stores_bf16(kind: str, m: int, n: int, k: int) -> None:
    """A residual, a row of biases and a column in bf16, a result in bf16 and the same in f32."""
    residual, bias, column = any_bf16(m, n, seed=9), bf16(1, n, seed=10), bf16(m, 1, seed=11)
    views = [residual, np.broadcast_to(bias, (m, n)), np.broadcast_to(column, (m, n))]
    factors: list[Array] = [bf16(m, k, seed=1), bf16(k, n, seed=2)]
    if kind == "f32":
        factors = list(map(float32_from_bfloat16, factors))
    elif kind == "i8":
        factors = [int8(m, k, seed=1), int8(k, n, seed=2), scales(1, n)]
    kernel = "matmul_scaled" if kind == "i8" else "matmul"
    product = np.empty((m, n), np.float32)
    run_kernel(kernel, [product, *factors], 1, ints=[1])
    wide = [float32_from_bfloat16(np.ascontiguousarray(view)) for view in views]
    with np.errstate(all="ignore"):
        expected = np.asarray((product + wide[1]) * wide[2] + wide[0])
    first = 2 + len(factors)  # the register of the first of `views`
    code: Code = [
        ("add", first + 3, (0, first + 1), ()),
        ("mul", first + 3, (first + 3, first + 2), ()),
        ("add", 0, (first + 3, first), ()),
        ("bf16", 1, (0,), ()),
    ]
    for isa, threads in itertools.product(isas(), (1, 3)):
        full, half = Guarded((m, n)), Guarded((m, n), np.uint16)
        operands = [full.array, half.array, *factors, *views]
        run_kernel(kernel, operands, 2, ints=[2], code=code, isa=isa, threads=threads)
        full.check()
        half.check()
        assert_same_bits(full.array, expected, f"{kind} {isa} {threads}")
        np.testing.assert_array_equal(half.array, nearest(expected))


# --- graphs ------------------------------------------------------------------------------------------


def test_fused_casts_are_casts_one_by_one() -> None:
    """N0, N9: the graph's rounding is neither lost nor doubled by fusing it with what is around it."""

    def work(x: vt.Tensor, y: vt.Tensor, w: vt.Tensor) -> dict[str, vt.Tensor]:
        half = vt.astype(x * y, "bf16")
        wide = vt.astype(half, "f32")
        return {
            "half": half,
            "onward": vt.tanh(wide + y),
            "twice": vt.astype(vt.astype(wide * wide, "bf16"), "f32") - wide,
            "turned": vt.astype(vt.astype(vt.transpose(half), "f32") + 1.0, "bf16"),
            "product": vt.astype(vt.gelu(half @ vt.astype(w, "bf16")), "bf16"),
            "residual": vt.astype(x @ w, "bf16").astype("f32") + wide,
        }

    rng = np.random.default_rng(12)
    x, y, w = (vt.asarray(rng.standard_normal((33, 33))) for _ in range(3))
    eager = {name: value.storage() for name, value in work(x, y, w).items()}
    for isa, threads, passes in itertools.product(isas(), (1, 2), (None, ())):
        with runtime(isa=isa, threads=threads, passes=passes):
            compiled = vt.compile(work)(x, y, w)
        for name, value in eager.items():
            assert_same_bits(compiled[name].storage(), value, f"{name} {isa} {threads} {passes}")
    np.testing.assert_array_equal(eager["half"], nearest(x.numpy() * y.numpy()))
    np.testing.assert_array_equal(eager["half"], bfloat16_from_float32(x.numpy() * y.numpy()))
