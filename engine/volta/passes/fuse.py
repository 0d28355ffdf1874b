"""Elementwise fusion: chains of elementwise operations over one shape become one step over tiles.

Each operation keeps its own rounding and its operands; only the memory traffic between them goes.
"""

from __future__ import annotations

from volta.ir.graph import Graph
from volta.ir.ops import in_chain
from volta.passes.regroup import Groups, emit

# Every node may need an output and a temporary; with the inputs they stay under VOLTA_MAX_REGISTERS (64).
MOST_NODES = 20
MOST_INPUTS = 20
# A group runs where its last node stood; moving a node further than this keeps its operands alive for
# long, while its result would have left the cache anyway.
MOST_DELAY = 128


def fuse_elementwise(graph: Graph) -> Graph:
    """Greedy in topological order: a node joins the groups of all its producers of the same shape."""
    groups = Groups(graph)
    for node in graph.nodes:
        if not in_chain(node):
            continue
        for source in node.inputs:
            if in_chain(source) and source.shape == node.shape:
                a, b = groups.of(source), groups.of(node)
                near = groups.index[node] - groups.index[groups.members[a][0]] <= MOST_DELAY
                if a != b and near and _small(groups, a, b):
                    groups.merge(a, b)
    return emit(groups, [group for group, members in groups.members.items() if len(members) > 1])


def _small(groups: Groups, a: int, b: int) -> bool:
    nodes = len(groups.members[a]) + len(groups.members[b])
    inputs = {source for group in (a, b) for source in groups.external_inputs(group)}
    return nodes <= MOST_NODES and len(inputs) <= MOST_INPUTS
