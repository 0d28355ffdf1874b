"""Common subexpressions: equal operations on equal values are computed once."""

from __future__ import annotations

import numpy as np

from volta.ir.graph import Attr, Graph, GraphBuilder, Node
from volta.passes.rewrite import rewrite

KEPT = frozenset({"check_finite", "fused"})  # a check is an effect; bodies are compared nowhere


def share_common(graph: Graph) -> Graph:
    """Random operations carry their stream as an attribute, so equal nodes really are equal."""
    seen: dict[object, Node] = {}

    def share(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
        if node.op in KEPT:
            return None
        key = (node.op, inputs, tuple((name, _key(node.attrs[name])) for name in sorted(node.attrs)))
        if key not in seen:
            seen[key] = builder.add(node.op, inputs, node.attrs)
        return seen[key]

    return rewrite(graph, share)


def _key(value: Attr) -> object:
    """Floats by their bits, so that 0.0 and -0.0 differ."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return (type(value).__name__, value.hex()) if isinstance(value, float) else (type(value).__name__, value)
