"""The plan's rules, re-derived from its steps alone. Runs on every plan, never behind a flag."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from volta.errors import VerifyError
from volta.plan.steps import ALIGNMENT, Buffer, Memory, Plan, Step


def verify(plan: Plan) -> None:
    """Raises VerifyError for the first rule the plan breaks."""
    for rule, message in findings(plan):
        raise VerifyError(rule, message)


def findings(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every breach, as (rule, message)."""
    for rule, check in RULES.items():
        for message in check(plan):
            yield rule, message


def _operand_bounds(plan: Plan) -> Iterator[str]:
    """Every operand lies inside its buffer."""
    for index, step in enumerate(plan.steps):
        for view in step.operands:
            low, high = view.extent()
            size = plan.buffers[view.buffer].nbytes
            if low < 0 or high > size:
                yield f"step {index} {step.kernel} touches bytes {low}..{high} of {size}"


def _inputs_live(plan: Plan) -> Iterator[str]:
    """Every step's inputs were bound or written by a step before it."""
    bound = (Memory.INPUT, Memory.PARAMETER, Memory.STATE, Memory.CONSTANT)
    written = {buffer.index for buffer in plan.buffers if buffer.memory in bound}
    for index, step in enumerate(plan.steps):
        for view in step.reads():
            if view.buffer not in written and view.numel:
                name = plan.buffers[view.buffer].name
                yield f"step {index} {step.kernel} reads {name} before anything writes it"
        written |= {view.buffer for view in step.writes()}


def _outputs_written(plan: Plan) -> Iterator[str]:
    """Every output buffer is written; a donated input may also come back as it was."""
    written = {view.buffer for step in plan.steps for view in step.writes()}
    for index, number in enumerate(plan.outputs):
        if (
            number not in written
            and plan.buffers[number].memory is Memory.OUTPUT
            and plan.buffers[number].nbytes
        ):
            yield f"output {index} is never written"


def _read_only(plan: Plan) -> Iterator[str]:
    """Constants and inputs that were not donated are never written."""
    donated = {plan.inputs[plan.graph.inputs.index(node)] for node in plan.graph.donations.values()}
    for index, step in enumerate(plan.steps):
        for view in step.writes():
            buffer = plan.buffers[view.buffer]
            once = buffer.memory is Memory.PERSISTENT and index < plan.early
            free = buffer.memory in (Memory.OUTPUT, Memory.TEMPORARY) or once
            if not free and buffer.index not in donated:
                yield f"step {index} {step.kernel} writes the {buffer.memory} {buffer.name}"


def _early(plan: Plan) -> Iterator[str]:
    """What is made once outlives a run: it lies beside the inputs, and later steps may only read it. Nothing
    in the arena crosses from the early steps to the others."""
    for index, step in enumerate(plan.steps[: plan.early]):
        for view in step.writes():
            if plan.buffers[view.buffer].memory not in (Memory.PERSISTENT, Memory.TEMPORARY):
                yield f"early step {index} {step.kernel} writes {plan.buffers[view.buffer].name}"
    for number, (first, last) in _spans(plan).items():
        if plan.buffers[number].in_arena and first < plan.early <= last:
            yield f"{plan.buffers[number].name} is made by early step {first} and used by step {last}"


def _in_place(plan: Plan) -> Iterator[str]:
    """A step writes over what it reads only in a chain, element by element; its outputs are apart."""
    for index, step in enumerate(plan.steps):
        for position, output in enumerate(step.writes()):
            for other, view in enumerate(step.operands[position + 1 :], start=position + 1):
                if not _share(plan, (output.buffer, *output.extent()), (view.buffer, *view.extent())):
                    continue
                if output.buffer == view.buffer and output.interleaves(view):
                    continue
                if step.kernel != "chain" or other < step.n_outputs or not output.same_place(view):
                    yield f"step {index} {step.kernel} writes operand {position} over operand {other}"


def _arena_bounds(plan: Plan) -> Iterator[str]:
    """Arena buffers that steps use are aligned and inside the arena."""
    for buffer in _in_use(plan):
        if buffer.offset % ALIGNMENT or buffer.offset < 0 or buffer.offset + buffer.nbytes > plan.arena_bytes:
            yield f"{buffer.name} lies at {buffer.offset}+{buffer.nbytes} of an arena of {plan.arena_bytes}"


def _no_overlap(plan: Plan) -> Iterator[str]:
    """No two arena buffers that are live in the same step share a byte."""
    spans = _spans(plan)
    active: list[Buffer] = []
    for buffer in sorted(_in_use(plan), key=lambda b: spans[b.index][0]):
        first = spans[buffer.index][0]
        active = [other for other in active if spans[other.index][1] >= first]
        for other in active:
            if buffer.offset < other.offset + other.nbytes and other.offset < buffer.offset + buffer.nbytes:
                yield f"{buffer.name} and {other.name} are both live at step {first} and overlap"
        active.append(buffer)


def _arena_tight(plan: Plan) -> Iterator[str]:
    """The arena is exactly as large as its highest buffer: the peak is a figure, not a guess."""
    top = max((b.offset + b.nbytes for b in _in_use(plan)), default=0)
    if top != plan.arena_bytes:
        yield f"the arena has {plan.arena_bytes} bytes, its buffers end at {top}"


def _barriers(plan: Plan) -> Iterator[str]:
    """Steps with no barrier between them share no byte that either writes."""
    open_steps: list[tuple[int, Step]] = []
    for index, step in enumerate(plan.steps):
        if step.barrier:
            open_steps = []
        for earlier, other in open_steps:
            if _conflict(plan, step, other):
                yield f"steps {earlier} {other.kernel} and {index} {step.kernel} need a barrier between them"
        open_steps.append((index, step))


def _donations(plan: Plan) -> Iterator[str]:
    """A donated output ends in its input's buffer."""
    for output, node in plan.graph.donations.items():
        if plan.outputs[output] != plan.inputs[plan.graph.inputs.index(node)]:
            yield f"output {output} is not in the memory of the input donated to it"


def _spans(plan: Plan) -> dict[int, tuple[int, int]]:
    spans: dict[int, tuple[int, int]] = {}
    for index, step in enumerate(plan.steps):
        touched = [view.buffer for view in step.operands]
        if step.workspace is not None:
            touched.append(step.workspace)
        for number in touched:
            spans[number] = (spans.get(number, (index, index))[0], index)
    return spans


def _in_use(plan: Plan) -> list[Buffer]:
    spans = _spans(plan)
    return [buffer for buffer in plan.buffers if buffer.in_arena and buffer.index in spans and buffer.nbytes]


def _conflict(plan: Plan, a: Step, b: Step) -> bool:
    return any(_share(plan, w, r) for w in _written(plan, a) for r in _touched(plan, b)) or any(
        _share(plan, w, r) for w in _written(plan, b) for r in _touched(plan, a)
    )


def _written(plan: Plan, step: Step) -> list[tuple[int, int, int]]:
    views = (
        step.operands if step.kernel == "check_finite" else step.writes()
    )  # its readers wait for the verdict
    spans = [(view.buffer, *view.extent()) for view in views]
    if step.workspace is not None:
        spans.append((step.workspace, 0, plan.buffers[step.workspace].nbytes))
    return spans


def _touched(plan: Plan, step: Step) -> list[tuple[int, int, int]]:
    return _written(plan, step) + [(view.buffer, *view.extent()) for view in step.reads()]


def _share(plan: Plan, a: tuple[int, int, int], b: tuple[int, int, int]) -> bool:
    left, right = plan.buffers[a[0]], plan.buffers[b[0]]
    if left.in_arena != right.in_arena or (not left.in_arena and left.index != right.index):
        return False
    shift_a, shift_b = (left.offset, right.offset) if left.in_arena else (0, 0)
    return a[1] + shift_a < b[2] + shift_b and b[1] + shift_b < a[2] + shift_a


RULES: dict[str, Callable[[Plan], Iterator[str]]] = {
    "operand-bounds": _operand_bounds,
    "inputs-live": _inputs_live,
    "outputs-written": _outputs_written,
    "read-only": _read_only,
    "early": _early,
    "in-place": _in_place,
    "arena-bounds": _arena_bounds,
    "no-overlap": _no_overlap,
    "arena-tight": _arena_tight,
    "barriers": _barriers,
    "donations": _donations,
}
