"""The operation table has no holes: every row can run, is specified, has an oracle, a gradient and a cost."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from tests.property.graphs import graphs

from volta.dtypes import BY_NAME, float32
from volta.errors import UsageError
from volta.ir import attributes, vjp
from volta.ir.cost import DIVISION, EXP, Work
from volta.ir.graph import Graph, GraphBuilder, TensorType
from volta.ir.ops import ELEMENTWISE, OPS, work_of

SOURCES = Path(__file__).parents[2] / "engine" / "csrc"
CHAIN_OPS = dict(
    re.findall(r"^VOLTA_CHAIN_OP\((\w+), (\d+),", (SOURCES / "chain_ops.def").read_text(), re.MULTILINE)
)
EXPRESSIONS = dict(
    re.findall(r"^VOLTA_CHAIN_OP\((\w+), \d+, (.*)\)$", (SOURCES / "chain_ops.def").read_text(), re.MULTILINE)
)
KERNELS = set(re.findall(r"^VOLTA_KERNEL\(\w+, (\w+)\)", (SOURCES / "kernels.def").read_text(), re.MULTILINE))
EXACT = {
    *(
        "neg",
        "abs",
        "add",
        "sub",
        "mul",
        "div",
        "sqrt",
        "scale",
        "maximum",
        "minimum",
        "relu",
        "greater_equal",
    ),
    *("reshape", "transpose", "slice", "broadcast_to", "concat", "pad"),
}
WITHOUT_KERNEL = {"leaf", "result", "fused", "view"}
rows = pytest.mark.parametrize("op", OPS.values(), ids=OPS)


@rows
def test_a_row_runs_on_a_kernel_or_needs_none(op) -> None:  # type: ignore[no-untyped-def]
    if op.kind in WITHOUT_KERNEL:
        assert op.kernel is None
    else:
        assert op.kernel in KERNELS
    assert (op.kind == "elementwise") == (op.name in CHAIN_OPS)


def test_every_kernel_serves_a_row() -> None:
    others = {"fill", "pack_weights"}  # pad's zeros; weights in the order of a tile
    assert KERNELS - {op.kernel for op in OPS.values()} == others


def test_elementwise_rows_are_those_of_the_chain_in_order() -> None:
    """A chain instruction names its row by number, so the order counts. A graph says `cast` for
    `copy` and `bf16`."""
    named = {name: arity for name, arity in CHAIN_OPS.items() if name not in ("copy", "bf16")}
    assert [op.name for op in ELEMENTWISE] == list(named)
    assert {op.name: str(op.arity) for op in ELEMENTWISE} == named


@pytest.mark.parametrize("op", ELEMENTWISE, ids=lambda op: op.name)
def test_a_row_has_the_immediates_that_its_expression_reads(op) -> None:  # type: ignore[no-untyped-def]
    given = op.immediates(dict.fromkeys(op.attrs, 0.1))
    assert {f"x{i}" for i in range(len(given))} == set(re.findall(r"\bx\d\b", EXPRESSIONS[op.name]))
    assert all(value == float(np.float32(value)) for value in given)


def test_one_minus_beta_is_computed_in_f32() -> None:
    """f32(1) - f32(0.999) is 4.7e-5 larger than 0.001."""
    beta, rest = OPS["adam_v"].immediates({"beta2": 0.999})
    assert (beta, rest) == (float(np.float32(0.999)), float(np.float32(1) - np.float32(0.999)))
    assert rest != float(np.float32(0.001))


@rows
def test_a_row_names_its_clause_and_kinds_of_attributes(op) -> None:  # type: ignore[no-untyped-def]
    assert re.fullmatch(r"N\d+", op.clause)
    assert set(op.attrs.values()) <= set(attributes.KINDS)
    assert {dtype for _, dtype in op.operands} <= {*BY_NAME, "any"}
    names = [name for name, _ in op.operands]
    assert len(names) == len(set(names))


@rows
def test_a_row_has_a_reference_or_is_evaluated_by_its_graph(op) -> None:  # type: ignore[no-untyped-def]
    if op.name in ("input", "result", "fused"):
        assert op.reference is None
        with pytest.raises(UsageError, match=rf"\[{op.name}\] has no reference"):
            op.evaluate([], {})
    else:
        assert callable(op.reference)


@rows
def test_a_row_has_a_gradient_or_the_reason_why_not(op) -> None:  # type: ignore[no-untyped-def]
    if isinstance(op.gradient, str):
        assert len(op.gradient.split()) >= 4
    else:
        assert callable(op.gradient) or isinstance(op.gradient, vjp.OfResults)


def test_exact_rows_are_those_that_ieee_754_defines() -> None:
    assert {op.name for op in OPS.values() if op.exact} == EXACT


def test_any_number_of_operands_is_named_by_position() -> None:
    assert OPS["concat"].arity is None
    assert OPS["concat"].named(2) == (("x0", "any"), ("x1", "any"))
    assert OPS["embedding"].named(2) == (("table", "f32"), ("indices", "i32"))


@given(graphs(max_steps=20, fused=True))
@settings(max_examples=60, deadline=None)
def test_costs_are_never_negative_and_only_views_and_leaves_are_free(graph: Graph) -> None:
    for node in graph:
        operands = tuple(kind for source in node.inputs for kind in source.types)
        work = OPS[node.op].cost(operands, node.types, node.attrs)
        assert min(work) >= 0
        if OPS[node.op].kind in ("leaf", "result", "view"):
            assert work == Work(0, 0, 0)
        elif any(kind.numel for kind in node.types):
            assert work.bytes > 0
        if node.op != "result":
            assert work_of(node) == work


def test_costs_of_the_contractions() -> None:
    """2 m n k for a product; two such products and a softmax for each score that attention sees."""

    def f32(*shape: int) -> TensorType:
        return TensorType(shape, float32)

    product = OPS["matmul"].cost((f32(5, 3, 4), f32(4, 7)), (f32(5, 3, 7),), {})
    assert product == Work(840, 0, 4 * (60 + 28 + 105))
    quantized = OPS["quantized_matmul"].cost((f32(3, 4), f32(4, 7), f32(2, 7)), (f32(3, 7),), {})
    assert quantized[:2] == (168, 2 * 21 * 2)
    q, k = f32(1, 4, 2, 8), f32(1, 2, 5, 8)
    for causal, scores in ((False, 4 * 2 * 5), (True, 4 * (4 + 5))):
        attrs = {"causal": causal}
        assert OPS["attention"].cost((q, k, k), (q,), attrs).contraction == scores * 4 * 8
        assert OPS["attention"].cost((q, k, k), (q,), attrs).steps == scores * (EXP + 5)
        assert OPS["attention_grad"].cost((q, k, k), (q,), attrs).contraction == scores * 10 * 8


def test_a_fused_body_costs_its_operations_but_moves_only_its_ends() -> None:
    inner = GraphBuilder()
    a = inner.input("a", (10,), float32)
    body = inner.freeze([inner.add("sqrt", (inner.add("neg", (a,)),))])
    kind = TensorType((10,), float32)
    assert OPS["fused"].cost((kind,), (kind,), {"body": body}) == Work(0, 10 * (1 + DIVISION), 80)
