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
    new = copy_inputs(graph, builder)
    for node in graph.nodes:
        if node in new:
            continue
        inputs = tuple(new[source] for source in node.inputs)
        replacement = rule(builder, node, inputs)
        new[node] = replacement if replacement is not None else builder.add(node.op, inputs, node.attrs)
    donated = {new[node]: output for output, node in graph.donations.items()}
    outputs = []
    for position, node in enumerate(graph.outputs):
        value = new[node]
        if donated.get(value, position) != position:  # an input that another output takes over
            value = builder.add("reshape", (value,), {"shape": value.shape})
        outputs.append(value)
    return builder.freeze(outputs, {output: value for value, output in donated.items()})


def copy_inputs(graph: Graph, builder: GraphBuilder) -> dict[Node, Node]:
    """The inputs in their order, before anything else: a pass may move nodes, never arguments."""
    return {node: builder.add(node.op, (), node.attrs) for node in graph.inputs}
