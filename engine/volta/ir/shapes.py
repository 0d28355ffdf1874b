"""Shape and dtype rules, shared by inference (GraphBuilder) and by the verifier.

A rule takes the application of an operation to operand types and gives the result types. Arity,
attribute kinds and operand dtypes were checked before, from the row. Dimension letters: B batch,
T time (queries), S keys, H heads, G key/value heads, D head width, C channels, V vocabulary, R rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from volta.dtypes import BY_NAME, DType, bfloat16, float32, int8, int32
from volta.errors import DTypeError, ShapeError, UsageError
from volta.ir import attributes as attribute
from volta.ir.graph import Attrs, Shape, TensorType

MAX_RANK = 6  # VOLTA_MAX_RANK in volta.h
ROLES = ("input", "parameter", "state")
Types: TypeAlias = tuple[TensorType, ...]


@dataclass(frozen=True, slots=True)
class Application:
    """An operation applied to operands: what a rule reads and what an error describes."""

    op: str
    names: tuple[str, ...]
    types: Types
    attrs: Attrs

    @property
    def shapes(self) -> tuple[Shape, ...]:
        return tuple(operand.shape for operand in self.types)

    def described(self, *attr_names: str) -> str:
        """`[matmul] a is (3, 4), b is (5, 6)`, then the named attributes."""
        facts = [f"{name} is {operand.shape}" for name, operand in zip(self.names, self.types, strict=True)]
        facts += [f"{name} is {self.attrs[name]!r}" for name in attr_names]
        return f"[{self.op}] {', '.join(facts)}"

    def refuse(self, expected: str, *attr_names: str) -> ShapeError:
        return ShapeError(f"{self.described(*attr_names)}: {expected}")

    def expect(self, holds: bool, expected: str, *attr_names: str) -> None:
        if not holds:
            raise self.refuse(expected, *attr_names)

    def ranks(self, *expected: int) -> tuple[Shape, ...]:
        """The operands' shapes, each of the given rank."""
        for name, shape, rank in zip(self.names, self.shapes, expected, strict=True):
            self.expect(len(shape) == rank, f"{name} must have rank {rank}")
        return self.shapes

    def axis(self, rank: int) -> int:
        axis = attribute.integer(self.attrs, "axis")
        self.expect(0 <= axis < rank, f"axis must be in 0..{rank - 1}", "axis")
        return axis


Rule: TypeAlias = Callable[[Application], Types]


def f32(*shape: int) -> TensorType:
    return TensorType(shape, float32)


def i32(*shape: int) -> TensorType:
    return TensorType(shape, int32)


def broadcast(shapes: Sequence[Shape]) -> Shape | None:
    """NumPy's rule: align at the right; each axis is equal or 1. None: they do not broadcast."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for axis in range(rank):
        lengths = {shape[axis - rank + len(shape)] for shape in shapes if axis - rank + len(shape) >= 0} - {1}
        if len(lengths) > 1:
            return None
        result.append(lengths.pop() if lengths else 1)
    return tuple(result)


def _shape_attr(call: Application) -> Shape:
    shape = attribute.integers(call.attrs, "shape")
    if any(length < 0 for length in shape):
        raise call.refuse("lengths must not be negative", "shape")
    return shape


# --- leaves ---------------------------------------------------------------------------------------
def input(call: Application) -> Types:
    dtype, role = attribute.string(call.attrs, "dtype"), attribute.string(call.attrs, "role")
    if not attribute.string(call.attrs, "name"):
        raise UsageError("[input] name is '': expected a name")
    if dtype not in BY_NAME:
        raise DTypeError(f"[input] dtype is {dtype!r}: expected one of {', '.join(BY_NAME)}")
    if role not in ROLES:
        raise UsageError(f"[input] role is {role!r}: expected one of {', '.join(ROLES)}")
    return (TensorType(_shape_attr(call), BY_NAME[dtype]),)


def constant(call: Application) -> Types:
    value = attribute.array(call.attrs, "value")
    for dtype in (float32, int32, int8):
        if value.dtype == dtype.numpy:
            return (TensorType(value.shape, dtype),)
    raise DTypeError(f"[constant] value is {value.dtype}: expected float32, int32 or int8")


def result(call: Application) -> Types:
    """`types` are all the results of the node that it reads."""
    index = attribute.integer(call.attrs, "index")
    if not 0 <= index < len(call.types):
        raise UsageError(f"[result] index is {index}: expected 0..{len(call.types) - 1}")
    return (call.types[index],)


def fused(call: Application) -> Types:
    body = attribute.graph(call.attrs, "body")
    expected = tuple(node.type for node in body.inputs)
    if call.types != expected:
        given, wanted = (", ".join(map(str, types)) or "nothing" for types in (call.types, expected))
        raise ShapeError(f"[fused] operands are {given}: the body takes {wanted}")
    return tuple(node.type for node in body.outputs)


# --- elementwise and views ------------------------------------------------------------------------
def elementwise(call: Application) -> Types:
    shape = broadcast(call.shapes)
    if shape is None:
        raise call.refuse("shapes must broadcast: aligned at the right, each axis equal or 1")
    return (TensorType(shape, float32),)


def reshape(call: Application) -> Types:
    (x,), shape = call.types, _shape_attr(call)
    call.expect(x.numel == math.prod(shape), f"{x.numel} elements cannot become {math.prod(shape)}", "shape")
    return (TensorType(shape, x.dtype),)


def transpose(call: Application) -> Types:
    (x,), axes = call.types, attribute.integers(call.attrs, "axes")
    call.expect(sorted(axes) == list(range(len(x.shape))), f"axes must permute 0..{len(x.shape) - 1}", "axes")
    return (TensorType(tuple(x.shape[axis] for axis in axes), x.dtype),)


def slice_(call: Application) -> Types:
    (x,) = call.types
    start, stop, step = (attribute.integers(call.attrs, name) for name in ("start", "stop", "step"))
    names = ("start", "stop", "step")
    call.expect({len(start), len(stop), len(step)} == {len(x.shape)}, "one entry per axis", *names)
    for axis, length in enumerate(x.shape):
        call.expect(
            0 <= start[axis] <= stop[axis] <= length and step[axis] >= 1,
            f"axis {axis} needs 0 <= start <= stop <= {length} and step >= 1",
            *names,
        )
    lengths = (-(-(last - first) // by) for first, last, by in zip(start, stop, step, strict=True))
    return (TensorType(tuple(lengths), x.dtype),)


def broadcast_to(call: Application) -> Types:
    (x,), shape = call.types, _shape_attr(call)
    call.expect(broadcast((x.shape, shape)) == shape, "x must broadcast to shape", "shape")
    return (TensorType(shape, x.dtype),)


# --- copies ---------------------------------------------------------------------------------------
def concat(call: Application) -> Types:
    if not call.types:
        raise ShapeError("[concat] 0 operands: expected at least 1")
    first = call.types[0]
    axis = call.axis(len(first.shape))
    names = [operand.dtype.name for operand in call.types]
    if len(set(names)) > 1:
        raise DTypeError(f"[concat] dtypes are {', '.join(names)}: expected one dtype")
    for operand in call.types:
        call.expect(
            len(operand.shape) == len(first.shape)
            and all(i == axis or operand.shape[i] == n for i, n in enumerate(first.shape)),
            "shapes must agree outside the axis",
            "axis",
        )
    joined = sum(operand.shape[axis] for operand in call.types)
    return (TensorType((*first.shape[:axis], joined, *first.shape[axis + 1 :]), first.dtype),)


def split(call: Application) -> Types:
    (x,) = call.types
    axis = call.axis(len(x.shape))
    sizes = attribute.integers(call.attrs, "sizes")
    call.expect(
        len(sizes) > 0 and min(sizes) >= 0 and sum(sizes) == x.shape[axis],
        f"sizes that add up to {x.shape[axis]}",
        "sizes",
        "axis",
    )
    return tuple(TensorType((*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype) for size in sizes)


def pad(call: Application) -> Types:
    (x,) = call.types
    low, high = (attribute.integers(call.attrs, name) for name in ("low", "high"))
    call.expect(
        len(low) == len(high) == len(x.shape) and all(n >= 0 for n in (*low, *high)),
        "one entry per axis, none negative",
        "low",
        "high",
    )
    return (TensorType(tuple(a + n + b for a, n, b in zip(low, x.shape, high, strict=True)), x.dtype),)


def cast(call: Application) -> Types:
    (x,), name = call.types, attribute.string(call.attrs, "dtype")
    to: DType | None = BY_NAME.get(name)
    if to is None or (
        x.dtype != to and (to.integer or x.dtype == int32 or (x.dtype, to) == (int8, bfloat16))
    ):
        expected = "f32 or bf16 to either, i8 to f32, or the same"
        raise DTypeError(f"[cast] x is {x.dtype.name}, dtype is {name!r}: expected {expected}")
    return (TensorType(x.shape, to),)


# --- contraction and reduction --------------------------------------------------------------------
MATMULS = {("f32", "f32"), ("f32", "bf16"), ("bf16", "bf16")}  # N1, N1 over widened weights, N9


def matmul(call: Application) -> Types:
    """a [.., m, k], b [.., k, n] -> f32 [.., m, n]; batch axes broadcast."""
    a, b = call.shapes
    given = (call.types[0].dtype.name, call.types[1].dtype.name)
    if given not in MATMULS:
        raise DTypeError(
            f"[matmul] a is {given[0]}, b is {given[1]}: expected both f32, both bf16, or a f32 and b bf16"
        )
    call.expect(len(a) >= 2 and len(b) >= 2, "both need rank 2 or more")
    call.expect(a[-1] == b[-2], f"inner dimensions {a[-1]} and {b[-2]} differ")
    batch = broadcast((a[:-2], b[:-2]))
    if batch is None:
        raise call.refuse(f"batch axes {a[:-2]} and {b[:-2]} do not broadcast")
    return (f32(*batch, a[-2], b[-1]),)


LARGEST_GROUP = (1 << 17) - 1  # VOLTA_LARGEST_GROUP: so many products of two int8 fit an int32


def quantized_matmul(call: Application) -> Types:
    """a f32 or i8 [.., m, k], w [k, n], scale [groups, n] -> f32 [.., m, n]."""
    a, w, scale = call.shapes
    if call.types[0].dtype not in (float32, int8):
        raise DTypeError(f"[quantized_matmul] a is {call.types[0].dtype}: expected f32 or i8")
    call.expect(len(a) >= 2 and len(w) == 2 and len(scale) == 2, "a needs rank 2 or more, w and scale 2")
    call.expect(a[-1] == w[0], f"inner dimensions {a[-1]} and {w[0]} differ")
    call.expect(
        scale[0] >= 1 and w[0] % scale[0] == 0 and scale[1] == w[1],
        f"scale must be [groups, {w[1]}] with groups that divide {w[0]}",
    )
    call.expect(w[0] // scale[0] <= LARGEST_GROUP, f"groups must have at most {LARGEST_GROUP} rows")
    return (f32(*a[:-1], w[1]),)


def quantize(call: Application) -> Types:
    """x [.., K] -> q i8 [.., K], scale f32 [.., groups]."""
    (x,), groups = call.shapes, attribute.integer(call.attrs, "groups")
    call.expect(len(x) >= 1, "expected rank 1 or more")
    call.expect(groups >= 1 and x[-1] % groups == 0, f"groups must divide {x[-1]}", "groups")
    return TensorType(x, int8), f32(*x[:-1], groups)


def reduced(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """The shape after the axes are reduced."""
    if keepdims:
        return tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    return tuple(length for axis, length in enumerate(shape) if axis not in axes)


def reduction(call: Application) -> Types:
    """Over no axis it is the identity, so a sum of squares needs one."""
    (x,), axes = call.shapes, attribute.integers(call.attrs, "axes")
    call.expect(
        set(axes) <= set(range(len(x))) and list(axes) == sorted(set(axes)),
        f"axes must be ascending and in 0..{len(x) - 1}",
        "axes",
    )
    call.expect(bool(axes) or call.op != "sum_squares", "expected at least one axis", "axes")
    return (f32(*reduced(x, axes, attribute.flag(call.attrs, "keepdims"))),)


def argmax(call: Application) -> Types:
    (x,) = call.shapes
    axis = call.axis(len(x))
    call.expect(x[axis] > 0, "an empty axis has no largest element", "axis")
    return (i32(*reduced(x, (axis,), attribute.flag(call.attrs, "keepdims"))),)


# --- rows: softmax, losses, norms -----------------------------------------------------------------
def rows(call: Application) -> Types:
    """Operands of one shape, worked on along their last axis; the result has it too."""
    first = call.shapes[0]
    call.expect(len(first) >= 1, "expected rank 1 or more")
    call.expect(all(shape == first for shape in call.shapes), "shapes must be equal")
    return (f32(*first),)


def cross_entropy(call: Application) -> Types:
    """logits [R, V], targets [R] -> loss [R]."""
    logits, targets = call.ranks(2, 1)
    call.expect(logits[0] == targets[0], f"{logits[0]} rows need {logits[0]} targets")
    return (f32(logits[0]),)


def cross_entropy_grad(call: Application) -> Types:
    """logits [R, V], targets [R], g [R] -> [R, V]."""
    logits, targets, g = call.ranks(2, 1, 1)
    call.expect(logits[0] == targets[0] == g[0], f"{logits[0]} rows need {logits[0]} targets and gradients")
    return (f32(*logits),)


def count_valid(call: Application) -> Types:
    call.ranks(1)
    return (f32(),)


def _norm_stats(call: Application, width: int) -> Shape:
    """x [.., C] and the other operands [C] -> the shape [.., width] of its statistics."""
    x = call.shapes[0]
    call.expect(len(x) >= 1, "x must have rank 1 or more")
    return (*x[:-1], width)


def layer_norm(call: Application) -> Types:
    """x [.., C], w [C], b [C] -> y [.., C], stats [.., 2] = (mean, rstd)."""
    return _norm(call, 2)


def rms_norm(call: Application) -> Types:
    """x [.., C], w [C] -> y [.., C], stats [.., 1] = r."""
    return _norm(call, 1)


def _norm(call: Application, width: int) -> Types:
    x, *weights = call.shapes
    stats = _norm_stats(call, width)
    call.expect(all(w == x[-1:] for w in weights), f"{' and '.join(call.names[1:])} must be {x[-1:]}")
    return f32(*x), f32(*stats)


def layer_norm_grad(call: Application) -> Types:
    """x [.., C], stats [.., 2], w [C], g [.., C] -> dx [.., C], dw [C], db [C]."""
    return _norm_grad(call, 2, 3)


def rms_norm_grad(call: Application) -> Types:
    """x [.., C], stats [.., 1], w [C], g [.., C] -> dx [.., C], dw [C]."""
    return _norm_grad(call, 1, 2)


def _norm_grad(call: Application, width: int, results: int) -> Types:
    x, stats, w, g = call.shapes
    call.expect(stats == _norm_stats(call, width), f"stats must be {(*x[:-1], width)}")
    call.expect(w == x[-1:] and g == x, f"w must be {x[-1:]} and g {x}")
    return (f32(*x), *(f32(*w) for _ in range(results - 1)))


# --- indexing -------------------------------------------------------------------------------------
def embedding(call: Application) -> Types:
    """table [V, C], indices [..] -> [.., C]."""
    table, indices = call.shapes
    call.expect(len(table) == 2, "table must have rank 2")
    return (f32(*indices, table[1]),)


def embedding_grad(call: Application) -> Types:
    """g [.., C], indices [..] -> [rows, C]."""
    g, indices = call.shapes
    count = attribute.integer(call.attrs, "rows")
    call.expect(len(g) >= 1 and g[:-1] == indices, "g must have the shape of indices and one more axis")
    call.expect(count >= 0, "rows must not be negative", "rows")
    return (f32(count, g[-1]),)


def gather(call: Application) -> Types:
    """x and index agree outside the axis; the result has index's shape."""
    x, index = call.shapes
    axis = call.axis(len(x))
    call.expect(
        len(x) == len(index) and all(i == axis or n == index[i] for i, n in enumerate(x)),
        "shapes must agree outside the axis",
        "axis",
    )
    return (f32(*index),)


def gather_grad(call: Application) -> Types:
    """g and index of one shape -> that shape with `size` at the axis."""
    g, index = call.shapes
    axis, size = call.axis(len(g)), attribute.integer(call.attrs, "size")
    call.expect(g == index, "shapes must be equal")
    call.expect(size >= 0, "size must not be negative", "size")
    return (f32(*g[:axis], size, *g[axis + 1 :]),)


# --- attention ------------------------------------------------------------------------------------
def rotary(call: Application) -> Types:
    """x [B, H, T, D], cos and sin [P, D/2], position [B] -> [B, H, T, D]."""
    x, cos, sin, position = call.ranks(4, 2, 2, 1)
    call.expect(x[3] % 2 == 0, "the head width D must be even")
    call.expect(cos == sin and cos[1] == x[3] // 2, f"cos and sin must both be (P, {x[3] // 2})")
    call.expect(position[0] == x[0], f"position must be ({x[0]},)")
    return (f32(*x),)


def _heads(call: Application, q: Shape, k: Shape, v: Shape, position: Shape) -> None:
    call.expect(k == v and k[0] == q[0] and k[3] == q[3], f"k and v must both be ({q[0]}, G, S, {q[3]})")
    call.expect(k[1] > 0 and q[1] % k[1] == 0, f"{q[1]} query heads cannot share {k[1]} key heads evenly")
    call.expect(position == q[:1], f"position must be ({q[0]},)")


def attention(call: Application) -> Types:
    """q [B, H, T, D], k and v [B, G, S, D], position [B] -> o as q, stats [B, H, T, 2] = (m, 1/sum)."""
    q, k, v, position = call.ranks(4, 4, 4, 1)
    _heads(call, q, k, v, position)
    return f32(*q), f32(*q[:3], 2)


def attention_grad(call: Application) -> Types:
    """As attention, with o, stats and g -> dq, dk, dv."""
    q, k, v, o, stats, g, position = call.ranks(4, 4, 4, 4, 4, 4, 1)
    _heads(call, q, k, v, position)
    call.expect(o == q and g == q and stats == (*q[:3], 2), f"o and g must be {q}, stats {(*q[:3], 2)}")
    return f32(*q), f32(*k), f32(*v)


def cache_update(call: Application) -> Types:
    """cache [B, G, S, D], new [B, G, T, D], position [B] -> cache."""
    cache, new, position = call.ranks(4, 4, 1)
    call.expect(
        cache[:2] == new[:2] and cache[3] == new[3] and new[2] <= cache[2],
        f"new must be {(*cache[:2], 'T', *cache[3:])} with T <= {cache[2]}",
    )
    call.expect(position == cache[:1], f"position must be ({cache[0]},)")
    return (f32(*cache),)


# --- randomness and sampling ----------------------------------------------------------------------
def _rng(call: Application, rng: Shape) -> None:
    call.expect(rng == (3,), "rng must be (3,): seed low, seed high, step")
    stream = attribute.integer(call.attrs, "stream")
    if not 0 <= stream < 2**32:
        raise UsageError(f"[{call.op}] stream is {stream}: expected 0..2^32-1")


def dropout(call: Application) -> Types:
    _rng(call, call.shapes[1])
    p = attribute.real(call.attrs, "p")
    if not 0.0 <= p < 1.0:
        raise UsageError(f"[dropout] p is {p}: expected 0 <= p < 1")
    return (call.types[0],)


def random(call: Application) -> Types:
    _rng(call, call.shapes[0])
    return (f32(*_shape_attr(call)),)


def sample(call: Application) -> Types:
    """logits and seen [B, V], rng and settings [B, 4], top_k [B] -> token [B]."""
    logits, seen, rng, settings, top_k = call.ranks(2, 2, 2, 2, 1)
    call.expect(seen == logits, "seen must have the shape of logits")
    call.expect(logits[1] > 0, "an empty vocabulary has nothing to sample")
    call.expect(rng == settings == (logits[0], 4), f"rng and settings must be {(logits[0], 4)}")
    call.expect(top_k == logits[:1], f"top_k must be {logits[:1]}")
    return (i32(logits[0]),)


def mark_seen(call: Application) -> Types:
    """seen [B, V], tokens [B, T], lengths [B] -> seen."""
    seen, tokens, lengths = call.ranks(2, 2, 1)
    call.expect(seen[0] == tokens[0] == lengths[0], "all need the same number of rows")
    return (call.types[0],)


def check_finite(call: Application) -> Types:
    if not attribute.strings(call.attrs, "names"):
        raise UsageError("[check_finite] names is (): expected at least one name to report")
    return (call.types[0],)
