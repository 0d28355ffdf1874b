"""Constant folding, for operations whose float32 result is the same everywhere by IEEE 754."""

from __future__ import annotations

import numpy as np

from volta.ir.graph import Graph, GraphBuilder, Node
from volta.ir.ops import OPS
from volta.passes.rewrite import rewrite

LARGEST = 1 << 16  # elements: folding must not blow a small graph up into big literals


def fold_constants(graph: Graph) -> Graph:
    """Replaces exact operations on literals by their value, computed in float32 (N0)."""
    return rewrite(graph, _fold)


def _fold(builder: GraphBuilder, node: Node, inputs: tuple[Node, ...]) -> Node | None:
    if not inputs or not OPS[node.op].exact or any(source.op != "constant" for source in inputs):
        return None
    if node.type.numel > LARGEST:
        return None
    literals = [np.asarray(source.attrs["value"]) for source in inputs]
    (value,) = OPS[node.op].evaluate(literals, node.attrs)
    return builder.constant(np.asarray(value, node.dtype.numpy).reshape(node.shape))
