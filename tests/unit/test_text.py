"""The text of a graph is readable, holds every bit, and is refused with the line where it goes wrong."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tests.property.graphs import graphs

from volta.dtypes import float32, int32
from volta.errors import UsageError
from volta.ir.graph import Graph, GraphBuilder
from volta.ir.text import LISTED, format_graph, parse_graph
from volta.ir.verify import verify

EXAMPLE = """\
graph {
  %0 = input(name="x", shape=(2, 3), dtype="f32", role="state") : f32[2,3]
  %1 = constant(value=f32[3](0.5, -0.0, nan:7fc00001)) : f32[3]
  %2 = rms_norm(%0, %1, eps=1e-05) : f32[2,3], f32[2,1]
  %3 = result(%2, index=1) : f32[2,1]
  %4 = fused(%0, %3, body={
    %0 = input(name="a", shape=(2, 3), dtype="f32", role="input") : f32[2,3]
    %1 = input(name="b", shape=(2, 1), dtype="f32", role="input") : f32[2,1]
    %2 = mul(%0, %1) : f32[2,3]
    %3 = scale(%2, factor=inf) : f32[2,3]
    return %3
  }) : f32[2,3]
  %5 = check_finite(%4, names=("a", "b")) : f32[2,3]
  %6 = sum(%5, axes=(0, 1), keepdims=false) : f32[]
  return %5, %6
  donate 0 -> %0
}
"""


def _example() -> Graph:
    inner = GraphBuilder()
    a, b = inner.input("a", (2, 3), float32), inner.input("b", (2, 1), float32)
    body = inner.freeze([inner.add("scale", (inner.add("mul", (a, b)),), {"factor": float("inf")})])
    build = GraphBuilder()
    x = build.input("x", (2, 3), float32, "state")
    w = build.constant(np.array([0x3F000000, 0x80000000, 0x7FC00001], np.uint32).view(np.float32))
    stats = build.result(build.add("rms_norm", (x, w), {"eps": 1e-5}), 1)
    checked = build.add(
        "check_finite", (build.add("fused", (x, stats), {"body": body}),), {"names": ("a", "b")}
    )
    total = build.add("sum", (checked,), {"axes": (0, 1), "keepdims": False})
    return build.freeze([checked, total], {0: x})


def test_a_graph_prints_as_this() -> None:
    assert format_graph(_example()) == repr(_example()) == EXAMPLE


def test_this_text_parses_to_that_graph() -> None:
    graph = parse_graph(EXAMPLE)
    verify(graph)
    assert format_graph(graph) == EXAMPLE
    assert dict(graph.donations) == {0: graph.inputs[0]}
    assert graph.outputs == (graph.nodes[5], graph.nodes[6])


def test_spaces_and_comments_do_not_count() -> None:
    text = (
        'graph { # a comment\n%0=input( name="x" ,shape=( ),\n dtype="i32", role="input"):i32[]\nreturn %0}'
    )
    assert format_graph(parse_graph(text)) == dedent("""\
        graph {
          %0 = input(name="x", shape=(), dtype="i32", role="input") : i32[]
          return %0
        }
        """)


def test_a_graph_without_nodes_parses_back() -> None:
    assert format_graph(parse_graph(format_graph(GraphBuilder().freeze([])))) == "graph {\n  return\n}\n"


@given(graphs(max_steps=15, fused=True, donations=True))
@settings(max_examples=150, deadline=None)
def test_printing_and_parsing_gives_the_graph_back(graph: Graph) -> None:
    text = format_graph(graph)
    again = parse_graph(text)
    assert format_graph(again) == text
    assert len(again) == len(graph)
    for old, new in zip(graph, again, strict=True):
        assert (old.id, old.op, old.types) == (new.id, new.op, new.types)
        assert [source.id for source in old.inputs] == [source.id for source in new.inputs]
        assert list(old.attrs) == list(new.attrs) or set(old.attrs) == set(new.attrs)
    assert [node.id for node in again.inputs] == [node.id for node in graph.inputs]
    assert {k: v.id for k, v in again.donations.items()} == {k: v.id for k, v in graph.donations.items()}


@given(
    arrays.arrays(
        st.sampled_from([np.uint32, np.int32]),
        arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
    )
)
@settings(max_examples=300, deadline=None)
def test_every_bit_of_a_literal_comes_back(words: npt.NDArray[np.generic]) -> None:
    """Any 32 bits are an f32; both sides of the limit between listed and base64 literals."""
    value = words.view(np.float32) if words.dtype == np.uint32 else words
    build = GraphBuilder()
    again = parse_graph(format_graph(build.freeze([build.constant(value)]))).nodes[0].attrs["value"]
    assert isinstance(again, np.ndarray)
    assert (again.dtype, again.shape, again.tobytes()) == (value.dtype, value.shape, value.tobytes())


@given(st.floats(allow_nan=False))
@settings(deadline=None)
def test_every_bit_of_a_float_attribute_comes_back(factor: float) -> None:
    build = GraphBuilder()
    graph = build.freeze([build.add("scale", (build.input("x", (), float32),), {"factor": factor})])
    again = parse_graph(format_graph(graph)).nodes[1].attrs["factor"]
    assert isinstance(again, float)
    assert again.hex() == factor.hex()


@given(st.text(min_size=1))
@settings(deadline=None)
def test_any_name_comes_back(name: str) -> None:
    build = GraphBuilder()
    graph = build.freeze([build.input(name, (), int32)])
    assert parse_graph(format_graph(graph)).inputs[0].attrs["name"] == name


def _literal(text: str) -> str:
    return f"graph {{\n  %0 = constant(value={text}) : f32[]\n  return %0\n}}"


X = '%0 = input(name="x", shape=(2), dtype="f32", role="input") : f32[2]\n'
REFUSED = {
    "no graph": ("grap {", "line 1: given grap: expected graph"),
    "nothing": ("", "line 1: given the end: expected graph"),
    "stray sign": ("graph {\n  !", "line 2: given !: expected a node, a name, a value or a sign"),
    "wrong id": ("graph {\n%1 = neg(%0) : f32[]", "line 2: given %1: expected %0"),
    "no such op": ("graph {\n" + X + "%1 = nega(%0) : f32[2]", "line 3: given nega: expected an operation"),
    "later node": (
        "graph {\n" + X + "%1 = neg(%1) : f32[2]",
        "line 3: given %1: expected a node that was defined",
    ),
    "attribute": (
        "graph {\n" + X + "%1 = scale(%0, fac=1.0) : f32[2]",
        "line 3: given attribute fac: expected one of factor",
    ),
    "no attribute": (
        "graph {\n" + X + "%1 = neg(%0, fac=1.0) : f32[2]",
        "line 3: given attribute fac: expected one of none",
    ),
    "wrong type": ("graph {\n" + X + "%1 = neg(%0) : f32[3]", "line 3: given type f32[3]: expected f32[2]"),
    "no type": ("graph {\n" + X + "%1 = neg(%0) :", "line 3: given type none: expected f32[2]"),
    "no colon": ("graph {\n" + X + "%1 = neg(%0)\nreturn", "line 4: given return: expected :"),
    "no comma": ("graph {\n" + X + "%1 = add(%0 %0) : f32[2]", "line 3: given %0: expected )"),
    "not a float": (
        "graph {\n" + X + "%1 = scale(%0, factor=true) : f32[2]",
        "line 3: given true: expected a number",
    ),
    "not an int": (
        "graph {\n" + X + "%1 = reshape(%0, shape=(2.5)) : f32[2]",
        "line 3: given 2.5: expected an integer",
    ),
    "not a bool": (
        "graph {\n" + X + "%1 = sum(%0, axes=(0), keepdims=yes) : f32[]",
        "line 3: given yes: expected true or false",
    ),
    "bad string": ('graph {\n%0 = input(name="\\x") : f32[]', 'line 2: given "\\x": expected a JSON string'),
    "arity": ("graph {\n" + X + "%1 = add(%0) : f32[2]", "line 3: [add] 1 operands given: expected 2 (a, b)"),
    "shape": (
        "graph {\n" + X + "%1 = reshape(%0, shape=(3)) : f32[2]",
        "line 3: [reshape] x is (2,), shape is (3,)",
    ),
    "no return": ("graph {\n" + X + "}", "line 3: given }: expected return"),
    "no brace": ("graph {\n" + X + "return %0", "line 3: given the end: expected }"),
    "after": ("graph {\n return\n}\nx", "line 4: given x: expected the end"),
    "donation": ("graph {\n" + X + "return %0\ndonate %0", "line 4: given %0: expected a number"),
    "literal dtype": (_literal("bf16[](1.0)"), "line 2: given bf16: expected f32 or i32"),
    "too few": (_literal("f32[2](1.0)"), "line 2: given 1 elements: expected 2"),
    "i32 range": (_literal("i32[](2147483648)"), "line 2: given 2147483648: expected a 32-bit integer"),
    "i32 nan": (_literal("i32[](nan:7fc00000)"), "line 2: given nan:7fc00000: expected a number"),
    "base64": (_literal('f32[17]("?")'), "line 2: given ?: expected base64"),
    "bytes": (_literal('f32[17]("AAAA")'), "line 2: given 3 bytes: expected a multiple of 4"),
}


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_text_is_refused_with_line_and_expectation(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_graph(text)
    assert str(caught.value).startswith("[text] ")
    assert message in str(caught.value)


def test_long_literals_are_base64() -> None:
    build = GraphBuilder()
    short, long = (build.constant(np.zeros(n, np.float32)) for n in (LISTED, LISTED + 1))
    first, second = format_graph(build.freeze([short, long])).splitlines()[1:3]
    assert "0.0, 0.0" in first
    assert '("AAAA' in second
