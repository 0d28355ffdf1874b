"""How each operation becomes steps: a table of rows for the regular ones, a short rule for the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from volta.dtypes import bfloat16, float32
from volta.errors import VerifyError
from volta.ir import attributes
from volta.ir.graph import Attrs, Graph, Node, TensorType
from volta.ir.ops import CONTRACTIONS, OPS
from volta.plan.chain import instructions
from volta.plan.layout import View, contiguous_strides
from volta.plan.steps import Memory, Step

if TYPE_CHECKING:
    from volta.plan.build import Planner

REDUCTIONS = {"sum": 0, "mean": 0, "sum_squares": 1, "max": 2, "argmax": 3}
IN_PLACE = {"cache_update", "mark_seen"}  # operand 0 becomes the result
# Their kernels write results of any row strides, so they can write into a part of a larger value.
STRIDED_RESULTS = frozenset({"attention", "attention_grad", "rotary", *REDUCTIONS})


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel of the operation's own name.

    Layouts, one letter per operand, outputs first: r rows [R, D]; v a contiguous vector; c contiguous
    as it is; u last stride 1, other strides any.
    """

    layouts: str
    ints: Callable[[Attrs], tuple[int, ...]] = lambda attrs: ()
    floats: Callable[[Attrs], tuple[float, ...]] = lambda attrs: ()
    kernel: str | None = None
    # outputs of layout u are stored with their axes permuted so
    stored: tuple[int, ...] | None = None


def _ints(*names: str) -> Callable[[Attrs], tuple[int, ...]]:
    return lambda attrs: tuple(int(attrs[name]) for name in names)  # type: ignore[arg-type]


def _floats(*names: str) -> Callable[[Attrs], tuple[float, ...]]:
    return lambda attrs: tuple(float(attrs[name]) for name in names)  # type: ignore[arg-type]


def _random(kind: int) -> Callable[[Attrs], tuple[int, ...]]:
    return lambda attrs: (int(attrs["stream"]), kind)  # type: ignore[arg-type]


PACKED = 3  # VOLTA_COPY_B_DONE: b is what pack_weights made of it
BTHD = (0, 2, 1, 3)  # [B, H, T, D] stored as [B, T, H, D]: the heads of a row side by side, ready for matmul

ROWS: dict[str, Row] = {
    "softmax": Row("rr"),
    "softmax_grad": Row("rrr"),
    "log_softmax": Row("rr"),
    "log_softmax_grad": Row("rrr"),
    "cross_entropy": Row("vrv", _ints("ignore_index")),
    "cross_entropy_grad": Row("rrvv", _ints("ignore_index")),
    "count_valid": Row("vv", _ints("ignore_index")),
    "layer_norm": Row("rrrvv", floats=_floats("eps")),
    "layer_norm_grad": Row("rvvrrvr"),
    "rms_norm": Row("rrrv", floats=_floats("eps")),
    "rms_norm_grad": Row("rvrrvr"),
    "embedding": Row("rrv"),
    "embedding_grad": Row("rrv"),
    "gather": Row("ccc", _ints("axis")),
    "gather_grad": Row("ccc", _ints("axis")),
    "rotary": Row("uuccc", _ints("inverse"), stored=BTHD),
    "attention": Row("ucuuuc", _ints("causal"), _floats("scale"), stored=BTHD),
    "attention_grad": Row("uuuuuuucuc", _ints("causal"), _floats("scale"), stored=BTHD),
    "dropout": Row("ccc", _ints("stream"), _floats("p")),
    "random_uniform": Row("cc", _random(0), _floats("low", "high"), "random"),
    "random_normal": Row("cc", _random(1), _floats("mean", "std"), "random"),
    "sample": Row("vrrccv"),
    "cast": Row("ca", kernel="copy"),
    "quantize": Row("rrr"),
}


def lower(planner: Planner, node: Node) -> None:
    """Adds the node's steps to the plan and its results' views to the planner."""
    if node.op in RULES:
        RULES[node.op](planner, node)
    elif OPS[node.op].kind == "elementwise":
        _chain(planner, node, [node], list(node.inputs), [node])
    elif node.op in REDUCTIONS:
        _reduce(planner, node)
    elif node.op in ROWS:
        _row(planner, node, ROWS[node.op])
    else:
        raise VerifyError("lowerable", f"{node} has no kernel: add a row or a rule to volta.plan.lower")


def reads_in_place(node: Node, operand: int, source: Node, donated: Node) -> bool:
    """Whether the node reads this operand element by element, so that its result may overwrite it."""
    if node.op in IN_PLACE:
        return operand == 0 and source is donated
    flat = source is donated and all(kind.shape == donated.shape for kind in node.types)
    return flat and (
        OPS[node.op].kind == "elementwise" or (node.op == "fused" and not _has_contraction(_body(node)))
    )


# --- rows ----------------------------------------------------------------------------------------


def _row(planner: Planner, node: Node, row: Row) -> None:
    count = len(node.types)
    inputs = [
        _arrange(planner, source, layout, planner.view(source))
        for source, layout in zip(node.inputs, row.layouts[count:], strict=True)
    ]
    outputs = [
        planner.allocate_as(node, index, row.stored)
        if row.stored and row.layouts[index] == "u"
        else _recast(planner.allocate(node, index), row.layouts[index])
        for index in range(count)
    ]
    planner.emit(
        node, row.kernel or node.op, (*outputs, *inputs), count, row.ints(node.attrs), row.floats(node.attrs)
    )


def _arrange(planner: Planner, source: Node, layout: str, view: View) -> View:
    """The operand in the layout its kernel wants: a view where one will do, else a packed copy."""
    if layout == "a" or (layout == "u" and _unit(view)):
        return view
    if layout == "r":
        rows = view.rows()
        return rows if rows is not None else _recast(planner.packed(source), "r")
    return _recast(planner.packed(source), layout)


def _recast(view: View, layout: str) -> View:
    """A contiguous view under the shape its kernel wants."""
    if layout == "r":
        width = view.shape[-1]
        count = 1
        for size in view.shape[:-1]:
            count *= size
        return View(view.buffer, view.offset, (count, width), (width, 1), view.dtype)
    if layout == "v":
        return View(view.buffer, view.offset, (view.numel,), (1,), view.dtype)
    return view


def _unit(view: View) -> bool:
    return view.strides[-1] == 1 or view.shape[-1] <= 1


# --- leaves and views ----------------------------------------------------------------------------


def _input(planner: Planner, node: Node) -> None:
    """Bound before lowering starts."""


def _constant(planner: Planner, node: Node) -> None:
    buffer = planner.new_buffer(f"%{node.id} constant", Memory.CONSTANT, node.type.nbytes)
    planner.constants[buffer] = node
    planner.set_view(node, View(buffer, 0, node.shape, contiguous_strides(node.shape), node.dtype))


def _result(planner: Planner, node: Node) -> None:
    planner.set_view(node, planner.view(node.inputs[0], _integer(node.attrs, "index")))


def _reshape(planner: Planner, node: Node) -> None:
    view = planner.view(node.inputs[0]).reshape(node.shape)
    if view is None:
        copy = planner.packed(node.inputs[0])
        view = View(copy.buffer, copy.offset, node.shape, contiguous_strides(node.shape), copy.dtype)
    planner.set_view(node, view)


def _split(planner: Planner, node: Node) -> None:
    view = planner.view(node.inputs[0])
    axis = _integer(node.attrs, "axis")
    start, stop, step = [0] * len(view.shape), list(view.shape), [1] * len(view.shape)
    for index, kind in enumerate(node.types):
        stop[axis] = start[axis] + kind.shape[axis]
        planner.set_view(node, view.slice(start, stop, step), index)
        start[axis] = stop[axis]


def _transpose(planner: Planner, node: Node) -> None:
    planner.set_view(node, planner.view(node.inputs[0]).transpose(_shape(node.attrs, "axes")))


def _slice(planner: Planner, node: Node) -> None:
    start, stop, step = (_shape(node.attrs, name) for name in ("start", "stop", "step"))
    planner.set_view(node, planner.view(node.inputs[0]).slice(start, stop, step))


def _broadcast(planner: Planner, node: Node) -> None:
    planner.set_view(node, planner.view(node.inputs[0]).broadcast(node.shape))


def _check_finite(planner: Planner, node: Node) -> None:
    view = planner.view(node.inputs[0])
    planner.emit(node, "check_finite", (view,), 0)
    planner.set_view(node, view)


# --- copies --------------------------------------------------------------------------------------


def _concat(planner: Planner, node: Node) -> None:
    """Copies the parts that were not computed in place."""
    for index, source in enumerate(node.inputs):
        place, view = planner.part(node, index), planner.view(source)
        if not place.same_place(view):
            planner.emit(node, "copy", (place, view), 1)


def _pad(planner: Planner, node: Node) -> None:
    out = planner.allocate(node)
    planner.emit(node, "fill", (out,), 1, floats=(0.0,))
    _copy_into(planner, node, out, _shape(node.attrs, "low"), planner.view(node.inputs[0]))


def _copy_into(planner: Planner, node: Node, out: View, start: Sequence[int], view: View) -> None:
    stop = [begin + size for begin, size in zip(start, view.shape, strict=True)]
    planner.emit(node, "copy", (out.slice(start, stop, [1] * len(stop)), view), 1)


def _in_place(planner: Planner, node: Node) -> None:
    """cache_update(cache, new, position), mark_seen(seen, tokens, lengths): operand 0 is rewritten
    where it lies when it was donated or dies here, else in a copy."""
    old = node.inputs[0]
    view = planner.view(old)
    home = planner.home(node)
    alone = all(planner.view(source).buffer != view.buffer for source in node.inputs[1:])
    if home is not None and home == view.buffer:
        out = planner.reuse(node, 0, home)
    elif home is None and alone and planner.dies_here(old, node):
        out = planner.reuse(node, 0, view.buffer)
    else:
        out = planner.allocate(node)
        planner.emit(node, "copy", (out, view), 1)
    new = planner.view(node.inputs[1])
    if not _unit(new) or node.op == "mark_seen":
        new = planner.packed(node.inputs[1])
    planner.emit(node, node.op, (out, new, planner.packed(node.inputs[2])), 1)


# --- reductions ----------------------------------------------------------------------------------


def _reduce(planner: Planner, node: Node) -> None:
    """Several axes reduce one after the other, last first (N2); a mean multiplies once, at the end."""
    source = planner.view(node.inputs[0])
    axes = (_integer(node.attrs, "axis"),) if node.op == "argmax" else _shape(node.attrs, "axes")
    kind = REDUCTIONS[node.op]
    count = 1
    for axis in axes:
        count *= source.shape[axis]
    # 1/D rounded to float32 once; the mean of nothing is 0 * inf = NaN
    factor = float(np.float32(1) / np.float32(count)) if count else float("inf")
    out = planner.allocate(node)
    if not axes:
        planner.emit(node, "copy", (out, source), 1)
        return
    for position, axis in enumerate(sorted(axes, reverse=True)):
        final = position == len(axes) - 1
        shape = tuple(1 if a == axis else size for a, size in enumerate(source.shape))
        if final:
            target = View(out.buffer, out.offset, shape, contiguous_strides(shape), out.dtype)
        else:
            target = planner.scratch(
                TensorType(shape, source.dtype), f"%{node.id} {node.op} over axis {axis}"
            )
        mean = node.op == "mean" and final
        planner.emit(node, "reduce", (target, source), 1, (kind, axis, int(mean)), (factor if mean else 1.0,))
        source = target
        kind = 0 if kind == 1 else kind  # the squares are taken once


# --- chains and matmul ---------------------------------------------------------------------------


def _fused(planner: Planner, node: Node) -> None:
    body = _body(node)
    inner = [n for n in body.nodes if n.op != "input"]
    arguments = list(node.inputs)
    if _has_contraction(body):
        _matmul(planner, node, inner, dict(zip(body.inputs, arguments, strict=True)), list(body.outputs))
    else:
        _chain(planner, node, inner, arguments, list(body.outputs), body)


def _chain(
    planner: Planner,
    node: Node,
    inner: list[Node],
    arguments: list[Node],
    results: list[Node],
    body: Graph | None = None,
) -> None:
    """One step over tiles: outputs..., inputs... Every operand is seen in the outputs' shape."""
    shape = results[0].shape
    values = list(body.inputs) if body is not None else list(dict.fromkeys(arguments))
    sources = arguments if body is not None else values
    views = [planner.view(source).broadcast(shape) for source in sources]
    operands = list(dict.fromkeys(views))  # values that lie in one place are one register
    shared: dict[int, int] = {}
    outputs: list[View] = []
    taken: set[int] = set()
    for index in range(len(results)):
        home = planner.home(node, index)
        candidates = [
            k
            for k, (source, view) in enumerate(zip(sources, views, strict=True))
            if view.buffer not in taken
            and planner.view(source).shape == shape
            and view.dtype == results[index].dtype
            and (view.buffer == home or (home is None and planner.dies_here(source, node)))
            and all(view == other for other in views if other.buffer == view.buffer)
        ]
        if candidates:
            view = views[candidates[0]]
            taken.add(view.buffer)
            outputs.append(planner.reuse(node, index, view.buffer))
            shared[index] = len(results) + operands.index(view)
        else:
            outputs.append(planner.allocate(node, index))
    registers = {
        value: len(results) + operands.index(view) for value, view in zip(values, views, strict=True)
    }
    code, temporaries = instructions(
        inner, registers, [(r, i) for i, r in enumerate(results)], shared, len(results) + len(operands)
    )
    planner.emit(node, "chain", (*outputs, *operands), len(outputs), code=code, temporaries=temporaries)


def _matmul_alone(planner: Planner, node: Node) -> None:
    _matmul(planner, node, [node], {source: source for source in node.inputs}, [node])


def _matmul(
    planner: Planner, node: Node, inner: list[Node], argument: dict[Node, Node], results: list[Node]
) -> None:
    """Operand 0 accumulates the product, then the epilogue runs over it while it is in cache. It is f32: the
    product if that is a result, else another f32 result, which overwrites it, else scratch memory."""
    product, *epilogue = inner
    order = sorted(
        range(len(results)), key=lambda i: (results[i] is not product, results[i].dtype is bfloat16)
    )
    outputs = [planner.allocate(node, index) for index in order]
    carried = results[order[0]].dtype is float32
    if not carried:
        outputs.insert(0, planner.scratch(product.type, f"%{node.id} product"))
    *batch, m, n = product.shape
    k = product.inputs[0].shape[-1]
    a = planner.view(argument[product.inputs[0]]).broadcast((*batch, m, k))
    b = planner.view(argument[product.inputs[1]]).broadcast((*batch, k, n))
    factors = [a, b, *(planner.packed(argument[scale]) for scale in product.inputs[2:])]
    extras = [
        value for value in argument if value not in product.inputs or any(value in e.inputs for e in epilogue)
    ]
    extra_views = [planner.view(argument[value]).broadcast(product.shape) for value in extras]
    if batch and all(stride == 0 or size == 1 for stride, size in zip(b.strides[:-2], batch, strict=True)):
        merged = _merge_batch(outputs, a, extra_views, batch, m, n, k)
        if merged is not None:
            outputs, factors[0], extra_views = merged
            factors[1] = View(b.buffer, b.offset, (k, n), b.strides[-2:], b.dtype)
    kernel = "matmul" if product.op == "matmul" else "matmul_scaled"
    trial = Step(kernel, (*outputs, *factors), len(outputs), node, (len(outputs),))
    weights = argument[product.inputs[1]]
    packs = planner.is_early(weights) and len(factors[1].shape) == 2
    packing = planner.target.packing(trial) if packs else None
    if packing is not None:
        factors[1] = planner.packed_weights(weights, factors[1], packing)
        ints: tuple[int, ...] = (len(outputs), packing.tile, 0, 0, 0, 0, PACKED)
    else:
        ints = (len(outputs), *planner.target.blocks(trial))
    inputs = len(outputs) + len(factors)
    registers = {value: inputs + index for index, value in enumerate(extras)}
    registers[product] = 0
    shared = {} if results[order[0]] is product or not carried else {0: 0}
    targets = [
        (results[index], register)
        for register, index in enumerate(order, start=int(not carried))
        if results[index] is not product or register > 0
    ]
    code, temporaries = instructions(epilogue, registers, targets, shared, inputs + len(extras))
    planner.emit(
        node,
        kernel,
        (*outputs, *factors, *extra_views),
        len(outputs),
        ints,
        code=code,
        temporaries=temporaries,
    )


def _merge_batch(
    outputs: list[View], a: View, extras: list[View], batch: list[int], m: int, n: int, k: int
) -> tuple[list[View], View, list[View]] | None:
    """[.., m, k] @ [k, n] as one [M, k] @ [k, n], where every operand allows it."""
    rows = m
    for size in batch:
        rows *= size
    views = [view.reshape((rows, n)) for view in (*outputs, *extras)]
    flat = a.reshape((rows, k))
    if flat is None or any(view is None for view in views):
        return None
    done = [view for view in views if view is not None]
    return done[: len(outputs)], flat, done[len(outputs) :]


def _has_contraction(body: Graph) -> bool:
    return any(node.op in CONTRACTIONS for node in body.nodes)


def _body(node: Node) -> Graph:
    return attributes.graph(node.attrs, "body")


def _integer(attrs: Attrs, name: str) -> int:
    return int(attrs[name])  # type: ignore[arg-type]


def _shape(attrs: Attrs, name: str) -> tuple[int, ...]:
    return tuple(attrs[name])  # type: ignore[arg-type]


RULES: dict[str, Callable[[Planner, Node], None]] = {
    "input": _input,
    "constant": _constant,
    "result": _result,
    "reshape": _reshape,
    "transpose": _transpose,
    "split": _split,
    "slice": _slice,
    "broadcast_to": _broadcast,
    "check_finite": _check_finite,
    "concat": _concat,
    "pad": _pad,
    "cache_update": _in_place,
    "mark_seen": _in_place,
    "fused": _fused,
    "matmul": _matmul_alone,
    "quantized_matmul": _matmul_alone,
}
