"""The float64 references say what the contract says: against independent formulas, and at the edges.

Independent means written otherwise: Python's own functions on single numbers, loops over indices,
complex numbers for rotations. Edges are NaN, infinities, zeros of both signs, empty axes, ties.
"""

from __future__ import annotations

import cmath
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.graphs import arguments, graphs

from volta.backends.interp import evaluate
from volta.dtypes import bfloat16, bfloat16_from_float32, float32, float32_from_bfloat16, int32
from volta.errors import DTypeError, IndexRangeError, NotFiniteError, ShapeError, UsageError
from volta.ir import philox
from volta.ir.graph import Graph, GraphBuilder
from volta.ir.ops import ELEMENTWISE, OPS

Array = npt.NDArray[Any]
NAN, INF = math.nan, math.inf
RNG = np.random.default_rng(5)
CHAIN_OPS = dict(
    re.findall(
        r"^VOLTA_CHAIN_OP\((\w+), \d+, (.*)\)$",
        (Path(__file__).parents[2] / "engine" / "csrc" / "chain_ops.def").read_text(),
        re.MULTILINE,
    )
)


def run(op: str, *arrays: Any, **attrs: Any) -> Array:
    """The first result of an operation's reference."""
    return OPS[op].evaluate([np.asarray(array) for array in arrays], attrs)[0]


def i32(*values: Any) -> Array:
    return np.array(values, np.int32)


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def _same(given: Any, expected: Any) -> None:
    """Equal with NaN equal to NaN, and with the signs of zeros."""
    given, expected = np.asarray(given, np.float64), np.asarray(expected, np.float64)
    np.testing.assert_array_equal(given, expected)
    np.testing.assert_array_equal(np.signbit(given)[given == 0], np.signbit(expected)[given == 0])


# --- elementwise ----------------------------------------------------------------------------------
def _sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else math.exp(x)


def _slope(function: Callable[[float], float]) -> Callable[[float], float]:
    """A derivative by Richardson's extrapolation of central differences."""

    def slope(x: float) -> float:
        def central(h: float) -> float:
            return (function(x + h) - function(x - h)) / (2 * h)

        return (4 * central(1e-3) - central(2e-3)) / 3

    return slope


def _gelu_tanh(x: float) -> float:
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _gelu_erf(x: float) -> float:
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


FUNCTIONS: dict[str, Callable[[float], float]] = {
    "exp": math.exp,
    "log": lambda x: math.log(abs(x)),
    "rsqrt": lambda x: abs(x) ** -0.5,
    "tanh": math.tanh,
    "sigmoid": _sigmoid,
    "erf": math.erf,
    "sin": math.sin,
    "cos": math.cos,
    "gelu_tanh": _gelu_tanh,
    "gelu_erf": _gelu_erf,
    "silu": lambda x: x * _sigmoid(x),
    "gelu_tanh_slope": _slope(_gelu_tanh),
    "gelu_erf_slope": _slope(_gelu_erf),
    "silu_slope": _slope(lambda x: x * _sigmoid(x)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_are_those_of_the_standard_library(name: str) -> None:
    x = np.concatenate((RNG.uniform(-4, 4, 50), [0.5, -0.5, 1e-3]))
    x = np.abs(x) if name in ("log", "rsqrt") else x
    expected = [FUNCTIONS[name](value) for value in x.tolist()]
    np.testing.assert_allclose(
        run(name, x),
        expected,
        rtol=1e-9 if name.endswith("slope") else 1e-13,
        atol=1e-9 if name.endswith("slope") else 1e-15,
    )


def test_gelu_keeps_its_relative_accuracy_in_the_tail() -> None:
    """x Phi(x) at -10 is -7.6e-23, which 1 + erf would round to 0."""
    assert math.isclose(float(run("gelu_erf", -10.0)), -10 * 7.619853024160527e-24, rel_tol=1e-12)
    u = math.sqrt(2 / math.pi) * (10 + 0.044715 * 1000)
    assert math.isclose(
        float(run("gelu_tanh", -10.0)), -10 * math.exp(-2 * u) / (1 + math.exp(-2 * u)), rel_tol=1e-12
    )


LIMITS = [  # -inf, -0, +0, +inf
    ("exp", (0.0, 1.0, 1.0, INF)),
    ("log", (NAN, -INF, -INF, INF)),
    ("sqrt", (NAN, -0.0, 0.0, INF)),
    ("rsqrt", (NAN, -INF, INF, 0.0)),
    ("tanh", (-1.0, -0.0, 0.0, 1.0)),
    ("sigmoid", (0.0, 0.5, 0.5, 1.0)),
    ("erf", (-1.0, -0.0, 0.0, 1.0)),
    ("sin", (NAN, -0.0, 0.0, NAN)),
    ("cos", (NAN, 1.0, 1.0, NAN)),
    ("gelu_tanh", (-0.0, -0.0, 0.0, INF)),
    ("gelu_erf", (-0.0, -0.0, 0.0, INF)),
    ("silu", (-0.0, -0.0, 0.0, INF)),
    ("gelu_tanh_slope", (0.0, 0.5, 0.5, 1.0)),
    ("gelu_erf_slope", (0.0, 0.5, 0.5, 1.0)),
    ("silu_slope", (0.0, 0.5, 0.5, 1.0)),
    ("neg", (INF, 0.0, -0.0, -INF)),
    ("abs", (INF, 0.0, 0.0, INF)),
    ("relu", (0.0, 0.0, 0.0, INF)),
]


@pytest.mark.parametrize(("name", "expected"), LIMITS, ids=[name for name, _ in LIMITS])
def test_functions_at_their_limits(name: str, expected: tuple[float, ...]) -> None:
    given = run(name, [-INF, -0.0, 0.0, INF])
    if name == "sin":  # math.sin refuses infinities; the contract gives NaN
        assert np.isnan(given[[0, 3]]).all()
    _same(given, expected)
    assert math.isnan(float(run(name, NAN)))


def _expression(name: str) -> Callable[..., float]:
    """A row of chain_ops.def that only has arithmetic, as Python: `c ? x : y` is `x if c else y`."""
    text = CHAIN_OPS[name].replace("VOLTA_SQRT", "sqrt").replace("VOLTA_ABS", "abs").replace("0.0f", "0.0")
    text = text.replace("1.0f", "1.0").replace("||", "or")
    while "?" in text:
        # the innermost conditional has no parentheses, or is the whole text
        text = (
            re.sub(r"\(([^()?]*)\?([^()?:]*):([^()?]*)\)", r"((\2) if (\1) else (\3))", text, count=1)
            if re.search(r"\([^()?]*\?", text)
            else re.sub(r"^(.*?)\?(.*?):(.*)$", r"((\2) if (\1) else (\3))", text)
        )
    names = ["a", "b", "c", "d", "e", "f", "x0", "x1"]
    code = compile(text.strip(), name, "eval")
    return lambda values, imm: float(
        eval(
            code,
            {"sqrt": np.sqrt, "abs": np.abs},  # the manifest's own text
            dict(zip(names, (*values, *([None] * (6 - len(values))), *imm), strict=False)),
        )
    )


EDGES = (0.0, -0.0, 1.0, -2.5, INF, -INF, NAN, 1e-40, 3e38)
ARITHMETIC = [op for op in ELEMENTWISE if "volta_" not in CHAIN_OPS[op.name].replace("VOLTA_ABS", "")]


@pytest.mark.parametrize("op", ARITHMETIC, ids=lambda op: op.name)
def test_arithmetic_rows_are_their_expressions_in_the_manifest(op: Any) -> None:
    """On float32, bit for bit: so constant folding and the optimizers' oracle follow chain_ops.def."""
    rng = np.random.default_rng(1)
    values = f32(*EDGES, *rng.standard_normal(8))
    grid = rng.choice(values, (300, op.arity)).astype(np.float32)
    if op.arity <= 2:
        grid = np.stack(np.meshgrid(*[values] * op.arity), -1).reshape(-1, op.arity)
    attrs = dict.fromkeys(op.attrs, 0.1)
    immediates = [np.float32(value) for value in op.immediates(attrs)]
    (given,) = op.evaluate(list(grid.T), attrs)
    assert given.dtype == np.float32
    expression = _expression(op.name)
    with np.errstate(all="ignore"):
        _same(given, [expression(row, immediates) for row in grid])


def test_maximum_and_minimum_at_their_edges() -> None:
    for op, larger in (("maximum", 2.0), ("minimum", 1.0)):
        _same(run(op, [1.0, NAN, 1.0, 0.0, -0.0], [2.0, 1.0, NAN, -0.0, 0.0]), [larger, NAN, NAN, 0.0, -0.0])


def test_adam_is_adam() -> None:
    """Three steps of the textbook's algorithm, weight decay decoupled."""
    rng = np.random.default_rng(2)
    w = expected = rng.standard_normal(4)
    m = v = np.zeros(4)
    beta1, beta2, rate, eps, decay = 0.9, 0.99, 0.01, 1e-8, 0.1
    m_true = v_true = np.zeros(4)
    for t in range(1, 4):
        g = rng.standard_normal(4)
        m, v = run("adam_m", m, g, beta1=beta1), run("adam_v", v, g, beta2=beta2)
        w = run("adam", w, m, v, rate, 1 / (1 - beta1**t), 1 / (1 - beta2**t), eps=eps, weight_decay=decay)
        m_true, v_true = beta1 * m_true + (1 - beta1) * g, beta2 * v_true + (1 - beta2) * g * g
        corrected = (m_true / (1 - beta1**t)) / (np.sqrt(v_true / (1 - beta2**t)) + eps)
        expected = expected - rate * decay * expected - rate * corrected
    np.testing.assert_allclose(w, expected, rtol=1e-6)


def test_momentum_and_sgd() -> None:
    _same(run("momentum", [1.0, 2.0], [3.0, 4.0], mu=0.5), [3.5, 5.0])
    _same(run("sgd", [1.0, 2.0], [3.0, 4.0], 0.5), [-0.5, 0.0])


# --- views, copies, contraction, reductions -------------------------------------------------------
def test_views_and_copies_are_numpys() -> None:
    x = RNG.standard_normal((3, 4))
    _same(run("slice", x, start=(1, 0), stop=(3, 4), step=(1, 3)), x[1:3, 0:4:3])
    _same(run("pad", x, low=(1, 0), high=(0, 2)), np.pad(x, ((1, 0), (0, 2))))
    _same(run("transpose", x, axes=(1, 0)), x.T)
    _same(run("concat", x, x[:, :1], axis=1), np.hstack((x, x[:, :1])))
    _same(run("broadcast_to", x, shape=(2, 3, 4)), np.stack((x, x)))
    first, second = OPS["split"].evaluate([x], {"sizes": (1, 3), "axis": 1})
    _same(first, x[:, :1])
    _same(second, x[:, 1:])
    assert run("reshape", i32([1, 2]), shape=(2,)).dtype == np.int32


def test_cast_rounds_to_bf16_and_back_is_exact() -> None:
    """1 + 2^-8 is half way between two bf16: ties go to even; NaN stays NaN."""
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, NAN, -0.0, 0.1])
    rounded = run("cast", x, dtype="bf16")
    _same(rounded[:5], [1.0, 1 + 2**-6, INF, NAN, -0.0])
    assert abs(rounded[5] - 0.1) <= 2**-12
    _same(run("cast", rounded, dtype="f32"), rounded)
    _same(run("cast", rounded, dtype="bf16"), rounded)
    assert run("cast", f32([0.1]), dtype="bf16").shape == (1, 1)


def test_matmul_is_a_sum_of_products() -> None:
    a, b = RNG.standard_normal((2, 1, 3, 4)), RNG.standard_normal((5, 4, 2))
    expected = [
        [
            [[math.fsum(a[i, 0, m, k] * b[j, k, n] for k in range(4)) for n in range(2)] for m in range(3)]
            for j in range(5)
        ]
        for i in range(2)
    ]
    np.testing.assert_allclose(run("matmul", a, b), expected, rtol=1e-12, atol=1e-14)
    _same(run("matmul", np.zeros((2, 0)), np.zeros((0, 3))), np.zeros((2, 3)))


def test_reductions_over_several_axes_and_none() -> None:
    x = RNG.standard_normal((2, 3, 4))
    for op, whole in (("sum", np.sum), ("mean", np.mean), ("max", np.max)):
        np.testing.assert_allclose(
            run(op, x, axes=(0, 2), keepdims=True), whole(x, axis=(0, 2), keepdims=True)
        )
        _same(run(op, x, axes=(), keepdims=False), x)
    np.testing.assert_allclose(run("sum_squares", x, axes=(1,), keepdims=False), np.square(x).sum(1))


def test_reductions_of_nothing() -> None:
    nothing = np.zeros((2, 0))
    for op, expected in (("sum", 0.0), ("sum_squares", 0.0), ("max", -INF), ("mean", NAN)):
        _same(run(op, nothing, axes=(1,), keepdims=False), [expected] * 2)


def test_max_and_argmax_take_the_first_nan_and_the_first_largest() -> None:
    x = np.array([[1.0, 3.0, 3.0], [5.0, NAN, 7.0], [-INF, -INF, -INF]])
    _same(run("max", x, axes=(1,), keepdims=False), [3.0, NAN, -INF])
    index = run("argmax", x, axis=1, keepdims=True)
    assert index.tolist() == [[1], [1], [0]]
    assert index.dtype == np.int32


# --- rows -----------------------------------------------------------------------------------------
def _softmax(row: list[float]) -> list[float]:
    total = math.fsum(math.exp(x - max(row)) for x in row)
    return [math.exp(x - max(row)) / total for x in row]


def test_softmax_and_its_logarithm() -> None:
    x = RNG.standard_normal((3, 5)) * 10
    expected = [_softmax(row) for row in x.tolist()]
    np.testing.assert_allclose(run("softmax", x), expected, rtol=1e-12)
    # near probability 1 both logarithms are of a number that was rounded: to 2^-53, whatever its logarithm
    np.testing.assert_allclose(run("log_softmax", x), np.log(expected), rtol=1e-12, atol=2**-50)


def test_softmax_at_its_edges() -> None:
    """A NaN makes its row NaN, as does a row of -inf; +inf is inf - inf; -inf is a zero elsewhere."""
    x = np.array(
        [[0.0, NAN, 1.0], [-INF, -INF, -INF], [INF, 0.0, 0.0], [0.0, -INF, 0.0], [1e300, 1e300, -1e300]]
    )
    expected = [[NAN] * 3, [NAN] * 3, [NAN, 0.0, 0.0], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]]
    given = run("softmax", x)
    _same(given[[0, 1, 3, 4]], [expected[i] for i in (0, 1, 3, 4)])
    assert np.isnan(given[2]).all()  # the sum is NaN
    assert np.isnan(run("log_softmax", x)[:3]).all()
    assert run("softmax", np.zeros((2, 0))).shape == (2, 0)


def test_softmax_gradients_are_jacobian_products() -> None:
    """J = diag(y) - y y^T; of the logarithm I - 1 y^T."""
    x, g = RNG.standard_normal(5), RNG.standard_normal(5)
    y = run("softmax", x)
    np.testing.assert_allclose(run("softmax_grad", y, g), (np.diag(y) - np.outer(y, y)) @ g)
    np.testing.assert_allclose(
        run("log_softmax_grad", np.log(y), g), (np.eye(5) - np.outer(y, np.ones(5))) @ g
    )


def test_cross_entropy_is_the_negative_log_probability() -> None:
    x, targets = RNG.standard_normal((4, 6)), i32(5, -1, 0, 3)
    rows = [_softmax(row) for row in x.tolist()]
    expected = [0.0 if t < 0 else -math.log(rows[r][t]) for r, t in enumerate(targets.tolist())]
    np.testing.assert_allclose(run("cross_entropy", x, targets, ignore_index=-1), expected)
    g = RNG.standard_normal(4)
    grad = [
        [0.0 if t < 0 else (rows[r][c] - (c == t)) * g[r] for c in range(6)]
        for r, t in enumerate(targets.tolist())
    ]
    np.testing.assert_allclose(run("cross_entropy_grad", x, targets, g, ignore_index=-1), grad)


def test_ignored_rows_are_not_read() -> None:
    x = np.array([[NAN, INF], [0.0, 0.0]])
    _same(run("cross_entropy", x, i32(7, 0), ignore_index=7), [0.0, math.log(2)])
    _same(
        run("cross_entropy_grad", x, i32(7, 0), np.array([NAN, 1.0]), ignore_index=7),
        [[0.0, 0.0], [-0.5, 0.5]],
    )
    assert float(run("count_valid", i32(7, 0, 1), ignore_index=7)) == 2.0
    assert float(run("count_valid", i32(7, 7), ignore_index=7)) == 1.0
    with pytest.raises(IndexRangeError, match=r"\[cross_entropy\] index is 2: expected 0..1"):
        run("cross_entropy", x, i32(7, 2), ignore_index=7)


def test_norms_have_the_moments_that_they_promise() -> None:
    x, w, b = RNG.standard_normal((3, 8)), RNG.standard_normal(8), RNG.standard_normal(8)
    y, stats = OPS["layer_norm"].evaluate([x, w, b], {"eps": 1e-5})
    plain = (y - b) / w
    np.testing.assert_allclose(plain.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(plain.var(1), x.var(1) / (x.var(1) + float(np.float32(1e-5))))
    np.testing.assert_allclose(
        stats, np.stack((x.mean(1), 1 / np.sqrt(x.var(1) + float(np.float32(1e-5)))), 1)
    )
    z, r = OPS["rms_norm"].evaluate([x, w], {"eps": 0.0})
    np.testing.assert_allclose(np.square(z / w).mean(1), 1)
    np.testing.assert_allclose(
        r[:, 0], [1 / math.sqrt(math.fsum(v * v for v in row) / 8) for row in x.tolist()]
    )


def test_norms_of_no_rows_have_weight_gradients_of_zero() -> None:
    x, w = np.zeros((0, 4)), np.ones(4)
    dx, dw, db = OPS["layer_norm_grad"].evaluate([x, np.zeros((0, 2)), w, x], {})
    assert dx.shape == (0, 4)
    _same([dw, db], np.zeros((2, 4)))
    _same(OPS["rms_norm_grad"].evaluate([x, np.zeros((0, 1)), w, x], {})[1], np.zeros(4))


# --- indexing -------------------------------------------------------------------------------------
def test_embedding_reads_rows_and_its_gradient_adds_them() -> None:
    table, indices, g = RNG.standard_normal((4, 3)), i32([2, 0], [2, 2]), RNG.standard_normal((2, 2, 3))
    _same(run("embedding", table, indices), np.stack([table[[2, 0]], table[[2, 2]]]))
    expected = np.zeros((4, 3))
    for at in np.ndindex(2, 2):
        expected[indices[at]] += g[at]
    _same(run("embedding_grad", g, indices, rows=4), expected)


@pytest.mark.parametrize("index", [-1, 4])
def test_indices_outside_the_table_are_refused(index: int) -> None:
    for op, operands, attrs in (
        ("embedding", (np.zeros((4, 2)), i32(index)), {}),
        ("embedding_grad", (np.zeros((1, 2)), i32(index)), {"rows": 4}),
    ):
        with pytest.raises(IndexRangeError, match=rf"\[{op}\] index is {index}: expected 0..3"):
            run(op, *operands, **attrs)


def test_gather_is_take_along_axis_and_its_gradient_adds() -> None:
    x, index, g = (
        RNG.standard_normal((2, 4, 3)),
        RNG.integers(-4, 4, (2, 5, 3)),
        RNG.standard_normal((2, 5, 3)),
    )
    given = run("gather", x, index, axis=1)
    expected = np.zeros((2, 4, 3))
    for i, j, k in np.ndindex(2, 5, 3):
        assert given[i, j, k] == x[i, index[i, j, k], k]
        expected[i, index[i, j, k] % 4, k] += g[i, j, k]
    np.testing.assert_allclose(run("gather_grad", g, index, axis=1, size=4), expected)
    with pytest.raises(IndexRangeError, match=r"\[gather\] index is -5: expected -4..3"):
        run("gather", x, np.full((2, 1, 3), -5), axis=1)
    with pytest.raises(IndexRangeError, match=r"\[gather_grad\] index is 4: expected -4..3"):
        run("gather_grad", g[:, :1], np.full((2, 1, 3), 4), axis=1, size=4)


# --- attention ------------------------------------------------------------------------------------
def test_rotary_turns_pairs_as_complex_numbers() -> None:
    x, angles = RNG.standard_normal((2, 2, 3, 4)), RNG.uniform(-3, 3, (6, 2))
    position = i32(1, 3)
    tables = (np.cos(angles), np.sin(angles))
    turned = run("rotary", x, *tables, position, inverse=False)
    for b, h, t, i in np.ndindex(2, 2, 3, 2):
        expected = complex(x[b, h, t, i], x[b, h, t, i + 2]) * cmath.exp(1j * angles[position[b] + t, i])
        assert cmath.isclose(complex(turned[b, h, t, i], turned[b, h, t, i + 2]), expected, abs_tol=1e-12)
    np.testing.assert_allclose(run("rotary", turned, *tables, position, inverse=True), x)
    with pytest.raises(IndexRangeError, match=r"\[rotary\] index is 4: expected 0..3"):
        run("rotary", x, *tables, i32(0, 4), inverse=False)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_weighs_the_visible_keys(causal: bool) -> None:
    """Loops over every query; heads 0, 1 read key head 0, heads 2, 3 read key head 1."""
    q, k, v = (
        RNG.standard_normal((2, 4, 2, 3)),
        RNG.standard_normal((2, 2, 5, 3)),
        RNG.standard_normal((2, 2, 5, 3)),
    )
    position = i32(0, 3)
    o, stats = OPS["attention"].evaluate([q, k, v, position], {"scale": 0.5, "causal": causal})
    for b, h, t in np.ndindex(2, 4, 2):
        visible = position[b] + t + 1 if causal else 5
        scores = [0.5 * math.fsum(q[b, h, t] * k[b, h // 2, j]) for j in range(visible)]
        weights = _softmax(scores)
        np.testing.assert_allclose(o[b, h, t], np.array(weights) @ v[b, h // 2, :visible])
        total = math.fsum(math.exp(s - max(scores)) for s in scores)
        np.testing.assert_allclose(stats[b, h, t], [max(scores), 1 / total])


def test_attention_needs_room_for_its_queries() -> None:
    q, k = np.zeros((1, 1, 2, 2)), np.zeros((1, 1, 3, 2))
    with pytest.raises(IndexRangeError, match=r"\[attention\] index is 2: expected 0..1"):
        run("attention", q, k, k, i32(2), scale=1.0, causal=True)
    assert run("attention", q, k, k, i32(2), scale=1.0, causal=False).shape == q.shape


def test_cache_update_replaces_rows() -> None:
    cache, new = np.zeros((2, 1, 4, 2)), RNG.standard_normal((2, 1, 2, 2))
    updated = run("cache_update", cache, new, i32(0, 2))
    _same(updated[0, :, :2], new[0])
    _same(updated[1, :, 2:], new[1])
    assert np.count_nonzero(updated) == new.size
    assert not cache.any()
    with pytest.raises(IndexRangeError, match=r"\[cache_update\] index is 3: expected 0..2"):
        run("cache_update", cache, new, i32(0, 3))


# --- randomness and sampling ----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_philox_gives_the_known_answers_of_its_authors(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert tuple(philox.philox(counter, key).tolist()) == expected


def test_an_element_depends_on_its_index_only() -> None:
    """The first words of a longer draw are those of a shorter one; element i is word i % 4 of block i / 4."""
    rng = i32(1, -2, 3)
    long = philox.words(23, rng, stream=9)
    assert philox.words(6, rng, stream=9).tolist() == long[:6].tolist()
    block = philox.philox((5, 0, 9, 3), (1, 0xFFFFFFFE))
    assert long[20:].tolist() == block[:3].tolist()


def test_uniform_and_normal_numbers_have_their_moments() -> None:
    rng = i32(7, 0, 0)
    u = run("random_uniform", rng, shape=(100, 100), stream=0, low=-1.0, high=3.0)
    assert u.min() >= -1
    assert u.max() < 3
    assert abs(u.mean() - 1) < 0.05
    assert abs(u.var() - 16 / 12) < 0.05
    assert np.array_equal(u, u.astype(np.float32))
    z = run("random_normal", rng, shape=(10001,), stream=0, mean=2.0, std=0.5)
    assert abs(z.mean() - 2) < 0.02
    assert abs(z.std() - 0.5) < 0.02
    assert z.shape == (10001,)
    assert not np.array_equal(
        u.ravel()[:9], run("random_uniform", rng, shape=(9,), stream=1, low=-1.0, high=3.0)
    )


def test_dropout_keeps_and_scales() -> None:
    x, rng = RNG.standard_normal((50, 40)), i32(7, 0, 0)
    y = run("dropout", x, rng, p=0.25, stream=4)
    kept = run("random_uniform", rng, shape=x.shape, stream=4, low=0.0, high=1.0) >= 0.25
    np.testing.assert_allclose(y, np.where(kept, x / 0.75, 0), rtol=1e-7)
    assert abs(kept.mean() - 0.75) < 0.03
    _same(run("dropout", x, rng, p=0.0, stream=4), x)


def _sampled(
    logits: Any,
    counter: int = 0,
    seen: Any = None,
    temperature: float = 1.0,
    top_p: float = 1.0,
    penalty: float = 1.0,
    min_p: float = 0.0,
    top_k: int = 0,
) -> int:
    row = np.array([logits], np.float64)
    marks = np.zeros(row.shape, np.int32) if seen is None else i32(seen)
    settings_row = np.array([[temperature, top_p, penalty, min_p]])
    return int(run("sample", row, marks, i32([1, 2, 3, counter]), settings_row, i32(top_k))[0])


def _support(**options: Any) -> set[int]:
    """What can be drawn from probabilities 0.5, 0.25, 0.125, 0.125 at tokens 3, 0, 1, 2."""
    logits = np.log([0.25, 0.125, 0.125, 0.5])
    return {_sampled(logits, counter, **options) for counter in range(200)}


def test_a_draw_follows_the_distribution() -> None:
    logits = np.log([0.2, 0.5, 0.3])
    counts = np.bincount([_sampled(logits, counter) for counter in range(2000)], minlength=3)
    np.testing.assert_allclose(counts / 2000, [0.2, 0.5, 0.3], atol=0.04)


def test_each_rule_of_sampling_cuts_the_support() -> None:
    assert _support() == {0, 1, 2, 3}
    assert _support(temperature=0.0) == {3}
    assert _support(top_k=1) == {3}
    assert _support(top_k=3) == {0, 1, 3}  # of the equal tokens 1 and 2 the smaller stays
    assert _support(top_k=9) == {0, 1, 2, 3}
    assert _support(top_p=0.6) == {0, 3}
    assert _support(top_p=0.0) == {3}
    assert _support(min_p=0.4) == {0, 3}
    assert _support(min_p=2.0) == {3}
    assert _support(top_p=0.8, top_k=3) == {0, 3}  # of 4/7, 2/7, 1/7


def test_a_penalty_moves_seen_tokens_towards_the_unlikely() -> None:
    assert _sampled([2.0, 1.5, -1.0], temperature=0.0, seen=[1, 0, 0], penalty=2.0) == 1
    assert _sampled([-2.0, -1.5, -2.5], temperature=0.0, seen=[0, 1, 0], penalty=2.0) == 0
    assert _sampled([2.0, 1.5, 2.0], temperature=0.0) == 0


def test_logits_that_are_not_numbers_cannot_be_drawn_from() -> None:
    for logits in ([NAN, 0.0], [INF, 0.0], [-INF, -INF]):
        with pytest.raises(NotFiniteError, match=r"\[sample\]"):
            _sampled(logits)
    assert _sampled([INF, 0.0], temperature=0.0) == 0
    assert _sampled([-INF, 0.0]) == 1


def test_mark_seen_marks_the_first_tokens_of_each_row() -> None:
    seen = np.zeros((2, 4), np.int32)
    marked = run("mark_seen", seen, i32([1, 3, 0], [2, 2, 1]), i32(2, 0))
    assert marked.tolist() == [[0, 1, 0, 1], [0, 0, 0, 0]]
    assert not seen.any()
    for tokens, lengths in (([4], [1]), ([0], [2])):
        with pytest.raises(IndexRangeError, match=r"\[mark_seen\]"):
            run("mark_seen", seen[:1], i32(tokens), i32(*lengths))


def test_check_finite_names_what_it_checked() -> None:
    x = np.array([[1.0, 2.0], [INF, NAN]])
    with pytest.raises(
        NotFiniteError, match=r"\[check_finite\] loss, grad: element 2 is inf: expected finite"
    ):
        run("check_finite", x, names=("loss", "grad"))
    _same(run("check_finite", x[:1], names=("loss",)), x[:1])


# --- the interpreter ------------------------------------------------------------------------------
def test_exact_operations_give_float32_in_float32() -> None:
    """What constant folding relies on: one rounding, no detour through float64."""
    a, b = f32(0.1, 1e-45, 3e38), f32(0.2, 3.0, 2.0)
    for op in ("add", "sub", "mul", "div"):
        (value,) = OPS[op].evaluate([a, b], {})
        assert value.dtype == np.float32
    (scaled,) = OPS["scale"].evaluate([a], {"factor": 0.1})
    with np.errstate(all="ignore"):
        assert scaled.tobytes() == (a * np.float32(0.1)).tobytes()


def test_the_interpreter_keeps_integers_and_widens_the_rest() -> None:
    build = GraphBuilder()
    i, half, x = (
        build.input("i", (2,), int32),
        build.input("h", (2,), bfloat16),
        build.input("x", (2,), float32),
    )
    wide = build.add("cast", (half,), {"dtype": "f32"})
    literal = build.constant(f32(0.1, NAN))
    graph = build.freeze([i, half, build.add("add", (wide, x)), literal, build.constant(i32(5))])
    numbers = f32(0.1, -3.0)
    bits = bfloat16_from_float32(numbers)
    for given_half in (bits, numbers):
        outputs = evaluate(graph, [i32(1, 2), given_half, f32(1.0, 2.0)])
        assert [output.dtype for output in outputs] == [
            np.int32,
            np.float64,
            np.float64,
            np.float64,
            np.int32,
        ]
        _same(outputs[1], float32_from_bfloat16(bits))
        _same(outputs[2], outputs[1] + np.array([1.0, 2.0]))
        _same(outputs[3], [float(np.float32(0.1)), NAN])


def test_the_interpreter_runs_fused_bodies() -> None:
    inner = GraphBuilder()
    a, b = inner.input("a", (2,), float32), inner.input("b", (2,), float32)
    body = inner.freeze([inner.add("sub", (a, b)), inner.add("mul", (a, b))])
    build = GraphBuilder()
    x, y = build.input("x", (2,), float32), build.input("y", (2,), float32)
    graph = build.freeze(build.results("fused", (y, x), {"body": body})[::-1])
    product, difference = evaluate(graph, [np.array([1.0, 2.0]), np.array([5.0, 7.0])])
    _same(product, [5.0, 14.0])
    _same(difference, [4.0, 5.0])


def test_the_interpreter_refuses_arguments_that_do_not_fit() -> None:
    build = GraphBuilder()
    graph = build.freeze([build.input("x", (2,), float32), build.input("i", (2,), int32)])
    with pytest.raises(UsageError, match=r"\[evaluate\] 1 arguments given: expected 2"):
        evaluate(graph, [np.zeros(2)])
    with pytest.raises(ShapeError, match=r"\[evaluate\] argument 'x' is \(3,\): expected \(2,\)"):
        evaluate(graph, [np.zeros(3), i32(1, 2)])
    with pytest.raises(DTypeError, match=r"\[evaluate\] argument 'i' is float64: expected i32"):
        evaluate(graph, [np.zeros(2), np.zeros(2)])
    with pytest.raises(DTypeError, match=r"\[evaluate\] argument 'x' is int32: expected f32"):
        evaluate(graph, [i32(1, 2), i32(1, 2)])
    with pytest.raises(DTypeError, match=r"\[evaluate\] argument 'i' is uint16: expected i32"):
        evaluate(graph, [np.zeros(2), np.zeros(2, np.uint16)])


@given(graphs(max_steps=15, fused=True), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_results_have_the_types_that_were_inferred(graph: Graph, seed: int) -> None:
    outputs = evaluate(graph, arguments(graph, seed))
    for node, value in zip(graph.outputs, outputs, strict=True):
        assert value.shape == node.shape
        assert value.dtype == (np.int32 if node.dtype == int32 else np.float64)
