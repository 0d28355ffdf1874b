"""Each pass on small examples: what it does, and what it must leave alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from volta import passes
from volta.dtypes import float32, int32
from volta.errors import UsageError, VerifyError
from volta.ir.graph import Graph, GraphBuilder, Node
from volta.passes.cse import share_common
from volta.passes.dce import drop_dead
from volta.passes.epilogue import fuse_epilogues
from volta.passes.fold import LARGEST, fold_constants
from volta.passes.fuse import MOST_DELAY, MOST_INPUTS, MOST_NODES, fuse_elementwise
from volta.passes.simplify import simplify

Build = Callable[[GraphBuilder, Node], Node]


def graph_of(build_value: Build, shape: tuple[int, ...] = (2, 3)) -> Graph:
    build = GraphBuilder()
    return build.freeze([build_value(build, build.input("x", shape, float32))])


def literal(build: GraphBuilder, value: float, shape: tuple[int, ...] = ()) -> Node:
    return build.constant(np.full(shape, value, np.float32))


def ops(graph: Graph) -> list[str]:
    """All but the leaves, in order."""
    return [node.op for node in graph if node.op not in ("input", "constant")]


def body_of(graph: Graph, which: int = 0) -> Graph:
    body = [node for node in graph if node.op == "fused"][which].attrs["body"]
    assert isinstance(body, Graph)
    return body


# --- all of them -------------------------------------------------------------------------------------


def test_passes_run_in_the_order_given_and_observe_sees_each() -> None:
    graph = graph_of(lambda b, x: b.add("neg", (b.add("mul", (x, literal(b, 1.0))),)))
    seen: list[tuple[str, Graph, Graph]] = []
    result = passes.run(graph, ("simplify", "dce"), lambda *effect: seen.append(effect))
    assert [name for name, _, _ in seen] == ["simplify", "dce"]
    assert seen[0][1] is graph
    assert seen[0][2] is seen[1][1]
    assert seen[1][2] is result
    assert [len(after) for _, _, after in seen] == [3, 2]


def test_all_passes_run_by_default_in_the_order_of_the_list() -> None:
    names: list[str] = []
    passes.run(
        graph_of(lambda b, x: b.add("neg", (x,))), observe=lambda name, before, after: names.append(name)
    )
    assert names == list(passes.PASSES) == ["fold", "simplify", "cse", "dce", "fuse", "epilogue"]


def test_no_passes_give_the_graph_itself() -> None:
    graph = graph_of(lambda b, x: b.add("neg", (x,)))
    assert passes.run(graph, ()) is graph


def test_an_unknown_pass_is_refused_with_the_names_there_are() -> None:
    graph = graph_of(lambda b, x: x)
    with pytest.raises(UsageError, match=r"\[passes\] given 'melt': expected one of fold, simplify, cse"):
        passes.run(graph, ("fold", "melt"))


def test_a_pass_that_breaks_a_rule_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgets_an_input(graph: Graph) -> Graph:
        return Graph(graph.nodes, (), graph.outputs)

    monkeypatch.setitem(passes.PASSES, "dce", forgets_an_input)
    with pytest.raises(VerifyError, match="inputs-listed"):
        passes.run(graph_of(lambda b, x: b.add("neg", (x,))))


def test_a_broken_graph_is_refused_before_any_pass() -> None:
    graph = graph_of(lambda b, x: b.add("neg", (x,)))
    with pytest.raises(VerifyError, match="inputs-listed"):
        passes.run(Graph(graph.nodes, (), graph.outputs), ())


# --- fold --------------------------------------------------------------------------------------------


def test_exact_operations_on_literals_are_computed() -> None:
    def value(b: GraphBuilder, x: Node) -> Node:
        third = b.add("div", (literal(b, 1.0, (3,)), literal(b, 3.0, (3,))))
        turned = b.add("reshape", (b.add("neg", (third,)),), {"shape": (1, 3)})
        return b.add("add", (x, turned))

    folded = drop_dead(fold_constants(graph_of(value)))
    assert ops(folded) == ["add"]
    (constant,) = (node for node in folded if node.op == "constant")
    assert np.array_equal(constant.attrs["value"], np.full((1, 3), np.float32(-1) / np.float32(3)))


def test_folding_rounds_to_binary32_at_every_step() -> None:
    """(1 + 2^-24) - 1 is 0 in binary32."""

    def value(b: GraphBuilder, x: Node) -> Node:
        one = literal(b, 1.0)
        return b.add("sub", (b.add("add", (one, literal(b, 2.0**-24))), one))

    folded = fold_constants(graph_of(value))
    assert folded.outputs[0].op == "constant"
    assert folded.outputs[0].attrs["value"] == 0.0


def test_functions_whose_bits_numpy_does_not_define_are_not_folded() -> None:
    for op in ("exp", "tanh", "rsqrt", "gelu_erf", "sin"):
        graph = graph_of(lambda b, x, op=op: b.add(op, (literal(b, 0.5),)))  # type: ignore[misc]
        assert ops(fold_constants(graph)) == [op]


def test_integers_and_views_of_literals_are_folded() -> None:
    build = GraphBuilder()
    c = build.constant(np.arange(6, dtype=np.int32).reshape(2, 3))
    part = build.add("slice", (c,), {"start": (0, 1), "stop": (2, 3), "step": (1, 1)})
    (output,) = fold_constants(build.freeze([build.add("transpose", (part,), {"axes": (1, 0)})])).outputs
    value = output.attrs["value"]
    assert (output.op, output.dtype) == ("constant", int32)
    assert isinstance(value, np.ndarray)
    assert value.tolist() == [[1, 4], [2, 5]]


def test_a_literal_is_not_blown_up() -> None:
    def spread(b: GraphBuilder, size: int) -> Node:
        return b.add("broadcast_to", (literal(b, 1.0),), {"shape": (size,)})

    assert ops(fold_constants(graph_of(lambda b, x: spread(b, LARGEST)))) == []
    assert ops(fold_constants(graph_of(lambda b, x: spread(b, LARGEST + 1)))) == ["broadcast_to"]


def test_what_reads_an_input_or_draws_is_not_folded() -> None:
    def value(b: GraphBuilder, x: Node) -> Node:
        rng = b.constant(np.zeros(3, np.int32))
        drawn = b.add("random_uniform", (rng,), {"shape": (2, 3), "stream": 0, "low": 0.0, "high": 1.0})
        return b.add("add", (x, drawn))

    assert ops(fold_constants(graph_of(value))) == ["random_uniform", "add"]


# --- simplify ----------------------------------------------------------------------------------------

VANISH: dict[str, Build] = {
    "x * 1": lambda b, x: b.add("mul", (x, literal(b, 1.0))),
    "1 * x": lambda b, x: b.add("mul", (literal(b, 1.0), x)),
    "x * ones spread": lambda b, x: b.add(
        "mul", (x, b.add("broadcast_to", (literal(b, 1.0),), {"shape": (2, 3)}))
    ),
    "x / 1": lambda b, x: b.add("div", (x, literal(b, 1.0))),
    "x + -0": lambda b, x: b.add("add", (x, literal(b, -0.0))),
    "-0 + x": lambda b, x: b.add("add", (literal(b, -0.0), x)),
    "x - 0": lambda b, x: b.add("sub", (x, literal(b, 0.0))),
    "scale by 1": lambda b, x: b.add("scale", (x,), {"factor": 1.0}),
    "--x": lambda b, x: b.add("neg", (b.add("neg", (x,)),)),
    "reshape to itself": lambda b, x: b.add("reshape", (x,), {"shape": (2, 3)}),
    "reshape and back": lambda b, x: b.add(
        "reshape", (b.add("reshape", (x,), {"shape": (6,)}),), {"shape": (2, 3)}
    ),
    "transpose of nothing": lambda b, x: b.add("transpose", (x,), {"axes": (0, 1)}),
    "transpose and back": lambda b, x: b.add(
        "transpose", (b.add("transpose", (x,), {"axes": (1, 0)}),), {"axes": (1, 0)}
    ),
    "whole slice": lambda b, x: b.add("slice", (x,), {"start": (0, 0), "stop": (2, 3), "step": (1, 1)}),
    "broadcast to itself": lambda b, x: b.add("broadcast_to", (x,), {"shape": (2, 3)}),
    "cast to itself": lambda b, x: b.add("cast", (x,), {"dtype": "f32"}),
    "concatenation of one": lambda b, x: b.add("concat", (x,), {"axis": 1}),
}

STAY: dict[str, tuple[Build, list[str]]] = {
    "x + 0 (-0 would become +0)": (lambda b, x: b.add("add", (x, literal(b, 0.0))), ["add"]),
    "x - -0": (lambda b, x: b.add("sub", (x, literal(b, -0.0))), ["sub"]),
    "0 - x (0 - 0 is +0)": (lambda b, x: b.add("sub", (literal(b, 0.0), x)), ["sub"]),
    "x - x (NaN, infinities)": (lambda b, x: b.add("sub", (x, x)), ["sub"]),
    "x / x": (lambda b, x: b.add("div", (x, x)), ["div"]),
    "x / 3 (1/3 is not exact)": (lambda b, x: b.add("div", (x, literal(b, 3.0))), ["div"]),
    "x / 0": (lambda b, x: b.add("div", (x, literal(b, 0.0))), ["div"]),
    "x / inf": (lambda b, x: b.add("div", (x, literal(b, np.inf))), ["div"]),
    "x / nan": (lambda b, x: b.add("div", (x, literal(b, np.nan))), ["div"]),
    "x / 2^127 (its inverse is subnormal)": (lambda b, x: b.add("div", (x, literal(b, 2.0**127))), ["div"]),
    "x / 2^-127 (its inverse overflows)": (lambda b, x: b.add("div", (x, literal(b, 2.0**-127))), ["div"]),
    "1 / x": (lambda b, x: b.add("div", (literal(b, 1.0), x)), ["div"]),
    "exp(log x)": (lambda b, x: b.add("exp", (b.add("log", (x,)),)), ["log", "exp"]),
    "max(x, x) of two values": (lambda b, x: b.add("maximum", (x, b.add("neg", (x,)))), ["neg", "maximum"]),
    "sum over a single element (N2 starts at +0)": (
        lambda b, x: b.add(
            "sum", (b.add("reshape", (x,), {"shape": (2, 3, 1)}),), {"axes": (2,), "keepdims": False}
        ),
        ["reshape", "sum"],
    ),
    "a rounding to bf16 and back": (
        lambda b, x: b.add("cast", (b.add("cast", (x,), {"dtype": "bf16"}),), {"dtype": "f32"}),
        ["cast", "cast"],
    ),
    "a slice that drops": (
        lambda b, x: b.add("slice", (x,), {"start": (0, 0), "stop": (2, 3), "step": (1, 2)}),
        ["slice"],
    ),
    "a broadcast that repeats": (
        lambda b, x: b.add("broadcast_to", (x,), {"shape": (4, 2, 3)}),
        ["broadcast_to"],
    ),
    "1 * x where that broadcasts": (lambda b, x: b.add("mul", (x, literal(b, 1.0, (4, 1, 1)))), ["mul"]),
    "x * 1 where the literal adds an axis": (
        lambda b, x: b.add("mul", (x, literal(b, 1.0, (1, 1, 1)))),
        ["mul"],
    ),
    "x / 2 where the literal adds an axis": (
        lambda b, x: b.add("div", (x, literal(b, 2.0, (1, 1, 1)))),
        ["div"],
    ),
    "x + -0 where the literal adds an axis": (
        lambda b, x: b.add("add", (x, literal(b, -0.0, (1, 1, 1)))),
        ["add"],
    ),
    "x - 0 where the literal adds an axis": (
        lambda b, x: b.add("sub", (x, literal(b, 0.0, (1, 1, 1)))),
        ["sub"],
    ),
    "a literal of several elements": (lambda b, x: b.add("mul", (x, literal(b, 1.0, (3,)))), ["mul"]),
    "a value that only a run knows": (
        lambda b, x: b.add("mul", (x, b.input("one", (), float32))),
        ["mul"],
    ),
}


@pytest.mark.parametrize("case", VANISH)
def test_an_identity_vanishes(case: str) -> None:
    graph = simplify(graph_of(VANISH[case]))
    assert graph.outputs == graph.inputs[:1]


@pytest.mark.parametrize("case", STAY)
def test_what_is_no_identity_for_every_bit_pattern_stays(case: str) -> None:
    build, expected = STAY[case]
    assert ops(simplify(graph_of(build))) == expected


@pytest.mark.parametrize(
    ("op", "value", "factor"),
    [
        ("mul", 3.0, 3.0),
        ("mul", -0.0, -0.0),
        ("mul", np.inf, np.inf),
        ("div", 4.0, 0.25),
        ("div", -2.0, -0.5),
        ("div", 2.0**-126, 2.0**126),
        ("div", 2.0**125, 2.0**-125),
    ],
)
def test_a_literal_factor_becomes_part_of_the_instruction(op: str, value: float, factor: float) -> None:
    graph = simplify(graph_of(lambda b, x: b.add(op, (x, literal(b, value)))))
    (output,) = graph.outputs
    assert output.op == "scale"
    assert np.float32(output.attrs["factor"]).tobytes() == np.float32(factor).tobytes()  # type: ignore[arg-type]


def test_two_transposes_and_two_reshapes_become_one() -> None:
    def turned(b: GraphBuilder, x: Node) -> Node:
        first = b.add("transpose", (x,), {"axes": (1, 2, 0)})
        return b.add("transpose", (first,), {"axes": (0, 2, 1)})

    graph = drop_dead(simplify(graph_of(turned, (2, 3, 4))))
    assert ops(graph) == ["transpose"]
    assert graph.outputs[0].attrs["axes"] == (1, 0, 2)
    assert graph.outputs[0].shape == (3, 2, 4)

    def reshaped(b: GraphBuilder, x: Node) -> Node:
        return b.add("reshape", (b.add("reshape", (x,), {"shape": (6,)}),), {"shape": (3, 2)})

    graph = drop_dead(simplify(graph_of(reshaped)))
    assert ops(graph) == ["reshape"]
    assert graph.outputs[0].inputs == graph.inputs


def test_an_output_that_becomes_an_input_donated_elsewhere_stays_a_value_of_its_own() -> None:
    """a + -0 is a; but a's memory goes to the other output, so the graph may not return it as it is."""
    build = GraphBuilder()
    a, b = (build.input(name, (3,), float32, "state") for name in "ab")
    same = build.add("add", (a, literal(build, -0.0)))
    graph = simplify(build.freeze([same, build.add("neg", (b,))], {1: a}))
    assert [node.op for node in graph.outputs] == ["reshape", "neg"]
    graph = simplify(build.freeze([same], {0: a}))
    assert graph.outputs == (graph.inputs[0],)


# --- cse ---------------------------------------------------------------------------------------------


def test_equal_operations_on_equal_values_become_one() -> None:
    def value(b: GraphBuilder, x: Node) -> Node:
        twice = [b.add("exp", (b.add("neg", (x,)),)) for _ in range(2)]
        return b.add("add", twice)

    graph = share_common(graph_of(value))
    assert ops(graph) == ["neg", "exp", "add"]
    assert graph.outputs[0].inputs[0] is graph.outputs[0].inputs[1]


def test_literals_are_shared_by_their_bits() -> None:
    build = GraphBuilder()
    values = [literal(build, value) for value in (0.0, -0.0, 0.0)]
    values.append(build.constant(np.array(0, np.int32)))
    values.append(build.constant(np.zeros((1,), np.float32)))
    graph = share_common(build.freeze(values))
    assert graph.outputs[0] is graph.outputs[2]
    assert len({*graph.outputs}) == 4


def test_attributes_tell_operations_apart_also_by_the_sign_of_zero() -> None:
    build = GraphBuilder()
    x = build.input("x", (3,), float32)
    values = [build.add("scale", (x,), {"factor": factor}) for factor in (0.0, -0.0, 2.0, 2.0)]
    graph = share_common(build.freeze(values))
    assert len(set(graph.outputs)) == 3
    assert graph.outputs[2] is graph.outputs[3]


def test_draws_of_one_stream_are_equal_and_of_two_are_not() -> None:
    build = GraphBuilder()
    x, rng = build.input("x", (3,), float32), build.input("rng", (3,), int32)
    drawn = [build.add("dropout", (x, rng), {"p": 0.5, "stream": stream}) for stream in (1, 1, 2)]
    assert len(set(share_common(build.freeze(drawn)).outputs)) == 2


def test_operand_order_matters() -> None:
    build = GraphBuilder()
    x, y = (build.input(name, (3,), float32) for name in "xy")
    graph = share_common(build.freeze([build.add("add", (x, y)), build.add("add", (y, x))]))
    assert graph.outputs[0] is not graph.outputs[1]


def test_checks_and_bodies_are_kept_and_inputs_of_one_kind_stay_two() -> None:
    build = GraphBuilder()
    x, y = (build.input(name, (3,), float32) for name in "xy")
    checks = [build.add("check_finite", (x,), {"names": ("x",)}) for _ in range(2)]
    graph = share_common(build.freeze([*checks, y]))
    assert ops(graph) == ["check_finite", "check_finite"]
    assert len(graph.inputs) == 2


def test_results_of_one_node_are_shared() -> None:
    build = GraphBuilder()
    x = build.input("x", (4,), float32)
    halves = [build.results("split", (x,), {"sizes": (2, 2), "axis": 0}) for _ in range(2)]
    graph = share_common(build.freeze([halves[0][1], halves[1][1], halves[1][0]]))
    assert ops(graph) == ["split", "result", "result"]
    assert graph.outputs[0] is graph.outputs[1]
    assert graph.outputs[0] is not graph.outputs[2]


# --- dce ---------------------------------------------------------------------------------------------


def test_what_no_output_needs_is_dropped_and_inputs_stay() -> None:
    build = GraphBuilder()
    x, unused = (build.input(name, (3,), float32) for name in ("x", "unused"))
    build.add("exp", (build.add("neg", (unused,)),))
    graph = drop_dead(build.freeze([build.add("neg", (x,))], {0: unused}))
    assert [node.op for node in graph] == ["input", "input", "neg"]
    assert graph.donations[0] is graph.inputs[1]


def test_a_check_is_an_effect_that_outlives_its_readers() -> None:
    build = GraphBuilder()
    x = build.input("x", (3,), float32)
    build.add("check_finite", (x,), {"names": ("dead",)})
    alive = build.add("check_finite", (x,), {"names": ("alive",)})
    graph = drop_dead(build.freeze([build.add("neg", (alive,))]))
    assert [node.attrs["names"] for node in graph if node.op == "check_finite"] == [("dead",), ("alive",)]


# --- fuse --------------------------------------------------------------------------------------------


def test_a_chain_becomes_one_step() -> None:
    def value(b: GraphBuilder, x: Node) -> Node:
        return b.add("tanh", (b.add("mul", (b.add("exp", (x,)), x)),))

    graph = fuse_elementwise(graph_of(value))
    assert ops(graph) == ["fused"]
    assert ops(body_of(graph)) == ["exp", "mul", "tanh"]
    assert len(body_of(graph).inputs) == 1


def test_a_value_read_outside_is_an_output_of_its_chain() -> None:
    build = GraphBuilder()
    x = build.input("x", (2, 3), float32)
    a = build.add("exp", (x,))
    b = build.add("neg", (a,))
    total = build.add("sum", (a,), {"axes": (1,), "keepdims": False})
    graph = fuse_elementwise(build.freeze([b, total]))
    assert ops(graph) == ["fused", "result", "result", "sum"]
    assert [node.op for node in body_of(graph).outputs] == ["exp", "neg"]


def test_what_must_run_in_between_is_never_swallowed() -> None:
    """A diamond: y = exp(x) - sum(exp(x)). Joining both ends would need the sum before and after."""
    build = GraphBuilder()
    x = build.input("x", (2, 3), float32)
    top = build.add("exp", (x,))
    total = build.add("sum", (top,), {"axes": (1,), "keepdims": True})
    bottom = build.add("sub", (top, total))
    graph = fuse_elementwise(build.freeze([build.add("neg", (bottom,))]))
    assert ops(graph) == ["exp", "sum", "fused"]
    assert ops(body_of(graph)) == ["sub", "neg"]


def test_a_detour_through_two_groups_is_no_cycle_either() -> None:
    """a -> sum -> b and a -> c, b -> c: c may join a or b, but not both."""
    build = GraphBuilder()
    x = build.input("x", (2, 3), float32)
    a = build.add("exp", (x,))
    row = build.add("sum", (a,), {"axes": (0, 1), "keepdims": True})
    b = build.add("mul", (x, row))
    c = build.add("add", (a, b))
    graph = passes.run(build.freeze([c]), ("fuse",))
    assert ops(graph) == ["exp", "sum", "fused"]


def test_what_one_group_waits_for_everyone_behind_it_waits_for() -> None:
    """p and q run as one, so what follows p waits for all that q needs, s among it: u may not join s."""
    build = GraphBuilder()
    x = build.input("x", (2, 3), float32)
    whole = {"axes": (0, 1), "keepdims": True}
    s, p = build.add("exp", (x,)), build.add("neg", (x,))
    q = build.add("add", (p, build.add("sum", (s,), whole)))
    u = build.add("add", (s, build.add("max", (p,), whole)))
    graph = fuse_elementwise(build.freeze([q, u]))
    assert ops(graph) == ["exp", "sum", "fused", "result", "result", "max", "add"]
    assert ops(body_of(graph)) == ["neg", "add"]


def test_other_shapes_are_read_by_broadcast_and_not_joined() -> None:
    build = GraphBuilder()
    x, bias = build.input("x", (2, 3), float32), build.input("bias", (3,), float32)
    shifted = build.add("add", (x, build.add("neg", (bias,))))
    graph = fuse_elementwise(build.freeze([build.add("exp", (shifted,))]))
    assert ops(graph) == ["neg", "fused"]
    assert [node.shape for node in body_of(graph).inputs] == [(2, 3), (3,)]


def test_a_chain_stays_within_the_registers() -> None:
    """However long the chain and however many its inputs."""
    build = GraphBuilder()
    value = build.input("x", (4,), float32)
    for _ in range(3 * MOST_NODES):
        value = build.add("sin", (value,))
    for index in range(3 * MOST_INPUTS):
        value = build.add("add", (value, build.input(f"y{index}", (4,), float32)))
    graph = fuse_elementwise(build.freeze([value]))
    bodies = [node.attrs["body"] for node in graph if node.op == "fused"]
    assert len(bodies) >= 6
    for body in bodies:
        assert isinstance(body, Graph)
        assert len(ops(body)) <= MOST_NODES
        assert len(body.inputs) <= MOST_INPUTS


def test_a_node_is_not_moved_far_from_where_it_stood() -> None:
    build = GraphBuilder()
    x = build.input("x", (4, 4), float32)
    first = build.add("exp", (x,))
    other = x
    for _ in range(MOST_DELAY):
        other = build.add("matmul", (other, x))
    graph = fuse_elementwise(build.freeze([build.add("neg", (first,)), other]))
    assert "fused" not in ops(graph)


def test_a_group_that_nothing_needs_is_dropped() -> None:
    build = GraphBuilder()
    x = build.input("x", (4,), float32)
    build.add("neg", (build.add("exp", (x,)),))
    graph = passes.run(build.freeze([build.add("abs", (x,))]), ("fuse",))
    assert ops(graph) == ["abs"]


def test_inputs_keep_their_order_when_a_group_is_pulled_forward() -> None:
    """The group of `late` runs where the sum needs it; `y` and `z` stand between in the graph."""
    build = GraphBuilder()
    x = build.input("x", (2, 3), float32)
    early = build.add("exp", (x,))
    total = build.add("sum", (early,), {"axes": (1,), "keepdims": True})
    y, z = (build.input(name, (2, 3), float32) for name in "yz")
    late = build.add("mul", (early, z))
    graph = fuse_elementwise(build.freeze([build.add("add", (y, total)), late]))
    assert [node.attrs["name"] for node in graph.inputs] == ["x", "y", "z"]


# --- epilogue ----------------------------------------------------------------------------------------


def linear(residual: bool = True, product_wanted: bool = False) -> Graph:
    """gelu(x w + b), plus x."""
    build = GraphBuilder()
    x, w = build.input("x", (4, 4), float32), build.input("w", (4, 4), float32, "parameter")
    b = build.input("b", (4,), float32, "parameter")
    product = build.add("matmul", (x, w))
    value = build.add("gelu_tanh", (build.add("add", (product, b)),))
    if residual:
        value = build.add("add", (value, x))
    return build.freeze([value, product] if product_wanted else [value])


def test_bias_activation_and_residual_join_their_matmul() -> None:
    graph = passes.run(linear())
    assert ops(graph) == ["fused"]
    assert ops(body_of(graph)) == ["matmul", "add", "gelu_tanh", "add"]


def test_a_single_elementwise_consumer_joins_without_being_fused_first() -> None:
    graph = fuse_epilogues(graph_of(lambda b, x: b.add("relu", (b.add("matmul", (x, x)),)), (3, 3)))
    assert ops(graph) == ["fused"]
    assert ops(body_of(graph)) == ["matmul", "relu"]


def test_a_product_that_is_read_elsewhere_is_a_result_too() -> None:
    graph = passes.run(linear(product_wanted=True))
    assert ops(graph) == ["fused", "result", "result"]
    assert [node.op for node in body_of(graph).outputs] == ["add", "matmul"]
    assert [node.attrs["index"] for node in graph.outputs] == [0, 1]


def test_a_chain_with_several_outputs_keeps_them_all() -> None:
    build = GraphBuilder()
    x = build.input("x", (3, 3), float32)
    shifted = build.add("add", (build.add("matmul", (x, x)), x))
    graph = passes.run(build.freeze([build.add("exp", (shifted,)), shifted]))
    assert ops(graph)[0] == "fused"
    assert [node.op for node in body_of(graph).outputs] == ["add", "exp"]
    assert [node.attrs["index"] for node in graph.outputs] == [1, 0]


def test_a_consumer_of_another_shape_does_not_join() -> None:
    build = GraphBuilder()
    x, y = build.input("x", (1, 4), float32), build.input("y", (4, 4), float32)
    graph = fuse_epilogues(build.freeze([build.add("add", (build.add("matmul", (x, y)), y))]))
    assert ops(graph) == ["matmul", "add"]


def test_a_consumer_that_is_not_elementwise_does_not_join() -> None:
    graph = passes.run(graph_of(lambda b, x: b.add("softmax", (b.add("matmul", (x, x)),)), (3, 3)))
    assert ops(graph) == ["matmul", "softmax"]


def test_two_products_of_one_sum_cannot_both_have_it() -> None:
    build = GraphBuilder()
    x, y = (build.input(name, (3, 3), float32) for name in "xy")
    total = build.add("add", (build.add("matmul", (x, y)), build.add("matmul", (y, x))))
    graph = passes.run(build.freeze([total]))
    assert sorted(ops(graph)) == ["fused", "matmul"]


def test_a_product_whose_consumer_needs_its_own_reduction_is_left_alone() -> None:
    """p - max(p): the maximum must run between the product and the difference."""
    build = GraphBuilder()
    x = build.input("x", (3, 3), float32)
    product = build.add("matmul", (x, x))
    largest = build.add("max", (product,), {"axes": (1,), "keepdims": True})
    graph = passes.run(build.freeze([build.add("sub", (product, largest))]))
    assert ops(graph) == ["matmul", "max", "sub"]


def test_an_empty_product_is_left_alone() -> None:
    graph = fuse_epilogues(graph_of(lambda b, x: b.add("relu", (b.add("matmul", (x, x)),)), (0, 0)))
    assert ops(graph) == ["matmul", "relu"]


def test_inputs_keep_their_order_when_a_consumer_is_pulled_forward() -> None:
    build = GraphBuilder()
    x = build.input("x", (3, 3), float32)
    product = build.add("matmul", (x, x))
    total = build.add("sum", (product,), {"axes": (0, 1), "keepdims": False})
    y, z = (build.input(name, (3, 3), float32) for name in "yz")
    late = build.add("add", (product, z))
    graph = fuse_epilogues(build.freeze([build.add("mul", (y, total)), late]))
    assert [node.attrs["name"] for node in graph.inputs] == ["x", "y", "z"]
    assert ops(graph) == ["fused", "result", "result", "sum", "mul"]
