"""Donation: an output takes over an input's memory, and no value changes by it.

Every case runs without donations on the plainest plan, then with them: outputs and the inputs that were
not donated must keep every bit, and a donated output must be the very array that was donated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import assert_same_bits
from tests.plan.hazards import HEADS
from tests.plan.running import PLAIN, run, without_donations
from tests.property.graphs import arguments

from volta.dtypes import float32, int32
from volta.errors import UsageError
from volta.ir.graph import Graph, GraphBuilder, Node
from volta.runtime import gateway
from volta.runtime.policy import Policy

Array = npt.NDArray[Any]
Build = GraphBuilder
Made = tuple[Sequence[Node], dict[int, Node]]

SHAPE = (3, 5)
POLICIES = (PLAIN, Policy(threads=2), Policy(threads=1, passes=("fuse",)))


def pair(build: Build) -> tuple[Node, Node]:
    return build.input("a", SHAPE, float32, "state"), build.input("b", SHAPE, float32, "state")


def copy_of(build: Build, node: Node) -> Node:
    """A value of its own with the same elements: an input donated elsewhere may not be returned."""
    return build.add("reshape", (node,), {"shape": node.shape})


def updated(build: Build) -> Made:
    a, b = pair(build)
    return [build.add("add", (a, b))], {0: a}


def both_updated(build: Build) -> Made:
    a, b = pair(build)
    return [build.add("add", (a, b)), build.add("mul", (a, b))], {0: a, 1: b}


def crossed(build: Build) -> Made:
    """Each output takes the memory of the input that the other one needs."""
    a, b = pair(build)
    return [build.add("neg", (b,)), build.add("exp", (a,))], {0: a, 1: b}


def swapped(build: Build) -> Made:
    a, b = pair(build)
    return [copy_of(build, b), copy_of(build, a)], {0: a, 1: b}


def rotated(build: Build) -> Made:
    """a to b, b to c, c to a."""
    a, b = pair(build)
    c = build.input("c", SHAPE, float32, "state")
    return [copy_of(build, node) for node in (b, c, a)], {0: a, 1: b, 2: c}


def read_later(build: Build) -> Made:
    """The old value is still needed after the new one is known."""
    a, _b = pair(build)
    new = build.add("neg", (a,))
    row = build.add("max", (new,), {"axes": (1,), "keepdims": True})
    return [new, build.add("sub", (a, row))], {0: a}


def read_later_through_a_view(build: Build) -> Made:
    a, _ = pair(build)
    turned = build.add("transpose", (a,), {"axes": (1, 0)})
    new = build.add("neg", (a,))
    return [new, build.add("softmax", (turned,))], {0: a}


def returned_unchanged(build: Build) -> Made:
    a, b = pair(build)
    return [a, build.add("neg", (b,))], {0: a}


def returned_and_returned_again(build: Build) -> Made:
    a, _ = pair(build)
    return [a, copy_of(build, a), build.add("neg", (a,))], {0: a}


def one_value_twice(build: Build) -> Made:
    a, b = pair(build)
    total = build.add("add", (a, b))
    return [total, total, total], {0: a, 2: b}


def an_input_moved(build: Build) -> Made:
    """b, which stays, is also what a becomes."""
    a, b = pair(build)
    return [b], {0: a}


def a_view(build: Build) -> Made:
    """The transposed matrix takes the matrix's memory."""
    a = build.input("a", (4, 4), float32, "state")
    return [build.add("transpose", (a,), {"axes": (1, 0)})], {0: a}


def a_view_of_the_other(build: Build) -> Made:
    a, b = (build.input(name, (4, 4), float32, "state") for name in "ab")
    turned = [build.add("transpose", (node,), {"axes": (1, 0)}) for node in (b, a)]
    return turned, {0: a, 1: b}


def a_reshape(build: Build) -> Made:
    a = build.input("a", (2, 6), float32, "state")
    flat = build.add("reshape", (build.add("neg", (a,)),), {"shape": (12,)})
    return [build.add("reshape", (flat,), {"shape": (2, 6)})], {0: a}


def a_constant(build: Build) -> Made:
    a, _ = pair(build)
    return [build.constant(np.arange(15, dtype=np.float32).reshape(SHAPE))], {0: a}


def a_broadcast(build: Build) -> Made:
    a, b = pair(build)
    row = build.add("max", (b,), {"axes": (0,), "keepdims": True})
    return [build.add("broadcast_to", (row,), {"shape": SHAPE})], {0: a}


def a_product_of_itself(build: Build) -> Made:
    """A matmul reads everything for each element: it must not write over its operand."""
    a = build.input("a", (4, 4), float32, "state")
    return [build.add("matmul", (a, a))], {0: a}


def a_product_with_an_epilogue(build: Build) -> Made:
    a = build.input("a", (4, 4), float32, "state")
    product = build.add("matmul", (a, a))
    return [build.add("add", (build.add("exp", (product,)), a))], {0: a}


def a_softmax(build: Build) -> Made:
    a, _ = pair(build)
    return [build.add("softmax", (a,))], {0: a}


def an_update_with_a_broadcast_of_itself(build: Build) -> Made:
    """Row 0 of the old value is added to every row of the new one."""
    a, _ = pair(build)
    row = build.add("slice", (a,), {"start": (0, 0), "stop": (1, 5), "step": (1, 1)})
    return [build.add("add", (build.add("neg", (a,)), row))], {0: a}


def a_momentum_step(build: Build) -> Made:
    """The new buffer is an output and is read by the next update: both in place."""
    w, buffer = pair(build)
    g = build.input("g", SHAPE, float32)
    rate = build.input("rate", (), float32)
    new = build.add("momentum", (buffer, g), {"mu": 0.9})
    return [build.add("sgd", (w, new, rate)), new], {0: w, 1: buffer}


def checked(build: Build) -> Made:
    """The check comes after the update in the graph and must still see the old value."""
    a, _b = pair(build)
    new = build.add("mul", (a, build.constant(np.array(np.inf, np.float32))))
    return [new, build.add("neg", (build.add("check_finite", (a,), {"names": ("a",)}),))], {0: a}


def checked_for_nobody(build: Build) -> Made:
    """Without passes a check that nobody reads runs too, and must still see the old value."""
    a, _ = pair(build)
    new = build.add("mul", (a, build.constant(np.array(np.inf, np.float32))))
    build.add("check_finite", (a,), {"names": ("a",)})
    return [new], {0: a}


def a_cache(build: Build) -> Made:
    cache = build.input("cache", HEADS, float32, "state")
    row = build.input("row", (1, 2, 1, 4), float32)
    at = build.constant(np.array([1], np.int32))
    return [build.add("cache_update", (cache, row, at))], {0: cache}


def a_cache_of_its_own_rows(build: Build) -> Made:
    """The new row is the other row of the cache itself."""
    cache = build.input("cache", HEADS, float32, "state")
    part = {"start": (0, 0, 0, 0), "stop": (1, 2, 1, 4), "step": (1, 1, 1, 1)}
    row = build.add("slice", (cache,), part)
    at = build.constant(np.array([1], np.int32))
    return [build.add("cache_update", (cache, row, at))], {0: cache}


def a_cache_in_another_place(build: Build) -> Made:
    cache, other = (build.input(name, HEADS, float32, "state") for name in ("cache", "other"))
    row = build.add("slice", (other,), {"start": (0, 0, 0, 0), "stop": (1, 2, 1, 4), "step": (1, 1, 1, 1)})
    at = build.constant(np.array([0], np.int32))
    return [build.add("cache_update", (cache, row, at))], {0: other}


def marks(build: Build) -> Made:
    seen = build.input("seen", (2, 6), int32, "state")
    tokens = build.add("slice", (seen,), {"start": (0, 1), "stop": (2, 3), "step": (1, 1)})
    lengths = build.constant(np.array([1, 2], np.int32))
    return [build.add("mark_seen", (seen, tokens, lengths))], {0: seen}


def joined(build: Build) -> Made:
    """Sums are computed where a concatenation joins them; here that would be memory still to be read."""
    a = build.input("a", (2, 5), float32, "state")
    attrs = {"axes": (0,), "keepdims": True}
    total = build.add("sum", (a,), attrs)
    largest = build.add("max", (build.add("exp", (a,)),), attrs)
    return [build.add("concat", (total, largest), {"axis": 0})], {0: a}


def empty(build: Build) -> Made:
    a = build.input("a", (0, 3), float32, "state")
    return [build.add("exp", (a,))], {0: a}


def a_number(build: Build) -> Made:
    a, b = (build.input(name, (), float32, "state") for name in "ab")
    return [build.add("add", (a, b)), copy_of(build, a)], {0: b, 1: a}


CASES: tuple[Callable[[Build], Made], ...] = (
    updated,
    both_updated,
    crossed,
    swapped,
    rotated,
    read_later,
    read_later_through_a_view,
    returned_unchanged,
    returned_and_returned_again,
    one_value_twice,
    an_input_moved,
    a_view,
    a_view_of_the_other,
    a_reshape,
    a_constant,
    a_broadcast,
    a_product_of_itself,
    a_product_with_an_epilogue,
    a_softmax,
    an_update_with_a_broadcast_of_itself,
    a_momentum_step,
    checked,
    checked_for_nobody,
    a_cache,
    a_cache_of_its_own_rows,
    a_cache_in_another_place,
    marks,
    joined,
    empty,
    a_number,
)


def graph_of(case: Callable[[Build], Made]) -> Graph:
    build = GraphBuilder()
    outputs, donations = case(build)
    return build.freeze(outputs, donations)


@pytest.mark.parametrize("policy", POLICIES, ids=["plain", "default", "fuse"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_donation_moves_memory_and_changes_no_value(case: Callable[[Build], Made], policy: Policy) -> None:
    graph = graph_of(case)
    expected = run(without_donations(graph), arguments(graph, 1), PLAIN)
    given = arguments(graph, 1)
    kept = [array.copy() for array in given]
    outputs = run(graph, given, policy)
    for index, (output, wanted) in enumerate(zip(outputs, expected, strict=True)):
        assert_same_bits(output, wanted, f"output {index}")
    for output, node in graph.donations.items():
        assert outputs[output] is given[graph.inputs.index(node)]
    for node, array, before in zip(graph.inputs, given, kept, strict=True):
        if node not in graph.donations.values():
            assert_same_bits(array, before, str(node.attrs["name"]))


@pytest.mark.parametrize(
    "case", [c for c in CASES if c not in (checked, checked_for_nobody)], ids=lambda case: case.__name__
)
def test_a_bound_program_carries_donated_state_from_run_to_run(case: Callable[[Build], Made]) -> None:
    """Three runs of one session = three separate runs, each on the state that the last one left."""
    graph = graph_of(case)
    session = gateway.compile(graph).bind(arguments(graph, 2))
    inputs = arguments(graph, 2)
    for _ in range(3):
        session.run()
        expected = run(without_donations(graph), inputs, PLAIN)
        for output, wanted in zip(session.outputs, expected, strict=True):
            assert_same_bits(output, wanted)
        for output, node in graph.donations.items():
            inputs[graph.inputs.index(node)] = expected[output].copy()
            assert session.outputs[output] is session.inputs[graph.inputs.index(node)]


def steps_of(case: Callable[[Build], Made]) -> list[str]:
    return [step.kernel for step in gateway.plan(graph_of(case), PLAIN).steps]


def test_what_can_be_done_in_place_costs_no_copy() -> None:
    assert steps_of(updated) == ["chain"]
    assert steps_of(a_momentum_step) == ["chain", "chain"]
    assert steps_of(a_cache) == ["cache_update"]
    assert steps_of(returned_unchanged) == ["chain"]
    assert steps_of(a_reshape) == ["chain"]


def test_what_cannot_costs_one_copy_per_value_that_must_move() -> None:
    assert steps_of(a_softmax) == ["softmax", "copy"]
    assert steps_of(crossed) == ["chain", "chain", "copy"]
    assert steps_of(swapped) == ["copy"] * 4
    assert steps_of(a_cache_of_its_own_rows) == ["copy", "cache_update", "copy"]


def test_read_only_memory_cannot_be_donated() -> None:
    graph = graph_of(updated)
    given = arguments(graph, 0)
    given[0].setflags(write=False)
    with pytest.raises(UsageError, match=r"buffer \d+ is read-only: expected a writable array"):
        run(graph, given)


def test_an_array_in_another_order_is_copied_and_its_donor_left_alone() -> None:
    """Memory that is not row-major cannot be taken over; the result is right all the same."""
    graph = graph_of(updated)
    a, b = arguments(graph, 3)
    turned = np.asfortranarray(a)
    (total,) = run(graph, [turned, b])
    assert_same_bits(total, a + b)
    assert_same_bits(np.ascontiguousarray(turned), a)
