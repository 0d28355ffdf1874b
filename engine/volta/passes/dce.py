"""Dead code: values that no output needs."""

from __future__ import annotations

from volta.ir.graph import Graph, GraphBuilder, Node
from volta.passes.rewrite import copy_inputs


def drop_dead(graph: Graph) -> Graph:
    """Keeps the inputs, the outputs, the finite checks (an effect: they may stop the program) and what
    these need."""
    needed: set[Node] = set()
    stack = [*graph.outputs, *(node for node in graph.nodes if node.op == "check_finite")]
    while stack:
        node = stack.pop()
        if node not in needed:
            needed.add(node)
            stack.extend(node.inputs)
    builder = GraphBuilder()
    new = copy_inputs(graph, builder)
    for node in graph.nodes:
        if node in needed and node not in new:
            new[node] = builder.add(node.op, (new[source] for source in node.inputs), node.attrs)
    return builder.freeze(
        [new[node] for node in graph.outputs], {output: new[node] for output, node in graph.donations.items()}
    )
