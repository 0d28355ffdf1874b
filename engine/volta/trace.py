"""Tracing: running a Python function on graph values instead of numbers, to get its graph."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from volta.dtypes import int32
from volta.errors import DTypeError, UsageError
from volta.ir.graph import Attrs, Graph, GraphBuilder, Node
from volta.runtime import gateway
from volta.tensor import Scalar, Tensor, asarray, from_storage

Literal: TypeAlias = npt.NDArray[np.float32]
SMALL = 16  # elements: i32 tensors from outside (positions) of at most so many become part of the graph
_numbers = count()


class Trace:
    """A graph under construction. Tensors from outside become inputs of it (`captured`).

    number: traces are numbered as they begin, so of two open ones the inner one has the higher number.
    open: until its function has returned; its tensors mean nothing afterwards.
    """

    def __init__(self) -> None:
        self.number = next(_numbers)
        self.open = True
        self.builder = GraphBuilder()
        self.captured: list[Tensor] = []
        self._captures: dict[int, Node] = {}
        self._names: set[str] = set()

    def input(self, name: str, like: Tensor, role: str = "input") -> Tensor:
        """A value bound at run time; a second one of the same name gets a prime."""
        while name in self._names:
            name += "'"
        self._names.add(name)
        node = self.builder.input(name, like.shape, like.dtype, role)
        return self.wrap(node)

    def wrap(self, node: Node) -> Tensor:
        return Tensor(node.type, None, self, node)

    def lift(self, value: Tensor | Literal) -> Node:
        """The node of a value in this graph: its own, a literal for a few numbers, else a captured input."""
        if not isinstance(value, Tensor):
            return self.builder.constant(value)
        if value._trace is self and value._node is not None:
            return value._node
        if value._trace is None and value.size <= SMALL and value.dtype is int32:
            return self.builder.constant(value.storage())
        if id(value) not in self._captures:
            innermost((value,))  # refuses a value that left its function
            self._captures[id(value)] = self.builder.input(
                f"captured{len(self.captured)}", value.shape, value.dtype
            )
            self.captured.append(value)
        return self._captures[id(value)]


def innermost(values: Sequence[Tensor | Literal]) -> Trace | None:
    """The innermost open trace that any of the values belongs to."""
    inner: Trace | None = None
    for value in values:
        trace = value._trace if isinstance(value, Tensor) else None
        if trace is None:
            continue
        if not trace.open:
            raise UsageError(
                f"[trace] {value!r} left the function that traced it: return it as a result instead"
            )
        if inner is None or trace.number > inner.number:
            inner = trace
    return inner


def apply(op: str, *values: Tensor | Scalar, **attrs: object) -> Tensor:
    """One operation with one result."""
    return apply_all(op, *values, **attrs)[0]


def apply_all(op: str, *values: Tensor | Scalar, **attrs: object) -> tuple[Tensor, ...]:
    """One operation: a node of the current trace, or a small graph with a cached plan, run at once."""
    frozen: Attrs = attrs  # type: ignore[assignment]
    operands = [value if isinstance(value, Tensor) else _number(op, value) for value in values]
    trace = innermost(operands)
    if trace is not None:
        nodes = trace.builder.results(op, [trace.lift(operand) for operand in operands], frozen)
        return tuple(trace.wrap(node) for node in nodes)
    tensors = [asarray(operand) for operand in operands]
    executable = gateway.compile_op(op, tuple(tensor.type for tensor in tensors), frozen)
    arrays = executable.run([tensor.storage() for tensor in tensors])
    return tuple(
        from_storage(array, kind.dtype) for array, kind in zip(arrays, executable.output_types, strict=True)
    )


def _number(op: str, value: object) -> Literal:
    """A number (or an array of them) beside tensors, rounded to f32."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise DTypeError(f"[{op}] given {value!r}: expected Tensors and numbers")
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def call(graph: Graph, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A whole graph on tensors: inlined where they are traced, else compiled and run."""
    trace = innermost(arguments)
    if trace is not None:
        nodes = trace.builder.inline(graph, [trace.lift(argument) for argument in arguments])
        return tuple(trace.wrap(node) for node in nodes)
    executable = gateway.compile(graph)
    arrays = executable.run([argument.storage() for argument in arguments])
    return tuple(
        from_storage(array, kind.dtype) for array, kind in zip(arrays, executable.output_types, strict=True)
    )


def check_scalar_loss(loss: object) -> Tensor:
    """The loss must be one f32 number computed by the traced function."""
    if not isinstance(loss, Tensor):
        raise DTypeError(
            f"[value_and_grad] the function gave {type(loss).__name__}: expected a scalar Tensor"
        )
    if loss.shape != ():
        raise UsageError(
            f"[value_and_grad] the function gave shape {loss.shape}: expected a scalar, shape ()"
        )
    return loss
