"""Plans made and run in tests: one call from a graph to its outputs, and any plan run as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.backends.base import Backend
from volta.ir.graph import Graph
from volta.plan.layout import View
from volta.plan.steps import Memory, Plan
from volta.runtime import gateway
from volta.runtime.policy import Policy

Array = npt.NDArray[Any]

PLAIN = Policy(isa="ref", threads=1, passes=())  # every node its own step, by the reference
DEFAULT = Policy(threads=2)


def without_donations(graph: Graph) -> Graph:
    return Graph(graph.nodes, graph.inputs, graph.outputs)


def run(graph: Graph, arguments: Sequence[Array], policy: Policy = DEFAULT) -> list[Array]:
    """The outputs; donated arguments are overwritten."""
    return gateway.compile(graph, policy).run(arguments)


def run_plan(plan: Plan, arguments: Sequence[Array], backend: Backend) -> list[Array]:
    """The outputs of this very plan, without the gateway."""
    arrays = dict(zip(plan.inputs, arguments, strict=True))
    for node, number in zip(plan.graph.outputs, plan.outputs, strict=True):
        arrays.setdefault(number, np.empty(node.shape, node.dtype.numpy))
    for buffer in plan.buffers:
        if buffer.memory is Memory.PERSISTENT:
            arrays[buffer.index] = np.empty(buffer.nbytes, np.uint8)
    bound = [b.index for b in plan.buffers if not b.in_arena and b.memory is not Memory.CONSTANT]
    backend.compile(plan).bind([arrays[number] for number in bound]).run()
    return [arrays[number] for number in plan.outputs]


def bytes_of(view: View) -> npt.NDArray[np.int64]:
    """The offsets in its buffer of all bytes of all elements, element by element."""
    if view.numel == 0:
        return np.empty(0, np.int64)
    index = np.indices(view.shape).reshape(len(view.shape), view.numel)
    first = view.offset + view.dtype.itemsize * (np.array(view.strides, np.int64).reshape(-1, 1) * index).sum(
        0
    )
    return (first[:, None] + np.arange(view.dtype.itemsize)).reshape(-1)
