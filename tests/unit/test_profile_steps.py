"""The account of a profile: which steps, how much work and how many bytes, and times that add up."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import volta as vt
from volta.bench import profile as profiles
from volta.bench.profile import Profile
from volta.bench.roofline import Level, Roofline
from volta.plan.steps import Plan
from volta.runtime.policy import runtime
from volta.transform import BoundCall

Stamps = npt.NDArray[np.float64]
GIGA = 1e9
CEILING = Roofline(
    2,
    "avx2",
    {"fma": 100 * GIGA, "add": 50 * GIGA, "bf16": 0.0, "i8": 400 * GIGA},
    (Level("memory", float("inf"), 1 << 20, 10 * GIGA, 10 * GIGA, 10 * GIGA),),
    1e-6,
)


def bound(function: Callable[..., Any], *arguments: vt.Tensor, persistent: Sequence[int] = ()) -> BoundCall:
    with runtime(threads=2):
        call: BoundCall = vt.compile(function).bind(*arguments, persistent=persistent)
    return call


def profiled(plan: Plan, seconds: float = 1e-3, threads: int = 2, early_at: float = 0.0) -> Profile:
    """Of runs in which step i takes (i + 1) * seconds on thread 0, half of it on thread 1, and the threads
    meet after each step."""
    stamps: Stamps = np.full((threads, len(plan.steps), 2), early_at)
    begin = 0.0
    for index in range(plan.early, len(plan.steps)):
        for thread in range(threads):
            stamps[thread, index] = begin, begin + (index + 1) * seconds / (thread + 1)
        begin += (index + 1) * seconds
    return profiles.profile(plan, lambda: stamps, CEILING, 3)


def mlp(x: vt.Tensor, w: vt.Tensor, b: vt.Tensor) -> vt.Tensor:
    return vt.softmax(vt.gelu(x @ w + b))


X, W, B = vt.ones((32, 64)), vt.ones((64, 48)), vt.ones((48,))


def test_times_of_groups_and_waiting_add_up_to_the_run() -> None:
    plan = bound(mlp, X, W, B).executable.plan
    found = profiled(plan)
    groups = profiles.groups(found)
    assert sum(group.calls for group in groups) == len(found.steps) == len(plan.steps)
    assert sum(group.seconds for group in groups) + found.waiting == pytest.approx(found.seconds)
    assert found.waiting == pytest.approx(found.seconds / 4)  # thread 1 waits half the time
    assert [group.seconds for group in groups] == sorted((group.seconds for group in groups), reverse=True)


def test_medians_are_over_runs() -> None:
    """One run that was disturbed changes nothing."""
    plan = bound(mlp, X, W, B).executable.plan
    quiet = np.zeros((1, len(plan.steps), 2))
    quiet[0, :, 0] = np.arange(len(plan.steps))
    quiet[0, :, 1] = quiet[0, :, 0] + 1
    runs = iter([quiet, quiet, 50 * quiet, quiet])
    found = profiles.profile(plan, lambda: next(runs), CEILING, 3)
    assert [step.seconds for step in found.steps] == [1.0] * len(plan.steps)
    assert found.seconds == len(plan.steps)
    assert found.waiting == 0


def test_what_ran_when_memory_was_bound_is_no_part_of_a_run() -> None:
    """Weights are packed once: no step of the profile, its table or its trace."""
    call = bound(lambda x, w: vt.gelu(x @ w), X, W, persistent=(1,))
    plan = call.executable.plan
    if plan.early == 0:
        pytest.skip("the reference kernels read weights as they are")
    found = profiled(plan, early_at=-1.0)
    assert [step.index for step in found.steps] == list(range(plan.early, len(plan.steps)))
    assert found.stamps.shape[1] == len(found.steps)
    assert "pack" not in " ".join(group.label for group in profiles.groups(found))
    events = [event for event in profiles.trace(found)["traceEvents"] if event["ph"] == "X"]
    assert {event["args"]["step"] for event in events} == {step.index for step in found.steps}
    assert min(event["ts"] for event in events) >= 0
    assert sum(step.seconds for step in found.steps) + found.waiting == pytest.approx(found.seconds)
    real = profiles.profile(plan, call.run_traced, CEILING, 2)
    assert [step.label for step in real.steps] == [step.label for step in found.steps]
    assert all(step.seconds > 0 for step in real.steps if step.kernel == "matmul")


PRODUCTS: dict[str, tuple[Callable[..., Any], tuple[vt.Tensor, ...], str, int]] = {
    "f32": (lambda x, w: x @ w, (X, W), "matmul f32 32x48x64", 4 * (32 * 64 + 64 * 48 + 32 * 48)),
    "bf16": (
        lambda x, w: x @ w,
        (vt.astype(X, "bf16"), vt.astype(W, "bf16")),
        "matmul bf16 32x48x64",
        2 * (32 * 64 + 64 * 48) + 4 * 32 * 48,
    ),
    "i8": (
        lambda x, w, s: vt.quantized_matmul(x, w, s),
        (vt.zeros((32, 64), "i8"), vt.zeros((64, 48), "i8"), vt.ones((4, 48))),
        "matmul_scaled i8 32x48x64",
        32 * 64 + 64 * 48 + 4 * (4 * 48 + 32 * 48),
    ),
}


@pytest.mark.parametrize("dtype", PRODUCTS)
def test_a_product_counts_2mnk_operations_and_each_byte_once(dtype: str) -> None:
    function, operands, label, nbytes = PRODUCTS[dtype]
    (step,) = profiled(bound(function, *operands).executable.plan).steps
    assert (step.label, step.dtype) == (label, dtype)
    assert (step.work.contraction, step.work.bytes) == (2 * 32 * 48 * 64, nbytes)
    (group,) = profiles.groups(Profile((step,), step.seconds, 0.0, np.zeros((1, 1, 2)), CEILING))
    peak = {"f32": 100, "bf16": 100, "i8": 400}[dtype] * GIGA  # without bf16 instructions, those of f32
    least = max(step.work.contraction / peak + step.work.steps / (50 * GIGA), nbytes / (10 * GIGA))
    assert group.share == pytest.approx(least / step.seconds)


TABLE = vt.ones((1000, 8))
MOVED: dict[str, tuple[Callable[..., Any], tuple[vt.Tensor, ...], str, int]] = {
    "rows of a table": (
        lambda t, i: vt.embedding(i, t),
        (TABLE, vt.zeros((5,), "i32")),
        "embedding",
        2 * 160 + 20,
    ),
    "a bias, which is read once": (
        lambda x, b: x + b,
        (vt.ones((100, 8)), vt.ones((8,))),
        "chain",
        6400 + 32,
    ),
    "a column": (lambda x, b: x * b, (vt.ones((100, 8)), vt.ones((100, 1))), "chain", 6400 + 400),
    "angles of the places it is at": (
        lambda x, c, s, p: vt.rotary(x, c, s, p),
        (vt.ones((1, 2, 1, 4)), vt.ones((500, 2)), vt.ones((500, 2)), vt.zeros((1,), "i32")),
        "rotary",
        4 * 8 * 4 + 4,  # no more of each table than of x
    ),
}


@pytest.mark.parametrize("name", MOVED)
def test_bytes_are_those_that_a_step_moves(name: str) -> None:
    """Not those of the table it looks things up in, nor every repetition of a broadcast value."""
    function, operands, kernel, nbytes = MOVED[name]
    steps = profiled(bound(function, *operands).executable.plan).steps
    (step,) = (step for step in steps if step.kernel == kernel)
    assert step.work.bytes == nbytes


def test_a_cache_counts_what_is_put_into_it() -> None:
    with runtime(threads=1):
        call = vt.compile(lambda cache, new, at: (vt.cache_update(cache, new, at),), donate=(0,)).bind(
            vt.zeros((1, 2, 900, 4)), vt.ones((1, 2, 1, 4)), vt.zeros((1,), "i32")
        )
    (step,) = profiled(call.executable.plan).steps
    assert (step.kernel, step.work.bytes) == ("cache_update", 2 * 8 * 4 + 4)


def test_attention_counts_the_keys_that_are_there() -> None:
    """Of a cache of 400 places with 100 in use: a quarter of the operations, and of the bytes of keys and
    values."""
    with runtime(threads=1):
        cache = vt.zeros((1, 2, 400, 8))
        call = vt.compile(lambda q, k, v: vt.attention(q, k, v, True, vt.asarray([99]))).bind(
            vt.ones((1, 4, 1, 8)), cache, cache
        )
    plan = call.executable.plan
    stamps = np.array([[[0.0, 1.0]] * len(plan.steps)])
    whole, part = (
        next(
            step for step in profiles.profile(plan, lambda: stamps, CEILING, 1, keys).steps if step.work.flops
        )
        for keys in (None, 100)
    )
    assert whole.kernel == "attention"
    assert whole.work.contraction == 2 * 2 * 4 * 400 * 8
    assert (part.work.contraction, part.work.steps) == (whole.work.contraction / 4, whole.work.steps / 4)
    assert whole.work.bytes - part.work.bytes == 2 * 2 * 300 * 8 * 4


# --- what is written ---------------------------------------------------------------------------------


def test_a_trace_has_every_step_on_every_thread_in_order() -> None:
    """As ui.perfetto.dev and chrome://tracing read it: microseconds, complete events that do not overlap."""
    plan = bound(mlp, X, W, B).executable.plan
    found = profiled(plan, seconds=1e-6)
    names = [f"node {index}" for index in range(len(plan.steps))]
    document = json.loads(json.dumps(profiles.trace(found, names), allow_nan=False))
    events = document["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X"}
    named = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert named == {0: "thread 0", 1: "thread 1"}
    for thread in (0, 1):
        row = [event for event in events if event["ph"] == "X" and event["tid"] == thread]
        assert [event["args"]["node"] for event in row] == names
        assert [event["name"] for event in row] == [step.label for step in found.steps]
        assert all(event["pid"] == 1 and event["dur"] > 0 for event in row)
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-6 for a, b in pairwise(row))
        assert row[0]["dur"] == pytest.approx(1.0 / (thread + 1))


def test_rates_of_a_trace_are_of_the_threads_share() -> None:
    plan = bound(lambda x, w: x @ w, X, W).executable.plan
    stamps = np.array([[[0.0, 1e-6]], [[0.0, 2e-6]]])
    events = profiles.trace(profiles.profile(plan, lambda: stamps, CEILING, 1))["traceEvents"]
    rates = [event["args"]["GFLOP/s of its share"] for event in events if event["ph"] == "X"]
    assert rates == [pytest.approx(32 * 48 * 64 / 1e3, abs=0.01), pytest.approx(32 * 48 * 64 / 2e3, abs=0.01)]


def test_a_step_in_which_no_time_passed_has_no_rate() -> None:
    """A coarse clock must not make a step infinitely fast."""
    plan = bound(mlp, X, W, B).executable.plan
    still = np.zeros((2, len(plan.steps), 2))
    found = profiles.profile(plan, lambda: still, CEILING, 1)
    for event in profiles.trace(found)["traceEvents"]:
        if event["ph"] == "X":
            assert event["args"]["GFLOP/s of its share"] == event["args"]["GB/s of its share"] == 0.0
    assert all(group.share == 0.0 for group in profiles.groups(found))
    json.dumps(profiles.document(found), allow_nan=False)


def test_the_document_says_what_the_groups_say() -> None:
    found = profiled(bound(mlp, X, W, B).executable.plan)
    document = json.loads(json.dumps(profiles.document(found), allow_nan=False))
    assert document["seconds"] == found.seconds
    assert document["waiting_seconds"] == found.waiting
    assert [entry["label"] for entry in document["groups"]] == [g.label for g in profiles.groups(found)]
    assert [entry["index"] for entry in document["steps"]] == [step.index for step in found.steps]
    assert document["roofline"]["levels"][-1]["upto"] is None
