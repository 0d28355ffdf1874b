"""The functions: NumPy's values, shapes and broadcasting, eager = compiled, clear errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import assert_same_bits

import volta as vt
from volta import functions as F
from volta.dtypes import bfloat16, float32, int32
from volta.errors import DTypeError, IndexRangeError, NotFiniteError, ShapeError, UsageError
from volta.tensor import Tensor

Array = npt.NDArray[Any]
F32 = npt.NDArray[np.float32]


def numbers(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def assert_near(actual: Tensor, expected: Array, relative: float = 2e-6, absolute: float = 1e-6) -> None:
    assert actual.shape == expected.shape
    np.testing.assert_allclose(actual.numpy(), expected, relative, absolute)


# --- elementwise -------------------------------------------------------------------------------------

erf = np.vectorize(math.erf, otypes=[float])

UNARY: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Any], Any]]] = {
    "negative": (vt.negative, np.negative),
    "abs": (vt.abs, np.abs),
    "exp": (vt.exp, np.exp),
    "log": (lambda x: vt.log(vt.abs(x)), lambda x: np.log(np.abs(x))),
    "sqrt": (lambda x: vt.sqrt(vt.abs(x)), lambda x: np.sqrt(np.abs(x))),
    "rsqrt": (lambda x: vt.rsqrt(vt.abs(x)), lambda x: 1 / np.sqrt(np.abs(x))),
    "tanh": (vt.tanh, np.tanh),
    "sigmoid": (vt.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "erf": (vt.erf, erf),
    "sin": (vt.sin, np.sin),
    "cos": (vt.cos, np.cos),
    "relu": (vt.relu, lambda x: np.maximum(x, 0)),
    "gelu": (vt.gelu, lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    "gelu tanh": (
        lambda x: vt.gelu(x, "tanh"),
        lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    ),
    "silu": (vt.silu, lambda x: x / (1 + np.exp(-x))),
    "scale": (lambda x: vt.scale(x, 0.3), lambda x: x * float(np.float32(0.3))),
}

BINARY: dict[str, tuple[Callable[[Any, Any], Tensor], Callable[[Any, Any], Any]]] = {
    "add": (vt.add, np.add),
    "subtract": (vt.subtract, np.subtract),
    "multiply": (vt.multiply, np.multiply),
    "divide": (vt.divide, np.divide),
    "maximum": (vt.maximum, np.maximum),
    "minimum": (vt.minimum, np.minimum),
}


@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_value_is_numpys(name: str) -> None:
    run, truth = UNARY[name]
    for shape in ((), (5,), (2, 1, 33)):
        x = numbers(*shape) * 3
        assert_near(run(vt.asarray(x)), truth(x.astype(np.float64)))


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize(
    ("left", "right"), [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 3)), ((2, 0), (1,))]
)
def test_a_function_of_two_values_broadcasts_as_numpys(
    name: str, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    run, truth = BINARY[name]
    a, b = numbers(*left), numbers(*right, seed=1)
    assert_same_bits(run(vt.asarray(a), vt.asarray(b)).numpy(), truth(a, b))
    assert_same_bits(run(vt.asarray(a), 0.25).numpy(), truth(a, np.float32(0.25)))


def test_two_numbers_make_a_tensor() -> None:
    assert vt.add(1, 2).item() == 3.0


# --- contraction and reductions ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((4,), (4,)),
        ((2, 3, 4), (4, 5)),
        ((2, 3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((4,), (2, 4, 5)),
        ((2, 3, 4), (4,)),
        ((0, 4), (4, 3)),
        ((3, 0), (0, 2)),
    ],
)
def test_matmul_is_numpys_for_vectors_matrices_and_batches(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    a, b = numbers(*left), numbers(*right, seed=1)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    assert_near(vt.matmul(vt.asarray(a), vt.asarray(b)), np.asarray(expected))


REDUCTIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., Any]]] = {
    "sum": (vt.sum, np.sum),
    "mean": (vt.mean, np.mean),
    "max": (vt.max, np.max),
    "sum_squares": (vt.sum_squares, lambda x, **options: np.sum(x * x, **options)),
}


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(sorted(REDUCTIONS)))
def test_reductions_over_any_axes_are_numpys(data: st.DataObject, name: str) -> None:
    run, truth = REDUCTIONS[name]
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    rank = len(shape)
    axes = data.draw(st.sets(st.integers(0, rank - 1), min_size=1))
    axis: Any = tuple(a - rank if data.draw(st.booleans()) else a for a in sorted(axes))
    axis = data.draw(st.sampled_from((axis, None) if len(axis) > 1 else (axis, axis[0], None)))
    keepdims = data.draw(st.booleans())
    x = numbers(*shape)
    expected = truth(x.astype(np.float64), axis=axis, keepdims=keepdims)
    assert_near(run(vt.asarray(x), axis=axis, keepdims=keepdims), np.asarray(expected), 1e-5, 1e-5)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_argmax_is_numpys(axis: int, keepdims: bool) -> None:
    x = numbers(4, 7).round(0)
    result = vt.argmax(vt.asarray(x), axis, keepdims)
    assert result.dtype is int32
    assert np.array_equal(result.numpy(), x.argmax(axis, keepdims=keepdims))


def test_reductions_of_nothing_and_over_nothing() -> None:
    empty = vt.zeros((0, 3))
    assert vt.sum(empty).item() == 0.0
    assert np.isnan(vt.mean(empty).item())
    assert vt.max(empty).item() == -math.inf
    x = vt.asarray([[1.0, -0.0]])
    for run in (vt.sum, vt.mean, vt.max):
        assert_same_bits(run(x, axis=()).numpy(), x.numpy())


# --- shape -------------------------------------------------------------------------------------------

X = numbers(2, 3, 4)

SHAPED: dict[str, tuple[Callable[[Tensor], Any], Callable[[Array], Any]]] = {
    "reshape": (lambda x: vt.reshape(x, (4, 6)), lambda x: x.reshape(4, 6)),
    "reshape inferred": (lambda x: vt.reshape(x, (-1, 4)), lambda x: x.reshape(-1, 4)),
    "reshape flat": (lambda x: vt.reshape(x, -1), lambda x: x.reshape(-1)),
    "transpose": (vt.transpose, np.transpose),
    "transpose axes": (lambda x: vt.transpose(x, (1, -1, 0)), lambda x: x.transpose(1, 2, 0)),
    "swapaxes": (lambda x: vt.swapaxes(x, 0, -1), lambda x: x.swapaxes(0, -1)),
    "broadcast_to": (lambda x: vt.broadcast_to(x, (5, 2, 3, 4)), lambda x: np.broadcast_to(x, (5, 2, 3, 4))),
    "concatenate": (lambda x: vt.concatenate((x, x + 1), 1), lambda x: np.concatenate((x, x + 1), 1)),
    "concatenate last": (lambda x: vt.concatenate([x, x], -1), lambda x: np.concatenate([x, x], -1)),
    "stack": (lambda x: vt.stack((x, x * 2)), lambda x: np.stack((x, x * np.float32(2)))),
    "stack last": (lambda x: vt.stack((x, x), -1), lambda x: np.stack((x, x), -1)),
    "stack second": (lambda x: vt.stack((x, x), 1), lambda x: np.stack((x, x), 1)),
    "split": (lambda x: vt.split(x, (1, 0, 3), -1)[2], lambda x: x[..., 1:]),
    "pad": (
        lambda x: vt.pad(x, ((1, 0), (0, 2), (1, 1))),
        lambda x: np.pad(x, ((1, 0), (0, 2), (1, 1))),
    ),
    "transposed and flat": (lambda x: vt.reshape(vt.transpose(x), (24,)), lambda x: x.T.reshape(24)),
    "sliced and flat": (lambda x: vt.reshape(x[:, ::2], (-1,)), lambda x: x[:, ::2].reshape(-1)),
}


@pytest.mark.parametrize("name", SHAPED)
def test_what_moves_elements_is_numpys_in_every_bit(name: str) -> None:
    run, truth = SHAPED[name]
    assert_same_bits(run(vt.asarray(X)).numpy(), np.ascontiguousarray(truth(X)))


def test_split_gives_all_parts() -> None:
    parts = vt.split(vt.asarray(X), [1, 2], axis=1)
    assert [part.shape for part in parts] == [(2, 1, 4), (2, 2, 4)]
    assert_same_bits(vt.concatenate(parts, 1).numpy(), X)


def test_an_empty_array_keeps_its_inferred_length() -> None:
    assert vt.reshape(vt.zeros((0, 6)), (-1, 3)).shape == (0, 3)


# --- creation ----------------------------------------------------------------------------------------


def test_zeros_ones_and_ranges() -> None:
    for make, value in ((vt.zeros, 0), (vt.ones, 1)):
        for dtype in (float32, int32, bfloat16, "f32", "i32", "bf16"):
            x = make((2, 3), dtype)  # type: ignore[operator]
            assert (x.shape, x.dtype) == ((2, 3), F.as_dtype(dtype))
            assert (x.numpy() == value).all()
        assert make(3).shape == (3,)  # type: ignore[operator]
    assert (vt.arange(3).dtype, vt.arange(3).numpy().tolist()) == (int32, [0, 1, 2])
    assert (F.linear_range(3).dtype, F.linear_range(3).numpy().tolist()) == (float32, [0.0, 1.0, 2.0])


def test_random_keys_carry_seed_and_step() -> None:
    assert vt.random_key(2**33 + 5, 7).numpy().view(np.uint32).tolist() == [5, 2, 7]
    assert vt.random_key(2**64 - 1, 2**32 - 1).numpy().tolist() == [-1, -1, -1]


def test_draws_are_a_function_of_seed_step_and_stream() -> None:
    def draw(seed: int, step: int, stream: int) -> bytes:
        return vt.uniform(vt.random_key(seed, step), (50,), stream=stream).numpy().tobytes()

    drawn = [draw(1, 0, 0), draw(2, 0, 0), draw(1, 1, 0), draw(1, 0, 1)]
    assert len(set(drawn)) == 4
    assert draw(1, 0, 0) == drawn[0]


def test_uniform_and_normal_have_their_range_mean_and_deviation() -> None:
    u = vt.uniform(vt.random_key(3), (100, 100), low=-2.0, high=3.0).numpy()
    assert u.min() >= -2
    assert u.max() < 3
    assert abs(u.mean() - 0.5) < 0.05
    n = vt.normal(vt.random_key(3), (100, 100), mean=1.0, std=2.0).numpy()
    assert abs(n.mean() - 1) < 0.1
    assert abs(n.std() - 2) < 0.1


def test_dropout_zeros_a_share_and_scales_the_rest() -> None:
    x = vt.ones((100, 100))
    y = vt.dropout(x, 0.25, vt.random_key(5)).numpy()
    assert abs((y == 0).mean() - 0.25) < 0.02
    assert set(np.unique(y)) == {0.0, np.float32(1) / np.float32(0.75)}
    assert vt.dropout(x, 0.0, vt.random_key(5)) is x


# --- networks ----------------------------------------------------------------------------------------


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_and_its_logarithm_along_any_axis(axis: int) -> None:
    x = numbers(3, 4, 5)
    truth = softmax(x.astype(np.float64), axis)
    assert_near(vt.softmax(vt.asarray(x), axis), truth)
    assert_near(vt.log_softmax(vt.asarray(x), axis), np.log(truth))


def test_cross_entropy_is_the_mean_over_targets_that_count() -> None:
    logits, targets = numbers(2, 3, 6), np.array([[0, 5, -100], [2, -100, 3]])
    rows = np.log(softmax(logits.astype(np.float64)))
    kept = [(b, t) for b in range(2) for t in range(3) if targets[b, t] != -100]
    expected = -np.mean([rows[b, t, targets[b, t]] for b, t in kept])
    assert_near(vt.cross_entropy(vt.asarray(logits), vt.asarray(targets)), np.asarray(expected))
    other = np.where(targets == -100, 1, targets)
    assert_near(
        vt.cross_entropy(vt.asarray(logits), vt.asarray(other), ignore_index=1),
        np.asarray(-np.mean([rows[b, t, other[b, t]] for b, t in kept])),
    )
    nothing = vt.asarray(np.full((2, 3), -100))
    assert vt.cross_entropy(vt.asarray(logits), nothing).item() == 0.0


def test_norms() -> None:
    x, w, b = numbers(3, 8), numbers(8, seed=1), numbers(8, seed=2)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    layer = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b
    rms = wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-3) * w
    tensors = [vt.asarray(v) for v in (x, w, b)]
    assert_near(vt.layer_norm(*tensors), layer)
    assert_near(vt.rms_norm(*tensors[:2], eps=1e-3), rms)


def test_rows_and_elements_are_taken_by_index() -> None:
    table, index = numbers(5, 3), np.array([[4, 0], [2, 2]])
    assert_same_bits(vt.embedding(vt.asarray(index), vt.asarray(table)).numpy(), table[index])
    order = np.argsort(table, 0)
    taken = vt.take_along_axis(vt.asarray(table), vt.asarray(order), 0)
    assert_same_bits(taken.numpy(), np.take_along_axis(table, order, 0))


def attention_truth(q: Array, k: Array, v: Array, causal: bool, position: Array) -> Array:
    heads, groups = q.shape[1], k.shape[1]
    out = np.zeros(q.shape)
    for b, h, t in np.ndindex(q.shape[:3]):
        visible = position[b] + t + 1 if causal else k.shape[2]
        keys, values = k[b, h * groups // heads, :visible], v[b, h * groups // heads, :visible]
        out[b, h, t] = softmax(keys.astype(float) @ q[b, h, t] / math.sqrt(q.shape[3])) @ values
    return out


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_attention_with_grouped_heads_and_positions(causal: bool, groups: int) -> None:
    q, k, v = numbers(2, 4, 3, 8), numbers(2, groups, 6, 8, seed=1), numbers(2, groups, 6, 8, seed=2)
    position = np.array([3, 1])
    tensors = [vt.asarray(x) for x in (q, k, v)]
    result = vt.attention(*tensors, causal=causal, position=vt.asarray(position))
    assert_near(result, attention_truth(q, k, v, causal, position))
    if not causal:
        assert_same_bits(vt.attention(*tensors, causal=False).numpy(), result.numpy())


def test_attention_starts_at_position_zero_and_takes_a_scale() -> None:
    q = vt.asarray(numbers(1, 1, 3, 4))
    plain = vt.attention(q, q, q)
    assert_same_bits(plain.numpy(), vt.attention(q, q, q, position=vt.zeros((1,), "i32"), scale=0.5).numpy())
    assert_near(plain, attention_truth(*[q.numpy()] * 3, True, np.zeros(1, int)))


def test_rotary_turns_pairs_by_the_angle_of_their_place() -> None:
    x = numbers(2, 1, 3, 4)
    angle = np.outer(np.arange(8), [1.0, 0.1])
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    position = np.array([0, 5])
    expected = np.zeros(x.shape)
    for b, t in np.ndindex(2, 3):
        c, s = np.cos(angle[position[b] + t]), np.sin(angle[position[b] + t])
        first, second = x[b, 0, t, :2], x[b, 0, t, 2:]
        expected[b, 0, t] = np.concatenate([first * c - second * s, second * c + first * s])
    assert_near(vt.rotary(*(vt.asarray(v) for v in (x, cos, sin, position))), expected)


def test_a_cache_takes_rows_at_each_position_and_leaves_the_old_one_alone() -> None:
    cache, new = numbers(2, 1, 4, 3), numbers(2, 1, 2, 3, seed=1)
    old = vt.asarray(cache)
    result = vt.cache_update(old, vt.asarray(new), vt.asarray([0, 2]))
    expected = cache.copy()
    expected[0, :, 0:2], expected[1, :, 2:4] = new[0], new[1]
    assert_same_bits(result.numpy(), expected)
    assert_same_bits(old.numpy(), cache)


def test_marks_and_greedy_samples() -> None:
    seen = F.mark_seen(vt.zeros((2, 5), "i32"), vt.asarray([[1, 3, 3], [0, 4, 2]]), vt.asarray([3, 1]))
    assert seen.numpy().tolist() == [[0, 1, 0, 1, 0], [1, 0, 0, 0, 0]]
    logits = numbers(2, 5)
    settings_ = vt.asarray([[0.0, 1.0, 1.0, 0.0]] * 2)
    token = F.sample(
        vt.asarray(logits), vt.zeros((2, 5), "i32"), vt.zeros((2, 4), "i32"), settings_, vt.zeros((2,), "i32")
    )
    assert token.numpy().tolist() == logits.argmax(-1).tolist()


def test_a_finite_check_passes_values_on_and_names_what_is_not() -> None:
    x = vt.asarray([1.0, 2.0, 3.0])
    assert_same_bits(vt.check_finite(x).numpy(), x.numpy())
    with pytest.raises(NotFiniteError, match=r"\[check_finite\] the loss is NaN or infinite"):
        vt.check_finite(vt.asarray([np.nan, 1.0]), ("the loss", "the gradient"))
    with pytest.raises(NotFiniteError, match=r"\[check_finite\] the gradient is NaN"):
        vt.check_finite(vt.asarray([1.0, np.inf]), ("the loss", "the gradient"))
    with pytest.raises(NotFiniteError, match=r"\[check_finite\] element 2 is NaN"):
        vt.check_finite(vt.asarray([1.0, 2.0, -np.inf]))
    with pytest.raises(NotFiniteError, match=r"\[check_finite\] element 0 is NaN"):
        vt.check_finite(vt.asarray([np.nan]))


# --- compiled ----------------------------------------------------------------------------------------


def test_compiled_functions_give_the_bits_of_eager_ones() -> None:
    """One function of many operations; fused or not, in one program or in many."""

    def work(x: Tensor, w: Tensor) -> dict[str, Tensor]:
        hidden = vt.gelu(x @ w + 1)
        return {
            "norm": vt.layer_norm(hidden, w[0], w[1]),
            "soft": vt.softmax(hidden * 0.5, axis=0),
            "pieces": vt.concatenate([hidden[:, :2], vt.sum(hidden, 1, True) / 3], 1),
            "loss": vt.cross_entropy(hidden, vt.argmax(x @ w)),
            "noise": vt.dropout(hidden, 0.5, vt.random_key(1)),
        }

    x, w = vt.asarray(numbers(5, 4)), vt.asarray(numbers(4, 4, seed=1))
    eager, compiled = work(x, w), vt.compile(work)(x, w)
    assert sorted(compiled) == sorted(eager)
    for name, value in eager.items():
        assert_same_bits(compiled[name].numpy(), value.numpy(), name)


# --- errors ------------------------------------------------------------------------------------------

Z = vt.zeros((2, 3))
I = vt.zeros((2,), "i32")  # noqa: E741

ERRORS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "add": (
        lambda: vt.add(Z, vt.zeros((4,))),
        ShapeError,
        r"\[add\] a is \(2, 3\), b is \(4,\): shapes must broadcast",
    ),
    "add i32": (lambda: vt.add(Z, I), DTypeError, r"\[add\] b is i32: expected f32"),
    "exp i32": (lambda: vt.exp(I), DTypeError, r"\[exp\] x is i32: expected f32"),
    "gelu": (
        lambda: vt.gelu(Z, "erf"),
        UsageError,
        r"\[gelu\] approximate is 'erf': expected 'none' or 'tanh'",
    ),
    "matmul": (
        lambda: vt.matmul(Z, Z),
        ShapeError,
        r"\[matmul\] a is \(2, 3\), b is \(2, 3\): inner dimensions 3 and 2 differ",
    ),
    "matmul 0-d": (
        lambda: vt.matmul(Z, vt.asarray(1.0)),
        ShapeError,
        r"\[matmul\] a is \(2, 3\), b is \(\): expected at least one axis each",
    ),
    "sum axis": (
        lambda: vt.sum(Z, 2),
        ShapeError,
        r"\[sum\] axis is 2, the shape is \(2, 3\): expected -2 to 1",
    ),
    "sum twice": (
        lambda: vt.sum(Z, (0, -2)),
        ShapeError,
        r"\[sum\] axis is \(0, -2\): expected each axis once",
    ),
    "argmax empty": (lambda: vt.argmax(vt.zeros((2, 0))), ShapeError, r"\[argmax\] .*an empty axis"),
    "squares over nothing": (
        lambda: vt.sum_squares(Z, ()),
        ShapeError,
        r"\[sum_squares\] .*at least one axis",
    ),
    "reshape": (lambda: vt.reshape(Z, (4,)), ShapeError, r"\[reshape\] .*6 elements cannot become 4"),
    "reshape -1": (
        lambda: vt.reshape(Z, (-1, 4)),
        ShapeError,
        r"\[reshape\] \(2, 3\) has 6 elements: they do not divide into \(-1, 4\)",
    ),
    "reshape -1 by 0": (lambda: vt.reshape(Z, (-1, 0)), ShapeError, r"\[reshape\] .*do not divide"),
    "reshape -1 twice": (lambda: vt.reshape(Z, (-1, -1)), ShapeError, r"\[reshape\] .*must not be negative"),
    "transpose": (lambda: vt.transpose(Z, (0, 0)), ShapeError, r"\[transpose\] .*axes must permute 0\.\.1"),
    "transpose axis": (lambda: vt.transpose(Z, (0, 2)), ShapeError, r"\[transpose\] axis is 2"),
    "broadcast_to": (lambda: vt.broadcast_to(Z, (2, 4)), ShapeError, r"\[broadcast_to\] .*x must broadcast"),
    "concatenate nothing": (lambda: vt.concatenate([]), UsageError, r"\[concatenate\] no tensors were given"),
    "concatenate": (lambda: vt.concatenate([Z, vt.zeros((3, 3))], 1), ShapeError, r"\[concat\] .*must agree"),
    "concatenate dtypes": (
        lambda: vt.concatenate([I, vt.zeros((2,))]),
        DTypeError,
        r"\[concat\] dtypes are i32, f32: expected one dtype",
    ),
    "stack nothing": (lambda: vt.stack([]), UsageError, r"\[stack\] no tensors were given"),
    "stack axis": (lambda: vt.stack([Z], 3), ShapeError, r"\[stack\] axis is 3: expected -3 to 2"),
    "split": (lambda: vt.split(Z, (1, 1), 1), ShapeError, r"\[split\] .*sizes that add up to 3"),
    "pad": (
        lambda: vt.pad(Z, ((1, 1),)),
        ShapeError,
        r"\[pad\] pad_width is .*: expected 2 pairs for shape \(2, 3\)",
    ),
    "pad pairs": (lambda: vt.pad(Z, ((1, 1), (1,))), ShapeError, r"\[pad\] pad_width"),
    "pad negative": (lambda: vt.pad(Z, ((1, 1), (-1, 0))), ShapeError, r"\[pad\] .*none negative"),
    "cast": (lambda: vt.astype(Z, "i32"), DTypeError, r"\[cast\] x is f32, dtype is 'i32'"),
    "dtype": (lambda: vt.astype(Z, "f64"), DTypeError, r"\[dtype\] given 'f64': expected one of"),
    "seed": (lambda: vt.random_key(-1), UsageError, r"\[random\] seed is -1, step is 0: expected 64 and 32"),
    "step": (lambda: vt.random_key(0, 2**32), UsageError, r"\[random\] seed is 0, step is 4294967296"),
    "key": (lambda: vt.uniform(I, (3,)), ShapeError, r"\[random_uniform\] .*rng must be \(3,\)"),
    "stream": (
        lambda: vt.normal(vt.random_key(1), (3,), stream=-1),
        UsageError,
        r"\[random_normal\] stream is -1: expected 0\.\.2\^32-1",
    ),
    "dropout": (
        lambda: vt.dropout(Z, 1.0, vt.random_key(1)),
        UsageError,
        r"\[dropout\] p is 1\.0: expected 0 <= p < 1",
    ),
    "softmax": (lambda: vt.softmax(Z, 2), ShapeError, r"\[softmax\] axis is 2"),
    "softmax 0-d": (
        lambda: vt.softmax(vt.asarray(1.0)),
        ShapeError,
        r"\[softmax\] axis is -1, the shape is \(\)",
    ),
    "cross_entropy": (
        lambda: vt.cross_entropy(Z, vt.zeros((3,), "i32")),
        ShapeError,
        r"\[cross_entropy\] logits are \(2, 3\), targets \(3,\): expected targets \(2,\)",
    ),
    "cross_entropy targets": (
        lambda: vt.cross_entropy(Z, vt.zeros((2,))),
        DTypeError,
        r"targets is f32: expected i32",
    ),
    "target too large": (
        lambda: vt.cross_entropy(Z, vt.asarray([0, 3])),
        IndexRangeError,
        r"\[cross_entropy\] index is 3: expected 0 to 2",
    ),
    "layer_norm": (
        lambda: vt.layer_norm(Z, vt.zeros((2,)), vt.zeros((3,))),
        ShapeError,
        r"\[layer_norm\] .*w and b must be \(3,\)",
    ),
    "token": (
        lambda: vt.embedding(vt.asarray([0, 9]), Z),
        IndexRangeError,
        r"\[embedding\] index is 9: expected 0 to 1",
    ),
    "negative token": (
        lambda: vt.embedding(vt.asarray([-1]), Z),
        IndexRangeError,
        r"\[embedding\] index is -1",
    ),
    "take_along_axis": (
        lambda: vt.take_along_axis(Z, vt.zeros((3, 3), "i32"), 1),
        ShapeError,
        r"\[gather\] .*shapes must agree outside the axis",
    ),
    "attention": (
        lambda: vt.attention(vt.zeros((1, 3, 2, 4)), vt.zeros((1, 2, 2, 4)), vt.zeros((1, 2, 2, 4))),
        ShapeError,
        r"\[attention\] .*3 query heads cannot share 2 key heads evenly",
    ),
    "attention rank": (lambda: vt.attention(Z, Z, Z), ShapeError, r"\[attention\] .*must have rank 4"),
    "attention 0-d": (
        lambda: vt.attention(*[vt.asarray(1.0)] * 3),
        ShapeError,
        r"\[attention\] .*must have rank 4",
    ),
    "cache position": (
        lambda: vt.cache_update(vt.zeros((1, 1, 4, 2)), vt.zeros((1, 1, 2, 2)), vt.asarray([3])),
        IndexRangeError,
        r"\[cache_update\] index is",
    ),
    "names": (
        lambda: vt.check_finite(Z, ()),
        UsageError,
        r"\[check_finite\] names is \(\): expected at least one",
    ),
    "rank": (lambda: vt.zeros((1,) * 6).reshape((1,) * 7), ShapeError, r"\[reshape\] .*rank 6 at most"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_says_what_was_given_and_what_was_expected(name: str) -> None:
    call, error, message = ERRORS[name]
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
