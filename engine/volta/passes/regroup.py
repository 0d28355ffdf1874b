"""Groups of nodes that will run as one: kept acyclic while they grow, then emitted as `fused` nodes."""

from __future__ import annotations

from collections.abc import Iterable

from volta.ir.graph import Graph, GraphBuilder, Node
from volta.passes.rewrite import copy_inputs


class Groups:
    """A partition of a graph's nodes under construction.

    `before[i]` is the set (as bits) of nodes that must run before node i, where a group runs as one.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.index = {node: i for i, node in enumerate(graph.nodes)}
        self.members: dict[int, list[Node]] = {}
        self._group: list[int] = list(range(len(graph.nodes)))
        self._bits: list[int] = [1 << i for i in range(len(graph.nodes))]
        self._before: list[int] = []
        for i, node in enumerate(graph.nodes):
            self.members[i] = [node]
            before = 0
            for source in node.inputs:
                j = self.index[source]
                before |= self._before[j] | 1 << j
            self._before.append(before)

    def of(self, node: Node) -> int:
        return self._group[self.index[node]]

    def merge(self, a: int, b: int) -> bool:
        """Joins two groups unless something outside would have to run both after and before them."""
        if a == b:
            return True
        together = self._bits[a] | self._bits[b]
        before = (self._before[a] | self._before[b]) & ~together
        for group in (a, b):
            for node in self.members[group]:
                for source in node.inputs:
                    j = self.index[source]
                    if not together >> j & 1 and self._before[self._group[j]] & together:
                        return False
        self.members[a] = sorted(self.members[a] + self.members.pop(b), key=self.index.__getitem__)
        for node in self.members[a]:
            self._group[self.index[node]] = a
        self._bits[a] = together
        self._before[a] = before
        reach = before | together
        for group in self.members:
            if group != a and self._before[group] & together:
                self._before[group] |= reach
        return True

    def external_inputs(self, group: int) -> list[Node]:
        inside = set(self.members[group])
        return list(dict.fromkeys(s for node in self.members[group] for s in node.inputs if s not in inside))


def emit(groups: Groups, chosen: Iterable[int]) -> Graph:
    """The graph with every chosen group as one `fused` node, in an order near the original one."""
    graph, fused = groups.graph, set(chosen)
    users = graph.users()
    results = set(graph.outputs)
    builder = GraphBuilder()
    new = copy_inputs(graph, builder)

    def ready(group: int) -> list[int]:
        return [groups.of(s) for s in groups.external_inputs(group) if s not in new]

    def place(group: int) -> None:
        members = groups.members[group]
        if group not in fused:
            for node in members:
                new[node] = builder.add(node.op, (new[s] for s in node.inputs), node.attrs)
            return
        arguments = groups.external_inputs(group)
        inside = set(members)
        body = GraphBuilder()
        inner = {
            source: body.input(f"a{i}", source.shape, source.dtype) for i, source in enumerate(arguments)
        }
        for node in members:
            inner[node] = body.add(node.op, (inner[s] for s in node.inputs), node.attrs)
        outward = [n for n in members if n in results or any(user not in inside for user in users[n])]
        if not outward:
            return  # nothing needs this group
        node = builder.add(
            "fused", (new[s] for s in arguments), {"body": body.freeze([inner[n] for n in outward])}
        )
        for i, member in enumerate(outward):
            new[member] = builder.result(node, i)

    for i, node in enumerate(graph.nodes):
        group = groups.of(node)
        if node in new or groups.index[groups.members[group][-1]] != i:
            continue
        stack = [group]
        while stack:
            missing = ready(stack[-1])
            if missing:
                stack.extend(missing)
            else:
                done = stack.pop()
                if groups.members[done][0] not in new and not _emitted(groups, done, new):
                    place(done)
    return builder.freeze(
        [new[node] for node in graph.outputs], {output: new[node] for output, node in graph.donations.items()}
    )


def _emitted(groups: Groups, group: int, new: dict[Node, Node]) -> bool:
    return any(node in new for node in groups.members[group])
