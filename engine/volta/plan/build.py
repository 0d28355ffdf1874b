"""From a graph to steps: every node becomes a view, one step, or a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from volta.dtypes import int8
from volta.ir import attributes as attribute
from volta.ir.graph import Graph, Node, TensorType
from volta.plan import lower
from volta.plan.budget import enforce
from volta.plan.fingerprint import fingerprint
from volta.plan.layout import View, contiguous_strides
from volta.plan.memory import lay_out
from volta.plan.schedule import barriers, lifetimes
from volta.plan.steps import Buffer, Instruction, Memory, Packing, Plan, Step, Target

ROLES = {"input": Memory.INPUT, "parameter": Memory.PARAMETER, "state": Memory.STATE}
Base: TypeAlias = tuple[Node, int]  # a node and which of its results
Reader: TypeAlias = tuple[Node, int, Node]  # who reads, as which operand, through which node
Slot: TypeAlias = tuple[Node, int, list[Node]]  # a concatenation, which operand, the views between
VIEW_OPS = frozenset({"reshape", "transpose", "slice", "broadcast_to", "check_finite", "split", "result"})


def build(
    graph: Graph,
    target: Target,
    *,
    flags: Sequence[str] = (),
    max_bytes: int | None = None,
    passes: tuple[tuple[str, int, int], ...] = (),
    persistent: frozenset[int] = frozenset(),
) -> Plan:
    """Plans a verified graph. `flags`: what else the fingerprint must cover (policy, pass names).
    persistent: positions of inputs that stay as they are when memory is bound; what depends on them and on
    literals alone is computed once, in the plan's early steps.

    Raises BudgetError when the plan needs more than `max_bytes`.
    """
    planner = Planner(graph, target, persistent)
    for node in graph.nodes:
        planner.now_early = node in planner.early
        lower.lower(planner, node)
    planner.now_early = False
    planner.finish()
    early = len(planner.early_steps)
    planner.steps = planner.early_steps + planner.steps
    lifetimes(planner.steps, planner.buffers)
    arena_bytes = lay_out(planner.buffers)
    barriers(planner.steps, planner.buffers)
    plan = Plan(
        graph=graph,
        steps=planner.steps,
        buffers=planner.buffers,
        inputs=tuple(planner.view(node).buffer for node in graph.inputs),
        outputs=tuple(planner.output_buffers),
        constants=planner.constants,
        arena_bytes=arena_bytes,
        fingerprint=fingerprint(graph, target.signature, f"persistent {sorted(persistent)}", *flags),
        early=early,
        passes=passes,
    )
    enforce(plan, max_bytes)
    return plan


class Planner:
    """The plan under construction: views of the values so far, buffers, steps."""

    def __init__(self, graph: Graph, target: Target, persistent: frozenset[int] = frozenset()) -> None:
        self.graph = graph
        self.target = target
        self.steps: list[Step] = []
        self.early_steps: list[Step] = []
        self.now_early = False  # whether the node being lowered is computed once
        self.buffers: list[Buffer] = []
        self.constants: dict[int, Node] = {}
        self.position = {node: index for index, node in enumerate(graph.nodes)}
        self._views: dict[tuple[Node, int], View] = {}
        self._packed: dict[Node, View] = {}
        self._weights: dict[tuple[View, Packing], View] = {}
        self._base = self._trace_bases()
        self._readers = self._trace_readers()
        self._last_reader = self._trace_last_readers()
        self._homes: dict[tuple[Node, int], int] = {}
        for node in graph.inputs:
            self._bind_input(node)
        self.output_buffers = self._place_outputs()
        self.early = self._trace_early(persistent)
        self._slots = self._trace_slots()

    # --- values ---------------------------------------------------------------------------------

    def view(self, node: Node, result: int = 0) -> View:
        return self._views[node, result]

    def set_view(self, node: Node, view: View, result: int = 0) -> None:
        self._views[node, result] = view

    def allocate(self, node: Node, result: int = 0) -> View:
        """Contiguous memory for a result: the caller's output buffer where it has one, else a temporary."""
        slot = self._slot(node, result)
        if slot is not None and slot.contiguous:
            self.set_view(node, slot, result)
            return slot
        home = self._homes.get((node, result))
        kind = node.types[result]
        name = f"%{node.id}.{result} {node.op}" if len(node.types) > 1 else f"%{node.id} {node.op}"
        buffer = home if home is not None else self.new_buffer(name, self._own_memory(), kind.nbytes)
        view = whole(buffer, kind)
        self.set_view(node, view, result)
        return view

    def allocate_as(self, node: Node, result: int, axes: tuple[int, ...]) -> View:
        """Memory whose order is that of the axes permuted by `axes`, so that transposing is free."""
        slot = self._slot(node, result)
        if slot is not None and slot.strides[-1] == 1:
            self.set_view(node, slot, result)
            return slot
        if (node, result) in self._homes:
            return self.allocate(node, result)
        kind = node.types[result]
        inner = TensorType(tuple(kind.shape[axis] for axis in axes), kind.dtype)
        back = tuple(axes.index(axis) for axis in range(len(axes)))
        buffer = self.new_buffer(f"%{node.id}.{result} {node.op}", self._own_memory(), kind.nbytes)
        view = whole(buffer, inner).transpose(back)
        self.set_view(node, view, result)
        return view

    def reuse(self, node: Node, result: int, buffer: int) -> View:
        """The result takes over the memory of a value that dies at this node."""
        view = whole(buffer, node.types[result])
        self.set_view(node, view, result)
        return view

    def home(self, node: Node, result: int = 0) -> int | None:
        """The caller's buffer that this result was placed in, if any."""
        return self._homes.get((node, result))

    def dies_here(self, operand: Node, reader: Node) -> bool:
        """Whether `reader` is the last to read the temporary behind `operand`, which fills its buffer."""
        base = self._base[operand]
        view = self._views[operand, 0]
        buffer = self.buffers[view.buffer]
        return (
            buffer.memory is Memory.TEMPORARY
            and base in self._last_reader
            and self._views.get(base, view).buffer == view.buffer
            and self._last_reader[base] == self.position[reader]
            and all(self._last_reader.get(other, -1) <= self.position[reader] for other in self._joined(base))
            and view.contiguous
            and view.dtype.itemsize * view.numel == buffer.nbytes
        )

    def scratch(self, kind: TensorType, name: str) -> View:
        return whole(self.new_buffer(name, self._own_memory(), kind.nbytes), kind)

    def packed(self, node: Node) -> View:
        """The value contiguous: its own view, or a copy made once."""
        view = self.view(node)
        if view.contiguous:
            return View(view.buffer, view.offset, view.shape, contiguous_strides(view.shape), view.dtype)
        if node not in self._packed:
            before, self.now_early = self.now_early, self.now_early or self.is_early(node)
            copy = self.scratch(node.type, f"%{node.id} contiguous")
            self.emit(node, "copy", (copy, view), 1)
            self._packed[node] = copy
            self.now_early = before
        return self._packed[node]

    def packed_weights(self, node: Node, view: View, packing: Packing) -> View:
        """Weights in the order that a register tile reads them, made once for all who want them so."""
        if (view, packing) not in self._weights:
            before, self.now_early = self.now_early, True
            kind = TensorType((packing.nbytes,), int8)
            packed = self.scratch(kind, f"%{node.id} packed")
            ints = (packing.kind, packing.tile, packing.group)
            self.emit(node, "pack_weights", (packed, view), 1, ints)
            self._weights[view, packing] = packed
            self.now_early = before
        return self._weights[view, packing]

    def is_early(self, node: Node) -> bool:
        """Whether a value is there before the first run: computed once, a literal or a persistent input."""
        return self._base[node][0] in self.early

    def _own_memory(self) -> Memory:
        return Memory.PERSISTENT if self.now_early else Memory.TEMPORARY

    def new_buffer(self, name: str, memory: Memory, nbytes: int) -> int:
        self.buffers.append(Buffer(len(self.buffers), name, memory, nbytes))
        return len(self.buffers) - 1

    # --- steps ----------------------------------------------------------------------------------

    def emit(
        self,
        node: Node,
        kernel: str,
        operands: Sequence[View],
        n_outputs: int,
        ints: tuple[int, ...] = (),
        floats: tuple[float, ...] = (),
        code: tuple[Instruction, ...] = (),
        temporaries: int = 0,
    ) -> None:
        step = Step(kernel, tuple(operands), n_outputs, node, ints, floats, code, temporaries)
        nbytes = self.target.workspace_bytes(step)
        if nbytes:
            step.workspace = self.new_buffer(f"%{node.id} {kernel} workspace", Memory.WORKSPACE, nbytes)
        (self.early_steps if self.now_early else self.steps).append(step)

    def finish(self) -> None:
        """Copies outputs that could not be computed in place: plain outputs first, since a donated
        input may still be one of them; then those that overwrite inputs."""
        late: list[tuple[Node, View, View]] = []
        for index, (node, buffer) in enumerate(zip(self.graph.outputs, self.output_buffers, strict=True)):
            source = self.view(node)
            destination = whole(buffer, node.type)
            if source.buffer == buffer and source.contiguous:
                continue
            if index not in self.graph.donations:
                self.emit(node, "copy", (destination, source), 1)
            elif self.buffers[source.buffer].in_arena:
                late.append((node, destination, source))
            else:  # the source may itself be overwritten below
                copy = self.scratch(node.type, f"%{node.id} moved")
                self.emit(node, "copy", (copy, source), 1)
                late.append((node, destination, copy))
        for node, destination, source in late:
            self.emit(node, "copy", (destination, source), 1)

    # --- joined values --------------------------------------------------------------------------

    def part(self, concat: Node, index: int) -> View:
        """Where operand `index` of a concatenation lies in its result."""
        if (concat, 0) not in self._views:
            self.allocate(concat)
        axis = attribute.integer(concat.attrs, "axis")
        start, stop = [0] * len(concat.shape), list(concat.shape)
        start[axis] = sum(source.shape[axis] for source in concat.inputs[:index])
        stop[axis] = start[axis] + concat.inputs[index].shape[axis]
        return self._views[concat, 0].slice(start, stop, [1] * len(stop))

    def _slot(self, node: Node, result: int) -> View | None:
        """The part of a concatenation's result where this result can be computed right away, if any."""
        found = self._slots.get((node, result))
        if found is None:
            return None
        concat, index, chain = found
        if (node in self.early) != (concat in self.early):
            return None
        home = self._homes.get((concat, 0))
        if home is not None and self.buffers[home].memory is not Memory.OUTPUT:
            return None  # a donated input, which is still read until the concatenation
        view: View | None = self.part(concat, index)
        for step in chain:  # from the operand back to the result it is a view of
            if view is None:
                return None
            if step.op == "transpose":
                axes = attribute.integers(step.attrs, "axes")
                view = view.transpose(sorted(range(len(axes)), key=axes.__getitem__))
            else:
                view = view.reshape(step.inputs[0].shape)
        return view

    def _joined(self, base: Base) -> list[Base]:
        """The values that may share a buffer with this one: a concatenation and what was computed in it."""
        concat = self._slots[base][0] if base in self._slots else base[0]
        if concat.op != "concat":
            return []
        return [(concat, 0), *(part for part, slot in self._slots.items() if slot[0] is concat)]

    def _trace_slots(self) -> dict[Base, Slot]:
        """Results that a concatenation joins, and whose kernels can write to strided memory."""
        slots: dict[Base, Slot] = {}
        for concat in self.graph.nodes:
            if concat.op != "concat":
                continue
            for index, source in enumerate(concat.inputs):
                chain: list[Node] = []
                node = source
                while node.op in ("transpose", "reshape"):
                    chain.append(node)
                    node = node.inputs[0]
                base = self._base[node]
                direct = base[0] is (node.inputs[0] if node.op == "result" else node)  # no part of a split
                if (
                    direct
                    and base[0].op in lower.STRIDED_RESULTS
                    and base not in slots
                    and base not in self._homes
                ):
                    slots[base] = (concat, index, chain)
        return slots

    # --- where values live ----------------------------------------------------------------------

    def _bind_input(self, node: Node) -> None:
        role = ROLES[str(node.attrs["role"])]
        buffer = self.new_buffer(str(node.attrs["name"]), role, node.type.nbytes)
        self.set_view(node, whole(buffer, node.type))

    def _trace_early(self, persistent: frozenset[int]) -> frozenset[Node]:
        """The nodes that depend on persistent inputs and literals alone. Every run writes its outputs and
        makes its checks, so those are not among them."""
        early = {self.graph.inputs[position] for position in persistent}
        every_run = {node for node, _ in self._homes}
        for node in self.graph.nodes:
            once = node.op not in ("input", "check_finite") and node not in every_run
            if once and all(source in early for source in node.inputs):
                early.add(node)
        return frozenset(early)

    def _trace_bases(self) -> dict[Node, tuple[Node, int]]:
        """For each node the (node, result) whose memory a view of it would show."""
        base: dict[Node, tuple[Node, int]] = {}
        for node in self.graph.nodes:
            if node.op == "result" and node.inputs[0].op != "split":
                base[node] = (node.inputs[0], attribute.integer(node.attrs, "index"))
            elif node.op in VIEW_OPS:
                base[node] = base[node.inputs[0]]
            else:
                base[node] = (node, 0)
        return base

    def _trace_readers(self) -> dict[Base, list[Reader]]:
        """Who reads each base, directly or through views, in order."""
        readers: dict[Base, list[Reader]] = {}
        for node in self.graph.nodes:
            for operand, source in enumerate(node.inputs):
                if len(source.types) == 1 or source.op == "split":
                    readers.setdefault(self._base[source], []).append((node, operand, source))
        return readers

    def _trace_last_readers(self) -> dict[Base, int]:
        """The position of the last node that reads each base; outputs are read after the end."""
        last = {base: self.position[readers[-1][0]] for base, readers in self._readers.items()}
        for node in self.graph.outputs:
            last[self._base[node]] = len(self.graph.nodes)
        return last

    def _place_outputs(self) -> list[int]:
        """Chooses each output's buffer and which results can be computed right there."""
        buffers: list[int] = []
        for index, node in enumerate(self.graph.outputs):
            donated = self.graph.donations.get(index)
            if donated is None:
                buffers.append(self.new_buffer(f"output {index}", Memory.OUTPUT, node.type.nbytes))
            else:
                buffers.append(self.view(donated).buffer)
            maker = self._maker(node)
            if maker is None or maker in self._homes or maker[0].op in ("input", "constant"):
                continue
            if donated is None or self._may_overwrite(maker[0], donated):
                self._homes[maker] = buffers[-1]
        return buffers

    def _maker(self, node: Node) -> tuple[Node, int] | None:
        """The result that holds exactly this output's elements in order, seen through reshapes."""
        while node.op in ("reshape", "check_finite"):
            node = node.inputs[0]
        if node.op == "result" and node.inputs[0].op != "split":
            return node.inputs[0], attribute.integer(node.attrs, "index")
        return None if node.op in VIEW_OPS else (node, 0)

    def _may_overwrite(self, maker: Node, donated: Node) -> bool:
        """Whether `maker` may write over the donated input: nobody reads it later, and the maker
        itself reads it only element by element."""
        place = self.position[maker]
        if any(self._base[output] == (donated, 0) for output in self.graph.outputs):
            return False
        for node, operand, source in self._readers.get((donated, 0), []):
            index = self.position[node]
            if node.op in VIEW_OPS and node.op != "check_finite":
                continue
            if index > place or (index == place and not lower.reads_in_place(node, operand, source, donated)):
                return False
        return True


def whole(buffer: int, kind: TensorType) -> View:
    return View(buffer, 0, kind.shape, contiguous_strides(kind.shape), kind.dtype)


__all__ = ["Plan", "Planner", "build", "whole"]
