"""Matmul epilogues: the elementwise work on a product runs on each tile while it is in cache.

Bias, activation and residual stay separately rounded operations after the contraction (N1).
"""

from __future__ import annotations

from typing import cast

from volta.ir.graph import Graph, GraphBuilder, Node
from volta.ir.ops import CONTRACTIONS, in_chain
from volta.passes.regroup import Groups
from volta.passes.rewrite import copy_inputs


def fuse_epilogues(graph: Graph) -> Graph:
    """Joins each matmul with one elementwise consumer of its shape, a single node or a fused chain."""
    groups = Groups(graph)
    users = graph.users()
    pairs: dict[Node, Node] = {}
    taken: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op not in CONTRACTIONS or node.type.numel == 0:
            continue
        for user in dict.fromkeys(users[node]):
            if user in taken or not _elementwise(user) or _shape(user) != node.shape:
                continue
            if groups.merge(groups.of(node), groups.of(user)):
                pairs[node] = user
                taken.add(user)
                break
    return _emit(graph, groups, pairs)


def _elementwise(node: Node) -> bool:
    if node.op == "fused":
        body = cast("tuple[Node, ...]", node.attrs["body"])
        return all(inner.op == "input" or in_chain(inner) for inner in body)
    return in_chain(node)


def _shape(node: Node) -> tuple[int, ...]:
    return node.types[0].shape


def _emit(graph: Graph, groups: Groups, pairs: dict[Node, Node]) -> Graph:
    """A pair is emitted where its consumer stood; what reads only the product comes after it."""
    matmul_of = {user: node for node, user in pairs.items()}
    users = graph.users()
    outputs = set(graph.outputs)
    builder = GraphBuilder()
    new = copy_inputs(graph, builder)

    def needs(node: Node) -> list[Node]:
        inputs = list(node.inputs)
        if node in matmul_of:
            inputs = [s for s in inputs if s is not matmul_of[node]] + list(matmul_of[node].inputs)
        return [pairs.get(s, s) for s in inputs if s not in new]

    def place(node: Node) -> None:
        if node not in matmul_of:
            new[node] = builder.add(node.op, (new[s] for s in node.inputs), node.attrs)
            return
        product = matmul_of[node]
        arguments = list(dict.fromkeys([*product.inputs, *(s for s in node.inputs if s is not product)]))
        body = GraphBuilder()
        inner = {
            source: body.input(f"a{i}", source.shape, source.dtype) for i, source in enumerate(arguments)
        }
        inner[product] = body.add(product.op, (inner[s] for s in product.inputs), product.attrs)
        if node.op == "fused":
            results = list(body.inline(node.attrs["body"], [inner[s] for s in node.inputs]))  # type: ignore[arg-type]
        else:
            results = [body.add(node.op, (inner[s] for s in node.inputs), node.attrs)]
        product_wanted = product in outputs or any(user is not node for user in users[product])
        if product_wanted:
            results.append(inner[product])
        value = builder.add("fused", (new[s] for s in arguments), {"body": body.freeze(results)})
        if product_wanted:
            new[product] = builder.result(value, len(results) - 1)
        single = len(node.types) == 1
        new[node] = builder.result(value, 0) if single and product_wanted else value

    for root in graph.nodes:
        if root in pairs:
            continue  # placed with its consumer
        stack = [root]
        while stack:
            node = stack[-1]
            if node in new:
                stack.pop()
                continue
            missing = needs(node)
            if missing:
                stack.extend(missing)
            else:
                stack.pop()
                place(node)
    return builder.freeze(
        [new[node] for node in graph.outputs], {output: new[node] for output, node in graph.donations.items()}
    )
