"""Instructions of an elementwise chain: registers assigned, temporaries reused, in-place outputs safe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volta.ir.graph import Node
from volta.ir.ops import OPS, widens
from volta.plan.steps import Instruction


def instructions(
    body: Sequence[Node],
    sources: Mapping[Node, int],
    outputs: Sequence[tuple[Node, int]],
    shared: Mapping[int, int],
    first_temporary: int,
) -> tuple[tuple[Instruction, ...], int]:
    """Lowers elementwise nodes to instructions.

    sources: registers that hold values before the chain starts. outputs: (node, register to write).
    shared: output register -> source register in the same memory; such an output is only written
    once nothing reads that source any more. An output may also be a source, handed through.
    A bf16 is held as f32: rounding to it is an instruction, widening it none.
    Gives the instructions and the number of temporaries.
    """
    outside = {node for node, _ in outputs}
    same = {node: node.inputs[0] for node in body if widens(node) and node not in outside}
    body = [node for node in body if node not in same]
    reads_of = {node: tuple(_held(source, same) for source in node.inputs) for node in body}
    handed = [(node, register) for node, register in outputs if node in sources and sources[node] != register]
    last_read = {source: index for index, node in enumerate(body) for source in reads_of[node]}
    last_read.update((node, len(body)) for node, _ in handed)
    ends = {
        register: max((last_read.get(node, -1) for node, r in sources.items() if r == register), default=-1)
        for register in sources.values()
    }
    wanted: dict[Node, list[int]] = {}
    for node, register in outputs:
        wanted.setdefault(node, []).append(register)

    register_of = dict(sources)
    code: list[Instruction] = []
    late: list[Instruction] = []  # copies to outputs whose memory is read until later
    free: list[int] = []
    used = 0
    for index, node in enumerate(body):
        reads = tuple(register_of[source] for source in reads_of[node])
        dying = {register_of[s] for s in reads_of[node] if last_read[s] == index and s not in wanted}
        free += sorted(register for register in dying if register >= first_temporary)
        targets = wanted.get(node, [])
        ready = [r for r in targets if r not in shared or ends.get(shared[r], -1) <= index]
        if ready:
            target = ready[0]
        elif free:
            target = free.pop()
        else:
            target = first_temporary + used
            used += 1
        code.append(_instruction(node, target, reads))
        register_of[node] = target
        for other in targets:
            if other != target:
                (code if other in ready else late).append(Instruction("copy", other, (target,)))
    for node, register in handed:
        source = sources[node]
        if shared.get(register, source) != source:  # the memory of another source, which may still be read
            source = first_temporary + used
            used += 1
            code.append(Instruction("copy", source, (sources[node],)))
        (late if register in shared else code).append(Instruction("copy", register, (source,)))
    return tuple(code + late), used


def _held(node: Node, same: Mapping[Node, Node]) -> Node:
    while node in same:
        node = same[node]
    return node


def _instruction(node: Node, target: int, reads: tuple[int, ...]) -> Instruction:
    if node.op == "cast":
        return Instruction("copy" if widens(node) else "bf16", target, reads)
    return Instruction(node.op, target, reads, OPS[node.op].immediates(node.attrs))
