"""The accuracy oracle: a graph evaluated node by node in float64, by the references of the op table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.dtypes import bfloat16, float32_from_bfloat16
from volta.errors import DTypeError, ShapeError, UsageError
from volta.ir import attributes
from volta.ir.graph import Graph, Node
from volta.ir.ops import OPS

Array = npt.NDArray[Any]


def evaluate(graph: Graph, arguments: Sequence[npt.ArrayLike]) -> list[Array]:
    """The outputs for one argument per input: integers stay so, everything else is float64.

    A bf16 argument is its bit patterns (uint16) or numbers, which are rounded to bf16; a bf16 output is
    float64 numbers that are exactly bf16.
    """
    if len(arguments) != len(graph.inputs):
        raise UsageError(f"[evaluate] {len(arguments)} arguments given: expected {len(graph.inputs)}")
    values: dict[Node, tuple[Array, ...]] = {}
    for node, argument in zip(graph.inputs, arguments, strict=True):
        values[node] = (_argument(node, np.asarray(argument)),)
    for node in graph.nodes:
        if node not in values:
            values[node] = _results(node, [values[source] for source in node.inputs])
    return [values[node][0] for node in graph.outputs]


def _argument(node: Node, given: Array) -> Array:
    name = f"[evaluate] argument {node.attrs['name']!r}"
    if given.shape != node.shape:
        raise ShapeError(f"{name} is {given.shape}: expected {node.shape}")
    if node.dtype == bfloat16 and given.dtype == np.dtype(bfloat16.numpy):
        return float32_from_bfloat16(given).astype(np.float64)
    if given.dtype.kind != ("i" if node.dtype.integer else "f"):
        raise DTypeError(f"{name} is {given.dtype}: expected {node.dtype}")
    if node.dtype == bfloat16:
        return OPS["cast"].evaluate([given.astype(np.float64)], {"dtype": bfloat16.name})[0]
    return given.astype(node.dtype.numpy if node.dtype.integer else np.float64)


def _results(node: Node, operands: Sequence[tuple[Array, ...]]) -> tuple[Array, ...]:
    if node.op == "result":
        return (operands[0][attributes.integer(node.attrs, "index")],)
    arrays = [operand[0] for operand in operands]
    if node.op == "fused":
        return tuple(evaluate(attributes.graph(node.attrs, "body"), arrays))
    results = OPS[node.op].evaluate(arrays, node.attrs)
    return tuple(
        result.astype(kind.dtype.numpy if kind.dtype.integer else np.float64, copy=False)
        for result, kind in zip(results, node.types, strict=True)
    )
