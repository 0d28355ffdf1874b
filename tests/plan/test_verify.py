"""The plan's verifier: one seeded defect or more for every rule, each rejected by that rule's name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from volta.dtypes import float32
from volta.errors import VerifyError
from volta.ir.graph import GraphBuilder
from volta.plan import build as planner
from volta.plan import verify
from volta.plan.layout import View, contiguous_strides
from volta.plan.steps import ALIGNMENT, Memory, Plan, Step
from volta.runtime import gateway
from volta.runtime.policy import Policy

SIZE = 8
NBYTES = SIZE * SIZE * 4


def good() -> Plan:
    """Steps: 0 h = x w; 1 p = x x; 2 s = softmax(p); 3 s + c in place; 4 y = s h into the output; 5 check
    of x; 6, 7 its maximum; 8 the new state over the donated one, with a workspace.

    Temporaries live together; 0 and 1 have no barrier between them."""
    build = GraphBuilder()
    x = build.input("x", (SIZE, SIZE), float32)
    w = build.input("w", (SIZE, SIZE), float32, "parameter")
    state = build.input("state", (SIZE, SIZE), float32, "state")
    c = build.constant(np.ones((SIZE, SIZE), np.float32))
    h, p = build.add("matmul", (x, w)), build.add("matmul", (x, x))
    s = build.add("add", (build.add("softmax", (p,)), c))
    y = build.add("matmul", (s, h))
    checked = build.add("check_finite", (x,), {"names": ("x",)})
    new = build.add("sgd", (state, s, build.add("max", (checked,), {"axes": (0, 1), "keepdims": False})))
    graph = build.freeze([y, new], {1: state})
    return gateway.plan(graph, Policy(isa="ref", threads=2, passes=()))


def number(plan: Plan, memory: Memory, which: int = 0) -> int:
    return [buffer.index for buffer in plan.buffers if buffer.memory is memory][which]


def whole(buffer: int) -> View:
    return View(buffer, 0, (SIZE, SIZE), contiguous_strides((SIZE, SIZE)), float32)


def operand(step: Step, index: int, view: View) -> None:
    views = list(step.operands)
    views[index] = view
    step.operands = tuple(views)


def find(plan: Plan, kernel: str, which: int = 0) -> Step:
    return [step for step in plan.steps if step.kernel == kernel][which]


def beyond_the_end(plan: Plan) -> None:
    step = plan.steps[0]
    operand(step, 1, View(step.operands[1].buffer, 4, (SIZE, SIZE), (SIZE, 1), float32))


def before_the_start(plan: Plan) -> None:
    step = plan.steps[0]
    operand(step, 1, View(step.operands[1].buffer, 0, (SIZE, SIZE), (-SIZE, 1), float32))


def never_written(plan: Plan) -> None:
    del plan.steps[0]


def read_too_early(plan: Plan) -> None:
    plan.steps.insert(0, plan.steps.pop(2))


def output_left_out(plan: Plan) -> None:
    plan.steps = [step for step in plan.steps if step.operands[0].buffer != plan.outputs[0]]


def filled(plan: Plan, memory: Memory) -> None:
    plan.steps.insert(0, Step("fill", (whole(number(plan, memory)),), 1, plan.steps[0].node, floats=(0.0,)))


def writes_a_constant(plan: Plan) -> None:
    filled(plan, Memory.CONSTANT)


def writes_a_parameter(plan: Plan) -> None:
    filled(plan, Memory.PARAMETER)


def writes_an_input(plan: Plan) -> None:
    filled(plan, Memory.INPUT)


def a_matmul_over_its_operand(plan: Plan) -> None:
    step = plan.steps[0]
    operand(step, 1, step.operands[0])
    plan.steps.insert(0, Step("fill", (step.operands[0],), 1, step.node, floats=(0.0,)))


def a_chain_over_a_shifted_operand(plan: Plan) -> None:
    step = find(plan, "chain")
    out = step.operands[0]
    operand(step, 1, View(out.buffer, 0, (SIZE, SIZE), (1, SIZE), float32))


def two_outputs_in_one_place(plan: Plan) -> None:
    step = find(plan, "chain")
    step.operands = (step.operands[0], *step.operands)
    step.n_outputs = 2


def not_aligned(plan: Plan) -> None:
    top = max((b for b in plan.buffers if b.in_arena), key=lambda b: b.offset)
    top.offset += 4
    plan.arena_bytes += 4


def outside_the_arena(plan: Plan) -> None:
    top = max((b for b in plan.buffers if b.in_arena), key=lambda b: b.offset)
    top.offset += ALIGNMENT


def below_the_arena(plan: Plan) -> None:
    next(b for b in plan.buffers if b.in_arena and b.offset == 0).offset = -ALIGNMENT


def on_top_of_another(plan: Plan) -> None:
    h, p = (plan.steps[index].operands[0].buffer for index in (0, 1))
    low, high = sorted((plan.buffers[h], plan.buffers[p]), key=lambda b: b.offset)
    high.offset = low.offset
    plan.steps[1].barrier = True
    ends = [b.offset + b.nbytes for b in plan.buffers if b.in_arena and b.first >= 0]
    plan.arena_bytes = max(ends)


def an_arena_too_large(plan: Plan) -> None:
    plan.arena_bytes += ALIGNMENT


def read_after_write(plan: Plan) -> None:
    find(plan, "softmax").barrier = False


def write_after_read(plan: Plan) -> None:
    """The state is read by one step and then written by the next."""
    step = find(plan, "chain", 1)
    step.barrier = True
    reader = Step(
        "copy", (whole(number(plan, Memory.OUTPUT)), whole(number(plan, Memory.STATE))), 1, step.node
    )
    plan.steps.insert(plan.steps.index(step), reader)
    step.barrier = False


def a_check_not_waited_for(plan: Plan) -> None:
    """Nothing is written; but who uses the checked value must know that it passed."""
    check = find(plan, "check_finite")
    plan.steps[plan.steps.index(check) + 1].barrier = False


def donated_elsewhere(plan: Plan) -> None:
    plan.outputs = (plan.outputs[0], plan.outputs[0])


def made_once_in_memory_that_is_used_again(plan: Plan) -> None:
    plan.early = 1


def made_once_over_an_output(plan: Plan) -> None:
    plan.early = len(plan.steps)


DEFECTS: dict[str, tuple[Callable[[Plan], None], ...]] = {
    "operand-bounds": (beyond_the_end, before_the_start),
    "inputs-live": (never_written, read_too_early),
    "outputs-written": (output_left_out,),
    "read-only": (writes_a_constant, writes_a_parameter, writes_an_input),
    "early": (made_once_in_memory_that_is_used_again, made_once_over_an_output),
    "in-place": (a_matmul_over_its_operand, a_chain_over_a_shifted_operand, two_outputs_in_one_place),
    "arena-bounds": (not_aligned, outside_the_arena, below_the_arena),
    "no-overlap": (on_top_of_another,),
    "arena-tight": (an_arena_too_large,),
    "barriers": (read_after_write, write_after_read, a_check_not_waited_for),
    "donations": (donated_elsewhere,),
}


def test_the_plan_without_a_defect_is_accepted() -> None:
    plan = good()
    assert list(verify.findings(plan)) == []
    verify.verify(plan)
    assert not plan.steps[1].barrier, "the case needs two steps without a barrier between them"


def test_every_rule_has_a_defect() -> None:
    assert set(DEFECTS) == set(verify.RULES)


@pytest.mark.parametrize(
    ("rule", "defect"),
    [(rule, defect) for rule, defects in DEFECTS.items() for defect in defects],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_a_defect_is_rejected_by_the_name_of_its_rule(rule: str, defect: Callable[[Plan], None]) -> None:
    plan = good()
    defect(plan)
    with pytest.raises(VerifyError) as caught:
        verify.verify(plan)
    assert caught.value.rule == rule, str(caught.value)
    assert str(caught.value).startswith(f"[{rule}] ")


def test_findings_lists_all_breaches_and_verify_names_the_first() -> None:
    plan = good()
    an_arena_too_large(plan)
    donated_elsewhere(plan)
    assert [rule for rule, _ in verify.findings(plan)] == ["arena-tight", "donations"]
    with pytest.raises(VerifyError, match=r"\[arena-tight\] the arena has \d+ bytes, its buffers end at \d+"):
        verify.verify(plan)


def test_messages_name_the_step_and_the_buffer() -> None:
    plan = good()
    del plan.steps[0]
    (message, *_) = [message for rule, message in verify.findings(plan) if rule == "inputs-live"]
    assert message == "step 3 matmul reads %4 matmul before anything writes it"


def test_every_plan_is_verified_before_it_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not behind a flag: a planner that forgets its barriers is caught on the way to the backend."""
    monkeypatch.setattr(
        planner, "barriers", lambda steps, buffers: [setattr(s, "barrier", False) for s in steps]
    )
    build = GraphBuilder()
    x = build.input("x", (SIZE, SIZE), float32)
    graph = build.freeze([build.add("softmax", (build.add("matmul", (x, x)),))])
    with pytest.raises(VerifyError, match=r"\[barriers\] steps 0 matmul and 1 softmax need a barrier"):
        gateway.compile(graph, Policy(isa="ref", threads=1))
