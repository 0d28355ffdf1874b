"""What must be known before a plan is used: whether it fits, what it is a plan for, whether it is there."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import isas
from tests.property.graphs import graphs

import volta as vt
from volta.backends.cpu.backend import CpuBackend
from volta.dtypes import DType, bfloat16, float32, int32
from volta.errors import BudgetError, UsageError
from volta.ir.graph import Graph, GraphBuilder
from volta.passes import PASSES
from volta.plan.cache import PlanCache
from volta.plan.fingerprint import fingerprint, graph_digest
from volta.runtime import gateway
from volta.runtime.policy import Policy

# --- budget ------------------------------------------------------------------------------------------


def products() -> Graph:
    """Inputs of 1,600 and 400 bytes, two products of 1,600, one of them a temporary."""
    build = GraphBuilder()
    a = build.input("a", (20, 20), float32)
    b = build.input("bias", (100,), float32, "parameter")
    c = build.add("matmul", (build.add("matmul", (a, a)), a))
    total = build.add("sum", (b,), {"axes": (0,), "keepdims": False})
    return build.freeze([c, total])


REF = Policy(isa="ref", threads=1, passes=())


def test_a_plan_of_exactly_the_budget_is_accepted_and_one_byte_less_refused() -> None:
    peak = gateway.plan(products(), REF).peak_bytes
    assert gateway.plan(products(), dataclasses.replace(REF, max_bytes=peak)).peak_bytes == peak
    with pytest.raises(BudgetError, match=f"needs {peak:,} bytes, the budget is {peak - 1:,}"):
        gateway.plan(products(), dataclasses.replace(REF, max_bytes=peak - 1))


def test_the_largest_buffers_are_named_largest_first() -> None:
    with pytest.raises(BudgetError) as caught:
        gateway.plan(products(), dataclasses.replace(REF, max_bytes=0))
    named = re.findall(r"([^,:(]+) \((\w+), ([\d,]+) bytes\)", str(caught.value).partition("largest are")[2])
    assert [(name.strip(), memory, size) for name, memory, size in named] == [
        ("a", "input", "1,600"),
        ("output 0", "output", "1,600"),
        ("%2 matmul", "temporary", "1,600"),
        ("bias", "parameter", "400"),
        ("output 1", "output", "4"),
    ]


def test_a_plan_over_budget_allocates_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal comes before the backend sees the plan, for a graph, a function and one operation."""

    def compiled(self: CpuBackend, plan: object) -> None:
        raise AssertionError("a plan over budget was compiled")

    monkeypatch.setattr(CpuBackend, "compile", compiled)
    with pytest.raises(BudgetError):
        gateway.compile(products(), dataclasses.replace(REF, max_bytes=100))
    x = vt.asarray(np.zeros((50, 50), np.float32))
    with vt.runtime(max_bytes=1000):
        with pytest.raises(BudgetError, match=r"\[plan\] needs 20,000 bytes, the budget is 1,000"):
            vt.exp(x)
        with pytest.raises(BudgetError):
            vt.compile(lambda x: vt.exp(x) + x)(x)


def test_without_a_budget_everything_is_accepted() -> None:
    assert gateway.plan(products(), REF).peak_bytes > 0


# --- fingerprint -------------------------------------------------------------------------------------


def scaled(
    factor: float = 0.5,
    shape: tuple[int, ...] = (3,),
    dtype: DType = float32,
    name: str = "x",
    role: str = "input",
    literal: float = 1.0,
    axes: tuple[int, ...] = (0,),
    donated: bool = False,
    outputs: tuple[int, ...] = (0, 1),
    swapped: bool = False,
) -> Graph:
    build = GraphBuilder()
    x = build.input(name, shape, float32, role)
    build.input("other", (2,), dtype)
    c = build.constant(np.array(literal, np.float32))
    y = build.add("scale", (x,), {"factor": factor})
    operands = (c, y) if swapped else (y, c)
    z = build.add("sum", (build.add("sub", operands),), {"axes": axes, "keepdims": False})
    values = (y, z)
    return build.freeze([values[i] for i in outputs], {0: x} if donated else {})


CHANGES: dict[str, dict[str, Any]] = {
    "attribute": {"factor": 0.25},
    "zero": {"factor": 0.0},
    "minus zero": {"factor": -0.0},
    "shape": {"shape": (4,)},
    "rank": {"shape": (3, 1)},
    "dtype": {"dtype": bfloat16},
    "another dtype": {"dtype": int32},
    "name": {"name": "y"},
    "role": {"role": "state"},
    "literal": {"literal": 2.0},
    "literal zero": {"literal": 0.0},
    "literal minus zero": {"literal": -0.0},
    "axes": {"shape": (3, 1), "axes": (0, 1)},
    "donation": {"donated": True},
    "order of outputs": {"outputs": (1, 0)},
    "number of outputs": {"outputs": (0,)},
    "order of operands": {"swapped": True},
}


def test_every_change_of_a_graph_changes_its_digest() -> None:
    digests = {name: graph_digest(scaled(**change)) for name, change in CHANGES.items()}
    digests["nothing"] = graph_digest(scaled())
    assert len(set(digests.values())) == len(digests)


def test_the_bits_of_a_literal_count_also_those_of_nan() -> None:
    def literal(bits: int) -> Graph:
        build = GraphBuilder()
        return build.freeze([build.constant(np.array([bits], np.uint32).view(np.float32))])

    quiet, other = graph_digest(literal(0x7FC00000)), graph_digest(literal(0x7FC00001))
    assert quiet != other
    assert quiet == graph_digest(literal(0x7FC00000))


def test_the_same_graph_built_twice_has_one_digest() -> None:
    assert graph_digest(scaled()) == graph_digest(scaled())
    assert len(graph_digest(scaled())) == 64


def test_the_inside_of_a_fused_body_counts() -> None:
    def fused(op: str, donated: bool = False) -> Graph:
        body = GraphBuilder()
        a = body.input("a", (2,), float32)
        graph = body.freeze([body.add(op, (a,))], {0: a} if donated else {})
        build = GraphBuilder()
        x = build.input("x", (2,), float32)
        return build.freeze([build.add("fused", (x,), {"body": graph})])

    assert (
        len({graph_digest(fused("exp")), graph_digest(fused("neg")), graph_digest(fused("exp", True))}) == 3
    )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(graphs(fused=True, donations=True, max_steps=4), graphs(fused=True, donations=True, max_steps=4))
def test_digests_are_equal_exactly_where_the_graphs_are(one: Graph, other: Graph) -> None:
    """The text form prints every bit of a graph and serves as the judge."""
    assert (graph_digest(one) == graph_digest(other)) == (str(one) == str(other))


def test_flags_cannot_run_into_each_other() -> None:
    graph = scaled()
    given_flags = [
        ("a", "b"),
        ("b", "a"),
        ("ab",),
        ("a", "b", ""),
        ("a\0001:b",),
        ("a\0b",),
        ("a,b",),
        (),
        ("",),
    ]
    assert len({fingerprint(graph, *flags) for flags in given_flags}) == len(given_flags)


FLAGS: tuple[Policy, ...] = (
    Policy(isa="ref", threads=1),
    Policy(isa="ref", threads=2),
    *(Policy(isa=isa, threads=1) for isa in isas()[1:]),
    Policy(isa="ref", threads=1, determinism="balanced"),
    Policy(isa="ref", threads=1, determinism="fast"),
    Policy(isa="ref", threads=1, max_bytes=1 << 20),
    Policy(isa="ref", threads=1, max_bytes=1 << 21),
    Policy(isa="ref", threads=1, passes=()),
    Policy(isa="ref", threads=1, passes=("fold",)),
    Policy(isa="ref", threads=1, passes=("fold", "dce")),
    Policy(isa="ref", threads=1, passes=("dce", "fold")),
)


def test_every_flag_changes_the_plans_fingerprint_and_the_executable() -> None:
    plans = [gateway.plan(scaled(), policy).fingerprint for policy in FLAGS]
    assert len(set(plans)) == len(FLAGS)
    executables = [gateway.compile(scaled(), policy) for policy in FLAGS]
    assert len(set(map(id, executables))) == len(FLAGS)
    for policy, executable in zip(FLAGS, executables, strict=True):
        assert gateway.compile(scaled(), policy) is executable


def test_what_a_policy_asks_for_by_default_and_by_name_is_one_plan() -> None:
    named = Policy(device="cpu", isa=isas()[-1], passes=tuple(PASSES))
    assert gateway.compile(scaled(), Policy()) is gateway.compile(scaled(), named)


def test_one_operations_key_tells_attributes_types_and_flags_apart() -> None:
    x, kinds = vt.asarray([1.0, 2.0]), (vt.asarray([1.0, 2.0]).type,)
    made = [gateway.compile_op("scale", kinds, {"factor": factor}) for factor in (0.0, -0.0, 1.0, 2.0)]
    made.append(gateway.compile_op("scale", (vt.zeros((3,)).type,), {"factor": 2.0}))
    made.append(gateway.compile_op("neg", kinds, {}))
    with vt.runtime(isa="ref", threads=1):
        made.append(gateway.compile_op("neg", kinds, {}))
    with vt.runtime(isa="ref", threads=2):
        made.append(gateway.compile_op("neg", kinds, {}))
    assert len(set(map(id, made))) == len(made)
    assert gateway.compile_op("neg", kinds, {}) is made[5]
    assert np.signbit(vt.scale(x, -0.0).numpy()).all()


# --- cache -------------------------------------------------------------------------------------------


def test_a_hit_gives_the_same_entry_without_making_it_again() -> None:
    cache: PlanCache[object] = PlanCache(4)
    first = cache.get_or_make("a", object)
    assert cache.get_or_make("a", object) is first
    assert (cache.hits, cache.misses, len(cache)) == (1, 1, 1)


def test_the_least_recently_used_goes_first() -> None:
    cache: PlanCache[str] = PlanCache(3)
    for key in "abc":
        cache.get_or_make(key, lambda key=key: key)  # type: ignore[misc]
    cache.get_or_make("a", refuse)  # now b is the oldest
    cache.get_or_make("d", lambda: "d")
    assert len(cache) == 3
    for key in "acd":
        cache.get_or_make(key, refuse)
    assert cache.get_or_make("b", lambda: "made again") == "made again"


def refuse() -> Any:
    raise AssertionError("made although it was there")


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 5))
def test_it_holds_the_last_distinct_keys_up_to_its_capacity(keys: list[int], capacity: int) -> None:
    cache: PlanCache[int] = PlanCache(capacity)
    for key in keys:
        assert cache.get_or_make(key, lambda key=key: key * 10) == key * 10  # type: ignore[misc]
        assert len(cache) <= capacity
    recent = list(dict.fromkeys(reversed(keys)))[:capacity]
    for key in reversed(recent):
        cache.get_or_make(key, refuse)


def test_it_holds_at_most_so_many_bytes_beside_the_newest_entry() -> None:
    cache: PlanCache[int] = PlanCache(10, max_bytes=100, size_of=lambda size: size)
    for key, size in (("a", 40), ("b", 50), ("c", 30)):
        cache.get_or_make(key, lambda size=size: size)  # type: ignore[misc]
    assert len(cache) == 2, "120 bytes: the oldest went"
    for key in "bc":
        cache.get_or_make(key, refuse)
    assert cache.get_or_make("huge", lambda: 1000) == 1000
    assert len(cache) == 1, "more than all that may be held: it stays alone"
    cache.get_or_make("huge", refuse)
    cache.get_or_make("d", lambda: 1)
    assert len(cache) == 1


def test_what_could_not_be_made_is_not_remembered() -> None:
    cache: PlanCache[str] = PlanCache(2)

    def fails() -> str:
        raise UsageError("[test] no")

    with pytest.raises(UsageError):
        cache.get_or_make("a", fails)
    assert len(cache) == 0
    assert cache.get_or_make("a", lambda: "made") == "made"


def test_clear_forgets_entries_and_counts() -> None:
    cache: PlanCache[str] = PlanCache(2)
    cache.get_or_make("a", lambda: "old")
    cache.clear()
    assert (len(cache), cache.hits, cache.misses) == (0, 0, 0)
    assert cache.get_or_make("a", lambda: "new") == "new"


def test_threads_that_ask_for_one_key_get_one_entry() -> None:
    """Both may make it at once; the first to finish wins and everyone gets the winner's."""
    cache: PlanCache[object] = PlanCache(4)
    barrier = threading.Barrier(4)

    def make() -> object:
        barrier.wait(timeout=10)  # all four are inside `make` together
        return object()

    found = in_threads(4, lambda index: cache.get_or_make("key", make))
    assert len({id(entry) for entry in found}) == 1
    assert (len(cache), cache.misses) == (1, 4)


def test_threads_never_see_another_keys_entry() -> None:
    cache: PlanCache[int] = PlanCache(3)

    def work(index: int) -> bool:
        return all(
            cache.get_or_make(key, lambda key=key: key * 7) == key * 7  # type: ignore[misc]
            for round_ in range(200)
            for key in [(index + round_ * 3) % 8]
        )

    assert in_threads(6, work) == [True] * 6
    assert len(cache) == 3
    assert cache.hits + cache.misses == 1200


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    results: list[Any] = [None] * count

    def one(index: int) -> None:
        results[index] = work(index)

    threads = [threading.Thread(target=one, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    return results


def test_the_gateways_caches_count_and_forget() -> None:
    gateway.clear_caches()
    assert gateway.cache_statistics() == {"hits": 0, "misses": 0, "entries": 0}
    x = vt.asarray([1.0, 2.0])
    vt.exp(x)
    vt.exp(x)
    gateway.compile(scaled())
    assert gateway.cache_statistics() == {"hits": 1, "misses": 2, "entries": 2}
    gateway.clear_caches()
    assert gateway.cache_statistics()["entries"] == 0
