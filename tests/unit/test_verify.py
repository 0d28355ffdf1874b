"""Every rule rejects the defect that it is there for, by its name, and sound graphs pass them all."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from tests.property.graphs import graphs

from volta.dtypes import float32, int32
from volta.errors import VerifyError
from volta.ir.graph import Graph, GraphBuilder, Node, TensorType
from volta.ir.verify import GRAPH_RULES, NODE_RULES, findings, verify


def _sound() -> Graph:
    """x, state -> norm's results, their sum, and a fused body; the state is donated."""
    inner = GraphBuilder()
    a = inner.input("a", (2, 3), float32)
    body = inner.freeze([inner.add("neg", (a,))])
    build = GraphBuilder()
    x, state = build.input("x", (2, 3), float32), build.input("state", (2, 3), float32, "state")
    w = build.constant(np.ones(3, np.float32))
    norm = build.add("rms_norm", (x, w), {"eps": 1e-5})  # %3
    y = build.result(norm, 0)  # %4
    total = build.add("add", (y, state))  # %5
    fused = build.add("fused", (total,), {"body": body})  # %6
    return build.freeze([fused, y], {0: state})


def _changed(node: Node, **fields: Any) -> None:
    """A frozen node made wrong."""
    for name, value in fields.items():
        object.__setattr__(node, name, value)


def _with_nodes(graph: Graph, nodes: list[Node]) -> Graph:
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _attrs(node: Node, **changes: Any) -> Graph | None:
    _changed(node, attrs=MappingProxyType({**node.attrs, **changes}))
    return None


def _body(graph: Graph, **changes: Any) -> None:
    """Replaces fields of the fused node's body."""
    body = graph.nodes[6].attrs["body"]
    assert isinstance(body, Graph)
    _attrs(graph.nodes[6], body=dataclasses.replace(body, **changes))


def _other() -> Node:
    return GraphBuilder().input("other", (2, 3), float32)


def _wider_body(graph: Graph) -> None:
    inner = GraphBuilder()
    _attrs(graph.nodes[6], body=inner.freeze([inner.input("a", (2, 4), float32)]))


def _broken_body(graph: Graph) -> None:
    body = graph.nodes[6].attrs["body"]
    assert isinstance(body, Graph)
    _changed(body.nodes[1], op="nega")


DEFECTS: dict[str, tuple[str, Callable[[Graph], Graph | None], str]] = {
    "twice": (
        "single-assignment",
        lambda g: _with_nodes(g, [*g.nodes, g.nodes[5]]),
        "%5 add is in the graph twice",
    ),
    "wrong id": ("single-assignment", lambda g: _changed(g.nodes[5], id=9), "%9 add is at position 5"),
    "swapped": (
        "single-assignment",
        lambda g: _with_nodes(g, [g.nodes[1], g.nodes[0], *g.nodes[2:]]),
        "%1 input is at position 0",
    ),
    "self": (
        "no-cycle",
        lambda g: _changed(g.nodes[5], inputs=(g.nodes[5], g.nodes[1])),
        "%5 add depends on itself through %5 add",
    ),
    "cycle": (
        "no-cycle",
        lambda g: _changed(g.nodes[3], inputs=(g.nodes[5], g.nodes[2])),
        "depends on itself through",
    ),
    "foreign": (
        "defined-before-use",
        lambda g: _changed(g.nodes[5], inputs=(g.nodes[4], _other())),
        "%5 add reads %0 input, which is not in this graph",
    ),
    "later": (
        "defined-before-use",
        lambda g: _changed(g.nodes[3], inputs=(g.nodes[0], _moved(g))),
        "comes later",
    ),
    "missing input": (
        "inputs-listed",
        lambda g: dataclasses.replace(g, inputs=g.inputs[:1]),
        "inputs are [%0 input]: expected [%0 input, %1 input]",
    ),
    "input order": (
        "inputs-listed",
        lambda g: dataclasses.replace(g, inputs=g.inputs[::-1]),
        "expected [%0 input",
    ),
    "same name": ("inputs-listed", lambda g: _attrs(g.nodes[1], name="x"), "two inputs have the name 'x'"),
    "foreign output": (
        "outputs-belong",
        lambda g: dataclasses.replace(g, outputs=(*g.outputs, _other())),
        "output 2 is %0 input, which is not in this graph",
    ),
    "plural output": (
        "outputs-belong",
        lambda g: dataclasses.replace(g, outputs=(*g.outputs, g.nodes[3])),
        "output 2 is %3 rms_norm, which has 2 results",
    ),
    "donated to none": (
        "donation",
        lambda g: dataclasses.replace(g, donations={2: g.nodes[1]}),
        "%1 input is donated to output 2: expected 0..1",
    ),
    "donated value": (
        "donation",
        lambda g: dataclasses.replace(g, donations={0: g.nodes[5]}),
        "%5 add is donated to output 0: expected an input of this graph",
    ),
    "donated type": ("donation", lambda g: _attrs_and_type(g.nodes[1]), "expected f32[2,3]"),
    "donated twice": (
        "donation",
        lambda g: dataclasses.replace(g, donations=dict.fromkeys((0, 1), g.nodes[1])),
        "%1 input is donated to outputs 0 and 1: expected one",
    ),
    "donated and returned": (
        "donation",
        lambda g: dataclasses.replace(g, outputs=(*g.outputs, g.nodes[1])),
        "%1 input is donated to output 0 and returned as output 2",
    ),
    "unknown": ("known-op", lambda g: _changed(g.nodes[5], op="plus"), "%5 plus: no operation of the table"),
    "too few": (
        "arity",
        lambda g: _changed(g.nodes[5], inputs=g.nodes[4:5]),
        "[add] 1 operands given: expected 2",
    ),
    "too many": (
        "arity",
        lambda g: _changed(g.nodes[4], inputs=(g.nodes[3],) * 2),
        "[result] 2 operands given",
    ),
    "extra attribute": (
        "attrs",
        lambda g: _attrs(g.nodes[5], factor=1.0),
        "attributes given: factor: expected none",
    ),
    "kind of attribute": (
        "attrs",
        lambda g: _attrs(g.nodes[3], eps=1),
        "[rms_norm] eps is 1: expected a float",
    ),
    "writable literal": (
        "attrs",
        lambda g: _attrs(g.nodes[2], value=np.ones(3, np.float32)),
        "expected a private, read-only array",
    ),
    "result index": (
        "result-index",
        lambda g: _attrs(g.nodes[4], index=2),
        "takes result 2 of %3 rms_norm: expected 0..1",
    ),
    "plural operand": (
        "single-result",
        lambda g: _changed(g.nodes[5], inputs=(g.nodes[3], g.nodes[1])),
        "%5 add: reads %3 rms_norm, which has 2 results",
    ),
    "body rule": ("fused-body", _broken_body, "in its body: [known-op] %1 nega: no operation of the table"),
    "body operands": ("fused-body", _wider_body, "operands are f32[2,3]: the body takes f32[2,4]"),
    "body outputs": ("fused-body", lambda g: _body(g, outputs=()), "its body has no outputs"),
    "body donates": (
        "fused-body",
        lambda g: _body(g, donations={0: _first_of_body(g)}),
        "its body donates inputs",
    ),
    "shape": (
        "types",
        lambda g: _changed(g.nodes[4], types=(TensorType((2, 4), float32),)),
        "%4 result: is f32[2,4]: expected f32[2,3]",
    ),
    "dtype": (
        "types",
        lambda g: _changed(g.nodes[2], types=(TensorType((3,), int32),)),
        "%2 constant: is i32[3]: expected f32[3]",
    ),
    "refused": (
        "types",
        lambda g: _literal_of_three(g.nodes[2]),
        "[rms_norm] x is (2, 3), w is (4,): w must be (3,)",
    ),
}


def _moved(graph: Graph) -> Node:
    """The literal under a position after its reader."""
    late = Node(7, "constant", (), graph.nodes[2].attrs, graph.nodes[2].types)
    object.__setattr__(graph, "nodes", (*graph.nodes, late))
    return late


def _attrs_and_type(node: Node) -> None:
    _attrs(node, shape=(3, 2))
    _changed(node, types=(TensorType((3, 2), float32),))


def _literal_of_three(node: Node) -> None:
    value = np.ones(4, np.float32)
    value.setflags(write=False)
    _attrs(node, value=value)
    _changed(node, types=(TensorType((4,), float32),))


def _first_of_body(graph: Graph) -> Node:
    body = graph.nodes[6].attrs["body"]
    assert isinstance(body, Graph)
    return body.inputs[0]


def test_the_sound_graph_passes() -> None:
    verify(_sound())
    assert findings(_sound()) == []


@pytest.mark.parametrize(("rule", "breaks", "message"), DEFECTS.values(), ids=DEFECTS)
def test_a_defect_is_rejected_by_its_rule(
    rule: str, breaks: Callable[[Graph], Graph | None], message: str
) -> None:
    graph = _sound()
    graph = breaks(graph) or graph
    with pytest.raises(VerifyError) as caught:
        verify(graph)
    assert caught.value.rule == rule
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"[{rule}] ")


def test_every_rule_has_a_seeded_defect() -> None:
    assert {rule for rule, _, _ in DEFECTS.values()} == {*GRAPH_RULES, *NODE_RULES}


def test_all_findings_are_collected() -> None:
    graph = _sound()
    _changed(graph.nodes[5], op="plus")
    _attrs(graph.nodes[1], name="x")
    graph = dataclasses.replace(graph, donations={7: graph.nodes[1]})
    assert [finding.rule for finding in findings(graph)] == ["inputs-listed", "donation", "known-op"]


@given(graphs(max_steps=15, fused=True, donations=True))
@settings(max_examples=150, deadline=None)
def test_what_a_builder_makes_is_sound(graph: Graph) -> None:
    assert findings(graph) == []
