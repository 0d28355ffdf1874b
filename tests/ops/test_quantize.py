"""Clause N10 from the functions down: the reference, the interpreter and the CPU agree on whole numbers and
scales, and products of whole numbers are exact before their scales."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.matmuls import int8
from tests.ops.parity import Array, assert_same_bits, isas

import volta as vt
from volta.backends.interp import evaluate
from volta.dtypes import float32
from volta.dtypes import int8 as i8
from volta.errors import DTypeError, GradientError, ShapeError
from volta.ir.graph import Graph, GraphBuilder
from volta.ir.ops import OPS
from volta.runtime.policy import runtime
from volta.tensor import Tensor

Floats = npt.NDArray[np.float32]


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def graph_of(groups: int, shape: tuple[int, ...]) -> Graph:
    build = GraphBuilder()
    x = build.input("x", shape, float32)
    return build.freeze(build.results("quantize", (x,), {"groups": groups}))


def everywhere(run: Callable[[], Any]) -> list[tuple[str, Any]]:
    """What it gives on every instruction set, with one and two threads, with and without passes."""
    found = []
    for isa, threads, passes in itertools.product(isas(), (1, 2), (None, ())):
        with runtime(isa=isa, threads=threads, passes=passes):
            found.append((f"{isa} threads={threads} passes={passes}", run()))
    return found


def assert_all_agree(x: Array, group: int | None) -> tuple[Array, Array]:
    """q and scale of the reference (in f32 and in f64), the interpreter and the CPU, eager and compiled."""
    groups = 1 if group is None else x.shape[-1] // group
    with np.errstate(all="ignore"):
        q, scale = OPS["quantize"].evaluate([x], {"groups": groups})
    assert q.dtype == np.int8
    assert (q.shape, scale.shape) == (x.shape, (*x.shape[:-1], groups))
    assert_same_bits(scale, scale.astype(np.float32), "reference")
    meant_q, meant_scale = evaluate(graph_of(groups, x.shape), [x])
    np.testing.assert_array_equal(meant_q, q)
    assert_same_bits(meant_scale.astype(np.float32), scale, "interpreter")
    tensor = vt.asarray(x)

    def run() -> list[Tensor]:
        both = vt.compile(lambda x: vt.quantize(x, group))
        return [*vt.quantize(tensor, group), *both(tensor)]

    for name, tensors in everywhere(run):
        for found_q, found_scale in (tensors[:2], tensors[2:]):
            assert (found_q.dtype, found_scale.dtype) == (i8, float32)
            np.testing.assert_array_equal(found_q.numpy(), q, name)
            assert_same_bits(found_scale.numpy(), scale, name)
    return q, scale


SHAPES = [
    ((1,), None),
    ((64,), 16),
    ((5, 33), None),
    ((5, 33), 11),
    ((3, 7, 40), 8),
    ((2, 128), 1),
    ((4, 64), 64),
]


@pytest.mark.parametrize(("shape", "group"), SHAPES, ids=str)
def test_reference_interpreter_and_cpu_agree(shape: tuple[int, ...], group: int | None) -> None:
    """Per row and per group; what it stands for is within half a step."""
    x = normal(*shape, seed=1)
    q, scale = assert_all_agree(x, group)
    parts = (*x.shape[:-1], scale.shape[-1], -1)
    back = (q.reshape(parts) * scale[..., np.newaxis]).reshape(x.shape)
    assert (np.abs(back - x).reshape(parts) <= 0.5001 * scale[..., np.newaxis]).all()


@given(
    rows=st.integers(1, 4),
    group=st.sampled_from([1, 2, 15, 32, 33]),
    groups=st.integers(1, 3),
    exponent=st.sampled_from([-149, -130, -126, -20, 0, 100, 126]),
    seed=st.integers(0, 100),
)
@settings(max_examples=25, deadline=None)
def test_they_agree_at_every_magnitude(rows: int, group: int, groups: int, exponent: int, seed: int) -> None:
    """Also where the largest magnitude is subnormal, so that its inverse overflows."""
    wide = np.random.default_rng(seed).uniform(-1, 1, (rows, groups * group)) * 2.0**exponent
    assert_all_agree(wide.astype(np.float32), group)


def test_the_largest_magnitude_is_127_of_either_sign() -> None:
    """-128 is never made: the range is symmetric."""
    x = np.array([[1.0, -4.0, 2.0, 0.5], [4.0, 1.0, -2.0, 0.0], [-3.0, -3.0, 3.0, 3.0]], np.float32)
    q, scale = assert_all_agree(x, None)
    assert q.tolist() == [[32, -127, 64, 16], [127, 32, -64, 0], [-127, -127, 127, 127]]
    assert_same_bits(scale, np.array([[4], [4], [3]], np.float32) * (np.float32(1) / np.float32(127)))
    extreme = np.finfo(np.float32).max
    q, scale = assert_all_agree(np.array([[extreme, -extreme, 0.0]], np.float32), None)
    assert q.tolist() == [[127, -127, 0]]
    assert np.isfinite(scale).all()


def test_ties_go_to_the_even_number() -> None:
    """x * (127 / m) with m = 127 is x: halves between whole numbers."""
    x = np.array([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5]], np.float32)
    q, _ = assert_all_agree(x, None)
    assert q.tolist() == [[127, 0, 2, 2, 0, -2, -2, 126]]


def test_a_group_of_zeros_is_zeros_with_scale_zero() -> None:
    """No division by zero, and the groups beside it do not see it."""
    x = normal(3, 12, seed=2)
    x[1, 4:8] = 0.0
    x[2] = -0.0
    q, scale = assert_all_agree(x, 4)
    assert not q[1, 4:8].any()
    assert not q[2].any()
    assert_same_bits(scale[1, 1:2], np.zeros(1, np.float32))
    assert_same_bits(scale[2], np.zeros(3, np.float32))
    alone, _ = assert_all_agree(x[1:2, :4], 4)
    np.testing.assert_array_equal(q[1, :4], alone[0])


def test_nan_and_infinity_are_seen_in_their_group_alone() -> None:
    """Whole numbers 0 and a scale of NaN or infinity, so every product with them is NaN."""
    x = normal(1, 16, seed=3)
    x[0, 1], x[0, 6], x[0, 9] = np.nan, np.inf, -np.inf
    q, scale = assert_all_agree(x, 4)
    assert not q[0, :12].any()
    assert q[0, 12:].any()
    assert_same_bits(scale[0, :3], np.array([np.nan, np.inf, np.inf], np.float32))
    assert np.isfinite(scale[0, 3])
    clean = np.ascontiguousarray(normal(16, 3, seed=4))
    w, w_scale = vt.quantize(vt.asarray(clean).T)
    a, a_scale = vt.quantize(vt.asarray(x))
    product = vt.multiply(vt.quantized_matmul(a, w.T, w_scale.T), a_scale)
    assert np.isnan(product.numpy()).all()


def test_no_rows_and_no_columns() -> None:
    for shape, group in (((0, 8), None), ((0, 8), 4), ((3, 0), None), ((2, 0, 8), 2)):
        assert_all_agree(np.zeros(shape, np.float32), group)


def test_views_are_read_as_their_copies() -> None:
    x = vt.asarray(normal(24, 10, seed=5))
    views: dict[str, Callable[[Tensor], Tensor]] = {
        "turned": lambda x: x.T,
        "every other": lambda x: x[:, ::2],
        "part": lambda x: x[3:9, 2:6],
        "spread": lambda x: vt.broadcast_to(x[:1], (4, 10)),
    }
    for name, view in views.items():
        expected = vt.quantize(vt.asarray(view(x).numpy()))
        for got, wanted in zip(vt.compile(lambda x, v=view: vt.quantize(v(x)))(x), expected, strict=True):
            assert_same_bits(got.numpy(), wanted.numpy(), name)


# --- products --------------------------------------------------------------------------------------


def product_graph(a: Array, w: Array, scale: Array) -> Graph:
    build = GraphBuilder()
    left = build.input("a", a.shape, i8 if a.dtype == np.int8 else float32)
    operands = (left, build.input("w", w.shape, i8), build.input("scale", scale.shape, float32))
    return build.freeze(build.results("quantized_matmul", operands))


def products(a: Array, w: Array, scale: Array) -> Array:
    """On the CPU, the same everywhere."""
    dtype = "i8" if a.dtype == np.int8 else "f32"
    operands = (vt.asarray(a, dtype), vt.asarray(w, "i8"), vt.asarray(scale))
    found = everywhere(lambda: vt.quantized_matmul(*operands).numpy())
    for name, value in found:
        assert_same_bits(value, found[0][1], name)
    return np.asarray(found[0][1])


PRODUCTS = [
    ((1, 1), 1, 1),
    ((5, 33), 7, 1),
    ((5, 33), 7, 3),
    ((17, 64), 40, 4),
    ((2, 3, 24), 9, 2),
    ((3, 6), 50, 6),
]


@pytest.mark.parametrize("whole", [True, False], ids=["i8", "f32"])
@pytest.mark.parametrize(("left", "n", "groups"), PRODUCTS, ids=str)
def test_products_agree_with_the_interpreter(left: tuple[int, ...], n: int, groups: int, whole: bool) -> None:
    """Per channel and per group. Whole numbers times scales that are powers of two: exact in f32 too."""
    a = int8(*left, seed=6) if whole else normal(*left, seed=6)
    w = int8(left[-1], n, seed=7)
    powers = np.random.default_rng(8).integers(-3, 3, (groups, n))
    scale = np.ldexp(np.float32(1), powers).astype(np.float32)
    (meant,) = evaluate(product_graph(a, w, scale), [a, w, scale])
    (referred,) = OPS["quantized_matmul"].evaluate([a, w, scale.astype(np.float64)], {})
    np.testing.assert_array_equal(meant, referred)
    found = products(a, w, scale)
    if whole:
        assert_same_bits(found, meant.astype(np.float32))
    else:
        np.testing.assert_allclose(found, meant, rtol=1e-4, atol=1e-3)


def test_a_product_of_whole_numbers_with_any_scales_is_within_its_roundings() -> None:
    a, w, scale = int8(9, 120, seed=9), int8(120, 30, seed=10), np.abs(normal(5, 30, seed=11))
    (meant,) = evaluate(product_graph(a, w, scale), [a, w, scale])
    parts = zip(np.split(np.arange(120), 5), scale, strict=True)
    size = np.sum([np.abs(a[:, part].astype(float)) @ np.abs(w[part]) * row for part, row in parts], 0)
    assert (np.abs(products(a, w, scale) - meant) <= 2.0**-22 * size).all()


@pytest.mark.parametrize("group", [None, 16, 64])
@pytest.mark.parametrize("whole", [True, False], ids=["i8", "f32"])
def test_a_quantized_layer_is_near_the_layer(group: int | None, whole: bool) -> None:
    """|error| <= k (|a| step_w / 2 + |w| step_a / 2 + the product of both): half a step for each factor."""
    x, weight = normal(12, 128, seed=12), normal(128, 20, seed=13)
    q, scale = vt.quantize(vt.asarray(weight).T, group)
    a, steps = vt.quantize(vt.asarray(x))
    if whole:
        found = vt.multiply(vt.quantized_matmul(a, q.T, scale.T), steps).numpy()
    else:
        found = vt.quantized_matmul(vt.asarray(x), q.T, scale.T).numpy()
    exact = x.astype(np.float64) @ weight
    half_w = 0.5001 * np.repeat(scale.numpy(), 128 // scale.shape[1], 1).T
    half_a = 0.5001 * steps.numpy() if whole else np.zeros((12, 1))
    bound = np.abs(x) @ half_w + half_a * np.abs(weight).sum(0) + half_a * half_w.sum(0)
    error = np.abs(found - exact)
    assert (error <= bound + 1e-4).all()
    assert error.max() > 0


def test_finer_groups_are_nearer() -> None:
    """What groups are for: one large weight costs its group alone."""
    weight = normal(256, 8, seed=14)
    weight[3] *= 50
    x = vt.asarray(normal(10, 256, seed=15))
    exact = x.numpy().astype(np.float64) @ weight
    errors = []
    for group in (None, 64, 16):
        q, scale = vt.quantize(vt.asarray(weight).T, group)
        errors.append(np.abs(vt.quantized_matmul(x, q.T, scale.T).numpy() - exact).mean())
    assert errors[0] > errors[1] > errors[2]


def test_a_row_alone_is_the_row_in_a_batch() -> None:
    weight = vt.asarray(normal(64, 50, seed=16))
    x = normal(20, 64, seed=17)
    for group in (None, 16):
        q, scale = vt.quantize(weight.T, group)
        for whole in (False, True):

            def layer(rows: Array, whole: bool = whole, q: Tensor = q, scale: Tensor = scale) -> Array:
                a = vt.asarray(rows)
                if not whole:
                    return vt.quantized_matmul(a, q.T, scale.T).numpy()
                a, steps = vt.quantize(a)
                return vt.multiply(vt.quantized_matmul(a, q.T, scale.T), steps).numpy()

            together = layer(x)
            for row in range(20):
                assert_same_bits(layer(x[row : row + 1]), together[row : row + 1])


# --- what is refused ---------------------------------------------------------------------------------

X = vt.ones((2, 12))
W = vt.zeros((12, 4), "i8")
S = vt.ones((3, 4))

REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "a group that does not divide": (
        lambda: vt.quantize(X, 5),
        ShapeError,
        r"\[quantize\] x is \(2, 12\), group is 5: expected a group that divides 12",
    ),
    "a group larger than the axis": (lambda: vt.quantize(X, 24), ShapeError, "group is 24: .*divides 12"),
    "no group": (lambda: vt.quantize(X, 0), ShapeError, "group is 0: .*divides 12"),
    "a negative group": (lambda: vt.quantize(X, -4), ShapeError, "group is -4: .*divides 12"),
    "a group of nothing": (lambda: vt.quantize(vt.zeros((3, 0)), 2), ShapeError, "group is 2: .*divides 0"),
    "a number": (lambda: vt.quantize(vt.asarray(1.0)), ShapeError, "expected at least one axis"),
    "bf16": (lambda: vt.quantize(vt.astype(X, "bf16")), DTypeError, r"\[quantize\] x is bf16: expected f32"),
    "i8 again": (lambda: vt.quantize(W), DTypeError, r"\[quantize\] x is i8: expected f32"),
    "groups of a graph": (
        lambda: graph_of(5, (2, 12)),
        ShapeError,
        r"\[quantize\] x is \(2, 12\), groups is 5: groups must divide 12",
    ),
    "no groups of a graph": (lambda: graph_of(0, (2, 12)), ShapeError, "groups must divide 12"),
    "scales that do not divide": (
        lambda: vt.quantized_matmul(X, W, vt.ones((5, 4))),
        ShapeError,
        r"\[quantized_matmul\] .*scale must be \[groups, 4\] with groups that divide 12",
    ),
    "scales of other columns": (
        lambda: vt.quantized_matmul(X, W, vt.ones((3, 5))),
        ShapeError,
        r"scale must be \[groups, 4\]",
    ),
    "scales as a row": (lambda: vt.quantized_matmul(X, W, vt.ones((4,))), ShapeError, "w and scale 2"),
    "no scales": (lambda: vt.quantized_matmul(X, W, vt.ones((0, 4))), ShapeError, "groups that divide 12"),
    "inner dimensions": (
        lambda: vt.quantized_matmul(vt.ones((2, 11)), W, S),
        ShapeError,
        "inner dimensions 11 and 12 differ",
    ),
    "batched weights": (
        lambda: vt.quantized_matmul(X, vt.zeros((2, 12, 4), "i8"), S),
        ShapeError,
        "w and scale 2",
    ),
    "f32 weights": (lambda: vt.quantized_matmul(X, vt.ones((12, 4)), S), DTypeError, "w is f32: expected i8"),
    "bf16 activations": (
        lambda: vt.quantized_matmul(vt.astype(X, "bf16"), W, S),
        DTypeError,
        "a is bf16: expected f32 or i8",
    ),
    "i8 by matmul": (
        lambda: vt.matmul(vt.zeros((2, 12), "i8"), W),
        DTypeError,
        r"\[matmul\] a is i8, b is i8: expected both f32, both bf16, or a f32 and b bf16",
    ),
    "products that overflow": (
        lambda: vt.quantized_matmul(
            vt.zeros((1, 1 << 17), "i8"), vt.zeros((1 << 17, 1), "i8"), vt.ones((1, 1))
        ),
        ShapeError,
        "groups must have at most 131071 rows",
    ),
    "a gradient of rounding": (
        lambda: vt.grad(lambda x: vt.sum(vt.quantize(x)[1]))(X),
        GradientError,
        "rounding to integers has no useful derivative",
    ),
    "a gradient through whole numbers": (
        lambda: vt.grad(lambda x: vt.sum(vt.quantized_matmul(x, W, S)))(X),
        GradientError,
        "rounding to integers has no useful derivative",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused_in_one_line(name: str) -> None:
    call, error, message = REFUSED[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_largest_group_is_exact() -> None:
    """131071 products of 127 * -128 fit an int32."""
    k = (1 << 17) - 1
    a, w = np.full((1, k), 127, np.int8), np.full((k, 1), -128, np.int8)
    found = products(a, w, np.ones((1, 1), np.float32))
    assert_same_bits(found, np.array([[127 * -128 * k]], np.float64).astype(np.float32))
