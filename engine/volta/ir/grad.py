"""Reverse mode: a graph that computes the forward's outputs and the gradients of one of them.

The forward is copied, never edited. Where a value is used several times its gradients are added in one
fixed order: users from the last to the first in the forward's order, and of one user its operands from
the first to the last; the sum is a left fold, ((g1 + g2) + g3).

Gradients are f32, also those of bf16 values. Integers carry none: what reaches the loss only through
indices or `argmax` is independent of it, and its gradient is zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from volta.dtypes import float32
from volta.errors import GradientError, UsageError
from volta.ir import attributes, vjp
from volta.ir.graph import Graph, GraphBuilder, Node, TensorType
from volta.ir.ops import OPS


def gradient(graph: Graph, loss: int = 0, wrt: Sequence[Node] = ()) -> Graph:
    """Outputs: the forward's, then d output[loss] / d input for each input of `wrt`.

    loss: the position of a scalar f32 output. Raises GradientError where there is no gradient.
    """
    _check(graph, loss, wrt)
    build = GraphBuilder()
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        copies[node] = build.add(node.op, (copies[source] for source in node.inputs), node.attrs)

    depends = _dependents(graph, wrt)
    gradients = _Gradients(build)
    if graph.outputs[loss] in depends:
        gradients.add(graph.outputs[loss], 0, build.constant(np.array(1, np.float32)))
    for node in reversed(graph.nodes):
        if node.op != "input" and node in gradients.of:
            _step(build, gradients, node, copies[node], depends)

    results = [copies[node] for node in graph.outputs]
    for node in wrt:
        found = gradients.of.get(node, {}).get(0)
        results.append(vjp.zeros(build, node.shape) if found is None else found)
    return build.freeze(results, {output: copies[node] for output, node in graph.donations.items()})


def _check(graph: Graph, loss: int, wrt: Sequence[Node]) -> None:
    if not 0 <= loss < len(graph.outputs):
        raise UsageError(f"[gradient] loss is output {loss}: expected 0..{len(graph.outputs) - 1}")
    given = graph.outputs[loss].type
    if given != TensorType((), float32):
        raise GradientError(f"[gradient] output {loss} is {given}: expected a scalar, f32[]")
    for node in wrt:
        if node not in graph.inputs:
            raise UsageError(f"[gradient] {node} is not an input of this graph: expected one")
        if node.dtype.integer:
            name = attributes.string(node.attrs, "name")
            raise GradientError(f"[gradient] input {name!r} is {node.type}: expected f32 or bf16")


def _dependents(graph: Graph, wrt: Sequence[Node]) -> set[Node]:
    """The nodes that depend on `wrt` through real values."""
    found = set(wrt)
    for node in graph.nodes:
        real = any(not kind.dtype.integer for kind in node.types)
        if real and any(source in found for source in node.inputs):
            found.add(node)
    return found


class _Gradients:
    """For each node the gradients of its results, summed as they arrive."""

    def __init__(self, build: GraphBuilder) -> None:
        self._build = build
        self.of: dict[Node, dict[int, Node]] = {}

    def add(self, node: Node, result: int, g: Node) -> None:
        sums = self.of.setdefault(node, {})
        sums[result] = g if result not in sums else self._build.add("add", (sums[result], g))


def _step(build: GraphBuilder, gradients: _Gradients, node: Node, copy: Node, depends: set[Node]) -> None:
    """Hands the gradients of a node's results on to its operands, by the operation's row."""
    arrived = gradients.of[node]
    if node.op == "result":
        gradients.add(node.inputs[0], attributes.integer(node.attrs, "index"), arrived[0])
        return
    entries = _of_operands(build, node, copy, arrived)
    names = (name for name, _ in OPS[node.op].named(len(node.inputs)))
    for source, entry, name in zip(node.inputs, entries, names, strict=True):
        if source not in depends or entry is None:
            continue
        if isinstance(entry, str):
            raise GradientError(f"[{node.op}] {name} of {node} has no gradient: {entry}")
        gradients.add(source, 0, entry)


def _of_operands(build: GraphBuilder, node: Node, copy: Node, arrived: Mapping[int, Node]) -> vjp.Gradients:
    rule = OPS[node.op].gradient
    if isinstance(rule, str):
        raise GradientError(f"[{node.op}] {node} has no gradient: {rule}")
    if isinstance(rule, vjp.OfResults):
        return rule.rule(build, copy, arrived)
    if set(arrived) != {0}:
        given = f"the loss reads result {max(arrived)} of {node}"
        raise GradientError(f"[{node.op}] {given}: only result 0 has a gradient")
    return rule(build, copy, arrived[0])
