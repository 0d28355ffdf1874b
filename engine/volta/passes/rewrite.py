"""Rebuilding a graph node by node."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from volta.ir.graph import Graph, GraphBuilder, Node

Rule: TypeAlias = Callable[[GraphBuilder, Node, tuple[Node, ...]], Node | None]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """Copies the graph in order. `rule(builder, old node, new inputs)` gives the new value of a node,
    or None to copy it. Inputs are always kept, so that the call signature stays."""
    builder = GraphBuilder()
    new: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple(new[source] for source in node.inputs)
        replacement = None if node.op == "input" else rule(builder, node, inputs)
        new[node] = replacement if replacement is not None else builder.add(node.op, inputs, node.attrs)
    return builder.freeze([new[node] for node in graph.outputs],
                          {output: new[node] for output, node in graph.donations.items()})
