"""The operation table: one row per operation, and inference from it.

A row's operands are its signature: `logits targets:i32 g` are three, f32 unless another dtype is
named; `x:any` takes every dtype; one `x*` stands for any number. Equations: csrc/kernels.def and
csrc/chain_ops.def; clauses: governance/determinism.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from volta.dtypes import bfloat16, float32
from volta.errors import DTypeError, ShapeError, UsageError
from volta.ir import attributes, cost, reference, shapes, vjp
from volta.ir.graph import Attr, Attrs, Node, TensorType

Array: TypeAlias = npt.NDArray[Any]
Types: TypeAlias = tuple[TensorType, ...]
NO_ATTRS: Mapping[str, str] = MappingProxyType({})


def _no_immediates(attrs: Attrs) -> tuple[float, ...]:
    return ()


@dataclass(frozen=True)
class Op:
    """name, signature: above. attrs: name -> kind (attributes.KINDS). rule: shapes and dtypes.

    gradient: vector-Jacobian product, or why there is none. reference: NumPy function, see `evaluate`.
    clause: what the arithmetic contract says of it. work: operations and bytes (cost.Work). kernel: row
    of kernels.def,
       None where nothing runs. exact: `evaluate` on float32 arrays gives the contract's very bits.
    immediates: x0.. of chain_ops.def, each an f32.
    """

    name: str
    signature: str
    attrs: Mapping[str, str]
    rule: shapes.Rule
    gradient: vjp.Rule | vjp.OfResults | str
    reference: Callable[..., Array | tuple[Array, ...]] | None
    clause: str
    work: cost.Rule
    kind: str
    kernel: str | None
    exact: bool = False
    immediates: Callable[[Attrs], tuple[float, ...]] = field(default=_no_immediates)

    @cached_property
    def operands(self) -> tuple[tuple[str, str], ...]:
        """(name, dtype) of each operand of the signature."""
        parts = (operand.partition(":") for operand in self.signature.split())
        return tuple((name, dtype or "f32") for name, _, dtype in parts)

    @cached_property
    def arity(self) -> int | None:
        """None: any number."""
        return None if self.signature.partition(":")[0].endswith("*") else len(self.operands)

    def named(self, count: int) -> tuple[tuple[str, str], ...]:
        """(name, dtype) of `count` operands: the signature's, or x0, x1, ... where it takes any number."""
        if self.arity is None:
            name, dtype = self.operands[0]
            return tuple((name.replace("*", str(index)), dtype) for index in range(count))
        if count != self.arity:
            expected = ", ".join(name for name, _ in self.operands) or "none"
            raise UsageError(f"[{self.name}] {count} operands given: expected {self.arity} ({expected})")
        return self.operands

    def infer(self, types: Sequence[TensorType], attrs: Attrs) -> Types:
        """The result types, or an error that says what was given and what was expected.

        `result` is given all the types of the node that it reads.
        """
        operands = self.named(1 if self.name == "result" else len(types))
        attributes.check(self.name, self.attrs, attrs)
        for (name, expected), given in zip(operands, types, strict=False):
            if expected not in ("any", given.dtype.name):
                raise DTypeError(f"[{self.name}] {name} is {given.dtype.name}: expected {expected}")
        names = tuple(name for name, _ in operands)
        results = self.rule(shapes.Application(self.name, names, tuple(types), attrs))
        for shape in (result.shape for result in results):
            if len(shape) > shapes.MAX_RANK:
                raise ShapeError(f"[{self.name}] result is {shape}: expected rank {shapes.MAX_RANK} at most")
        return results

    def cost(self, types_in: Types, types_out: Types, attrs: Attrs) -> cost.Work:
        """Operations, and bytes read and written."""
        return self.work(types_in, types_out, attrs)

    def evaluate(self, arrays: Sequence[Array], attrs: Attrs) -> tuple[Array, ...]:
        """What it means, on arrays: float64 in, float64 out, one array per result."""
        if self.reference is None:
            raise UsageError(f"[{self.name}] has no reference: a {self.kind} is evaluated by its graph")
        with np.errstate(all="ignore"):
            if self.kind == "elementwise":
                results = self.reference(*arrays, *map(np.float32, self.immediates(attrs)))
            else:
                results = self.reference(*arrays, **attrs)
        return tuple(map(np.asarray, results if isinstance(results, tuple) else (results,)))


def _chain(
    name: str,
    signature: str,
    gradient: vjp.Rule | str,
    truth: Callable[..., Array],
    steps: int,
    *,
    clause: str = "",  # default: N0 for what one rounding defines, else the functions' N3
    exact: bool = False,
    attrs: Mapping[str, str] = NO_ATTRS,
    immediates: Callable[[Attrs], tuple[float, ...]] = _no_immediates,
) -> Op:
    return Op(
        name,
        signature,
        attrs,
        shapes.elementwise,
        gradient,
        truth,
        clause or ("N0" if exact else "N3"),
        cost.per_element(steps),
        "elementwise",
        "chain",
        exact,
        immediates,
    )


def _binary32(*names: str) -> Callable[[Attrs], tuple[float, ...]]:
    """Immediates that are attributes, rounded to f32."""
    return lambda attrs: tuple(float(np.float32(attributes.real(attrs, name))) for name in names)


def _with_rest(name: str) -> Callable[[Attrs], tuple[float, ...]]:
    """beta and 1 - beta, the difference computed in f32."""

    def immediates(attrs: Attrs) -> tuple[float, ...]:
        beta = np.float32(attributes.real(attrs, name))
        return float(beta), float(np.float32(1) - beta)

    return immediates


# fmt: off
ELEMENTWISE: tuple[Op, ...] = (  # in the order of chain_ops.def; operations are those of the text
    _chain("neg",             "x",   vjp.neg,           reference.neg,             1, exact=True),
    _chain("abs",             "x",   vjp.abs,           reference.abs,             1, exact=True),
    _chain("exp",             "x",   vjp.exp,           reference.exp,             cost.EXP),
    _chain("log",             "x",   vjp.log,           reference.log,             cost.LOG),
    _chain("sqrt",            "x",   vjp.sqrt,          reference.sqrt,            cost.DIVISION, exact=True),
    _chain("rsqrt",           "x",   vjp.rsqrt,         reference.rsqrt,           2 * cost.DIVISION),
    _chain("tanh",            "x",   vjp.tanh,          reference.tanh,            cost.TANH),
    _chain("sigmoid",         "x",   vjp.sigmoid,       reference.sigmoid,         cost.SIGMOID),
    _chain("erf",             "x",   vjp.erf,           reference.erf,             cost.ERF),
    _chain("sin",             "x",   vjp.sin,           reference.sin,             cost.SIN),
    _chain("cos",             "x",   vjp.cos,           reference.cos,             cost.COS),
    _chain("relu",            "x",   vjp.relu,          reference.relu,            1, exact=True),
    _chain("gelu_tanh",       "x",   vjp.gelu_tanh,     reference.gelu_tanh,       cost.GELU_TANH),
    _chain("gelu_erf",        "x",   vjp.gelu_erf,      reference.gelu_erf,        cost.GELU_ERF),
    _chain("silu",            "x",   vjp.silu,          reference.silu,            cost.SILU),
    _chain("gelu_tanh_slope", "x",   vjp.SECOND,        reference.gelu_tanh_slope, cost.GELU_TANH_SLOPE),
    _chain("gelu_erf_slope",  "x",   vjp.SECOND,        reference.gelu_erf_slope,  cost.GELU_ERF_SLOPE),
    _chain("silu_slope",      "x",   vjp.SECOND,        reference.silu_slope,      cost.SILU_SLOPE),
    _chain("scale",           "x",   vjp.scale,         reference.scale,           1, exact=True,
           attrs={"factor": "float"}, immediates=_binary32("factor")),
    _chain("add",             "a b", vjp.add,           reference.add,             1, exact=True),
    _chain("sub",             "a b", vjp.sub,           reference.sub,             1, exact=True),
    _chain("mul",             "a b", vjp.mul,           reference.mul,             1, exact=True),
    _chain("div",             "a b", vjp.div,           reference.div,             cost.DIVISION, exact=True),
    _chain("maximum",         "a b", vjp.maximum,       reference.maximum,         3, exact=True),
    _chain("minimum",         "a b", vjp.minimum,       reference.minimum,         3, exact=True),
    _chain("greater_equal",   "a b", vjp.greater_equal, reference.greater_equal,   1, exact=True),
    _chain("relu_grad",       "x g", vjp.relu_grad,     reference.relu_grad,       1, clause="N0"),
    _chain("momentum",        "buffer g", vjp.UPDATE,   reference.momentum,        2, clause="N11",
           attrs={"mu": "float"}, immediates=_binary32("mu")),
    _chain("sgd",             "w direction rate", vjp.UPDATE, reference.sgd,       2, clause="N11"),
    _chain("adam_m",          "m g", vjp.UPDATE,        reference.adam_m,          3, clause="N11",
           attrs={"beta1": "float"}, immediates=_with_rest("beta1")),
    _chain("adam_v",          "v g", vjp.UPDATE,        reference.adam_v,          4, clause="N11",
           attrs={"beta2": "float"}, immediates=_with_rest("beta2")),
    _chain("adam",            "w m v rate correction1 correction2", vjp.UPDATE, reference.adam, 20,
           clause="N11", attrs={"eps": "float", "weight_decay": "float"},
           immediates=_binary32("eps", "weight_decay")),
)

_AXES = {"axes": "ints", "keepdims": "bool"}
_IGNORE = {"ignore_index": "int"}
_EPS = {"eps": "float"}
_ATTENTION = {"scale": "float", "causal": "bool"}
_LEAF = "it is a leaf: its gradient is what was asked for"
_INTEGER = "its result is an integer"

OTHERS: tuple[Op, ...] = (
    # leaves and structure
    Op("input", "", {"name": "str", "shape": "ints", "dtype": "str", "role": "str"},
       shapes.input, _LEAF, None, "N0", cost.nothing, "leaf", None),
    Op("constant", "", {"value": "array"},
       shapes.constant, _LEAF, reference.constant, "N0", cost.nothing, "leaf", None),
    Op("result", "node:any", {"index": "int"},
       shapes.result, vjp.RESULT, None, "N0", cost.nothing, "result", None),
    Op("fused", "x*:any", {"body": "graph"},
       shapes.fused, vjp.FUSED, None, "N0", cost.body, "fused", None),
    # views
    Op("reshape", "x:any", {"shape": "ints"},
       shapes.reshape, vjp.reshape, reference.reshape, "N0", cost.nothing, "view", None, exact=True),
    Op("transpose", "x:any", {"axes": "ints"},
       shapes.transpose, vjp.transpose, reference.transpose, "N0", cost.nothing, "view", None, exact=True),
    Op("slice", "x:any", {"start": "ints", "stop": "ints", "step": "ints"},
       shapes.slice_, vjp.slice_, reference.slice_, "N0", cost.nothing, "view", None, exact=True),
    Op("broadcast_to", "x:any", {"shape": "ints"},
       shapes.broadcast_to, vjp.broadcast_to, reference.broadcast_to, "N0", cost.nothing, "view", None,
       exact=True),
    Op("split", "x:any", {"sizes": "ints", "axis": "int"},
       shapes.split, vjp.split, reference.split, "N0", cost.nothing, "view", None),
    # copies
    Op("concat", "x*:any", {"axis": "int"},
       shapes.concat, vjp.concat, reference.concat, "N0", cost.moves, "copy", "copy", exact=True),
    Op("pad", "x:any", {"low": "ints", "high": "ints"},
       shapes.pad, vjp.pad, reference.pad, "N0", cost.moves, "copy", "copy", exact=True),
    Op("cast", "x:any", {"dtype": "str"},
       shapes.cast, vjp.cast, reference.cast, "N9", cost.moves, "copy", "copy"),
    # contraction
    Op("matmul", "a:any b:any", {},
       shapes.matmul, vjp.matmul, reference.matmul, "N1", cost.matmul, "contraction", "matmul"),
    Op("quantized_matmul", "a:any w:i8 scale", {},
       shapes.quantized_matmul, vjp.QUANTIZED, reference.quantized_matmul, "N10", cost.matmul, "contraction",
       "matmul_scaled"),
    Op("quantize", "x", {"groups": "int"},
       shapes.quantize, vjp.QUANTIZED, reference.quantize, "N10", cost.per_input(6), "row", "quantize"),
    # reductions
    Op("sum", "x", _AXES,
       shapes.reduction, vjp.sum, reference.sum, "N2", cost.per_input(1), "reduction", "reduce"),
    Op("mean", "x", _AXES,
       shapes.reduction, vjp.mean, reference.mean, "N2", cost.per_input(1), "reduction", "reduce"),
    Op("max", "x", _AXES,
       shapes.reduction, vjp.max, reference.max, "N2", cost.per_input(1), "reduction", "reduce"),
    Op("sum_squares", "x", _AXES,
       shapes.reduction, vjp.sum_squares, reference.sum_squares, "N2", cost.per_input(2), "reduction",
       "reduce"),
    Op("argmax", "x", {"axis": "int", "keepdims": "bool"},
       shapes.argmax, _INTEGER, reference.argmax, "N2", cost.per_input(1), "reduction", "reduce"),
    # rows
    Op("softmax", "x", {},
       shapes.rows, vjp.softmax, reference.softmax, "N4", cost.per_element(cost.EXP + 4), "row", "softmax"),
    Op("softmax_grad", "y g", {},
       shapes.rows, vjp.SECOND, reference.softmax_grad, "N4", cost.per_element(4), "row", "softmax_grad"),
    Op("log_softmax", "x", {},
       shapes.rows, vjp.log_softmax, reference.log_softmax, "N4", cost.per_element(cost.EXP + 5), "row",
       "log_softmax"),
    Op("log_softmax_grad", "y g", {},
       shapes.rows, vjp.SECOND, reference.log_softmax_grad, "N4", cost.per_element(cost.EXP + 3), "row",
       "log_softmax_grad"),
    Op("cross_entropy", "logits targets:i32", _IGNORE,
       shapes.cross_entropy, vjp.cross_entropy, reference.cross_entropy, "N4", cost.per_input(cost.EXP + 3),
       "row",
       "cross_entropy"),
    Op("cross_entropy_grad", "logits targets:i32 g", _IGNORE,
       shapes.cross_entropy_grad, vjp.SECOND, reference.cross_entropy_grad, "N4",
       cost.per_element(cost.EXP + 5), "row",
       "cross_entropy_grad"),
    Op("count_valid", "targets:i32", _IGNORE,
       shapes.count_valid, vjp.COUNT, reference.count_valid, "N2", cost.per_input(1), "reduction",
       "count_valid"),
    Op("layer_norm", "x w b", _EPS,
       shapes.layer_norm, vjp.layer_norm, reference.layer_norm, "N6", cost.per_element(8), "row",
       "layer_norm"),
    Op("layer_norm_grad", "x stats w g", {},
       shapes.layer_norm_grad, vjp.SECOND, reference.layer_norm_grad, "N6", cost.per_element(14), "row",
       "layer_norm_grad"),
    Op("rms_norm", "x w", _EPS,
       shapes.rms_norm, vjp.rms_norm, reference.rms_norm, "N6", cost.per_element(4), "row", "rms_norm"),
    Op("rms_norm_grad", "x stats w g", {},
       shapes.rms_norm_grad, vjp.SECOND, reference.rms_norm_grad, "N6", cost.per_element(10), "row",
       "rms_norm_grad"),
    # indexing
    Op("embedding", "table indices:i32", {},
       shapes.embedding, vjp.embedding, reference.embedding, "N7", cost.moves_result, "index", "embedding"),
    Op("embedding_grad", "g indices:i32", {"rows": "int"},
       shapes.embedding_grad, vjp.SECOND, reference.embedding_grad, "N7", cost.per_input(1), "index",
       "embedding_grad"),
    Op("gather", "x index:i32", {"axis": "int"},
       shapes.gather, vjp.gather, reference.gather, "N7", cost.moves_result, "index", "gather"),
    Op("gather_grad", "g index:i32", {"axis": "int", "size": "int"},
       shapes.gather_grad, vjp.SECOND, reference.gather_grad, "N7", cost.per_input(1), "index",
       "gather_grad"),
    # attention
    Op("rotary", "x cos sin position:i32", {"inverse": "bool"},
       shapes.rotary, vjp.rotary, reference.rotary, "N5", cost.per_element(3), "attention", "rotary"),
    Op("attention", "q k v position:i32", _ATTENTION,
       shapes.attention, vjp.attention, reference.attention, "N5", cost.attention, "attention", "attention"),
    Op("attention_grad", "q k v o stats g position:i32", _ATTENTION,
       shapes.attention_grad, vjp.SECOND, reference.attention_grad, "N5", cost.attention_grad, "attention",
       "attention_grad"),
    Op("cache_update", "cache new position:i32", {},
       shapes.cache_update, vjp.STATE, reference.cache_update, "N5", cost.moves, "state", "cache_update"),
    # randomness and sampling
    Op("dropout", "x rng:i32", {"p": "float", "stream": "int"},
       shapes.dropout, vjp.dropout, reference.dropout, "N8", cost.per_element(cost.PHILOX + 4), "random",
       "dropout"),
    Op("random_uniform", "rng:i32", {"shape": "ints", "stream": "int", "low": "float", "high": "float"},
       shapes.random, vjp.RANDOM, reference.random_uniform, "N8", cost.per_element(cost.PHILOX + 4),
       "random", "random"),
    Op("random_normal", "rng:i32", {"shape": "ints", "stream": "int", "mean": "float", "std": "float"},
       shapes.random, vjp.RANDOM, reference.random_normal, "N8", cost.per_element(cost.PHILOX + cost.NORMAL),
       "random", "random"),
    Op("sample", "logits seen:i32 rng:i32 settings top_k:i32", {},
       shapes.sample, _INTEGER, reference.sample, "N8", cost.per_input(20), "sampling", "sample"),
    Op("mark_seen", "seen:i32 tokens:i32 lengths:i32", {},
       shapes.mark_seen, _INTEGER, reference.mark_seen, "N0", cost.moves, "state", "mark_seen"),
    # checks
    Op("check_finite", "x", {"names": "strs"},
       shapes.check_finite, vjp.check_finite, reference.check_finite, "N0", cost.reads, "check",
       "check_finite"),
)
# fmt: on

OPS: Mapping[str, Op] = MappingProxyType({op.name: op for op in (*ELEMENTWISE, *OTHERS)})


CONTRACTIONS = frozenset(op.name for op in OTHERS if op.kind == "contraction")


def widens(node: Node) -> bool:
    """Whether a node gives a bf16 as f32: the same number."""
    return node.op == "cast" and (node.inputs[0].dtype, node.dtype) == (bfloat16, float32)


def in_chain(node: Node) -> bool:
    """Whether a chain has an instruction for the node: elementwise operations, and rounding to bf16."""
    narrows = node.op == "cast" and (node.inputs[0].dtype, node.dtype) == (float32, bfloat16)
    return OPS[node.op].kind == "elementwise" or narrows or widens(node)


def work_of(node: Node) -> cost.Work:
    """What a node costs."""
    if node.op == "result":
        return cost.Work(0, 0, 0)
    operands = tuple(kind for source in node.inputs for kind in source.types)
    return OPS[node.op].cost(operands, node.types, node.attrs)


def row(op: str) -> Op:
    """The row of an operation."""
    if op not in OPS:
        raise UsageError(f"[{op}] is no operation: expected one of {', '.join(OPS)}")
    return OPS[op]


def canonical(op: str, attrs: Mapping[str, object]) -> dict[str, Attr]:
    """The attributes as a node of that operation keeps them (attributes.canonical)."""
    return attributes.canonical(row(op).attrs, attrs)


def infer(op: str, types: Sequence[TensorType], attrs: Attrs, nodes: Sequence[Node]) -> Types:
    """Result types of `op` on operands `nodes` of these types, or an error."""
    found = row(op)
    found.named(len(nodes))
    return found.infer(nodes[0].types if op == "result" else types, attrs)
