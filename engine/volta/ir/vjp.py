"""Vector-Jacobian products: one gradient row per operation.

A rule gets the builder of the gradient graph, the forward node (already in that graph) and g, the
gradient of the node's output (of its first result where it has several), and gives one entry per
operand: a node, None where the derivative is zero or the operand is an integer, or a reason where
there is a derivative that Volta does not give. Where every result has a gradient the row is `OfResults`.
An operation without a rule has a reason instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from volta.dtypes import bfloat16
from volta.ir import attributes as attribute
from volta.ir.graph import GraphBuilder, Node, Shape
from volta.ir.shapes import reduced

Gradients: TypeAlias = "tuple[Node | str | None, ...]"
Rule: TypeAlias = Callable[[GraphBuilder, Node, Node], Gradients]


@dataclass(frozen=True)
class OfResults:
    """A rule that takes the gradients of several results: result -> gradient, where one arrived."""

    rule: Callable[[GraphBuilder, Node, Mapping[int, Node]], Gradients]


SECOND = "second derivatives are not provided"
UPDATE = "an optimizer's update is not differentiated"
RANDOM = "a random value depends on no input but its counter"
STATE = "a cache is state of inference, not of training"
COUNT = "a count does not change with its targets"
RESULT = "the gradient of a result belongs to its node"
QUANTIZED = "rounding to integers has no useful derivative"
FUSED = "gradients are taken before operations are fused"


# --- shapes of gradients --------------------------------------------------------------------------
def _reshaped(build: GraphBuilder, x: Node, shape: Shape) -> Node:
    return x if x.shape == shape else build.add("reshape", (x,), {"shape": shape})


def _broadcast(build: GraphBuilder, x: Node, shape: Shape) -> Node:
    return x if x.shape == shape else build.add("broadcast_to", (x,), {"shape": shape})


def unbroadcast(build: GraphBuilder, g: Node, shape: Shape) -> Node:
    """Undoes broadcasting from `shape`: one sum over the axes that were repeated, then a reshape."""
    missing = len(g.shape) - len(shape)
    axes = tuple(
        axis
        for axis, length in enumerate(g.shape)
        if axis < missing or (shape[axis - missing] == 1 and length != 1)
    )
    if axes:
        g = build.add("sum", (g,), {"axes": axes, "keepdims": False})
    return _reshaped(build, g, shape)


def _spread(build: GraphBuilder, node: Node, g: Node) -> Node:
    """The gradient of a reduction's result, broadcast over the axes it reduced."""
    shape = node.inputs[0].shape
    kept = reduced(shape, attribute.integers(node.attrs, "axes"), keepdims=True)
    return _broadcast(build, _reshaped(build, g, kept), shape)


def _scaled(build: GraphBuilder, x: Node, factor: float) -> Node:
    return build.add("scale", (x,), {"factor": factor})


def _zero_padded(build: GraphBuilder, x: Node, low: Sequence[int], high: Sequence[int]) -> Node:
    return build.add("pad", (x,), {"low": tuple(low), "high": tuple(high)}) if any((*low, *high)) else x


def _window(build: GraphBuilder, x: Node, start: Sequence[int], stop: Sequence[int]) -> Node:
    """x[start:stop], one entry per axis."""
    if not any(start) and tuple(stop) == x.shape:
        return x
    return build.add("slice", (x,), {"start": tuple(start), "stop": tuple(stop), "step": (1,) * len(x.shape)})


def zeros(build: GraphBuilder, shape: Shape) -> Node:
    """One zero, seen in the shape."""
    return _broadcast(build, build.constant(np.array(0, np.float32)), shape)


def _one(build: GraphBuilder) -> Node:
    return build.constant(np.array(1, np.float32))


# --- elementwise: one operand ---------------------------------------------------------------------
def neg(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (build.add("neg", (g,)),)


def abs(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """g * sign(x), sign = (x >= 0) - (-x >= 0): 0 at 0."""
    (x,) = node.inputs
    zero = build.constant(np.array(0, np.float32))
    up = build.add("greater_equal", (x, zero))
    down = build.add("greater_equal", (build.add("neg", (x,)), zero))
    return (build.add("mul", (g, build.add("sub", (up, down)))),)


def exp(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (build.add("mul", (g, node)),)


def log(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (build.add("div", (g, node.inputs[0])),)


def sqrt(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """g / (2 y)."""
    return (build.add("div", (g, _scaled(build, node, 2.0))),)


def rsqrt(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """-g y^3 / 2."""
    cube = build.add("mul", (build.add("mul", (node, node)), node))
    return (build.add("mul", (g, _scaled(build, cube, -0.5))),)


def tanh(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """g (1 - y^2)."""
    return (build.add("mul", (g, build.add("sub", (_one(build), build.add("mul", (node, node)))))),)


def sigmoid(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """g y (1 - y)."""
    return (build.add("mul", (g, build.add("mul", (node, build.add("sub", (_one(build), node)))))),)


def erf(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """g exp(-x^2) 2 / sqrt(pi)."""
    (x,) = node.inputs
    bell = build.add("exp", (build.add("neg", (build.add("mul", (x, x)),)),))
    return (build.add("mul", (g, _scaled(build, bell, 2.0 / math.sqrt(math.pi)))),)


def sin(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (build.add("mul", (g, build.add("cos", node.inputs))),)


def cos(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (build.add("neg", (build.add("mul", (g, build.add("sin", node.inputs))),)),)


def relu(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (build.add("relu_grad", (node.inputs[0], g)),)


def _by_slope(slope: str) -> Rule:
    """g * slope(x)."""
    return lambda build, node, g: (build.add("mul", (g, build.add(slope, node.inputs))),)


gelu_tanh = _by_slope("gelu_tanh_slope")
gelu_erf = _by_slope("gelu_erf_slope")
silu = _by_slope("silu_slope")


def scale(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (_scaled(build, g, attribute.real(node.attrs, "factor")),)


# --- elementwise: two operands, broadcasting ------------------------------------------------------
def _to_operands(build: GraphBuilder, node: Node, *gradients: Node) -> tuple[Node, ...]:
    """Gradients of the broadcast shape, brought to the shapes of the operands."""
    pairs = zip(gradients, node.inputs, strict=True)
    return tuple(unbroadcast(build, g, operand.shape) for g, operand in pairs)


def add(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return _to_operands(build, node, g, g)


def sub(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    ga, gb = _to_operands(build, node, g, g)
    return ga, build.add("neg", (gb,))


def mul(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    a, b = node.inputs
    return _to_operands(build, node, build.add("mul", (g, b)), build.add("mul", (g, a)))


def div(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """y = a / b: ga = g / b, gb = -(g / b) y."""
    ga = build.add("div", (g, node.inputs[1]))
    return _to_operands(build, node, ga, build.add("neg", (build.add("mul", (ga, node)),)))


def _chosen(build: GraphBuilder, node: Node, g: Node, a_wins: Node) -> Gradients:
    """g to the operand that the result is; a mask of 1 and 0 chooses."""
    b_wins = build.add("sub", (_one(build), a_wins))
    return _to_operands(build, node, build.add("mul", (g, a_wins)), build.add("mul", (g, b_wins)))


def maximum(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    a, b = node.inputs
    return _chosen(build, node, g, build.add("greater_equal", (a, b)))


def minimum(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    a, b = node.inputs
    return _chosen(build, node, g, build.add("greater_equal", (b, a)))


def greater_equal(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """Piecewise constant."""
    return None, None


def relu_grad(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """Piecewise constant in x, linear in g."""
    x, inner = node.inputs
    return None, unbroadcast(build, build.add("relu_grad", (x, g)), inner.shape)


# --- views and copies -----------------------------------------------------------------------------
def reshape(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (_reshaped(build, g, node.inputs[0].shape),)


def transpose(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    axes = attribute.integers(node.attrs, "axes")
    return (build.add("transpose", (g,), {"axes": tuple(axes.index(axis) for axis in range(len(axes)))}),)


def slice_(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """Zeros between the steps, then zeros around."""
    start, step = (attribute.integers(node.attrs, name) for name in ("start", "step"))
    for axis, by in enumerate(step):
        g = _dilated(build, g, axis, by)
    shape = node.inputs[0].shape
    high = (whole - first - length for whole, first, length in zip(shape, start, g.shape, strict=True))
    return (_zero_padded(build, g, start, tuple(high)),)


def _dilated(build: GraphBuilder, g: Node, axis: int, step: int) -> Node:
    """step - 1 zeros between the elements of an axis: [P, n, S] -> [P, n, 1, S] -> [P, n, step, S] -> cut."""
    shape = g.shape
    n = shape[axis]
    if step == 1 or n <= 1:
        return g
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    apart = _zero_padded(build, _reshaped(build, g, (before, n, 1, after)), (0,) * 4, (0, 0, step - 1, 0))
    whole = _reshaped(build, apart, (before, n * step, after))
    length = (n - 1) * step + 1
    cut = _window(build, whole, (0, 0, 0), (before, length, after))
    return _reshaped(build, cut, (*shape[:axis], length, *shape[axis + 1 :]))


def broadcast_to(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (unbroadcast(build, g, node.inputs[0].shape),)


def concat(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    axis, first, parts = attribute.integer(node.attrs, "axis"), 0, []
    for operand in node.inputs:
        start, stop = [0] * len(g.shape), list(g.shape)
        start[axis], stop[axis] = first, first + operand.shape[axis]
        first = stop[axis]
        parts.append(_window(build, g, start, stop))
    return tuple(parts)


def _split(build: GraphBuilder, node: Node, arrived: Mapping[int, Node]) -> Gradients:
    """The parts' gradients joined; zeros for parts that the loss does not read."""
    parts = [
        arrived[index] if index in arrived else zeros(build, kind.shape)
        for index, kind in enumerate(node.types)
    ]
    return (build.add("concat", parts, {"axis": node.attrs["axis"]}),)


split = OfResults(_split)


def pad(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    low = attribute.integers(node.attrs, "low")
    stop = tuple(first + length for first, length in zip(low, node.inputs[0].shape, strict=True))
    return (_window(build, g, low, stop),)


def cast(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """Gradients are f32 whatever the value's dtype: the derivative of rounding is taken as 1."""
    return (g,)


# --- contraction ----------------------------------------------------------------------------------
def _swapped(build: GraphBuilder, x: Node) -> Node:
    rank = len(x.shape)
    return build.add("transpose", (x,), {"axes": (*range(rank - 2), rank - 1, rank - 2)})


def matmul(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """dA = g B^T, dB = A^T g; a batch axis that was broadcast is summed. g is rounded to bf16 where the
    factors are, so that the gradients too are products of bf16 (N9); with b alone in bf16 they are N1.

    Where every batch shares B (a weight), rows of all batches are one contraction: dB = A'^T g' with
    A' [.. m, k] and g' [.. m, n] as matrices.
    """
    a, b = node.inputs
    if a.dtype == bfloat16:
        g = build.add("cast", (g,), {"dtype": bfloat16.name})
    da = unbroadcast(build, build.add("matmul", (g, _swapped(build, b))), a.shape)
    if len(a.shape) > 2 and math.prod(b.shape[:-2]) == 1 and a.shape[:-2] == node.shape[:-2]:
        rows = math.prod(a.shape[:-1])
        a, flat = (_reshaped(build, x, (rows, x.shape[-1])) for x in (a, g))
        return da, _reshaped(build, build.add("matmul", (_swapped(build, a), flat)), b.shape)
    return da, unbroadcast(build, build.add("matmul", (_swapped(build, a), g)), b.shape)


# --- reductions -----------------------------------------------------------------------------------
def sum(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (_spread(build, node, g),)


def mean(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    shape = node.inputs[0].shape
    count = math.prod(shape[axis] for axis in attribute.integers(node.attrs, "axes"))
    return (_spread(build, node, _scaled(build, g, 1.0 / (count or 1))),)


def max(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """g to the first largest element: the reduced axes are made one, the last, and scattered into."""
    (x,) = node.inputs
    axes = attribute.integers(node.attrs, "axes")
    order = tuple(axis for axis in range(len(x.shape)) if axis not in axes) + axes
    kept = tuple(x.shape[axis] for axis in order[: len(order) - len(axes)])
    size = math.prod(x.shape[axis] for axis in axes)
    if not axes or size == 0:
        return (g if not axes else None,)
    rows = _reshaped(build, _transposed(build, x, order), (*kept, size))
    index = build.add("argmax", (rows,), {"axis": len(kept), "keepdims": True})
    single = _reshaped(build, g, (*kept, 1))
    scattered = build.add("gather_grad", (single, index), {"axis": len(kept), "size": size})
    apart = _reshaped(build, scattered, tuple(x.shape[axis] for axis in order))
    return (_transposed(build, apart, tuple(order.index(axis) for axis in range(len(order)))),)


def _transposed(build: GraphBuilder, x: Node, axes: tuple[int, ...]) -> Node:
    return x if axes == tuple(range(len(axes))) else build.add("transpose", (x,), {"axes": axes})


def sum_squares(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """2 x g."""
    return (_scaled(build, build.add("mul", (node.inputs[0], _spread(build, node, g))), 2.0),)


# --- rows -----------------------------------------------------------------------------------------
def softmax(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (build.add("softmax_grad", (node, g)),)


def log_softmax(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (build.add("log_softmax_grad", (node, g)),)


def cross_entropy(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return build.add("cross_entropy_grad", (*node.inputs, g), node.attrs), None


def layer_norm(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    x, w, _ = node.inputs
    return build.results("layer_norm_grad", (x, build.result(node, 1), w, g))


def rms_norm(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    x, w = node.inputs
    return build.results("rms_norm_grad", (x, build.result(node, 1), w, g))


# --- indexing, attention, randomness --------------------------------------------------------------
def embedding(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    table, indices = node.inputs
    return build.add("embedding_grad", (g, indices), {"rows": table.shape[0]}), None


def gather(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    x, index = node.inputs
    axis = attribute.integer(node.attrs, "axis")
    return build.add("gather_grad", (g, index), {"axis": axis, "size": x.shape[axis]}), None


def rotary(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """A rotation's transpose is its inverse."""
    _, cosines, sines, position = node.inputs
    inverse = not attribute.flag(node.attrs, "inverse")
    table = "the table of angles is not learned"
    return build.add("rotary", (g, cosines, sines, position), {"inverse": inverse}), table, table, None


def attention(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    q, k, v, position = node.inputs
    o, stats = build.result(node, 0), build.result(node, 1)
    return *build.results("attention_grad", (q, k, v, o, stats, g, position), node.attrs), None


def dropout(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    """The same elements are dropped: the stream and the counter are the same."""
    return build.add("dropout", (g, node.inputs[1]), node.attrs), None


def check_finite(build: GraphBuilder, node: Node, g: Node) -> Gradients:
    return (g,)
