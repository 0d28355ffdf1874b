"""Tracing: running a Python function on graph values instead of numbers, to get its graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from volta.errors import DTypeError, UsageError
from volta.ir.graph import Attrs, Graph, GraphBuilder, Node
from volta.runtime import gateway
from volta.tensor import Scalar, Tensor, asarray, from_storage


class Trace:
    """A graph under construction. Tensors from outside become inputs of it (`captured`)."""

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.builder = GraphBuilder()
        self.captured: list[Tensor] = []
        self._captures: dict[int, Node] = {}

    def input(self, name: str, like: Tensor, role: str = "input") -> Tensor:
        node = self.builder.input(name, like.shape, like.dtype, role)
        return self.wrap(node)

    def wrap(self, node: Node) -> Tensor:
        return Tensor(node.type, None, self, node)

    def lift(self, value: Tensor | Scalar) -> Node:
        """The node of a value in this graph: its own, a literal for a number, else a captured input."""
        if not isinstance(value, Tensor):
            return self.builder.constant(np.asarray(value, np.float32))
        if value._trace is self and value._node is not None:
            return value._node
        if id(value) not in self._captures:
            if value._trace is not None and value._trace.depth > self.depth:
                raise UsageError(f"[trace] {value!r} left the function that traced it")
            self._captures[id(value)] = self.builder.input(f"captured{len(self.captured)}", value.shape, value.dtype)
            self.captured.append(value)
        return self._captures[id(value)]


def innermost(values: Sequence[Tensor | Scalar]) -> Trace | None:
    """The deepest trace that any of the values belongs to."""
    traces = [value._trace for value in values if isinstance(value, Tensor) and value._trace is not None]
    return max(traces, key=lambda trace: trace.depth) if traces else None


def apply(op: str, *values: Tensor | Scalar, **attrs: object) -> Tensor:
    """One operation with one result."""
    return apply_all(op, *values, **attrs)[0]


def apply_all(op: str, *values: Tensor | Scalar, **attrs: object) -> tuple[Tensor, ...]:
    """One operation: a node of the current trace, or a small graph with a cached plan, run at once."""
    frozen: Attrs = attrs  # type: ignore[assignment]
    trace = innermost(values)
    if trace is not None:
        nodes = trace.builder.results(op, [trace.lift(value) for value in values], frozen)
        return tuple(trace.wrap(node) for node in nodes)
    tensors = [value if isinstance(value, Tensor) else asarray(np.float32(value)) for value in values]
    executable = gateway.compile_op(op, tuple(tensor.type for tensor in tensors), frozen)
    arrays = executable.run([tensor.storage() for tensor in tensors])
    return tuple(from_storage(array, kind.dtype)
                 for array, kind in zip(arrays, executable.output_types, strict=True))


def call(graph: Graph, arguments: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """A whole graph on tensors: inlined where they are traced, else compiled and run."""
    trace = innermost(arguments)
    if trace is not None:
        nodes = trace.builder.inline(graph, [trace.lift(argument) for argument in arguments])
        return tuple(trace.wrap(node) for node in nodes)
    executable = gateway.compile(graph)
    arrays = executable.run([argument.storage() for argument in arguments])
    return tuple(from_storage(array, kind.dtype)
                 for array, kind in zip(arrays, executable.output_types, strict=True))


def check_scalar_loss(loss: object) -> Tensor:
    """The loss must be one f32 number computed by the traced function."""
    if not isinstance(loss, Tensor):
        raise DTypeError(f"[value_and_grad] the function gave {type(loss).__name__}: expected a scalar Tensor")
    if loss.shape != ():
        raise UsageError(f"[value_and_grad] the function gave shape {loss.shape}: expected a scalar, shape ()")
    return loss
