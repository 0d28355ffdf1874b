"""The planner over random graphs: what it claims is derived here once more, from the steps alone.

Nothing here uses volta.plan.verify: liveness and overlap are found by a shadow of the memory that knows,
byte by byte, which buffer wrote it last.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import assert_same_bits, isas
from tests.plan.hazards import HEADS, contested
from tests.plan.running import PLAIN, bytes_of, run, run_plan, without_donations
from tests.property.graphs import arguments, graphs

import volta as vt
from volta.backends.null import NullTarget
from volta.dtypes import float32
from volta.errors import VerifyError
from volta.ir.graph import Graph, GraphBuilder, Node
from volta.model.config import Config
from volta.model.transformer import tinylm
from volta.plan import lower, verify
from volta.plan.build import build
from volta.plan.steps import Buffer, Memory, Plan, Step
from volta.runtime import gateway
from volta.runtime.policy import Policy
from volta.train.optim import Optimizer
from volta.train.step import training_step

Bytes = npt.NDArray[np.int64]

BOUND = (Memory.INPUT, Memory.PARAMETER, Memory.STATE, Memory.CONSTANT)
REWRITTEN = ("cache_update", "mark_seen")  # their output is also what they read
POLICIES = (PLAIN, Policy(threads=2), Policy(threads=1, passes=("fuse",)))

any_graph = graphs(max_steps=12, fused=True, donations=True) | contested()
many = settings(max_examples=150, deadline=None, derandomize=True)


# --- the shadow --------------------------------------------------------------------------------------


@dataclasses.dataclass
class Touch:
    """The bytes that one operand of a step touches, as places in one number line of all memory."""

    buffer: int
    places: Bytes
    reads: bool
    writes: bool


class Shadow:
    """All memory as one line of bytes: the arena first, then every bound buffer."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.base: dict[int, int] = {}
        end = plan.arena_bytes
        for buffer in plan.buffers:
            self.base[buffer.index] = buffer.offset if buffer.in_arena else end
            end += 0 if buffer.in_arena else buffer.nbytes
        self.owner = np.full(end, -1, np.int64)
        for buffer in plan.buffers:
            if buffer.memory in BOUND:
                self.owner[self.all_of(buffer)] = buffer.index

    def all_of(self, buffer: Buffer) -> Bytes:
        return self.base[buffer.index] + np.arange(buffer.nbytes)

    def touches(self, step: Step) -> Iterator[Touch]:
        for index, view in enumerate(step.operands):
            places = self.base[view.buffer] + bytes_of(view)
            written = index < step.n_outputs
            yield Touch(view.buffer, places, not written or step.kernel in REWRITTEN, written)
        if step.workspace is not None:
            yield Touch(step.workspace, self.all_of(self.plan.buffers[step.workspace]), False, True)


def assert_every_read_finds_its_value(plan: Plan) -> None:
    """Each byte read was written through the same buffer, and by nothing else since."""
    shadow = Shadow(plan)
    for index, step in enumerate(plan.steps):
        touches = list(shadow.touches(step))
        for touch in touches:
            if touch.reads:
                assert (shadow.owner[touch.places] == touch.buffer).all(), f"step {index} {step.kernel} reads"
        for touch in touches:
            if touch.writes:
                shadow.owner[touch.places] = touch.buffer
        assert_operands_are_apart(index, step, touches)
    for number in plan.outputs:
        assert (shadow.owner[shadow.all_of(plan.buffers[number])] == number).all(), "an output is not whole"


def assert_operands_are_apart(index: int, step: Step, touches: list[Touch]) -> None:
    """What a step writes shares no byte with its other operands, except element by element in a chain."""
    for position, touch in enumerate(touches):
        for other in touches[position + 1 :]:
            if not touch.writes and not other.writes:
                continue
            in_place = step.kernel == "chain" and other.reads and np.array_equal(touch.places, other.places)
            assert in_place or not np.intersect1d(touch.places, other.places).size, (
                f"step {index} {step.kernel}"
            )


def runs_between_barriers(plan: Plan) -> Iterator[list[int]]:
    """Positions of steps that no barrier separates."""
    group: list[int] = []
    for index, step in enumerate(plan.steps):
        if step.barrier and group:
            yield group
            group = []
        group.append(index)
    yield group


def assert_steps_without_barrier_are_independent(plan: Plan) -> None:
    shadow = Shadow(plan)
    for group in runs_between_barriers(plan):
        written, touched = np.zeros((2, shadow.owner.size), bool)
        for index in group:
            touches = list(shadow.touches(plan.steps[index]))
            check = plan.steps[index].kernel == "check_finite"  # nobody may go on before it has passed
            for touch in touches:
                assert not written[touch.places].any(), f"step {index} needs a barrier"
                assert not (touch.writes or check) or not touched[touch.places].any(), (
                    f"step {index} needs one"
                )
            for touch in touches:
                touched[touch.places] = True
                written[touch.places] |= touch.writes or check


def spans(plan: Plan) -> dict[int, tuple[int, int]]:
    """The first and the last step that touch each buffer."""
    found: dict[int, tuple[int, int]] = {}
    for index, step in enumerate(plan.steps):
        for number in [view.buffer for view in step.operands] + [step.workspace]:
            if number is not None:
                found[number] = (found.get(number, (index, index))[0], index)
    return found


def live_bytes(plan: Plan) -> list[int]:
    """Per step the bytes of the arena buffers that must exist."""
    needed = [0] * len(plan.steps)
    for number, (first, last) in spans(plan).items():
        if plan.buffers[number].in_arena:
            for index in range(first, last + 1):
                needed[index] += plan.buffers[number].nbytes
    return needed


# --- over random graphs ------------------------------------------------------------------------------


@many
@given(any_graph, st.sampled_from(POLICIES))
def test_every_read_finds_what_was_written_and_nothing_overlaps(graph: Graph, policy: Policy) -> None:
    plan = gateway.plan(graph, policy)
    assert_every_read_finds_its_value(plan)
    assert_steps_without_barrier_are_independent(plan)
    assert list(verify.findings(plan)) == []


@many
@given(any_graph, st.sampled_from(POLICIES))
def test_lifetimes_the_arena_and_the_peak_are_exact(graph: Graph, policy: Policy) -> None:
    plan = gateway.plan(graph, policy)
    found = spans(plan)
    for buffer in plan.buffers:
        assert (buffer.first, buffer.last) == found.get(buffer.index, (-1, -1))
    used = [plan.buffers[number] for number in found if plan.buffers[number].in_arena]
    assert plan.arena_bytes == max(
        (buffer.offset + buffer.nbytes for buffer in used if buffer.nbytes), default=0
    )
    assert plan.arena_bytes >= max(live_bytes(plan), default=0)
    bound = sum(buffer.nbytes for buffer in plan.buffers if not buffer.in_arena)
    assert plan.peak_bytes == bound + plan.arena_bytes == sum(plan.bytes_by_memory().values())
    assert bound >= sum(node.type.nbytes for node in graph.inputs)


@many
@given(any_graph, st.integers(0, 3))
def test_the_plan_gives_the_bits_of_the_plainest_plan(graph: Graph, seed: int) -> None:
    """Fused, in place, donated, on any instruction set, with threads = node by node by the reference."""
    expected = run(without_donations(graph), arguments(graph, seed), PLAIN)
    chosen = isas()[seed % len(isas())]
    for policy in (Policy(isa=isas()[-1], threads=2), Policy(isa=chosen, threads=1 + seed)):
        given_arrays = arguments(graph, seed)
        kept = [array.copy() for array in given_arrays]
        outputs = run(graph, given_arrays, policy)
        for index, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
            assert_same_bits(output, wanted, f"output {index}")
        for node, array, before in zip(graph.inputs, given_arrays, kept, strict=True):
            if node not in graph.donations.values():
                assert_same_bits(array, before, f"{node.attrs['name']}, which was not donated")
        for output, node in graph.donations.items():
            assert outputs[output] is given_arrays[graph.inputs.index(node)]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_graph, st.randoms(use_true_random=False))
def test_steps_between_two_barriers_may_run_in_any_order(graph: Graph, random: Any) -> None:
    policy = Policy(isa="ref", threads=1)
    backend = gateway.resolve(policy)
    plan = gateway.plan(graph, policy)
    expected = run_plan(plan, arguments(graph), backend)
    shuffled: list[Step] = []
    for group in runs_between_barriers(plan):
        random.shuffle(group)
        for position, index in enumerate(group):
            shuffled.append(dataclasses.replace(plan.steps[index], barrier=position == 0))
    outputs = run_plan(dataclasses.replace(plan, steps=shuffled), arguments(graph), backend)
    for output, wanted in zip(outputs, expected, strict=True):
        assert_same_bits(output, wanted)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_graph)
def test_the_measured_arena_is_the_planned_one(graph: Graph) -> None:
    executable = gateway.compile(graph, Policy(threads=2))
    executable.run(arguments(graph))
    assert executable.program.measured_arena_bytes == executable.plan.arena_bytes


@settings(max_examples=40, deadline=None, derandomize=True)
@given(any_graph)
def test_the_same_graph_gives_the_same_plan(graph: Graph) -> None:
    policy = Policy(isa="ref", threads=2)
    one, other = gateway.plan(graph, policy), gateway.plan(graph, policy)
    assert one.fingerprint == other.fingerprint
    assert [(b.name, b.memory, b.nbytes, b.offset) for b in one.buffers] == [
        (b.name, b.memory, b.nbytes, b.offset) for b in other.buffers
    ]
    assert [(s.kernel, s.operands, s.code, s.barrier) for s in one.steps] == [
        (s.kernel, s.operands, s.code, s.barrier) for s in other.steps
    ]


@pytest.mark.parametrize(
    "config",
    [
        Config(vocabulary=12, context=6, depth=1, width=8, heads=2, kv_heads=2, dropout=0.1),
        Config(vocabulary=12, context=6, depth=1, width=8, heads=2, kv_heads=1, norm="rms", activation="silu",
               positions="rotary", tied=False),
    ],
    ids=["gpt", "llama"],
)  # fmt: skip
@pytest.mark.parametrize("passes", [None, ()], ids=["fused", "plain"])
def test_the_plan_of_a_training_step_holds_too(config: Config, passes: tuple[str, ...] | None) -> None:
    """Forward, backward, clip and optimizer in one plan, parameters and state updated where they lie."""
    model, optimizer = tinylm(config), Optimizer()
    parameters = model.init(1)
    tokens = vt.zeros((2, 1, 6), "i32")
    step = training_step(model, optimizer, shards=2, dropout=config.dropout > 0)
    with vt.runtime(threads=2, passes=passes):
        executable = step.lower(
            parameters, optimizer.init(parameters), tokens, tokens, vt.asarray(0.1), vt.random_key(1)
        )
    plan = executable.plan
    assert_every_read_finds_its_value(plan)
    assert_steps_without_barrier_are_independent(plan)
    moved = [
        s for s in plan.steps if s.kernel == "copy" and plan.buffers[s.operands[0].buffer].memory in BOUND
    ]
    assert not moved, "every parameter is updated in place"


# --- small plans, known in full ----------------------------------------------------------------------


def matrices(count: int, size: int = 8) -> tuple[GraphBuilder, list[Node]]:
    builder = GraphBuilder()
    return builder, [builder.input(f"x{i}", (size, size), float32) for i in range(count)]


def plain(graph: Graph) -> Plan:
    return gateway.plan(graph, PLAIN)


def kernels(plan: Plan) -> list[str]:
    return [step.kernel for step in plan.steps]


def test_a_row_of_products_needs_two_matrices_of_arena() -> None:
    builder, (a,) = matrices(1)
    value = a
    for _ in range(6):
        value = builder.add("matmul", (value, a))
    plan = plain(builder.freeze([value]))
    temporaries = [buffer.nbytes for buffer in plan.buffers if buffer.memory is Memory.TEMPORARY]
    assert temporaries == [256] * 5
    assert plan.arena_bytes == 2 * 256


def test_elementwise_work_on_a_dying_value_is_done_in_place() -> None:
    builder, (a,) = matrices(1)
    product = builder.add("matmul", (a, a))
    value = builder.add("neg", (builder.add("exp", (product,)),))
    plan = plain(builder.freeze([builder.add("matmul", (value, value))]))
    assert kernels(plan) == ["matmul", "chain", "chain", "matmul"]
    assert plan.steps[1].operands[0].same_place(plan.steps[1].operands[1])
    assert plan.arena_bytes == 256 + sum(b.nbytes for b in plan.buffers if b.memory is Memory.WORKSPACE)


def test_a_value_that_is_read_later_is_not_worked_on_in_place() -> None:
    builder, (a,) = matrices(1)
    product = builder.add("matmul", (a, a))
    first = builder.add("neg", (product,))
    plan = plain(builder.freeze([builder.add("matmul", (first, product))]))
    assert plan.steps[1].operands[0].buffer != plan.steps[1].operands[1].buffer


def test_views_cost_no_step() -> None:
    builder, (a,) = matrices(1)
    turned = builder.add("transpose", (a,), {"axes": (1, 0)})
    part = builder.add("slice", (turned,), {"start": (0, 1), "stop": (8, 5), "step": (1, 2)})
    plan = plain(builder.freeze([builder.add("sum", (part,), {"axes": (1,), "keepdims": False})]))
    assert kernels(plan) == ["reduce"]
    assert plan.arena_bytes == 0


def test_a_value_that_a_kernel_wants_packed_is_packed_once() -> None:
    builder, (a,) = matrices(1)
    turned = builder.add("transpose", (a,), {"axes": (1, 0)})
    one, other = (builder.add("softmax", (turned,)) for _ in range(2))
    assert kernels(plain(builder.freeze([one, other]))) == ["copy", "softmax", "softmax"]


def test_independent_steps_need_no_barrier_and_dependent_ones_do() -> None:
    builder, (a, b) = matrices(2)
    one, other = builder.add("matmul", (a, a)), builder.add("matmul", (b, b))
    plan = plain(builder.freeze([one, other, builder.add("matmul", (one, other))]))
    assert kernels(plan)[:3] == ["matmul", "matmul", "matmul"]
    assert [step.barrier for step in plan.steps[:3]] == [False, False, True]


def test_a_batch_against_one_matrix_is_one_matmul_of_all_rows() -> None:
    builder = GraphBuilder()
    x, w = builder.input("x", (3, 4, 5), float32), builder.input("w", (5, 2), float32)
    (step,) = plain(builder.freeze([builder.add("matmul", (x, w))])).steps
    assert [view.shape for view in step.operands] == [(12, 2), (12, 5), (5, 2)]


def test_an_epilogue_keeps_the_product_until_its_last_reader() -> None:
    """Two results: the first one takes the product's memory, the second one still needs the product."""
    builder, (a,) = matrices(1)
    product = builder.add("matmul", (a, a))
    shifted = builder.add("add", (product, a))
    graph = builder.freeze([shifted, builder.add("mul", (shifted, product))])
    (step,) = gateway.plan(graph, Policy(isa="ref", threads=1)).steps
    assert (step.kernel, step.n_outputs, len(step.operands)) == ("matmul", 2, 5)
    assert_plainly_right(graph)


def test_a_chain_reads_each_place_once() -> None:
    builder, (a,) = matrices(1)
    checked = builder.add("check_finite", (a,), {"names": ("a",)})
    graph = builder.freeze([builder.add("mul", (builder.add("exp", (a,)), checked))])
    (chain,) = (s for s in gateway.plan(graph, Policy(isa="ref", threads=1)).steps if s.kernel == "chain")
    assert len(chain.operands) == 2
    assert_plainly_right(graph)


def test_sums_are_computed_where_a_concatenation_joins_them() -> None:
    builder, (a,) = matrices(1)
    attrs = {"axes": (0,), "keepdims": True}
    parts = [builder.add(op, (a,), attrs) for op in ("sum", "max")]
    plan = plain(builder.freeze([builder.add("concat", parts, {"axis": 0})]))
    assert kernels(plan) == ["reduce", "reduce"]


def rotated(builder: GraphBuilder, x: Node) -> Node:
    table, at = builder.constant(np.ones((4, 2), np.float32)), builder.constant(np.zeros(1, np.int32))
    return builder.add("rotary", (x, table, table, at), {"inverse": False})


def assert_plainly_right(graph: Graph) -> Plan:
    """Node by node, without passes, the plan gives what the passes' plan gives."""
    plan = plain(graph)
    assert_every_read_finds_its_value(plan)
    for output, wanted in zip(run(graph, arguments(graph), PLAIN), run(graph, arguments(graph)), strict=True):
        assert_same_bits(output, wanted)
    return plan


def test_a_joined_value_is_not_worked_on_in_place_while_its_parts_are_read() -> None:
    """relu(join) is the last to read the join, but its first part, which lies in it, is read after that."""
    builder = GraphBuilder()
    x = builder.input("x", HEADS, float32)
    first, second = rotated(builder, x), rotated(builder, builder.add("neg", (x,)))
    join = builder.add("concat", (first, second), {"axis": 1})
    changed = builder.add("neg", (join,))
    total = builder.add("sum", (changed,), {"axes": (0, 1, 2, 3), "keepdims": False})
    plan = assert_plainly_right(builder.freeze([total, builder.add("exp", (first,))]))
    assert "copy" not in kernels(plan), "the parts are computed where they are joined"


def test_a_part_that_is_its_whole_join_is_not_worked_on_in_place_while_the_join_is_read() -> None:
    builder = GraphBuilder()
    x = builder.input("x", HEADS, float32)
    part = rotated(builder, x)
    join = builder.add("concat", (part,), {"axis": 0})
    changed = builder.add("neg", (part,))
    total = builder.add("sum", (changed,), {"axes": (0, 1, 2, 3), "keepdims": False})
    assert_plainly_right(builder.freeze([total, builder.add("exp", (join,))]))


def test_a_piece_of_a_result_is_copied_into_its_join() -> None:
    """Only whole results can be computed where they are joined."""
    builder = GraphBuilder()
    x = builder.input("x", HEADS, float32)
    low, high = builder.results("split", (rotated(builder, x),), {"sizes": (1, 1), "axis": 2})
    plan = assert_plainly_right(builder.freeze([builder.add("concat", (high, low), {"axis": 2})]))
    assert kernels(plan) == ["rotary", "copy", "copy"]


def test_a_part_seen_through_axes_of_length_one_lies_in_its_place() -> None:
    builder, (a,) = matrices(1)
    attrs = {"axes": (0,), "keepdims": False}
    parts = [
        builder.add("reshape", (builder.add(op, (a,), attrs),), {"shape": (1, 1, 8)}) for op in ("sum", "max")
    ]
    plan = assert_plainly_right(builder.freeze([builder.add("concat", parts, {"axis": 1})]))
    assert kernels(plan) == ["reduce", "reduce"]


def test_a_value_joined_twice_is_computed_once() -> None:
    builder, (a,) = matrices(1)
    total = builder.add("sum", (a,), {"axes": (0,), "keepdims": True})
    joins = [builder.add("concat", (total, total), {"axis": axis}) for axis in (0, 1)]
    plan = assert_plainly_right(builder.freeze([*joins, total]))
    assert sorted(kernels(plan)) == ["copy"] * 4 + ["reduce"]


def test_a_value_read_in_two_orders_is_not_worked_on_in_place() -> None:
    """h + h transposed: writing h in place would change what the other view still shows."""
    builder, (a,) = matrices(1)
    product = builder.add("matmul", (a, a))
    total = builder.add("add", (product, builder.add("transpose", (product,), {"axes": (1, 0)})))
    assert_plainly_right(builder.freeze([builder.add("softmax", (total,))]))


def test_a_value_that_an_output_shows_is_not_worked_on_in_place() -> None:
    """The output is a transposed view, copied out at the end: after `neg`, the last to read the value."""
    builder, (a,) = matrices(1)
    product = builder.add("matmul", (a, a))
    changed = builder.add("neg", (product,))
    soft = builder.add("softmax", (changed,))
    assert_plainly_right(builder.freeze([builder.add("transpose", (product,), {"axes": (1, 0)}), soft]))


def test_an_empty_value_costs_nothing_and_breaks_nothing() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (0, 3), float32)
    y = builder.add("exp", (x,))
    graph = builder.freeze([y, builder.add("sum", (y,), {"axes": (0, 1), "keepdims": False})])
    plan = gateway.plan(graph, PLAIN)
    assert (plan.arena_bytes, plan.peak_bytes) == (0, 4)
    empty, total = run(graph, [np.empty((0, 3), np.float32)])
    assert (empty.shape, total.item()) == ((0, 3), 0.0)


def test_bytes_are_counted_by_who_owns_them() -> None:
    builder = GraphBuilder()
    x = builder.input("x", (4,), float32)
    w = builder.input("w", (4,), float32, "parameter")
    s = builder.input("s", (4,), float32, "state")
    c = builder.constant(np.arange(4, dtype=np.float32))
    y = builder.add("add", (builder.add("mul", (x, w)), builder.add("mul", (s, c))))
    plan = plain(builder.freeze([y]))
    assert plan.bytes_by_memory() == {
        "input": 16, "parameter": 16, "state": 16, "constant": 16,
        "persistent": 0, "temporary": plan.arena_bytes, "output": 16,
    }  # fmt: skip


def test_an_operation_without_a_rule_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    builder, (a,) = matrices(1)
    graph = builder.freeze([builder.add("softmax", (a,))])
    monkeypatch.setattr(lower, "ROWS", {})
    with pytest.raises(VerifyError, match=r"\[lowerable\] %1 softmax has no kernel"):
        plain(graph)


def test_a_buffer_belongs_to_the_arena_by_its_class() -> None:
    assert [memory for memory in Memory if Buffer(0, "b", memory, 4).in_arena] == [
        Memory.TEMPORARY,
        Memory.WORKSPACE,
    ]


def test_a_target_without_workspace_gets_none() -> None:
    builder, (a,) = matrices(1)
    graph = builder.freeze([builder.add("exp", (builder.add("exp", (builder.add("matmul", (a, a)),)),))])
    plan = build(graph, NullTarget())
    assert kernels(plan) == ["matmul", "chain", "chain"]
    assert all(buffer.memory is not Memory.WORKSPACE for buffer in plan.buffers)
