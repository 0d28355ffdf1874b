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
from volta.ir.graph import Graph, GraphBuilder, TensorType
from volta.ir.ops import ELEMENTWISE, OPS

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
    assert KERNELS - {op.kernel for op in OPS.values()} == {"fill"}  # pad's zeros


def test_elementwise_rows_are_those_of_the_chain_in_order() -> None:
    """A chain instruction names its row by number, so the order counts; `copy` is no operation of a graph."""
    assert [op.name for op in ELEMENTWISE] == [name for name in CHAIN_OPS if name != "copy"]
    assert {op.name: str(op.arity) for op in ELEMENTWISE} == {
        k: v for k, v in CHAIN_OPS.items() if k != "copy"
    }


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
        flops, moved = OPS[node.op].cost(operands, node.types, node.attrs)
        assert flops >= 0
        assert moved >= 0
        if OPS[node.op].kind in ("leaf", "result", "view"):
            assert (flops, moved) == (0, 0)
        elif any(kind.numel for kind in node.types):
            assert moved > 0


def test_costs_of_the_contractions() -> None:
    """2 m n k for a product; two such products and a softmax for each score of attention."""

    def f32(*shape: int) -> TensorType:
        return TensorType(shape, float32)

    assert OPS["matmul"].cost((f32(5, 3, 4), f32(4, 7)), (f32(5, 3, 7),), {}) == (840, 4 * (60 + 28 + 105))
    q, k = f32(1, 4, 2, 8), f32(1, 2, 5, 8)
    scores = 4 * 2 * 5
    assert OPS["attention"].cost((q, k, k), (q,), {})[0] == scores * (4 * 8 + 14)
    assert OPS["attention_grad"].cost((q, k, k), (q,), {})[0] == scores * (10 * 8 + 14)


def test_a_fused_body_costs_its_operations_but_moves_only_its_ends() -> None:
    inner = GraphBuilder()
    a = inner.input("a", (10,), float32)
    body = inner.freeze([inner.add("sqrt", (inner.add("neg", (a,)),))])
    kind = TensorType((10,), float32)
    assert OPS["fused"].cost((kind,), (kind,), {"body": body}) == (20, 80)
