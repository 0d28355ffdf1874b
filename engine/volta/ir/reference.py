"""Float64 references: what each operation means, in NumPy, for the accuracy oracle and for constant folding.

Arrays come positionally; attributes by name, or for elementwise rows as the immediates x0.. after the
arrays. Attributes that kernels read as f32 are rounded to f32 here too. A bf16 value travels as floats
that are exactly bf16. Operations that the table calls `exact` give the contract's bits when their
arrays are float32. Op.evaluate silences floating-point warnings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from volta import dtypes
from volta.errors import IndexRangeError, NotFiniteError
from volta.ir import philox

Array: TypeAlias = Any  # an array, or the scalar that NumPy makes of rank 0
f32 = np.float32


def constant(*, value: Array) -> Array:
    """Integers as they are; f32 is exact in float64."""
    return value if value.dtype.kind == "i" else value.astype(np.float64)


# --- elementwise: one operand ---------------------------------------------------------------------
def neg(x: Array) -> Array:
    return -x


def abs(x: Array) -> Array:
    return np.abs(x)


def exp(x: Array) -> Array:
    return np.exp(x)


def log(x: Array) -> Array:
    return np.log(x)


def sqrt(x: Array) -> Array:
    return np.sqrt(x)


def rsqrt(x: Array) -> Array:
    return 1.0 / np.sqrt(x)


def tanh(x: Array) -> Array:
    return np.tanh(x)


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x), by the side that does not overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e / (1 + e), 1 / (1 + e))


def _each(function: Any, x: Array) -> Array:
    """A function of the standard library on every element."""
    return np.array([function(value) for value in np.ravel(x).tolist()], np.float64).reshape(np.shape(x))


def erf(x: Array) -> Array:
    return _each(math.erf, x)


def _phi(x: Array) -> Array:
    """The normal distribution function, accurate in its tail."""
    return 0.5 * _each(math.erfc, -np.asarray(x) / math.sqrt(2.0))


def sin(x: Array) -> Array:
    return np.sin(x)


def cos(x: Array) -> Array:
    return np.cos(x)


def relu(x: Array) -> Array:
    return np.where(x > 0, x, np.where(x != x, x, np.zeros_like(x)))


def _with_limits(x: Array, y: Array, below: float, above: float) -> Array:
    """y, with its limits at -inf and +inf."""
    return np.where(x == -np.inf, below, np.where(x == np.inf, above, y))


_GELU_C = math.sqrt(2.0 / math.pi)


def gelu_tanh(x: Array) -> Array:
    """x (1 + tanh u) / 2 = x sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3)."""
    u = _GELU_C * (x + 0.044715 * x**3)
    return _with_limits(x, x * sigmoid(2 * u), -0.0, np.inf)


def gelu_erf(x: Array) -> Array:
    """x Phi(x)."""
    return _with_limits(x, x * _phi(x), -0.0, np.inf)


def silu(x: Array) -> Array:
    return _with_limits(x, x * sigmoid(x), -0.0, np.inf)


def gelu_tanh_slope(x: Array) -> Array:
    """s + x s (1 - s) 2 u', s = sigmoid(2 u), u' = sqrt(2/pi) (1 + 3 * 0.044715 x^2)."""
    u = _GELU_C * (x + 0.044715 * x**3)
    slope = _GELU_C * (1 + 3 * 0.044715 * x**2)
    s = sigmoid(2 * u)
    return _with_limits(x, s + x * s * sigmoid(-2 * u) * 2 * slope, 0.0, 1.0)


def gelu_erf_slope(x: Array) -> Array:
    """Phi(x) + x phi(x), phi(x) = exp(-x^2 / 2) / sqrt(2 pi)."""
    return _with_limits(x, _phi(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi), 0.0, 1.0)


def silu_slope(x: Array) -> Array:
    """s + x s (1 - s), s = sigmoid(x)."""
    s = sigmoid(x)
    return _with_limits(x, s + x * s * sigmoid(-x), 0.0, 1.0)


def scale(x: Array, x0: f32) -> Array:
    return x * x0


# --- elementwise: several operands ----------------------------------------------------------------
def add(a: Array, b: Array) -> Array:
    return a + b


def sub(a: Array, b: Array) -> Array:
    return a - b


def mul(a: Array, b: Array) -> Array:
    return a * b


def div(a: Array, b: Array) -> Array:
    return a / b


def maximum(a: Array, b: Array) -> Array:
    """NaN if either is; equal operands (also +0 and -0) give a."""
    return np.where(a != a, a, np.where((b > a) | (b != b), b, a))


def minimum(a: Array, b: Array) -> Array:
    """NaN if either is; equal operands (also +0 and -0) give a."""
    return np.where(a != a, a, np.where((b < a) | (b != b), b, a))


def greater_equal(a: Array, b: Array) -> Array:
    return (a >= b).astype(np.result_type(a, b))


def relu_grad(x: Array, g: Array) -> Array:
    return np.where(x > 0, g, np.zeros_like(g))


def momentum(buffer: Array, g: Array, mu: f32) -> Array:
    return buffer * mu + g


def sgd(w: Array, direction: Array, rate: Array) -> Array:
    return w - rate * direction


def adam_m(m: Array, g: Array, beta1: f32, rest: f32) -> Array:
    return m * beta1 + g * rest


def adam_v(v: Array, g: Array, beta2: f32, rest: f32) -> Array:
    return v * beta2 + (g * g) * rest


def adam(
    w: Array,
    m: Array,
    v: Array,
    rate: Array,
    correction1: Array,
    correction2: Array,
    eps: f32,
    weight_decay: f32,
) -> Array:
    """Corrections are 1 / (1 - beta^t); the decay is decoupled."""
    return (w - (rate * weight_decay) * w) - rate * ((m * correction1) / (np.sqrt(v * correction2) + eps))


# --- views and copies -----------------------------------------------------------------------------
def reshape(x: Array, *, shape: Sequence[int]) -> Array:
    return np.reshape(x, shape)


def transpose(x: Array, *, axes: Sequence[int]) -> Array:
    return np.transpose(x, axes)


def slice_(x: Array, *, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> Array:
    return x[tuple(map(slice, start, stop, step))]


def broadcast_to(x: Array, *, shape: Sequence[int]) -> Array:
    return np.broadcast_to(x, tuple(shape))


def concat(*xs: Array, axis: int) -> Array:
    return np.concatenate(xs, axis=axis)


def split(x: Array, *, sizes: Sequence[int], axis: int) -> tuple[Array, ...]:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis=axis))


def pad(x: Array, *, low: Sequence[int], high: Sequence[int]) -> Array:
    lengths = zip(low, x.shape, high, strict=True)
    out = np.zeros([before + length + after for before, length, after in lengths], x.dtype)
    out[tuple(slice(before, before + length) for before, length in zip(low, x.shape, strict=True))] = x
    return out


def cast(x: Array, *, dtype: str) -> Array:
    """To bf16 through f32, as a kernel does; the values of a bf16 are exact in every wider type."""
    if dtype != "bf16":
        return x
    rounded = dtypes.float32_from_bfloat16(dtypes.bfloat16_from_float32(np.asarray(x, np.float32)))
    return rounded.astype(np.asarray(x).dtype).reshape(np.shape(x))


# --- contraction and reductions -------------------------------------------------------------------
def matmul(a: Array, b: Array) -> Array:
    return np.matmul(a, b)


def quantized_matmul(a: Array, w: Array, scale: Array) -> Array:
    """Each group's product times its scales, added up."""
    wide = scale.dtype
    groups = np.split(np.arange(w.shape[0]), scale.shape[0])
    parts = (
        np.matmul(a[..., group].astype(wide), w[group].astype(wide)) * row
        for group, row in zip(groups, scale, strict=True)
    )
    return np.sum(list(parts), axis=0)


def quantize(x: Array, *, groups: int) -> tuple[Array, Array]:
    """The contract's very steps, which are f32: what lies between two integers depends on them."""
    rows = np.asarray(x, np.float32).reshape(*x.shape[:-1], groups, x.shape[-1] // groups)
    m = np.max(np.abs(rows), axis=-1, keepdims=True, initial=np.float32(0))
    inverse = np.float32(127) / m
    inverse = np.where(np.isfinite(inverse), inverse, np.float32(0))
    q = np.clip(np.rint(rows * inverse), -127, 127)
    scale = m * (np.float32(1) / np.float32(127))
    return np.where(np.isnan(q), 0, q).astype(np.int8).reshape(x.shape), scale[..., 0].astype(x.dtype)


def sum(x: Array, *, axes: Sequence[int], keepdims: bool) -> Array:
    return np.sum(x, axis=tuple(axes), keepdims=keepdims)


def mean(x: Array, *, axes: Sequence[int], keepdims: bool) -> Array:
    """Of no elements: 0 / 0 = NaN."""
    total = sum(x, axes=axes, keepdims=keepdims)
    return np.divide(total, math.prod(x.shape[axis] for axis in axes))


def max(x: Array, *, axes: Sequence[int], keepdims: bool) -> Array:
    """NaN where there is one; of no elements -inf."""
    return np.max(x, axis=tuple(axes), keepdims=keepdims, initial=-np.inf)


def sum_squares(x: Array, *, axes: Sequence[int], keepdims: bool) -> Array:
    return np.sum(x * x, axis=tuple(axes), keepdims=keepdims)


def argmax(x: Array, *, axis: int, keepdims: bool) -> Array:
    """The first of equal elements; the first NaN where there is one."""
    return np.argmax(x, axis=axis, keepdims=keepdims).astype(np.int32)


# --- rows -----------------------------------------------------------------------------------------
def _exp_rows(x: Array) -> tuple[Array, Array]:
    """m = max x, which ignores NaN; e = exp(x - m), which does not."""
    m = np.fmax.reduce(x, axis=-1, keepdims=True, initial=-np.inf)
    return m, np.exp(x - m)


def softmax(x: Array) -> Array:
    _, e = _exp_rows(x)
    return e / e.sum(-1, keepdims=True)


def softmax_grad(y: Array, g: Array) -> Array:
    return y * (g - (g * y).sum(-1, keepdims=True))


def log_softmax(x: Array) -> Array:
    m, e = _exp_rows(x)
    return (x - m) - np.log(e.sum(-1, keepdims=True))


def log_softmax_grad(y: Array, g: Array) -> Array:
    return g - np.exp(y) * g.sum(-1, keepdims=True)


def _checked(index: Array, first: int, limit: int, what: str) -> Array:
    """The index where every element is in [first, limit)."""
    outside = (index < first) | (index >= limit)
    if outside.any():
        raise IndexRangeError(f"[{what}] index is {int(index[outside][0])}: expected {first}..{limit - 1}")
    return index


def _targets(logits: Array, targets: Array, ignore_index: int, what: str) -> tuple[Array, Array]:
    """(rows that count, their targets)."""
    valid = np.flatnonzero(targets != ignore_index)
    return valid, _checked(targets[valid], 0, logits.shape[1], what)


def cross_entropy(logits: Array, targets: Array, *, ignore_index: int) -> Array:
    valid, target = _targets(logits, targets, ignore_index, "cross_entropy")
    m, e = _exp_rows(logits[valid])
    loss = np.zeros(len(targets), logits.dtype)
    loss[valid] = np.log(e.sum(-1)) - (logits[valid, target] - m[:, 0])
    return loss


def cross_entropy_grad(logits: Array, targets: Array, g: Array, *, ignore_index: int) -> Array:
    valid, target = _targets(logits, targets, ignore_index, "cross_entropy_grad")
    p = softmax(logits[valid])
    p[np.arange(len(valid)), target] -= 1
    dx = np.zeros_like(logits)
    dx[valid] = p * g[valid, None]
    return dx


def count_valid(targets: Array, *, ignore_index: int) -> Array:
    return np.maximum(1.0, np.count_nonzero(targets != ignore_index))


def _row_mean(x: Array) -> Array:
    """[.., C] -> [.., 1]; NaN where C is 0."""
    return x.sum(-1, keepdims=True) / x.shape[-1]


def layer_norm(x: Array, w: Array, b: Array, *, eps: float) -> tuple[Array, Array]:
    mean = _row_mean(x)
    rstd = 1 / np.sqrt(_row_mean((x - mean) ** 2) + f32(eps))
    return ((x - mean) * rstd) * w + b, np.concatenate((mean, rstd), -1)


def _over_rows(x: Array) -> Array:
    """[.., C] -> [C]"""
    return x.sum(tuple(range(x.ndim - 1)))


def layer_norm_grad(x: Array, stats: Array, w: Array, g: Array) -> tuple[Array, Array, Array]:
    mean, rstd = stats[..., :1], stats[..., 1:]
    h = (x - mean) * rstd
    d = g * w
    dx = ((d - _row_mean(d)) - h * _row_mean(d * h)) * rstd
    return dx, _over_rows(g * h), _over_rows(g)


def rms_norm(x: Array, w: Array, *, eps: float) -> tuple[Array, Array]:
    r = 1 / np.sqrt(_row_mean(x * x) + f32(eps))
    return (x * r) * w, r


def rms_norm_grad(x: Array, stats: Array, w: Array, g: Array) -> tuple[Array, Array]:
    h = x * stats
    d = g * w
    return (d - h * _row_mean(d * h)) * stats, _over_rows(g * h)


# --- indexing -------------------------------------------------------------------------------------
def embedding(table: Array, indices: Array) -> Array:
    return table[_checked(indices, 0, len(table), "embedding")]


def embedding_grad(g: Array, indices: Array, *, rows: int) -> Array:
    out = np.zeros((rows, g.shape[-1]), g.dtype)
    np.add.at(out, _checked(indices, 0, rows, "embedding_grad"), g)
    return out


def gather(x: Array, index: Array, *, axis: int) -> Array:
    """NumPy's take_along_axis: a negative index counts from the end."""
    return np.take_along_axis(x, _checked(index, -x.shape[axis], x.shape[axis], "gather"), axis)


def gather_grad(g: Array, index: Array, *, axis: int, size: int) -> Array:
    where: list[Array] = list(np.indices(index.shape, sparse=True))
    where[axis] = _checked(index, -size, size, "gather_grad")
    out = np.zeros((*g.shape[:axis], size, *g.shape[axis + 1 :]), g.dtype)
    np.add.at(out, tuple(where), g)
    return out


# --- attention ------------------------------------------------------------------------------------
def rotary(x: Array, cos: Array, sin: Array, position: Array, *, inverse: bool) -> Array:
    """x [B, H, T, D]; row position[b] + t of the tables turns the halves of D."""
    steps, half = x.shape[2], x.shape[3] // 2
    _checked(position, 0, len(cos) - steps + 1, "rotary")
    turn = position[:, None] + np.arange(steps)
    c, s = cos[turn][:, None], sin[turn][:, None]
    s = -s if inverse else s
    x1, x2 = x[..., :half], x[..., half:]
    return np.concatenate((x1 * c - x2 * s, x2 * c + x1 * s), -1)


def _grouped(x: Array, k: Array) -> Array:
    """[B, H, T, D] -> [B, G, H/G, T, D]: head h reads key head h / (H/G)."""
    return x.reshape(*k.shape[:2], x.shape[1] // k.shape[1], *x.shape[2:])


def _scores(q: Array, k: Array, position: Array, scale: float, causal: bool) -> Array:
    """s [B, G, H/G, T, S] = q k^T * scale, -inf where a key is not visible."""
    steps, keys = q.shape[2], k.shape[2]
    s: Array = np.einsum("bgntd,bgsd->bgnts", _grouped(q, k), k) * f32(scale)
    if causal:
        _checked(position, 0, keys - steps + 1, "attention")
        visible = np.arange(keys) <= position[:, None, None] + np.arange(steps)[:, None]
        s = np.where(visible[:, None, None], s, -np.inf)
    return s


def attention(
    q: Array,
    k: Array,
    v: Array,
    position: Array,
    *,
    scale: float,
    causal: bool,
) -> tuple[Array, Array]:
    m, e = _exp_rows(_scores(q, k, position, scale, causal))
    inverse = 1 / e.sum(-1, keepdims=True)
    o = np.einsum("bgnts,bgsd->bgntd", e * inverse, v)
    return o.reshape(q.shape), np.concatenate((m, inverse), -1).reshape(*q.shape[:3], 2)


def attention_grad(
    q: Array,
    k: Array,
    v: Array,
    o: Array,
    stats: Array,
    g: Array,
    position: Array,
    *,
    scale: float,
    causal: bool,
) -> tuple[Array, Array, Array]:
    m, inverse = np.split(_grouped(stats, k), 2, axis=-1)
    p = np.exp(_scores(q, k, position, scale, causal) - m) * inverse
    q5, o5, g5 = (_grouped(x, k) for x in (q, o, g))
    delta = (g5 * o5).sum(-1, keepdims=True)
    ds = (p * (np.einsum("bgntd,bgsd->bgnts", g5, v) - delta)) * f32(scale)
    dq = np.einsum("bgnts,bgsd->bgntd", ds, k).reshape(q.shape)
    return dq, np.einsum("bgnts,bgntd->bgsd", ds, q5), np.einsum("bgnts,bgntd->bgsd", p, g5)


def cache_update(cache: Array, new: Array, position: Array) -> Array:
    _checked(position, 0, cache.shape[2] - new.shape[2] + 1, "cache_update")
    out = np.array(cache)
    for row, first in enumerate(position):
        out[row, :, first : first + new.shape[2]] = new[row]
    return out


# --- randomness and sampling ----------------------------------------------------------------------
def dropout(x: Array, rng: Array, *, p: float, stream: int) -> Array:
    kept = philox.uniform(philox.words(x.size, rng, stream)).reshape(x.shape) >= f32(p)
    return np.where(kept, x * (f32(1) / (f32(1) - f32(p))), np.zeros_like(x))


def random_uniform(rng: Array, *, shape: Sequence[int], stream: int, low: float, high: float) -> Array:
    """f32 operations, so these are the contract's very values: low + u * (high - low)."""
    u = philox.uniform(philox.words(math.prod(shape), rng, stream)).astype(np.float32)
    return (f32(low) + u * (f32(high) - f32(low))).astype(np.float64).reshape(shape)


def random_normal(rng: Array, *, shape: Sequence[int], stream: int, mean: float, std: float) -> Array:
    return (f32(mean) + philox.normal(math.prod(shape), rng, stream) * f32(std)).reshape(shape)


def mark_seen(seen: Array, tokens: Array, lengths: Array) -> Array:
    out = np.array(seen)
    for row, length in enumerate(_checked(lengths, 0, tokens.shape[1] + 1, "mark_seen")):
        out[row, _checked(tokens[row, :length], 0, seen.shape[1], "mark_seen")] = 1
    return out


def check_finite(x: Array, *, names: Sequence[str]) -> Array:
    bad = np.flatnonzero(~np.isfinite(x))
    if bad.size:
        raise NotFiniteError(
            f"[check_finite] {', '.join(names)}: element {bad[0]} is {np.ravel(x)[bad[0]]}: "
            "expected finite values"
        )
    return x


def sample(logits: Array, seen: Array, rng: Array, settings: Array, top_k: Array) -> Array:
    """One token per row: the steps of csrc/cpu/ref/sample.c in float64."""
    rows = zip(logits, seen, rng, settings, top_k, strict=True)
    return np.array([_draw(*row) for row in rows], np.int32).reshape(len(logits))


_SAMPLE_WORD = 0x53414D50  # "SAMP"


def _draw(logits: Array, seen: Array, rng: Array, settings: Array, top_k: Array) -> int:
    temperature, top_p, penalty, min_p = settings.tolist()
    x = np.where(seen != 0, np.where(logits > 0, logits / penalty, logits * penalty), logits)
    greedy = not temperature > 0
    if np.isnan(x).any() or not (greedy or np.isfinite(x.max())):
        raise NotFiniteError(f"[sample] the largest logit is {x.max()}: expected a finite number")
    if greedy:
        return int(np.argmax(x))
    order = np.argsort(-x, kind="stable")[: int(top_k) if top_k > 0 else None]
    p = softmax(x[order] / temperature)
    rank = np.arange(len(p))
    short = np.flatnonzero(np.cumsum(p) >= top_p)
    prefix = short[0] + 1 if top_p < 1 and short.size else len(p)
    kept = np.flatnonzero((rank < prefix) & ((rank == 0) | (p >= min_p * p[0])))
    running = np.cumsum(p[kept])
    counter = (int(rng[3]) & philox.LOW, 0, int(rng[2]) & philox.LOW, _SAMPLE_WORD)
    u = philox.uniform(philox.philox(counter, (int(rng[0]) & philox.LOW, int(rng[1]) & philox.LOW))[0])
    return int(order[kept[min(np.searchsorted(running, u * running[-1], side="right"), len(kept) - 1)]])
