"""Every gradient is the derivative: gradient graphs in float64 against central finite differences."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from volta.backends.interp import evaluate
from volta.dtypes import bfloat16, float32, int32
from volta.errors import GradientError, UsageError
from volta.ir.grad import gradient
from volta.ir.graph import Graph, GraphBuilder, Node
from volta.ir.ops import OPS
from volta.ir.text import format_graph
from volta.ir.verify import verify

Array = npt.NDArray[Any]
STEP = 1e-5
# The error of a central difference is about STEP^2 times the third derivative plus 1e-16 / STEP; factors
# that attributes carry are rounded to f32, 6e-8 relative.
RTOL, ATOL = 2e-6, 2e-8


@dataclasses.dataclass(frozen=True)
class Case:
    """An operation on operands: shapes of normal numbers (through `domain`) or arrays as they are."""

    op: str
    operands: tuple[Any, ...]
    attrs: dict[str, Any] = dataclasses.field(default_factory=dict)
    domain: Callable[[Array], Array] = lambda x: x
    constant: tuple[int, ...] = ()  # operands that are not differentiated


def _positive(x: Array) -> Array:
    return np.abs(x) + 0.5


def _i32(*values: Any) -> Array:
    return np.array(values, np.int32)


UNARY = ["neg", "abs", "exp", "tanh", "sigmoid", "erf", "sin", "cos", "relu", "gelu_tanh", "gelu_erf", "silu"]
NO_KEEP, KEEP = {"keepdims": False}, {"keepdims": True}
RNG = _i32(3, -7, 11)
POSITION = _i32(0, 2)
QKV = ((2, 4, 3, 4), (2, 2, 5, 4), (2, 2, 5, 4), POSITION)
CASES = [
    *(Case(op, ((2, 3),)) for op in UNARY),
    *(Case(op, ((2, 3),), domain=_positive) for op in ("log", "sqrt", "rsqrt")),
    Case("scale", ((2, 3),), {"factor": -1.7}),
    *(
        Case(op, ((2, 3), (2, 3)))
        for op in ("add", "sub", "mul", "maximum", "minimum", "greater_equal", "relu_grad")
    ),
    *(Case(op, ((2, 1, 3), (4, 1))) for op in ("add", "sub", "mul", "maximum", "minimum", "relu_grad")),
    *(Case(op, ((), (2, 3))) for op in ("add", "sub", "mul")),
    Case("div", ((2, 3), (3,)), domain=_positive),
    Case("div", ((), (2, 3)), domain=_positive),
    Case("reshape", ((2, 3),), {"shape": (3, 2)}),
    Case("transpose", ((2, 3, 4),), {"axes": (1, 2, 0)}),
    Case("slice", ((5, 4),), {"start": (1, 0), "stop": (4, 4), "step": (1, 1)}),
    Case("slice", ((7, 8, 2),), {"start": (1, 0, 0), "stop": (7, 8, 1), "step": (3, 2, 1)}),
    Case(
        "slice",
        ((1, 2, 1, 5, 1, 2),),
        {"start": (0,) * 6, "stop": (1, 2, 1, 5, 1, 2), "step": (1, 1, 1, 2, 3, 2)},
    ),
    Case("slice", ((4, 3),), {"start": (2, 0), "stop": (2, 3), "step": (1, 1)}),
    Case("broadcast_to", ((3, 1),), {"shape": (2, 3, 4)}),
    Case("broadcast_to", ((),), {"shape": (2,)}),
    Case("concat", ((2, 3), (2, 0), (2, 2)), {"axis": 1}),
    Case("split", ((2, 5),), {"sizes": (2, 0, 3), "axis": 1}),
    Case("split", ((2, 5),), {"sizes": (5,), "axis": 1}),
    Case("pad", ((2, 3),), {"low": (1, 0), "high": (0, 2)}),
    Case("pad", ((2, 3),), {"low": (0, 0), "high": (0, 0)}),
    Case("matmul", ((3, 4), (4, 2))),
    Case("matmul", ((2, 3, 4), (2, 4, 2))),
    Case("matmul", ((2, 3, 4), (4, 2))),
    Case("matmul", ((2, 5, 3, 4), (1, 1, 4, 2))),
    Case("matmul", ((3, 4), (5, 4, 2))),
    Case("matmul", ((2, 1, 3, 4), (3, 4, 2))),
    *(
        Case(op, ((2, 3, 4),), {"axes": axes, **keep})
        for op in ("sum", "mean", "max", "sum_squares")
        for axes in ((1,), (0, 2), (0, 1, 2))
        for keep in (KEEP, NO_KEEP)
    ),
    *(Case(op, ((3,),), {"axes": (), **KEEP}) for op in ("sum", "mean", "max")),
    Case("softmax", ((2, 5),)),
    Case("log_softmax", ((2, 5),)),
    Case("cross_entropy", ((4, 5), _i32(0, -1, 4, 2)), {"ignore_index": -1}),
    Case("layer_norm", ((2, 3, 6), (6,), (6,)), {"eps": 1e-3}),
    Case("rms_norm", ((2, 3, 6), (6,)), {"eps": 1e-3}),
    Case("embedding", ((5, 3), _i32([1, 4], [1, 0]))),
    Case("gather", ((2, 5), _i32([1, 1, -1], [0, 4, 2])), {"axis": 1}),
    *(
        Case("rotary", ((2, 3, 2, 4), (5, 2), (5, 2), POSITION), {"inverse": inverse}, constant=(1, 2))
        for inverse in (False, True)
    ),
    *(Case("attention", QKV, {"scale": 0.5, "causal": causal}) for causal in (False, True)),
    Case("dropout", ((4, 5), RNG), {"p": 0.4, "stream": 3}),
    Case("check_finite", ((2, 3),), {"names": ("x",)}),
]


def _loss(build: GraphBuilder, values: Sequence[Node], seed: int) -> Node:
    """A scalar in which every element of the values has its own weight."""
    rng = np.random.default_rng(seed)
    total: Node | None = None
    for value in values:
        weights = build.constant(rng.standard_normal(value.shape).astype(np.float32))
        part = build.add("mul", (value, weights))
        part = build.add("sum", (part,), {"axes": tuple(range(len(value.shape))), "keepdims": False})
        total = part if total is None else build.add("add", (total, part))
    assert total is not None
    return total


def _built(case: Case) -> tuple[Graph, list[Array], list[Node]]:
    """The case's graph, its arguments and the inputs to differentiate."""
    rng = np.random.default_rng(7)
    build, arguments, wrt = GraphBuilder(), list[Array](), list[Node]()
    for position, operand in enumerate(case.operands):
        if isinstance(operand, tuple):
            arguments.append(case.domain(rng.standard_normal(operand)))
            build.input(f"x{position}", operand, float32)
        else:
            arguments.append(operand)
            build.input(f"x{position}", operand.shape, int32)
        if isinstance(operand, tuple) and position not in case.constant:
            wrt.append(build.inputs[-1])
    results = build.results(case.op, build.inputs, case.attrs)
    read = results if case.op == "split" else results[:1]
    return build.freeze([_loss(build, read, seed=8)]), arguments, wrt


def _finite_differences(graph: Graph, arguments: list[Array], wrt: Sequence[Node]) -> list[Array]:
    """d output 0 / d argument, one element after the other."""
    derivatives = []
    for node in wrt:
        position = graph.inputs.index(node)
        derivative = np.zeros(node.shape)
        for at in np.ndindex(node.shape):
            ends = []
            for step in (STEP, -STEP):
                moved = list(arguments)
                moved[position] = np.array(arguments[position])
                moved[position][at] += step
                ends.append(evaluate(graph, moved)[0])
            derivative[at] = (ends[0] - ends[1]) / (2 * STEP)
        derivatives.append(derivative)
    return derivatives


def _agree(graph: Graph, arguments: list[Array], wrt: Sequence[Node]) -> Graph:
    """The gradient graph is sound, keeps the outputs, and gives the finite differences."""
    before = format_graph(graph)
    with_gradients = gradient(graph, 0, wrt)
    verify(with_gradients)
    assert format_graph(graph) == before
    values = evaluate(with_gradients, arguments)
    for kept, value in zip(evaluate(graph, arguments), values, strict=False):
        np.testing.assert_array_equal(kept, value)
    gradients = values[len(graph.outputs) :]
    assert len(gradients) == len(wrt)
    for node, given, expected in zip(wrt, gradients, _finite_differences(graph, arguments, wrt), strict=True):
        assert given.shape == node.shape
        np.testing.assert_allclose(given, expected, RTOL, ATOL, err_msg=repr(node.attrs["name"]))
    return with_gradients


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
def test_the_gradient_of_an_operation_is_its_derivative(case: Case) -> None:
    _agree(*_built(case))


def test_every_differentiable_row_has_a_case() -> None:
    differentiable = {op.name for op in OPS.values() if not isinstance(op.gradient, str)}
    assert differentiable - {case.op for case in CASES} == {"cast"}  # below: its derivative is a convention


def test_a_cast_passes_gradients_through_in_f32() -> None:
    """The derivative of rounding is taken as 1, and sums of gradients are not rounded to bf16."""
    build = GraphBuilder()
    x, half = build.input("x", (3,), float32), build.input("half", (3,), bfloat16)
    rounded = build.add("cast", (x,), {"dtype": "bf16"})
    joined = build.add("cast", (build.add("concat", (rounded, half), {"axis": 0}),), {"dtype": "f32"})
    graph = build.freeze([build.add("sum_squares", (joined,), {"axes": (0,), "keepdims": False})])
    result = gradient(graph, 0, [x, half])
    verify(result)
    values = np.array([1.0, 1.001, -3.0])
    _, dx, dhalf = evaluate(result, [values, values])
    np.testing.assert_array_equal(dx, [2.0, 2.0, -6.0])  # 1.001 is 1 in bf16
    np.testing.assert_array_equal(dhalf, [2.0, 2.0, -6.0])
    assert [node.dtype for node in result.outputs[1:]] == [float32, float32]


def test_the_gradient_of_max_goes_to_the_first_of_equals() -> None:
    build = GraphBuilder()
    x = build.input("x", (2, 3), float32)
    graph = build.freeze([build.add("max", (x,), {"axes": (0, 1), "keepdims": False})])
    ties = np.array([[1.0, 5.0, 2.0], [5.0, 5.0, 0.0]])
    np.testing.assert_array_equal(evaluate(gradient(graph, 0, [x]), [ties])[1], [[0, 1, 0], [0, 0, 0]])


def test_the_gradients_of_equal_operands_go_to_the_one_that_is_given() -> None:
    """maximum and minimum of equals give a (chain_ops.def)."""
    for op in ("maximum", "minimum"):
        build = GraphBuilder()
        a, b = build.input("a", (), float32), build.input("b", (), float32)
        graph = build.freeze([build.add(op, (a, b))])
        one = np.float64(1)
        assert [float(g) for g in evaluate(gradient(graph, 0, [a, b]), [one, one])[1:]] == [1.0, 0.0]


def test_the_gradient_of_abs_at_zero_is_zero() -> None:
    build = GraphBuilder()
    x = build.input("x", (2,), float32)
    graph = build.freeze([_loss(build, [build.add("abs", (x,))], 0)])
    np.testing.assert_array_equal(evaluate(gradient(graph, 0, [x]), [np.array([0.0, -0.0])])[1], [0, 0])


def test_reductions_of_nothing_have_gradients_of_nothing() -> None:
    for op in ("sum", "mean", "max", "sum_squares"):
        build = GraphBuilder()
        x = build.input("x", (2, 0), float32)
        graph = build.freeze([_loss(build, [build.add(op, (x,), {"axes": (1,), **NO_KEEP})], 0)])
        result = gradient(graph, 0, [x])
        verify(result)
        assert evaluate(result, [np.zeros((2, 0))])[1].shape == (2, 0)


def test_inputs_that_the_loss_does_not_read_have_gradients_of_zero() -> None:
    build = GraphBuilder()
    x, y, z = (build.input(name, shape, float32) for name, shape in (("x", ()), ("y", (2, 3)), ("z", ())))
    graph = build.freeze([build.add("neg", (x,)), build.add("exp", (y,))])
    values = evaluate(gradient(graph, 0, [y, z, x]), [np.float64(1), np.ones((2, 3)), np.float64(1)])
    assert [value.tolist() for value in values[2:]] == [np.zeros((2, 3)).tolist(), 0.0, -1.0]


def test_an_output_that_is_an_input_has_gradient_one() -> None:
    build = GraphBuilder()
    x = build.input("x", (), float32)
    assert float(evaluate(gradient(build.freeze([x]), 0, [x]), [np.float64(3)])[1]) == 1.0


def test_the_loss_may_be_any_output_and_donations_stay() -> None:
    build = GraphBuilder()
    x = build.input("x", (), float32, "state")
    graph = build.freeze([build.add("exp", (x,)), build.add("mul", (x, x))], {0: x})
    result = gradient(graph, 1, [x])
    verify(result)
    assert {output: node.id for output, node in result.donations.items()} == {0: 0}
    assert float(evaluate(result, [np.float64(3)])[2]) == 6.0


def test_several_uses_are_added_from_the_last_user_to_the_first() -> None:
    """x is read by %1 exp, %2 mul (twice) and %3 add: the sum is ((%3 + %2 left) + %2 right) + %1."""
    build = GraphBuilder()
    x = build.input("x", (), float32)
    e = build.add("exp", (x,))
    graph = build.freeze([build.add("add", (x, build.add("add", (build.add("mul", (x, x)), e))))])
    result = gradient(graph, 0, [x])
    assert format_graph(result).splitlines()[5:] == [
        "  %4 = add(%0, %3) : f32[]",
        "  %5 = constant(value=f32[](1.0)) : f32[]",
        "  %6 = mul(%5, %0) : f32[]",
        "  %7 = mul(%5, %0) : f32[]",
        "  %8 = add(%5, %6) : f32[]",
        "  %9 = add(%8, %7) : f32[]",
        "  %10 = mul(%5, %1) : f32[]",
        "  %11 = add(%9, %10) : f32[]",
        "  return %4, %11",
        "}",
    ]
    assert format_graph(gradient(graph, 0, [x])) == format_graph(result)


def test_a_weight_of_all_batches_has_its_gradient_in_one_contraction() -> None:
    """dB = A'^T g' over the rows of every batch: no sum over batch axes."""
    build = GraphBuilder()
    x, w = build.input("x", (2, 3, 4), float32), build.input("w", (4, 5), float32)
    graph = build.freeze([_loss(build, [build.add("matmul", (x, w))], 0)])
    added = gradient(graph, 0, [w]).nodes[len(graph) :]
    assert "sum" not in [node.op for node in added]
    assert [node.shape for node in added if node.op == "matmul"][-1] == (4, 5)


def test_integers_carry_no_gradient() -> None:
    """The row that argmax looks up is differentiated, the choice is not."""
    build = GraphBuilder()
    x, table = build.input("x", (1, 3), float32), build.input("table", (3, 2), float32)
    row = build.add("embedding", (table, build.add("argmax", (x,), {"axis": 1, **NO_KEEP})))
    _agree(
        build.freeze([_loss(build, [row, x], 3)]), [np.array([[0.1, 0.9, 0.3]]), np.ones((3, 2))], [x, table]
    )


def test_a_small_network_with_shared_and_broadcast_values() -> None:
    build = GraphBuilder()
    x, w, b = (build.input(n, s, float32) for n, s in (("x", (4, 3)), ("w", (3, 3)), ("b", (3,))))
    h = x
    for _ in range(2):  # the same weights twice
        h = build.add("tanh", (build.add("add", (build.add("matmul", (h, w)), b)),))
    gate = build.add("sigmoid", (build.add("mul", (h, b)),))
    logits = build.add("add", (build.add("mul", (gate, x)), h))
    targets = build.constant(_i32(0, 2, 1, -1))
    losses = build.add("cross_entropy", (logits, targets), {"ignore_index": -1})
    total = build.add("sum", (losses,), {"axes": (0,), **NO_KEEP})
    mean = build.add("div", (total, build.add("count_valid", (targets,), {"ignore_index": -1})))
    rng = np.random.default_rng(0)
    _agree(build.freeze([mean]), [rng.standard_normal(node.shape) for node in build.inputs], [x, w, b])


def _linear(build: GraphBuilder, x: Node, w: Node) -> Node:
    return build.add("matmul", (x, w))


def _heads(build: GraphBuilder, x: Node, heads: int) -> Node:
    """[B, T, C] -> [B, H, T, D]"""
    batch, steps, channels = x.shape
    apart = build.add("reshape", (x,), {"shape": (batch, steps, heads, channels // heads)})
    return build.add("transpose", (apart,), {"axes": (0, 2, 1, 3)})


def test_a_transformer_block_with_tied_embeddings() -> None:
    """Embedding, layer norm, grouped causal attention with rotary positions, gated MLP, tied output."""
    vocabulary, channels = 5, 8
    build = GraphBuilder()
    names = {
        "table": (vocabulary, channels),
        "norm_w": (channels,),
        "norm_b": (channels,),
        "wq": (channels, channels),
        "wkv": (channels, channels),
        "wo": (channels, channels),
        "rms_w": (channels,),
        "up": (channels, 12),
        "down": (6, channels),
    }
    at = {name: build.input(name, shape, float32, "parameter") for name, shape in names.items()}
    tokens, targets = build.constant(_i32([1, 4, 0], [2, 2, 3])), build.constant(_i32(4, 0, 1, 2, -1, 0))
    angles = np.outer(np.arange(3), [1.0, 0.1])
    cos, sin = (build.constant(table.astype(np.float32)) for table in (np.cos(angles), np.sin(angles)))
    position = build.constant(_i32(0, 0))

    x = build.add("embedding", (at["table"], tokens))
    h = build.results("layer_norm", (x, at["norm_w"], at["norm_b"]), {"eps": 1e-5})[0]
    q = _heads(build, _linear(build, h, at["wq"]), 2)
    k, v = (
        _heads(build, part, 1)
        for part in build.results("split", (_linear(build, h, at["wkv"]),), {"sizes": (4, 4), "axis": 2})
    )
    q, k = (build.add("rotary", (head, cos, sin, position), {"inverse": False}) for head in (q, k))
    o = build.results("attention", (q, k, v, position), {"scale": 0.5, "causal": True})[0]
    joined = build.add("reshape", (build.add("transpose", (o,), {"axes": (0, 2, 1, 3)}),), {"shape": x.shape})
    x = build.add("add", (x, _linear(build, joined, at["wo"])))
    h = build.results("rms_norm", (x, at["rms_w"]), {"eps": 1e-5})[0]
    h = build.add("dropout", (h, build.constant(RNG)), {"p": 0.1, "stream": 1})
    gate, up = build.results("split", (_linear(build, h, at["up"]),), {"sizes": (6, 6), "axis": 2})
    x = build.add("add", (x, _linear(build, build.add("mul", (build.add("silu", (gate,)), up)), at["down"])))
    flat = build.add("reshape", (x,), {"shape": (6, channels)})
    logits = _linear(build, flat, build.add("transpose", (at["table"],), {"axes": (1, 0)}))
    losses = build.add("cross_entropy", (logits, targets), {"ignore_index": -1})
    mean = build.add("mean", (losses,), {"axes": (0,), **NO_KEEP})

    rng = np.random.default_rng(1)
    arguments: list[Array] = [0.5 * rng.standard_normal(shape) for shape in names.values()]
    _agree(build.freeze([mean]), arguments, list(at.values()))


# --- refusals ------------------------------------------------------------------------------------------
def _refusal(build: GraphBuilder, value: Node, wrt: Node) -> str:
    with pytest.raises(GradientError) as caught:
        gradient(build.freeze([_loss(build, [value], 0)]), 0, [wrt])
    return str(caught.value)


def test_statistics_have_no_gradient() -> None:
    build = GraphBuilder()
    x, w = build.input("x", (2, 3), float32), build.input("w", (3,), float32)
    stats = build.results("rms_norm", (x, w), {"eps": 1e-5})[1]
    assert (
        _refusal(build, stats, x)
        == "[rms_norm] the loss reads result 1 of %2 rms_norm: only result 0 has a gradient"
    )


def test_the_tables_of_rotary_have_no_gradient() -> None:
    build = GraphBuilder()
    x, cos = build.input("x", (1, 1, 2, 4), float32), build.input("cos", (2, 2), float32)
    turned = build.add("rotary", (x, cos, cos, build.constant(_i32(0))), {"inverse": False})
    assert (
        _refusal(build, turned, cos)
        == "[rotary] cos of %3 rotary has no gradient: the table of angles is not learned"
    )


ROW = (2, 4)
WITHOUT: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "gelu_tanh_slope": ([ROW], {}),
    "gelu_erf_slope": ([ROW], {}),
    "silu_slope": ([ROW], {}),
    "momentum": ([ROW, ROW], {"mu": 0.9}),
    "sgd": ([ROW, ROW, ()], {}),
    "adam_m": ([ROW, ROW], {"beta1": 0.9}),
    "adam_v": ([ROW, ROW], {"beta2": 0.9}),
    "adam": ([ROW, ROW, ROW, (), (), ()], {"eps": 1e-8, "weight_decay": 0.1}),
    "softmax_grad": ([ROW, ROW], {}),
    "log_softmax_grad": ([ROW, ROW], {}),
    "cross_entropy_grad": ([ROW, _i32(0, 1), (2,)], {"ignore_index": -1}),
    "layer_norm_grad": ([ROW, (2, 2), (4,), ROW], {}),
    "rms_norm_grad": ([ROW, (2, 1), (4,), ROW], {}),
    "embedding_grad": ([ROW, _i32(0, 1)], {"rows": 3}),
    "gather_grad": ([ROW, np.zeros(ROW, np.int32)], {"axis": 1, "size": 3}),
    "attention_grad": (
        [(1, 1, 2, 4)] * 4 + [(1, 1, 2, 2), (1, 1, 2, 4), _i32(0)],
        {"scale": 1.0, "causal": False},
    ),
    "cache_update": ([(1, 1, 3, 4), (1, 1, 2, 4), _i32(0)], {}),
}


@pytest.mark.parametrize("op", WITHOUT)
def test_an_operation_without_gradient_says_why(op: str) -> None:
    operands, attrs = WITHOUT[op]
    build = GraphBuilder()
    nodes = [
        build.input(f"x{i}", operand, float32) if isinstance(operand, tuple) else build.constant(operand)
        for i, operand in enumerate(operands)
    ]
    message = _refusal(build, build.results(op, nodes, attrs)[0], nodes[0])
    assert message.startswith(f"[{op}] ")
    assert message.endswith(f"{op} has no gradient: {OPS[op].gradient}")


def test_a_fused_node_has_no_gradient() -> None:
    inner = GraphBuilder()
    a = inner.input("a", (2,), float32)
    build = GraphBuilder()
    x = build.input("x", (2,), float32)
    fused = build.add("fused", (x,), {"body": inner.freeze([inner.add("neg", (a,))])})
    assert _refusal(build, fused, x).endswith("gradients are taken before operations are fused")


def test_an_operation_without_gradient_is_no_obstacle_where_none_flows() -> None:
    """An optimizer's update beside the loss, and one that the inputs asked for do not reach."""
    build = GraphBuilder()
    x, w = build.input("x", (), float32), build.input("w", (), float32)
    constant = build.add("momentum", (w, w), {"mu": 0.5})
    graph = build.freeze([build.add("mul", (x, constant)), build.add("sgd", (x, x, x))])
    assert float(evaluate(gradient(graph, 0, [x]), [np.float64(2), np.float64(4)])[2]) == 6.0
    with pytest.raises(GradientError, match="momentum"):
        gradient(graph, 0, [w])


def test_a_loss_must_be_a_scalar_output_and_wrt_real_inputs() -> None:
    build = GraphBuilder()
    x, i = build.input("x", (2,), float32), build.input("i", (2,), int32)
    total = build.add("sum", (x,), {"axes": (0,), **NO_KEEP})
    graph = build.freeze([total, x])
    with pytest.raises(UsageError, match=r"\[gradient\] loss is output 2: expected 0..1"):
        gradient(graph, 2, [x])
    with pytest.raises(GradientError, match=r"\[gradient\] output 1 is f32\[2\]: expected a scalar, f32\[\]"):
        gradient(graph, 1, [x])
    with pytest.raises(UsageError, match=r"\[gradient\] %2 sum is not an input of this graph"):
        gradient(graph, 0, [total])
    with pytest.raises(GradientError, match=r"\[gradient\] input 'i' is i32\[2\]: expected f32 or bf16"):
        gradient(graph, 0, [i])
