"""The search on a machine whose clock is made up: what is faster there is found, the rest is left alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from tests.ops.parity import isas
from tests.tune.products import KINDS, LAYOUTS, step_of

import volta as vt
from volta.bench.roofline import Roofline
from volta.bench.statistics import Ratio
from volta.errors import UsageError, VerifyError
from volta.ir.graph import Graph, GraphBuilder
from volta.plan.steps import Step
from volta.runtime import gateway
from volta.runtime.gateway import Blocks, Executable
from volta.runtime.policy import Policy
from volta.tune import grid, search
from volta.tune.search import KEPT, SAMPLE_SECONDS, Bench, Found, graph_of, problem_of, usable_tiles, worth

FAST = isas()[1:]
pytestmark = pytest.mark.skipif(not FAST, reason="this processor has no tiles to choose from")
PRODUCT = replace(KINDS["f32"], m=60, n=300, k=200)


@dataclass
class Machine:
    """Its clock moves only while a session runs, by what `seconds` says of the blocks."""

    seconds: Callable[[Blocks | None], float]
    now: float = 0.0
    runs: dict[Blocks | None, int] = field(default_factory=dict)

    def perf_counter(self) -> float:
        return self.now

    def sessions(self, blocks: Blocks | None) -> list[Any]:
        machine = self

        class Session:
            def run(self) -> None:
                machine.now += machine.seconds(blocks)
                machine.runs[blocks] = machine.runs.get(blocks, 0) + 1

        return [Session()]


def install(monkeypatch: pytest.MonkeyPatch, seconds: Callable[[Blocks | None], float]) -> Machine:
    machine = Machine(seconds)
    monkeypatch.setattr(search, "time", machine)
    monkeypatch.setattr(Bench, "sessions", lambda self, blocks: machine.sessions(blocks))
    return machine


def searched(ceiling: Roofline, runs: int = 7, threads: int = 2) -> Found:
    key, step = step_of(PRODUCT.graph, FAST[-1], threads)
    found = search.tune(key, step, FAST[-1], threads, ceiling, runs)
    assert found is not None
    return found


def shortlist(ceiling: Roofline, threads: int = 2) -> list[Blocks]:
    _, step = step_of(PRODUCT.graph, FAST[-1], threads)
    problem, tiles = problem_of(step), usable_tiles(step, "f32", FAST[-1])
    return grid.shortlist(problem, tiles, threads, ceiling, KEPT)[0]


# --- what is found -----------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [1, 10, -1])
def test_a_seeded_faster_candidate_is_found(
    monkeypatch: pytest.MonkeyPatch, ceiling: Roofline, place: int
) -> None:
    """Wherever it stands among those that the model leaves."""
    seed = shortlist(ceiling)[place]
    machine = install(monkeypatch, lambda blocks: 0.5e-3 if blocks == seed else 1e-3)
    found = searched(ceiling)
    assert found.best == replace(seed, gain=2.0)
    assert found.seconds == pytest.approx(1e-3)
    assert found.gain.median == pytest.approx(2.0)
    assert machine.runs[seed] > max(count for blocks, count in machine.runs.items() if blocks != seed)


def test_what_is_near_the_best_is_tried_too(monkeypatch: pytest.MonkeyPatch, ceiling: Roofline) -> None:
    """Two choices, each worth something alone: the model left no candidate that makes both."""
    start = next(blocks for blocks in shortlist(ceiling)[::-1] if blocks.ahead == grid.DEFAULT_AHEAD + 1)
    wanted = replace(start, ahead=33)
    assert wanted not in shortlist(ceiling)
    install(monkeypatch, lambda blocks: {start: 0.8e-3, wanted: 0.5e-3}.get(blocks, 1e-3))  # type: ignore[arg-type]
    assert searched(ceiling).best == replace(wanted, gain=2.0)


@pytest.mark.parametrize("faster", [1.0, 1.005, 0.8], ids=["equal", "half a percent", "slower"])
def test_the_default_is_kept_unless_something_is_faster_by_enough(
    monkeypatch: pytest.MonkeyPatch, ceiling: Roofline, faster: float
) -> None:
    install(monkeypatch, lambda blocks: 1e-3 if blocks is None else 1e-3 / faster)
    assert searched(ceiling).best is None


def test_noise_neither_hides_what_is_faster_nor_makes_it_up(
    monkeypatch: pytest.MonkeyPatch, ceiling: Roofline
) -> None:
    """Each run takes up to a fifth longer, at random."""
    seed = shortlist(ceiling)[20]
    for quick in (0.6e-3, 1e-3):
        generator = np.random.default_rng(7)

        def seconds(blocks: Blocks | None, quick: float = quick, noise: Any = generator) -> float:
            return (quick if blocks == seed else 1e-3) * (1 + 0.2 * float(noise.random()))

        install(monkeypatch, seconds)
        best = searched(ceiling, runs=15).best
        assert (best is not None and replace(best, gain=1.0) == seed) == (quick < 1e-3)


@pytest.mark.parametrize(
    ("median", "low", "expected"),
    [(1.2, 1.1, True), (1.01, 1.001, True), (1.009, 1.001, False), (1.5, 1.0, False), (1.5, 0.9, False)],
)
def test_an_entry_needs_a_gain_that_is_sure_and_large_enough(
    median: float, low: float, expected: bool
) -> None:
    assert worth(Ratio(median, low, 2.0, 0.97, 6)) == expected


def test_the_best_and_the_default_are_paired_as_often_as_was_asked_and_six_times_at_least(
    monkeypatch: pytest.MonkeyPatch, ceiling: Roofline
) -> None:
    install(monkeypatch, lambda blocks: 1e-3)
    assert [searched(ceiling, runs).gain.pairs for runs in (1, 6, 9)] == [6, 6, 9]
    key, step = step_of(PRODUCT.graph, FAST[-1], 2)
    with pytest.raises(UsageError, match=r"^\[tune\] runs is 0: expected at least 1$"):
        search.tune(key, step, FAST[-1], 2, ceiling, 0)


# --- how it is timed ---------------------------------------------------------------------------------


def small_bench() -> Bench:
    product = replace(KINDS["f32"], m=8, n=20, k=30)
    key, _ = step_of(product.graph, FAST[-1], 1)
    return Bench(product.graph, FAST[-1], 1, key, [product.arrays(seed) for seed in range(3)])


@pytest.mark.parametrize("seconds", [1e-6, 1e-4, SAMPLE_SECONDS, 11 * SAMPLE_SECONDS])
def test_a_sample_is_the_time_of_a_run(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Over about SAMPLE_SECONDS; once where a run takes long."""
    machine = install(monkeypatch, lambda blocks: seconds)
    assert small_bench().sample(None) == pytest.approx(seconds, rel=1e-9)
    after = 0 if seconds > 10 * SAMPLE_SECONDS else max(1, SAMPLE_SECONDS / seconds)
    assert abs(machine.runs[None] - 1 - after) <= 1


def test_the_slower_half_goes_after_each_round_and_a_tie_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = [Blocks(kc=32 * (i + 1)) for i in range(11)]
    machine = install(monkeypatch, lambda blocks: 1.0 if blocks is None else float(blocks.kc))
    bench = small_bench()
    assert bench.halve(candidates[::-1], 3) == candidates[:3]
    assert [machine.runs[blocks] for blocks in candidates] == [3] * 3 + [2] * 3 + [1] * 5
    assert bench.halve([candidates[4], candidates[4]], 1) == [candidates[4]]


def test_pairs_are_measured_side_by_side_in_turned_order(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def sample(bench: Bench, blocks: Blocks | None) -> float:
        order.append(str(blocks))
        return float(len(order))

    monkeypatch.setattr(Bench, "sample", sample)
    first, second = small_bench().pairs(None, Blocks(), 3)
    assert order == ["None", str(Blocks()), str(Blocks()), "None", "None", str(Blocks())]
    assert (first, second) == ([1.0, 4.0, 5.0], [2.0, 3.0, 6.0])


def test_a_candidate_that_changes_a_bit_stops_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a kernel's mistake; then nothing is kept."""
    real = gateway.compile_tuned

    def wrong(graph: Graph, isa: str, threads: int, blocks: dict[str, Blocks]) -> Executable:
        build = GraphBuilder()
        a, b = (build.input(node.attrs["name"], node.shape, node.dtype) for node in graph.inputs)  # type: ignore[arg-type]
        other = build.freeze([build.add("neg", (build.add("matmul", (a, b)),))])
        return real(other if blocks else graph, isa, threads, blocks)

    monkeypatch.setattr(gateway, "compile_tuned", wrong)
    bench = small_bench()
    bench.sample(None)
    with pytest.raises(VerifyError, match=r"^\[tune\] Blocks\(.*\) changes the bits of f32 x f32 8x20x30"):
        bench.sample(Blocks(kc=32))
    assert bench.timed == 0


def test_only_as_many_candidates_stay_compiled_as_memory_is_meant_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others are compiled again when their turn comes, and count once."""
    monkeypatch.setattr(search, "HELD_BYTES", 1)
    made: list[Blocks | None] = []
    real = gateway.compile_tuned

    def counted(graph: Graph, isa: str, threads: int, blocks: dict[str, Blocks]) -> Executable:
        made.append(next(iter(blocks.values()), None))
        return real(graph, isa, threads, blocks)

    monkeypatch.setattr(gateway, "compile_tuned", counted)
    bench = small_bench()
    one, other = Blocks(kc=32), Blocks(kc=64)
    for blocks in (one, other, other, one):
        bench.sessions(blocks)
    assert made == [None, one, other, one]
    assert bench.timed == 2


# --- which product -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("a_layout", LAYOUTS)
@pytest.mark.parametrize("b_layout", LAYOUTS)
def test_a_product_alone_has_the_key_of_its_step(name: str, a_layout: str, b_layout: str) -> None:
    """Else the search would time the default again and again."""
    product = replace(KINDS[name], a_layout=a_layout, b_layout=b_layout)
    key, step = step_of(product.graph, FAST[-1], 2)
    graph = graph_of(step)
    assert graph is not None
    assert step_of(graph, FAST[-1], 2)[0] == key
    assert [node.shape for node in graph.outputs] == [(product.m, product.n)]


def steps_of(graph: Graph) -> dict[str, Step]:
    return gateway.matmul_keys(gateway.plan(graph, Policy(isa=FAST[-1], threads=1)), FAST[-1], 1)


def test_a_product_that_cannot_be_laid_out_alone_is_skipped(ceiling: Roofline) -> None:
    """Every second column; one row that stands for many."""
    x, w = vt.asarray(np.ones((40, 60), np.float32)), vt.asarray(np.ones((30, 50), np.float32))
    row = vt.asarray(np.ones((1, 30), np.float32))
    graphs = [
        vt.compile(lambda x, w: vt.matmul(x[:, ::2], w)).traced(x, w).graph,
        vt.compile(lambda x, w: vt.matmul(vt.broadcast_to(x, (40, 30)), w)).traced(row, w).graph,
    ]
    for graph in graphs:
        ((key, step),) = steps_of(graph).items()
        assert search.tune(key, step, FAST[-1], 1, ceiling, 1) is None


def test_a_problem_says_what_may_be_read_in_place_and_what_a_k_block_holds() -> None:
    def problem(name: str, **changes: Any) -> grid.Problem:
        return problem_of(step_of(replace(KINDS[name], **changes).graph, FAST[-1], 1)[1])

    assert problem("f32") == grid.Problem("f32", 43, 523, 130, True, True, 32)
    turned = problem("f32", a_layout="columns", b_layout="wide columns")
    assert (turned.a_rows, turned.b_rows) == (False, False)
    assert not problem("f32, weights bf16").b_rows
    assert not problem("int8").b_rows
    assert problem("bf16").kind == "bf16"
    assert [problem(name).step for name in ("int8", "int8, one scale", "bf16")] == [65, 130, 32]


def test_a_product_that_would_fill_the_memory_is_refused() -> None:
    build = GraphBuilder()
    a, b = (
        build.input(name, shape, vt.float32) for name, shape in (("a", (1 << 20, 1)), ("b", (1, 1 << 20)))
    )
    with pytest.raises(UsageError, match=r"^\[tune\] huge needs 12288.0 GiB: expected up to half of the "):
        search.expect_room("huge", build.freeze([build.add("matmul", (a, b))]))
    search.expect_room("small", PRODUCT.graph)


def test_operands_are_fresh_for_each_set_and_of_the_right_dtypes() -> None:
    for product in KINDS.values():
        first, second = (search.operands(product.graph, seed) for seed in (0, 1))
        for array, other, node in zip(first, second, product.graph.inputs, strict=True):
            assert array.shape == node.shape
            assert array.dtype == node.dtype.numpy
            assert not np.array_equal(array, other)
    assert search.copies(PRODUCT.graph) == 8
    assert search.copies(replace(PRODUCT, m=2000, n=2000).graph) == 1


# --- all of it ---------------------------------------------------------------------------------------


def test_a_real_search_ends_with_blocks_of_the_grid_or_the_default(
    monkeypatch: pytest.MonkeyPatch, ceiling: Roofline
) -> None:
    """On the real clock, with samples of one run: what it finds is not judged here."""
    monkeypatch.setattr(search, "SAMPLE_SECONDS", 1e-6)
    found = searched(ceiling, threads=1)
    _, step = step_of(PRODUCT.graph, FAST[-1], 1)
    tiles = usable_tiles(step, "f32", FAST[-1])
    assert 0 < found.tried <= found.all
    assert found.seconds > 0
    if found.best is not None:
        assert found.best.gain >= search.WORTH
        assert found.best.tile in {tile.name for tile in tiles}
