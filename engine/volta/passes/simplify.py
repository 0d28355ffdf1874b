"""Algebraic simplification: only identities that hold for every bit pattern.

x + 0 is not among them (-0 + 0 = +0), nor is 0 * x (NaN, infinities, signs), nor a sum over an axis of
length one (N2 starts from +0).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from volta.ir.graph import Graph, GraphBuilder, Node
from volta.passes.rewrite import rewrite


def simplify(graph: Graph) -> Graph:
    return rewrite(graph, _simplify)


def _simplify(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    rule = RULES.get(node.op)
    return None if rule is None else rule(builder, node, inputs)


def _mul(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """x * 1 = x; x * c = scale(x, c): the same product, with c in the instruction."""
    for value, other in (inputs, inputs[::-1]):
        c = _scalar(other)
        if c is not None and value.shape == node.shape:
            return value if c == 1.0 else builder.add("scale", (value,), {"factor": c})
    return None


def _div(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """x / 2^k = x * 2^-k, both the correctly rounded value of one real number."""
    c = _scalar(inputs[1])
    if c is None or inputs[0].shape != node.shape or c == 0 or not math.isfinite(c):
        return None
    mantissa, exponent = math.frexp(c)
    if abs(mantissa) != 0.5 or not -125 <= exponent <= 126:
        return None
    return inputs[0] if c == 1.0 else builder.add("scale", inputs[:1], {"factor": 1.0 / c})


def _add(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """x + (-0) = x."""
    for value, other in (inputs, inputs[::-1]):
        if value.shape == node.shape and _is_zero(other, negative=True):
            return value
    return None


def _sub(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """x - (+0) = x."""
    return inputs[0] if inputs[0].shape == node.shape and _is_zero(inputs[1], negative=False) else None


def _scale(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    return inputs[0] if node.attrs["factor"] == 1.0 else None


def _neg(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    return inputs[0].inputs[0] if inputs[0].op == "neg" else None


def _reshape(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if inputs[0].shape == node.shape:
        return inputs[0]
    if inputs[0].op == "reshape":
        return _or_source(builder, inputs[0].inputs[0], node)
    return None


def _or_source(builder: GraphBuilder, source: Node, node: Node) -> Node:
    return source if source.shape == node.shape else builder.add(node.op, (source,), node.attrs)


def _transpose(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    axes = _axes(node)
    if inputs[0].op == "transpose":
        inner = _axes(inputs[0])
        axes, inputs = tuple(inner[a] for a in axes), inputs[0].inputs
        if axes != tuple(range(len(axes))):
            return builder.add("transpose", inputs, {"axes": axes})
    return inputs[0] if axes == tuple(range(len(axes))) else None


def _same_type(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    """A slice, broadcast or cast to what the value is already, and a concatenation of one."""
    return inputs[0] if len(inputs) == 1 and inputs[0].types == node.types else None


def _slice(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    return inputs[0] if inputs[0].shape == node.shape else None


def _axes(node: Node) -> tuple[int, ...]:
    return tuple(node.attrs["axes"])  # type: ignore[arg-type]


def _scalar(node: Node) -> float | None:
    """The value of a literal whose elements are all the same bits."""
    if node.op == "broadcast_to":
        return _scalar(node.inputs[0])
    if node.op != "constant":
        return None
    value = np.asarray(node.attrs["value"])
    if value.dtype != np.float32 or value.size == 0 or value.size > 1:
        return None
    return float(value.reshape(-1)[0])


def _is_zero(node: Node, *, negative: bool) -> bool:
    value = _scalar(node)
    return value == 0 and (math.copysign(1.0, value) < 0) == negative


RULES: dict[str, Callable[[GraphBuilder, Node, tuple[Node, ...]], Node | None]] = {
    "mul": _mul,
    "div": _div,
    "add": _add,
    "sub": _sub,
    "scale": _scale,
    "neg": _neg,
    "reshape": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "broadcast_to": _same_type,
    "cast": _same_type,
    "concat": _same_type,
}
