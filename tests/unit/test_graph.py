"""The graph: types are inferred, nodes are frozen, and an impossible node is refused with both shapes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from volta.dtypes import bfloat16, float32, int32
from volta.errors import DTypeError, ShapeError, UsageError, VerifyError, VoltaError
from volta.ir.graph import GraphBuilder, Node, TensorType
from volta.ir.ops import canonical, infer


def test_a_type_counts_its_elements_and_bytes() -> None:
    kind = TensorType((3, 5), bfloat16)
    assert (kind.numel, kind.nbytes, str(kind)) == (15, 30, "bf16[3,5]")
    assert TensorType((), float32).numel == 1


def test_ids_are_positions_and_inputs_keep_their_order() -> None:
    build = GraphBuilder()
    a = build.input("a", (2,), float32)
    total = build.add("add", (a, a))
    b = build.input("b", [2], float32, role="parameter")
    graph = build.freeze([total, b])
    assert [node.id for node in graph] == [0, 1, 2]
    assert graph.inputs == build.inputs == (a, b)
    assert (len(graph), graph.outputs, dict(graph.donations)) == (3, (total, b), {})
    assert repr(total) == "%1 add"


def test_users_lists_each_reader_once_per_operand() -> None:
    build = GraphBuilder()
    a = build.input("a", (2,), float32)
    square = build.add("mul", (a, a))
    last = build.add("add", (square, a))
    users = build.freeze([last]).users()
    assert users == {a: [square, square, last], square: [last], last: []}


def test_a_node_with_several_results_is_read_through_result() -> None:
    build = GraphBuilder()
    x, w = build.input("x", (2, 4), float32), build.input("w", (4,), float32)
    norm = build.add("rms_norm", (x, w), {"eps": 1e-5})
    assert [str(kind) for kind in norm.types] == ["f32[2,4]", "f32[2,1]"]
    with pytest.raises(VerifyError, match=r"\[single-result\] %2 rms_norm has 2 results"):
        _ = norm.shape
    with pytest.raises(VerifyError, match="single-result"):
        build.add("neg", (norm,))
    stats = build.result(norm, 1)
    assert (stats.op, stats.shape, stats.dtype) == ("result", (2, 1), float32)
    assert build.result(x, 0) is x
    assert [node.shape for node in build.results("rms_norm", (x, w), {"eps": 1e-5})] == [(2, 4), (2, 1)]


def test_a_node_of_another_graph_is_refused() -> None:
    other = GraphBuilder().input("a", (2,), float32)
    with pytest.raises(VerifyError, match=r"\[defined-before-use\] neg reads %0 input"):
        GraphBuilder().add("neg", (other,))


def test_nodes_graphs_and_literals_cannot_be_changed() -> None:
    build = GraphBuilder()
    value = np.arange(3, dtype=np.float32)
    node = build.constant(value)
    value[0] = 9
    kept = node.attrs["value"]
    assert isinstance(kept, np.ndarray)
    assert kept.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        kept[0] = 9
    with pytest.raises(TypeError):
        node.attrs["value"] = value  # type: ignore[index]
    graph = build.freeze([node])
    with pytest.raises(dataclasses.FrozenInstanceError):
        graph.nodes = ()  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.donations[0] = node  # type: ignore[index]


def test_a_frozen_literal_is_shared_and_a_view_is_copied() -> None:
    build = GraphBuilder()
    first = build.constant(np.zeros(3, np.float32))
    again = build.add("constant", (), first.attrs)
    assert again.attrs["value"] is first.attrs["value"]
    base = np.zeros(4, np.float32)
    view = base[:2]
    view.setflags(write=False)
    copied = build.constant(view)
    base[0] = 1
    assert np.asarray(copied.attrs["value"]).tolist() == [0, 0]


def test_attributes_become_python_values() -> None:
    build = GraphBuilder()
    x = build.input("x", np.array([2, 3]), float32)  # type: ignore[arg-type]
    assert x.attrs["shape"] == (2, 3)
    scaled = build.add("scale", (x,), {"factor": 2})
    assert type(scaled.attrs["factor"]) is float
    attrs: dict[str, Any] = {"axes": [np.int64(1)], "keepdims": np.bool_(True)}
    total = build.add("sum", (x,), attrs)
    assert total.attrs == {"axes": (1,), "keepdims": True}
    assert all(type(axis) is int for axis in total.attrs["axes"])  # type: ignore[union-attr]


def test_inline_replaces_inputs_and_copies_the_rest() -> None:
    inner = GraphBuilder()
    a, b = inner.input("a", (2,), float32), inner.input("b", (2,), float32)
    graph = inner.freeze([inner.add("sub", (a, b)), a])
    build = GraphBuilder()
    x, y = build.input("x", (2,), float32), build.input("y", (2,), float32)
    difference, same = build.inline(graph, [y, x])
    assert (difference.op, difference.inputs, same) == ("sub", (y, x), y)
    with pytest.raises(ValueError, match="shorter"):
        build.inline(graph, [x])


def test_fused_bodies_give_their_outputs_types() -> None:
    inner = GraphBuilder()
    a = inner.input("a", (2,), float32)
    body = inner.freeze([inner.add("neg", (a,)), inner.add("exp", (a,))])
    build = GraphBuilder()
    x = build.input("x", (2,), float32)
    first, second = build.results("fused", (x,), {"body": body})
    assert (first.shape, second.attrs["index"]) == ((2,), 1)
    with pytest.raises(ShapeError, match=r"\[fused\] operands are nothing: the body takes f32\[2\]"):
        build.add("fused", (), {"body": body})


def _type(text: str) -> TensorType:
    dtype, _, lengths = text.rstrip("]").partition("[")
    dtypes = {"f32": float32, "i32": int32, "bf16": bfloat16}
    return TensorType(tuple(int(length) for length in lengths.split(",") if length), dtypes[dtype])


SUM = {"keepdims": False}
AT = {"scale": 1.0, "causal": True}
REFUSED: list[tuple[str, list[str], dict[str, Any], type[VoltaError], str]] = [
    ("nope", [], {}, UsageError, "[nope] is no operation: expected one of neg, abs"),
    ("add", ["f32[2]"], {}, UsageError, "[add] 1 operands given: expected 2 (a, b)"),
    ("input", ["f32[2]"], {}, UsageError, "[input] 1 operands given: expected 0 (none)"),
    ("result", [], {"index": 0}, UsageError, "[result] 0 operands given: expected 1 (node)"),
    ("result", ["f32[2]"], {"index": 1}, UsageError, "[result] index is 1: expected 0..0"),
    ("scale", ["f32[2]"], {}, UsageError, "[scale] attributes given: none: expected factor"),
    ("neg", ["f32[2]"], {"x": 1}, UsageError, "[neg] attributes given: x: expected none"),
    ("scale", ["f32[2]"], {"factor": "a"}, UsageError, "[scale] factor is 'a': expected a float"),
    (
        "reshape",
        ["f32[2]"],
        {"shape": (2.0,)},
        UsageError,
        "[reshape] shape is (2.0,): expected a tuple of ints",
    ),
    ("sum", ["f32[2]"], {"axes": (0,), "keepdims": 1}, UsageError, "[sum] keepdims is 1: expected a bool"),
    ("neg", ["i32[2]"], {}, DTypeError, "[neg] x is i32: expected f32"),
    ("embedding", ["f32[2,2]", "f32[2]"], {}, DTypeError, "[embedding] indices is f32: expected i32"),
    (
        "neg",
        ["f32[1,1,1,1,1,1,1]"],
        {},
        ShapeError,
        "[neg] result is (1, 1, 1, 1, 1, 1, 1): expected rank 6 at most",
    ),
    (
        "input",
        [],
        {"name": "", "shape": (), "dtype": "f32", "role": "input"},
        UsageError,
        "[input] name is '': expected a name",
    ),
    (
        "input",
        [],
        {"name": "x", "shape": (), "dtype": "f64", "role": "input"},
        DTypeError,
        "[input] dtype is 'f64': expected one of f32, bf16, i32",
    ),
    (
        "input",
        [],
        {"name": "x", "shape": (), "dtype": "f32", "role": "y"},
        UsageError,
        "[input] role is 'y': expected one of input, parameter, state",
    ),
    (
        "input",
        [],
        {"name": "x", "shape": (-1,), "dtype": "f32", "role": "state"},
        ShapeError,
        "[input] shape is (-1,): lengths must not be negative",
    ),
    (
        "constant",
        [],
        {"value": np.zeros(2)},
        DTypeError,
        "[constant] value is float64: expected float32, int32 or int8",
    ),
    (
        "add",
        ["f32[3,4]", "f32[5]"],
        {},
        ShapeError,
        "[add] a is (3, 4), b is (5,): shapes must broadcast: aligned at the right, each axis equal or 1",
    ),
    (
        "matmul",
        ["f32[3,4]", "f32[5,6]"],
        {},
        ShapeError,
        "[matmul] a is (3, 4), b is (5, 6): inner dimensions 4 and 5 differ",
    ),
    (
        "matmul",
        ["f32[4]", "f32[4,6]"],
        {},
        ShapeError,
        "[matmul] a is (4,), b is (4, 6): both need rank 2 or more",
    ),
    (
        "matmul",
        ["f32[2,3,4]", "f32[3,4,5]"],
        {},
        ShapeError,
        "[matmul] a is (2, 3, 4), b is (3, 4, 5): batch axes (2,) and (3,) do not broadcast",
    ),
    (
        "reshape",
        ["f32[2,3]"],
        {"shape": (5,)},
        ShapeError,
        "[reshape] x is (2, 3), shape is (5,): 6 elements cannot become 5",
    ),
    (
        "reshape",
        ["f32[0]"],
        {"shape": (-1, 0)},
        ShapeError,
        "[reshape] x is (0,), shape is (-1, 0): lengths must not be negative",
    ),
    (
        "transpose",
        ["f32[2,3]"],
        {"axes": (0, 0)},
        ShapeError,
        "[transpose] x is (2, 3), axes is (0, 0): axes must permute 0..1",
    ),
    (
        "slice",
        ["f32[4]"],
        {"start": (1,), "stop": (5,), "step": (1,)},
        ShapeError,
        "[slice] x is (4,), start is (1,), stop is (5,), step is (1,): axis 0 needs 0 <= start <= stop <= 4",
    ),
    (
        "slice",
        ["f32[4]"],
        {"start": (), "stop": (), "step": ()},
        ShapeError,
        "[slice] x is (4,), start is (), stop is (), step is (): one entry per axis",
    ),
    (
        "broadcast_to",
        ["f32[2]"],
        {"shape": (3,)},
        ShapeError,
        "[broadcast_to] x is (2,), shape is (3,): x must broadcast to shape",
    ),
    ("concat", [], {"axis": 0}, ShapeError, "[concat] 0 operands: expected at least 1"),
    (
        "concat",
        ["f32[2,3]", "f32[2,4]"],
        {"axis": 0},
        ShapeError,
        "[concat] x0 is (2, 3), x1 is (2, 4), axis is 0: shapes must agree outside the axis",
    ),
    (
        "concat",
        ["f32[2]", "i32[2]"],
        {"axis": 0},
        DTypeError,
        "[concat] dtypes are f32, i32: expected one dtype",
    ),
    ("concat", ["f32[2]"], {"axis": 1}, ShapeError, "[concat] x0 is (2,), axis is 1: axis must be in 0..0"),
    (
        "split",
        ["f32[5]"],
        {"sizes": (2, 2), "axis": 0},
        ShapeError,
        "[split] x is (5,), sizes is (2, 2), axis is 0: sizes that add up to 5",
    ),
    (
        "pad",
        ["f32[5]"],
        {"low": (-1,), "high": (0,)},
        ShapeError,
        "[pad] x is (5,), low is (-1,), high is (0,): one entry per axis, none negative",
    ),
    (
        "cast",
        ["i32[5]"],
        {"dtype": "f32"},
        DTypeError,
        "[cast] x is i32, dtype is 'f32': expected f32 or bf16",
    ),
    (
        "cast",
        ["f32[5]"],
        {"dtype": "half"},
        DTypeError,
        "[cast] x is f32, dtype is 'half': expected f32 or bf16",
    ),
    (
        "sum",
        ["f32[2,3]"],
        {"axes": (1, 0), **SUM},
        ShapeError,
        "[sum] x is (2, 3), axes is (1, 0): axes must be ascending and in 0..1",
    ),
    (
        "mean",
        ["f32[2,3]"],
        {"axes": (-1,), **SUM},
        ShapeError,
        "[mean] x is (2, 3), axes is (-1,): axes must be",
    ),
    ("max", ["f32[2,3]"], {"axes": (2,), **SUM}, ShapeError, "[max] x is (2, 3), axes is (2,): axes must be"),
    (
        "sum_squares",
        ["f32[2]"],
        {"axes": (), **SUM},
        ShapeError,
        "[sum_squares] x is (2,), axes is (): expected at least one axis",
    ),
    (
        "argmax",
        ["f32[2,0]"],
        {"axis": 1, **SUM},
        ShapeError,
        "[argmax] x is (2, 0), axis is 1: an empty axis has no largest element",
    ),
    ("softmax", ["f32[]"], {}, ShapeError, "[softmax] x is (): expected rank 1 or more"),
    (
        "softmax_grad",
        ["f32[2]", "f32[3]"],
        {},
        ShapeError,
        "[softmax_grad] y is (2,), g is (3,): shapes must be equal",
    ),
    (
        "cross_entropy",
        ["f32[2,3]", "i32[3]"],
        {"ignore_index": -1},
        ShapeError,
        "[cross_entropy] logits is (2, 3), targets is (3,): 2 rows need 2 targets",
    ),
    (
        "cross_entropy",
        ["f32[2]", "i32[2]"],
        {"ignore_index": -1},
        ShapeError,
        "[cross_entropy] logits is (2,), targets is (2,): logits must have rank 2",
    ),
    (
        "cross_entropy_grad",
        ["f32[2,3]", "i32[2]", "f32[1]"],
        {"ignore_index": -1},
        ShapeError,
        "2 rows need 2 targets and gradients",
    ),
    ("count_valid", ["i32[2,2]"], {"ignore_index": -1}, ShapeError, "targets must have rank 1"),
    (
        "layer_norm",
        ["f32[2,3]", "f32[3]", "f32[2]"],
        {"eps": 1e-5},
        ShapeError,
        "[layer_norm] x is (2, 3), w is (3,), b is (2,): w and b must be (3,)",
    ),
    ("rms_norm", ["f32[]", "f32[]"], {"eps": 1e-5}, ShapeError, "x must have rank 1 or more"),
    (
        "layer_norm_grad",
        ["f32[2,3]", "f32[2,1]", "f32[3]", "f32[2,3]"],
        {},
        ShapeError,
        "stats must be (2, 2)",
    ),
    (
        "rms_norm_grad",
        ["f32[2,3]", "f32[2,1]", "f32[2]", "f32[2,3]"],
        {},
        ShapeError,
        "w must be (3,) and g (2, 3)",
    ),
    ("embedding", ["f32[2]", "i32[2]"], {}, ShapeError, "table must have rank 2"),
    (
        "embedding_grad",
        ["f32[3,2]", "i32[2]"],
        {"rows": 4},
        ShapeError,
        "g must have the shape of indices and one more",
    ),
    ("embedding_grad", ["f32[2,2]", "i32[2]"], {"rows": -1}, ShapeError, "rows must not be negative"),
    ("gather", ["f32[2,3]", "i32[3,3]"], {"axis": 1}, ShapeError, "shapes must agree outside the axis"),
    ("gather_grad", ["f32[2,3]", "i32[2,2]"], {"axis": 1, "size": 3}, ShapeError, "shapes must be equal"),
    ("gather_grad", ["f32[2]", "i32[2]"], {"axis": 0, "size": -3}, ShapeError, "size must not be negative"),
    (
        "rotary",
        ["f32[1,1,2,3]", "f32[4,1]", "f32[4,1]", "i32[1]"],
        {"inverse": False},
        ShapeError,
        "the head width D must be even",
    ),
    (
        "rotary",
        ["f32[1,1,2,4]", "f32[4,1]", "f32[4,2]", "i32[1]"],
        {"inverse": False},
        ShapeError,
        "cos and sin must both be (P, 2)",
    ),
    (
        "rotary",
        ["f32[1,1,2,4]", "f32[4,2]", "f32[4,2]", "i32[2]"],
        {"inverse": False},
        ShapeError,
        "position must be (1,)",
    ),
    (
        "attention",
        ["f32[1,3,2,4]", "f32[1,2,5,4]", "f32[1,2,5,4]", "i32[1]"],
        AT,
        ShapeError,
        "3 query heads cannot share 2 key heads evenly",
    ),
    (
        "attention",
        ["f32[1,2,2,4]", "f32[1,2,5,4]", "f32[1,2,4,4]", "i32[1]"],
        AT,
        ShapeError,
        "k and v must both be (1, G, S, 4)",
    ),
    (
        "attention",
        ["f32[1,2,2,4]", "f32[1,2,5,4]", "f32[1,2,5,4]", "i32[2]"],
        AT,
        ShapeError,
        "position must be (1,)",
    ),
    (
        "attention_grad",
        [
            "f32[1,2,2,4]",
            "f32[1,1,5,4]",
            "f32[1,1,5,4]",
            "f32[1,2,2,4]",
            "f32[1,2,2,1]",
            "f32[1,2,2,4]",
            "i32[1]",
        ],
        AT,
        ShapeError,
        "o and g must be (1, 2, 2, 4), stats (1, 2, 2, 2)",
    ),
    ("cache_update", ["f32[1,2,3,4]", "f32[1,2,4,4]", "i32[1]"], {}, ShapeError, "with T <= 3"),
    ("cache_update", ["f32[1,2,3,4]", "f32[1,2,2,4]", "i32[2]"], {}, ShapeError, "position must be (1,)"),
    ("dropout", ["f32[2]", "i32[4]"], {"p": 0.5, "stream": 0}, ShapeError, "rng must be (3,)"),
    (
        "dropout",
        ["f32[2]", "i32[3]"],
        {"p": 1.0, "stream": 0},
        UsageError,
        "[dropout] p is 1.0: expected 0 <= p < 1",
    ),
    (
        "random_uniform",
        ["i32[3]"],
        {"shape": (2,), "stream": -1, "low": 0.0, "high": 1.0},
        UsageError,
        "[random_uniform] stream is -1: expected 0..2^32-1",
    ),
    (
        "sample",
        ["f32[2,3]", "i32[2,2]", "i32[2,4]", "f32[2,4]", "i32[2]"],
        {},
        ShapeError,
        "seen must have the shape of logits",
    ),
    (
        "sample",
        ["f32[2,0]", "i32[2,0]", "i32[2,4]", "f32[2,4]", "i32[2]"],
        {},
        ShapeError,
        "an empty vocabulary",
    ),
    (
        "sample",
        ["f32[2,3]", "i32[2,3]", "i32[2,3]", "f32[2,4]", "i32[2]"],
        {},
        ShapeError,
        "rng and settings must be (2, 4)",
    ),
    (
        "sample",
        ["f32[2,3]", "i32[2,3]", "i32[2,4]", "f32[2,4]", "i32[1]"],
        {},
        ShapeError,
        "top_k must be (2,)",
    ),
    ("mark_seen", ["i32[2,3]", "i32[2,1]", "i32[1]"], {}, ShapeError, "all need the same number of rows"),
    (
        "check_finite",
        ["f32[2]"],
        {"names": ()},
        UsageError,
        "[check_finite] names is (): expected at least one name",
    ),
]


@pytest.mark.parametrize(
    ("op", "types", "attrs", "error", "message"),
    REFUSED,
    ids=[f"{case[0]}-{i}" for i, case in enumerate(REFUSED)],
)
def test_an_impossible_node_is_refused_with_what_was_given(
    op: str, types: list[str], attrs: dict[str, Any], error: type[VoltaError], message: str
) -> None:
    nodes = [Node(i, "input", (), {}, (_type(text),)) for i, text in enumerate(types)]
    with pytest.raises(error) as caught:
        infer(op, [node.type for node in nodes], canonical(op, attrs), nodes)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"[{op}] ")


ACCEPTED: list[tuple[str, list[str], dict[str, Any], str]] = [
    ("add", ["f32[3,1]", "f32[4]"], {}, "f32[3,4]"),
    (
        "adam",
        ["f32[2]", "f32[2]", "f32[2]", "f32[]", "f32[]", "f32[]"],
        {"eps": 1e-8, "weight_decay": 0.0},
        "f32[2]",
    ),
    ("reshape", ["i32[2,3]"], {"shape": (3, 2)}, "i32[3,2]"),
    ("transpose", ["bf16[2,3]"], {"axes": (1, 0)}, "bf16[3,2]"),
    ("slice", ["f32[5,2]"], {"start": (1, 0), "stop": (5, 0), "step": (2, 1)}, "f32[2,0]"),
    ("broadcast_to", ["f32[3,1]"], {"shape": (2, 3, 4)}, "f32[2,3,4]"),
    ("concat", ["f32[2,3]", "f32[2,0]", "f32[2,1]"], {"axis": 1}, "f32[2,4]"),
    ("split", ["i32[2,5]"], {"sizes": (5, 0), "axis": 1}, "i32[2,5], i32[2,0]"),
    ("pad", ["i32[2]"], {"low": (1,), "high": (2,)}, "i32[5]"),
    ("cast", ["f32[2]"], {"dtype": "bf16"}, "bf16[2]"),
    ("cast", ["i32[2]"], {"dtype": "i32"}, "i32[2]"),
    ("matmul", ["f32[2,1,3,4]", "f32[5,4,6]"], {}, "f32[2,5,3,6]"),
    ("matmul", ["f32[3,0]", "f32[0,2]"], {}, "f32[3,2]"),
    ("sum", ["f32[2,3,4]"], {"axes": (0, 2), "keepdims": True}, "f32[1,3,1]"),
    ("sum", ["f32[]"], {"axes": (), "keepdims": False}, "f32[]"),
    ("max", ["f32[2,3,4]"], {"axes": (0, 2), "keepdims": False}, "f32[3]"),
    ("argmax", ["f32[2,3]"], {"axis": 0, "keepdims": False}, "i32[3]"),
    ("cross_entropy", ["f32[2,3]", "i32[2]"], {"ignore_index": -100}, "f32[2]"),
    ("count_valid", ["i32[2]"], {"ignore_index": -100}, "f32[]"),
    ("layer_norm", ["f32[2,3,4]", "f32[4]", "f32[4]"], {"eps": 1e-5}, "f32[2,3,4], f32[2,3,2]"),
    ("layer_norm_grad", ["f32[2,4]", "f32[2,2]", "f32[4]", "f32[2,4]"], {}, "f32[2,4], f32[4], f32[4]"),
    ("rms_norm_grad", ["f32[2,4]", "f32[2,1]", "f32[4]", "f32[2,4]"], {}, "f32[2,4], f32[4]"),
    ("embedding", ["f32[7,4]", "i32[2,3]"], {}, "f32[2,3,4]"),
    ("embedding_grad", ["f32[2,3,4]", "i32[2,3]"], {"rows": 7}, "f32[7,4]"),
    ("gather", ["f32[2,5]", "i32[2,3]"], {"axis": 1}, "f32[2,3]"),
    ("gather_grad", ["f32[2,3]", "i32[2,3]"], {"axis": 1, "size": 5}, "f32[2,5]"),
    (
        "attention",
        ["f32[1,4,2,8]", "f32[1,2,5,8]", "f32[1,2,5,8]", "i32[1]"],
        AT,
        "f32[1,4,2,8], f32[1,4,2,2]",
    ),
    ("cache_update", ["f32[1,2,5,8]", "f32[1,2,3,8]", "i32[1]"], {}, "f32[1,2,5,8]"),
    ("random_normal", ["i32[3]"], {"shape": (4, 5), "stream": 1, "mean": 0.0, "std": 1.0}, "f32[4,5]"),
    ("sample", ["f32[2,9]", "i32[2,9]", "i32[2,4]", "f32[2,4]", "i32[2]"], {}, "i32[2]"),
    ("mark_seen", ["i32[2,9]", "i32[2,3]", "i32[2]"], {}, "i32[2,9]"),
]


@pytest.mark.parametrize(
    ("op", "types", "attrs", "expected"), ACCEPTED, ids=[f"{case[0]}-{i}" for i, case in enumerate(ACCEPTED)]
)
def test_types_are_inferred(op: str, types: list[str], attrs: dict[str, Any], expected: str) -> None:
    build = GraphBuilder()
    nodes = [build.input(f"x{i}", _type(text).shape, _type(text).dtype) for i, text in enumerate(types)]
    assert ", ".join(map(str, build.add(op, nodes, attrs).types)) == expected
