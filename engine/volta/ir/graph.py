"""The graph: static single assignment, immutable once frozen.

A node is a value. Most operations give one result; a node of an operation with several results
(`attention` gives the output and its softmax statistics) has several types, and `result` nodes pick
one each. `fused` nodes carry a whole graph as their body.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from volta.dtypes import DType
from volta.errors import VerifyError

Shape: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    """What a value is: its shape and its dtype."""

    shape: Shape
    dtype: DType

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"


Attr: TypeAlias = (
    "int | float | bool | str | tuple[int, ...] | tuple[str, ...] | npt.NDArray[np.generic] | Graph"
)
Attrs: TypeAlias = Mapping[str, Attr]


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One value. `id` is its position in the graph's topological order."""

    id: int
    op: str
    inputs: tuple[Node, ...]
    attrs: Attrs
    types: tuple[TensorType, ...]

    @property
    def type(self) -> TensorType:
        """The type of a node with one result."""
        if len(self.types) != 1:
            message = f"{self} has {len(self.types)} results: take one with `result`"
            raise VerifyError("single-result", message)
        return self.types[0]

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    def __repr__(self) -> str:
        return f"%{self.id} {self.op}"


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Graph:
    """nodes: every value in topological order. inputs: the `input` nodes in call order.

    donations maps an output's position to the input whose memory it takes over.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    donations: Mapping[int, Node] = field(default_factory=lambda: MappingProxyType({}))

    def users(self) -> dict[Node, list[Node]]:
        """For each node the nodes that read it, once per operand, in order."""
        users: dict[Node, list[Node]] = {node: [] for node in self.nodes}
        for node in self.nodes:
            for source in node.inputs:
                users[source].append(node)
        return users

    def __repr__(self) -> str:
        from volta.ir.text import format_graph  # the text form is built on this module

        return format_graph(self)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)


class GraphBuilder:
    """Collects nodes and gives a frozen Graph. Types come from the op table, never from the caller."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._inputs: list[Node] = []
        self._members: set[Node] = set()

    @property
    def inputs(self) -> tuple[Node, ...]:
        """The inputs so far, in order."""
        return tuple(self._inputs)

    def input(self, name: str, shape: Sequence[int], dtype: DType, role: str = "input") -> Node:
        """A value bound at run time. role: "input", "parameter" or "state" (optimizer, caches)."""
        return self.add("input", (), {"name": name, "shape": tuple(shape), "dtype": dtype.name, "role": role})

    def constant(self, value: npt.NDArray[np.generic]) -> Node:
        """A literal: f32 or i32, copied so that nobody can change it."""
        return self.add("constant", (), {"value": value})

    def result(self, node: Node, index: int) -> Node:
        """Result `index` of a node; the node itself where it has only one."""
        return node if len(node.types) == 1 else self.add("result", (node,), {"index": index})

    def results(self, op: str, inputs: Iterable[Node], attrs: Attrs | None = None) -> tuple[Node, ...]:
        """Adds a node and gives its results, one node each."""
        node = self.add(op, inputs, attrs)
        return tuple(self.result(node, index) for index in range(len(node.types)))

    def add(self, op: str, inputs: Iterable[Node], attrs: Attrs | None = None) -> Node:
        """Adds a node; its types are inferred, so an impossible node is refused here."""
        from volta.ir.ops import canonical, infer  # the table imports this module's types

        operands = tuple(inputs)
        for operand in operands:
            if operand not in self._members:
                raise VerifyError("defined-before-use", f"{op} reads {operand}, which is not in this graph")
        frozen = MappingProxyType(canonical(op, attrs or {}))
        given = () if op == "result" else tuple(operand.type for operand in operands)
        types = infer(op, given, frozen, operands)
        node = Node(len(self._nodes), op, operands, frozen, types)
        self._nodes.append(node)
        self._members.add(node)
        if op == "input":
            self._inputs.append(node)
        return node

    def inline(self, graph: Graph, arguments: Sequence[Node]) -> tuple[Node, ...]:
        """Copies a graph's nodes into this one, its inputs replaced; gives its outputs' copies."""
        copies = dict(zip(graph.inputs, arguments, strict=True))
        for node in graph.nodes:
            if node not in copies:
                copies[node] = self.add(node.op, (copies[source] for source in node.inputs), node.attrs)
        return tuple(copies[node] for node in graph.outputs)

    def freeze(self, outputs: Sequence[Node], donations: Mapping[int, Node] | None = None) -> Graph:
        donated = MappingProxyType(dict(donations or {}))
        return Graph(tuple(self._nodes), tuple(self._inputs), tuple(outputs), donated)
