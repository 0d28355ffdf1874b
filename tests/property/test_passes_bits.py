"""No pass changes a bit: random graphs, random and special values, each pass alone and all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import assert_same_bits
from tests.plan.hazards import contested
from tests.plan.running import PLAIN, run, without_donations
from tests.property.graphs import FLOATS, arguments, graphs

from volta import passes
from volta.dtypes import float32
from volta.ir.graph import Graph, GraphBuilder, Node
from volta.ir.verify import findings
from volta.runtime.policy import Policy

Array = npt.NDArray[Any]

SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38,
     0.5, 2.0, 1e-20, 1e20, 88.0, -104.0],
    np.float32,
)  # fmt: skip
LITERALS = st.sampled_from((0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 0.1, np.inf, np.nan, 2.0**-126, 2.0**127, 1e-45))
ORDERS = (
    *((name,) for name in passes.PASSES),
    tuple(passes.PASSES),
    ("fuse", "epilogue"),
    ("epilogue", "fuse"),
)

any_graph = graphs(max_steps=12, fused=True, donations=True) | contested()


def special(graph: Graph, seed: int) -> list[Array]:
    """Every f32 argument from values that rewrites get wrong."""
    rng = np.random.default_rng(seed)
    return [
        rng.choice(SPECIAL, node.shape) if node.dtype is float32 else array
        for node, array in zip(graph.inputs, arguments(graph, seed), strict=True)
    ]


def assert_no_bit_changes(graph: Graph, given_arrays: list[Array], names: tuple[str, ...]) -> None:
    expected = run(without_donations(graph), [array.copy() for array in given_arrays], PLAIN)
    outputs = run(graph, [array.copy() for array in given_arrays], Policy(isa="ref", threads=1, passes=names))
    for index, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_same_bits(output, wanted, f"output {index} after {', '.join(names)}")


@settings(max_examples=200, deadline=None, derandomize=True)
@given(any_graph, st.sampled_from(ORDERS), st.integers(0, 5))
def test_a_pass_changes_no_bit_of_any_output(graph: Graph, names: tuple[str, ...], seed: int) -> None:
    assert_no_bit_changes(graph, arguments(graph, seed), names)


@st.composite
def arithmetic(draw: st.DrawFn) -> Graph:
    """Elementwise operations with literals, views and a matmul: what the rewrites look for."""
    build = GraphBuilder()
    shape = draw(st.sampled_from(((), (3,), (2, 3), (1, 3), (2, 3, 4))))
    values = [build.input(f"x{i}", shape, float32) for i in range(draw(st.integers(1, 2)))]
    for _ in range(draw(st.integers(1, 10))):
        kind = draw(st.sampled_from(("literal", "unary", "binary", "binary", "scale", "view", "matmul")))
        x = draw(st.sampled_from(values))
        if kind == "literal":
            size = draw(st.sampled_from(((), (1,), x.shape)))
            values.append(build.constant(np.full(size, draw(LITERALS), np.float32)))
        elif kind == "unary":
            values.append(build.add(draw(st.sampled_from(("neg", "abs", "sqrt", "relu", "exp"))), (x,)))
        elif kind == "binary":
            y = draw(st.sampled_from([v for v in values if v.shape in (x.shape, ())] or [x]))
            op = draw(st.sampled_from(("add", "sub", "mul", "div", "maximum", "minimum", "greater_equal")))
            values.append(build.add(op, draw(st.permutations((x, y)))))
        elif kind == "scale":
            values.append(build.add("scale", (x,), {"factor": draw(FLOATS | LITERALS)}))
        elif kind == "view":
            values.append(view(draw, build, x))
        elif len(x.shape) == 2:
            turned = build.add("transpose", (x,), {"axes": (1, 0)})
            product = build.add("matmul", (build.add("matmul", (x, turned)), x))
            values += [product, build.add("add", (product, x))]
    outputs = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    return build.freeze(outputs)


def view(draw: st.DrawFn, build: GraphBuilder, x: Node) -> Node:
    op = draw(st.sampled_from(("reshape", "transpose", "broadcast_to", "slice", "concat")))
    if op == "transpose":
        return build.add(op, (x,), {"axes": tuple(draw(st.permutations(range(len(x.shape)))))})
    if op == "concat" and x.shape:
        return build.add(op, (x,), {"axis": 0})
    if op == "slice":
        start = tuple(draw(st.integers(0, min(1, size))) for size in x.shape)
        return build.add(op, (x,), {"start": start, "stop": x.shape, "step": (1,) * len(x.shape)})
    return build.add("reshape" if op == "concat" else op, (x,), {"shape": x.shape})


@settings(max_examples=300, deadline=None, derandomize=True)
@given(arithmetic(), st.sampled_from(ORDERS), st.integers(0, 9))
def test_a_pass_changes_no_bit_of_special_values(graph: Graph, names: tuple[str, ...], seed: int) -> None:
    """NaN, infinities, zeros of both signs, subnormals, the largest numbers."""
    assert_no_bit_changes(graph, special(graph, seed), names)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(graphs(max_steps=8, fused=True), st.sampled_from(ORDERS), st.integers(0, 9))
def test_a_pass_changes_no_bit_of_special_values_in_any_operation(
    graph: Graph, names: tuple[str, ...], seed: int
) -> None:
    assert_no_bit_changes(graph, special(graph, seed), names)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(any_graph, st.sampled_from(ORDERS))
def test_a_pass_keeps_inputs_outputs_and_donations_and_gives_a_valid_graph(
    graph: Graph, names: tuple[str, ...]
) -> None:
    result = passes.run(graph, names)
    assert findings(result) == []
    assert [node.attrs for node in result.inputs] == [node.attrs for node in graph.inputs]
    assert [node.type for node in result.outputs] == [node.type for node in graph.outputs]
    position = {node: index for index, node in enumerate(result.inputs)}
    assert {output: position[node] for output, node in result.donations.items()} == {
        output: graph.inputs.index(node) for output, node in graph.donations.items()
    }


@settings(max_examples=80, deadline=None, derandomize=True)
@given(any_graph)
def test_passes_leave_their_argument_alone_and_settle(graph: Graph) -> None:
    """Pure: the same graph twice gives the same result; once simplified and shared, nothing is left to do."""
    before = str(graph)
    once = passes.run(graph)
    assert str(graph) == before
    assert str(passes.run(graph)) == str(once)
    for name in ("dce", "fuse", "epilogue"):
        result = passes.run(graph, (name,))
        assert len(passes.run(result, (name,))) <= len(result)
