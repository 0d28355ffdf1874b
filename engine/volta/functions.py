"""The operations on tensors: NumPy's names and argument order where NumPy has them, PyTorch's else.

Every function works on concrete tensors (it runs at once, by the same path as a whole model) and inside
`compile` and `value_and_grad` (it becomes part of the graph). Numbers are accepted beside tensors.
Errors: ShapeError and DTypeError, with what was given and what was expected.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Sequence
from types import EllipsisType

import numpy as np

from volta.dtypes import DType, float32
from volta.errors import ShapeError, UsageError
from volta.tensor import Scalar, Tensor, as_dtype, asarray
from volta.trace import apply, apply_all

Axis = int | Sequence[int] | None


# --- elementwise ---------------------------------------------------------------------------------


def add(a: Tensor | Scalar, b: Tensor | Scalar) -> Tensor:
    """a + b, broadcast."""
    return apply("add", a, b)


def subtract(a: Tensor | Scalar, b: Tensor | Scalar) -> Tensor:
    """a - b, broadcast."""
    return apply("sub", a, b)


def multiply(a: Tensor | Scalar, b: Tensor | Scalar) -> Tensor:
    """a * b, broadcast."""
    return apply("mul", a, b)


def divide(a: Tensor | Scalar, b: Tensor | Scalar) -> Tensor:
    """a / b, broadcast, correctly rounded."""
    return apply("div", a, b)


def maximum(a: Tensor | Scalar, b: Tensor | Scalar) -> Tensor:
    """The larger of each pair; NaN if either is."""
    return apply("maximum", a, b)


def minimum(a: Tensor | Scalar, b: Tensor | Scalar) -> Tensor:
    """The smaller of each pair; NaN if either is."""
    return apply("minimum", a, b)


def negative(x: Tensor) -> Tensor:
    """-x."""
    return apply("neg", x)


def abs(x: Tensor) -> Tensor:
    """|x|."""
    return apply("abs", x)


def exp(x: Tensor) -> Tensor:
    """e^x, within 2 ulp (N3)."""
    return apply("exp", x)


def log(x: Tensor) -> Tensor:
    """The natural logarithm, within 2 ulp (N3)."""
    return apply("log", x)


def sqrt(x: Tensor) -> Tensor:
    """The square root, correctly rounded."""
    return apply("sqrt", x)


def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x), both steps correctly rounded."""
    return apply("rsqrt", x)


def tanh(x: Tensor) -> Tensor:
    """The hyperbolic tangent (N3)."""
    return apply("tanh", x)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x) (N3)."""
    return apply("sigmoid", x)


def erf(x: Tensor) -> Tensor:
    """The error function (N3)."""
    return apply("erf", x)


def sin(x: Tensor) -> Tensor:
    """The sine (N3)."""
    return apply("sin", x)


def cos(x: Tensor) -> Tensor:
    """The cosine (N3)."""
    return apply("cos", x)


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return apply("relu", x)


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """x Phi(x) with the error function ("none") or the tanh form ("tanh")."""
    if approximate not in ("none", "tanh"):
        raise UsageError(f"[gelu] approximate is {approximate!r}: expected 'none' or 'tanh'")
    return apply("gelu_tanh" if approximate == "tanh" else "gelu_erf", x)


def silu(x: Tensor) -> Tensor:
    """x sigmoid(x)."""
    return apply("silu", x)


def scale(x: Tensor, factor: float) -> Tensor:
    """x * factor, with the factor rounded to f32 once."""
    return apply("scale", x, factor=float(factor))


# --- contraction and reductions --------------------------------------------------------------------


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """a [..., m, k] @ b [..., k, n], batch axes broadcast; vectors as in NumPy. The result is f32.

    Both f32, or a f32 and b bf16, which is widened (N1); or both bf16 (N9).
    """
    if a.ndim == 0 or b.ndim == 0:
        raise ShapeError(f"[matmul] a is {a.shape}, b is {b.shape}: expected at least one axis each")
    left = reshape(a, (1, *a.shape)) if a.ndim == 1 else a
    right = reshape(b, (*b.shape, 1)) if b.ndim == 1 else b
    product = apply("matmul", left, right)
    shape = product.shape
    if b.ndim == 1:
        shape = shape[:-1]
    if a.ndim == 1:
        shape = shape[:-1] if b.ndim == 1 else (*shape[:-2], shape[-1])
    return reshape(product, shape) if shape != product.shape else product


def quantize(x: Tensor, group: int | None = None) -> tuple[Tensor, Tensor]:
    """x [..., K] as whole numbers q i8 [..., K] and scale f32 [..., K / group]: x is about q * scale (N10).

    One scale for each `group` neighbours (all K by default): the largest magnitude / 127.
    """
    if x.ndim == 0:
        raise ShapeError("[quantize] x is (): expected at least one axis")
    if group is not None and (not 1 <= group <= x.shape[-1] or x.shape[-1] % group):
        raise ShapeError(
            f"[quantize] x is {x.shape}, group is {group}: expected a group that divides {x.shape[-1]}"
        )
    q, scale = apply_all("quantize", x, groups=1 if group is None else x.shape[-1] // group)
    return q, scale


def quantized_matmul(a: Tensor, w: Tensor, scale: Tensor) -> Tensor:
    """a [..., m, k] @ (w [k, n] * scale): w i8, scale f32 [groups, n] with groups of equal length along k.

    a f32: weights alone are quantized. a i8: products add up exactly; multiply the result by the scales
    of a's rows. With `q, s = quantize(W.T)`: quantized_matmul(a, q.T, s.T) (N10).
    """
    return apply("quantized_matmul", a, w, scale)


def sum(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum over `axis` (all by default), in 32 lanes (N2); several axes in turn, last first."""
    return apply("sum", x, axes=_axes("sum", x, axis), keepdims=keepdims)


def mean(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum (N2) times 1/n."""
    return apply("mean", x, axes=_axes("mean", x, axis), keepdims=keepdims)


def max(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element over `axis`; NaN if any is."""
    return apply("max", x, axes=_axes("max", x, axis), keepdims=keepdims)


def sum_squares(x: Tensor, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The sum of x * x, each product rounded (N2)."""
    return apply("sum_squares", x, axes=_axes("sum_squares", x, axis), keepdims=keepdims)


def argmax(x: Tensor, axis: int = -1, keepdims: bool = False) -> Tensor:
    """The index (i32) of the first largest element along `axis`."""
    return apply("argmax", x, axis=_axis("argmax", x, axis), keepdims=keepdims)


# --- shape -----------------------------------------------------------------------------------------


def reshape(x: Tensor, shape: int | Sequence[int]) -> Tensor:
    """The same elements in row-major order under another shape; one -1 is inferred."""
    wanted = [shape] if isinstance(shape, int) else list(shape)
    if wanted.count(-1) == 1:
        rest = math.prod(size for size in wanted if size != -1)
        if rest == 0 or x.size % rest:
            raise ShapeError(
                f"[reshape] {x.shape} has {x.size} elements: they do not divide into {tuple(wanted)}"
            )
        wanted[wanted.index(-1)] = x.size // rest
    return apply("reshape", x, shape=tuple(wanted))


def transpose(x: Tensor, axes: Sequence[int] | None = None) -> Tensor:
    """Axes permuted; reversed by default."""
    order = (
        tuple(reversed(range(x.ndim)))
        if axes is None
        else tuple(_axis("transpose", x, axis) for axis in axes)
    )
    return apply("transpose", x, axes=order)


def swapaxes(x: Tensor, axis1: int, axis2: int) -> Tensor:
    """Two axes exchanged."""
    order = list(range(x.ndim))
    first, second = _axis("swapaxes", x, axis1), _axis("swapaxes", x, axis2)
    order[first], order[second] = second, first
    return transpose(x, order)


def broadcast_to(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Axes of length one (and missing leading ones) repeated to `shape`."""
    return apply("broadcast_to", x, shape=tuple(shape))


def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors joined along an existing axis."""
    if not tensors:
        raise UsageError("[concatenate] no tensors were given: expected at least one")
    return apply("concat", *tensors, axis=_axis("concatenate", tensors[0], axis))


def stack(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Tensors of one shape joined along a new axis."""
    if not tensors:
        raise UsageError("[stack] no tensors were given: expected at least one")
    shape = tensors[0].shape
    where = axis + len(shape) + 1 if axis < 0 else axis
    if not 0 <= where <= len(shape):
        raise ShapeError(f"[stack] axis is {axis}: expected {-len(shape) - 1} to {len(shape)}")
    return concatenate([reshape(x, (*x.shape[:where], 1, *x.shape[where:])) for x in tensors], where)


def split(x: Tensor, sizes: Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
    """Consecutive parts of these sizes along `axis`; together they are x."""
    return apply_all("split", x, sizes=tuple(sizes), axis=_axis("split", x, axis))


def pad(x: Tensor, pad_width: Sequence[Sequence[int]]) -> Tensor:
    """Zeros around: (before, after) per axis."""
    if len(pad_width) != x.ndim or any(len(pair) != 2 for pair in pad_width):
        raise ShapeError(f"[pad] pad_width is {pad_width}: expected {x.ndim} pairs for shape {x.shape}")
    return apply("pad", x, low=tuple(low for low, _ in pad_width), high=tuple(high for _, high in pad_width))


def basic_index(x: Tensor, index: object) -> Tensor:
    """x[index] for integers, slices with positive steps and `...`."""
    parts = list(index) if isinstance(index, tuple) else [index]
    dots = [position for position, part in enumerate(parts) if part is Ellipsis]
    given = len(parts) - len(dots)
    if len(dots) > 1 or given > x.ndim:
        raise ShapeError(f"[index] {len(parts)} indices were given for shape {x.shape}")
    fill: list[int | slice | EllipsisType] = [slice(None)] * (x.ndim - given)
    where = dots[0] if dots else len(parts)
    full = parts[:where] + fill + parts[where + len(dots) :]
    start, stop, step, kept = [], [], [], []
    for part, size in zip(full, x.shape, strict=True):
        if isinstance(part, slice):
            begin, end, stride = part.indices(size)
            if stride < 1:
                raise UsageError(f"[index] the slice step is {stride}: expected 1 or more")
            start.append(begin)
            stop.append(builtins.max(begin, end))
            step.append(stride)
            kept.append(len(range(begin, end, stride)))
        elif isinstance(part, int | np.integer) and not isinstance(part, bool):
            at = int(part)
            if not -size <= at < size:
                raise ShapeError(f"[index] {at} is outside an axis of length {size}")
            start.append(at % size)
            stop.append(at % size + 1)
            step.append(1)
        else:
            raise UsageError(
                f"[index] given {part!r}: expected integers, slices or ... "
                "(by tensor: `embedding`, `take_along_axis`)"
            )
    taken = apply("slice", x, start=tuple(start), stop=tuple(stop), step=tuple(step))
    return reshape(taken, kept) if tuple(kept) != taken.shape else taken


def astype(x: Tensor, dtype: DType | str) -> Tensor:
    """f32 to bf16 (round to nearest even) or back; i8 to f32."""
    wanted = as_dtype(dtype)
    return x if wanted is x.dtype else apply("cast", x, dtype=wanted.name)


# --- creation --------------------------------------------------------------------------------------


def zeros(shape: int | Sequence[int], dtype: DType | str = float32) -> Tensor:
    """A concrete tensor of zeros."""
    return asarray(np.zeros(shape, np.int32 if as_dtype(dtype).integer else np.float32), dtype)


def ones(shape: int | Sequence[int], dtype: DType | str = float32) -> Tensor:
    """A concrete tensor of ones."""
    return asarray(np.ones(shape, np.int32 if as_dtype(dtype).integer else np.float32), dtype)


def arange(stop: int) -> Tensor:
    """0, 1, ..., stop - 1 as i32."""
    return asarray(np.arange(stop, dtype=np.int32))


def linear_range(stop: int) -> Tensor:
    """0.0, 1.0, ..., stop - 1 as f32."""
    return asarray(np.arange(stop, dtype=np.float32))


def random_key(seed: int, step: int = 0) -> Tensor:
    """The i32 [3] that random operations take: seed (64 bits) and step (N8)."""
    if not 0 <= seed < 2**64 or not 0 <= step < 2**32:
        raise UsageError(f"[random] seed is {seed}, step is {step}: expected 64 and 32 unsigned bits")
    words = np.array([seed & 0xFFFFFFFF, seed >> 32, step], np.uint32)
    return asarray(words.view(np.int32))


def uniform(
    key: Tensor, shape: Sequence[int], low: float = 0.0, high: float = 1.0, stream: int = 0
) -> Tensor:
    """Uniform in [low, high) from Philox (N8): the same on every machine."""
    return apply("random_uniform", key, shape=tuple(shape), stream=stream, low=float(low), high=float(high))


def normal(key: Tensor, shape: Sequence[int], mean: float = 0.0, std: float = 1.0, stream: int = 0) -> Tensor:
    """Normal by Box and Muller from Philox (N8): the same on every machine."""
    return apply("random_normal", key, shape=tuple(shape), stream=stream, mean=float(mean), std=float(std))


def dropout(x: Tensor, p: float, key: Tensor, stream: int = 0) -> Tensor:
    """Zeros with probability p, the rest times 1 / (1 - p); key as from `random_key`."""
    if not 0 <= p < 1:
        raise UsageError(f"[dropout] p is {p}: expected 0 <= p < 1")
    return apply("dropout", x, key, p=float(p), stream=stream) if p else x


# --- networks --------------------------------------------------------------------------------------


def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """e^(x - max) / sum, along `axis` (N4)."""
    return _on_last(x, axis, "softmax")


def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """(x - max) - log(sum(e^(x - max))), along `axis`."""
    return _on_last(x, axis, "log_softmax")


def cross_entropy(logits: Tensor, targets: Tensor, ignore_index: int = -100) -> Tensor:
    """The mean of -log softmax(logits)[target] over the targets that are not `ignore_index`.

    logits [..., V] f32, targets [...] i32; 0 where every target is ignored.
    """
    if logits.ndim < 1 or logits.shape[:-1] != targets.shape:
        raise ShapeError(
            f"[cross_entropy] logits are {logits.shape}, targets {targets.shape}: "
            f"expected targets {logits.shape[:-1]}"
        )
    rows = reshape(logits, (targets.size, logits.shape[-1]))
    flat = reshape(targets, (targets.size,))
    losses = apply("cross_entropy", rows, flat, ignore_index=ignore_index)
    return divide(sum(losses), apply("count_valid", flat, ignore_index=ignore_index))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """((x - mean) / sqrt(var + eps)) * weight + bias over the last axis (N6)."""
    return apply_all("layer_norm", x, weight, bias, eps=float(eps))[0]


def rms_norm(x: Tensor, weight: Tensor, eps: float = 1e-5) -> Tensor:
    """(x / sqrt(mean(x^2) + eps)) * weight over the last axis (N6)."""
    return apply_all("rms_norm", x, weight, eps=float(eps))[0]


def embedding(indices: Tensor, weight: Tensor) -> Tensor:
    """Rows of weight [V, C] at indices [...] i32: [..., C]."""
    return apply("embedding", weight, indices)


def take_along_axis(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    """Elements at `indices` (i32) along `axis`, as NumPy's function of this name."""
    return apply("gather", x, indices, axis=_axis("take_along_axis", x, axis))


def rotary(x: Tensor, cos: Tensor, sin: Tensor, position: Tensor) -> Tensor:
    """Rotary position embedding of x [B, H, T, D] with tables [P, D/2]; row t of batch b uses table row
    position[b] + t (Su et al. 2021; halves as in GPT-NeoX)."""
    return apply("rotary", x, cos, sin, position, inverse=False)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: bool = True,
    position: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    """softmax(q k^T * scale) v (N5).

    q [B, H, T, D]; k, v [B, G, S, D] with G dividing H. Causal: query t sees keys 0 .. position[b] + t
    (position i32 [B], zeros by default); else all S. scale: 1/sqrt(D) by default.
    """
    if position is None:
        position = zeros((q.shape[0],), "i32") if q.ndim else zeros((1,), "i32")
    factor = scale if scale is not None else 1.0 / math.sqrt(q.shape[-1]) if q.ndim and q.shape[-1] else 1.0
    return apply_all("attention", q, k, v, position, scale=float(np.float32(factor)), causal=causal)[0]


def cache_update(cache: Tensor, new: Tensor, position: Tensor) -> Tensor:
    """cache [B, G, S, D] with rows position[b] .. position[b] + T replaced by new [B, G, T, D]."""
    return apply("cache_update", cache, new, position)


def mark_seen(seen: Tensor, tokens: Tensor, lengths: Tensor) -> Tensor:
    """seen i32 [B, V] with 1 at the first lengths[b] tokens of each row of tokens [B, T]."""
    return apply("mark_seen", seen, tokens, lengths)


def sample(logits: Tensor, seen: Tensor, rng: Tensor, settings: Tensor, top_k: Tensor) -> Tensor:
    """One token i32 [B] per row of logits [B, V]; governance/determinism.md N8 defines the draw.

    rng i32 [B, 4]: seed low, seed high, stream, counter. settings f32 [B, 4]: temperature (0: greedy), top_p,
    repetition penalty (of tokens that `seen` marks), min_p. top_k i32 [B] (0: all).
    """
    return apply("sample", logits, seen, rng, settings, top_k)


def check_finite(x: Tensor, names: Sequence[str] = ("element 0",)) -> Tensor:
    """x itself; the program stops with NotFiniteError where x has NaN or infinity, naming the first such
    element by its place among `names` (elements without a name by their number)."""
    return apply("check_finite", x, names=tuple(names))


# --- arguments -------------------------------------------------------------------------------------


def _axis(op: str, x: Tensor, axis: int) -> int:
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"[{op}] axis is {axis}, the shape is {x.shape}: expected {-x.ndim} to {x.ndim - 1}")
    return axis % x.ndim


def _axes(op: str, x: Tensor, axis: Axis) -> tuple[int, ...]:
    if axis is None:
        return tuple(range(x.ndim))
    axes = sorted(_axis(op, x, a) for a in ([axis] if isinstance(axis, int) else axis))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"[{op}] axis is {axis}: expected each axis once")
    return tuple(axes)


def _on_last(x: Tensor, axis: int, op: str) -> Tensor:
    where = _axis(op, x, axis)
    if where == x.ndim - 1:
        return apply(op, x)
    return swapaxes(apply(op, swapaxes(x, where, -1)), where, -1)
