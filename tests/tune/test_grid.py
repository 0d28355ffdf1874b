"""The grid and its model: every candidate is one that kernels take, none changes a bit, the default stays."""

from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.matmuls import multiply
from tests.ops.parity import Array, assert_same_bits, isas
from tests.tune.products import KINDS, Product, step_of

from volta.backends.cpu import native, tuned
from volta.bench.roofline import Level, Roofline
from volta.runtime import gateway
from volta.runtime.gateway import Blocks
from volta.tune import grid
from volta.tune.grid import Problem, Tile
from volta.tune.search import problem_of, usable_tiles

FAST = isas()[1:]
TILES = {
    (kind, isa): tuple(Tile(t.name, t.mr, t.nr, t.kc, t.mc, t.nc) for t in native.tiles_of(kind, isa))
    for kind in native.KINDS
    for isa in FAST
}
needs_tiles = pytest.mark.skipif(not FAST, reason="this processor has no tiles to choose from")


def problem_and_tiles(product: Product, isa: str, threads: int) -> tuple[str, Problem, tuple[Tile, ...]]:
    key, step = step_of(product.graph, isa, threads)
    problem = problem_of(step)
    return key, problem, usable_tiles(step, problem.kind, isa)


# --- no bit ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", KINDS)
def test_the_whole_grid_gives_the_bits_of_the_reference(isa: str, name: str) -> None:
    """N1, N9, N10: every candidate, each with one of the prefetch distances, and all near the default."""
    product, threads = KINDS[name], 2
    _, problem, tiles = problem_and_tiles(product, isa, threads)
    arrays, expected = product.arrays(), product.expected()
    candidates = whole_grid(problem, tiles, threads)
    assert len(candidates) >= len(tiles) * threads * len(grid.copies_of(problem))
    for blocks in candidates:
        found = multiply(arrays[0], arrays[1], isa, threads, scale_of(arrays), blocks.ints())
        assert_same_bits(found, expected, f"{name} {isa} {blocks}")


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("name", KINDS)
def test_what_the_search_compiles_is_the_candidate(isa: str, name: str) -> None:
    """Along the tuner's own path: a candidate is in the plan that runs, and its result is the reference's."""
    product, threads = KINDS[name], 2
    key, problem, tiles = problem_and_tiles(product, isa, threads)
    arrays, expected = product.arrays(), product.expected()
    candidates = whole_grid(problem, tiles, threads)
    for blocks in candidates[:: max(1, len(candidates) // 25)]:
        executable = gateway.compile_tuned(product.graph, isa, threads, {key: blocks})
        (ints,) = [step.ints for step in executable.plan.steps if step.kernel.startswith("matmul")]
        assert ints[1:] == blocks.ints() != ()
        assert_same_bits(executable.run(arrays)[0], expected, f"{name} {isa} {blocks}")


def whole_grid(problem: Problem, tiles: tuple[Tile, ...], threads: int) -> list[Blocks]:
    near = grid.neighbours(problem, grid.default(tiles, threads), tiles, threads)
    return near + [
        replace(blocks, ahead=grid.AHEAD[index % len(grid.AHEAD)] + 1)
        for index, blocks in enumerate(grid.candidates(problem, tiles, threads))
    ]


def scale_of(arrays: list[Array]) -> Array | None:
    return arrays[2] if len(arrays) > 2 else None


# --- the grid ----------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn) -> tuple[Product, str, int]:
    """Any product of any kind, layout and instruction set, and how many threads may work on it."""
    groups = draw(st.sampled_from((1, 2, 4)))
    kind = draw(st.sampled_from(tuple(KINDS)))
    sizes = {name: draw(st.integers(1, 3000)) for name in "mnk"}
    layouts = {name: draw(st.sampled_from(("rows", "columns"))) for name in ("a_layout", "b_layout")}
    product = replace(KINDS[kind], **sizes, **layouts)  # type: ignore[arg-type]
    if product.groups:
        product = replace(product, groups=groups, k=product.k * groups)
    return product, draw(st.sampled_from(FAST)), draw(st.integers(1, 2))


@needs_tiles
@given(case=cases())
@settings(max_examples=8, deadline=None)
def test_every_candidate_is_one_that_its_kernel_takes_and_appears_once(
    case: tuple[Product, str, int],
) -> None:
    product, isa, threads = case
    key, problem, tiles = problem_and_tiles(product, isa, threads)
    by_name = {tile.name: tile for tile in tiles}
    candidates = [*grid.candidates(problem, tiles, threads)]
    assert candidates
    for blocks in candidates:
        assert tuned.why_not(key, blocks) is None
        assert blocks.nc % by_name[blocks.tile].nr == 0
    cuts = [grid.cut_of(problem, blocks, by_name[blocks.tile]) for blocks in candidates]
    assert len(set(cuts)) == len(cuts)
    assert {blocks.tile for blocks in candidates} == set(by_name)
    assert {blocks.threads for blocks in candidates} == {0, *range(1, threads)}


@needs_tiles
@given(case=cases(), data=st.data())
@settings(max_examples=60, deadline=None)
def test_neighbours_differ_in_one_choice(case: tuple[Product, str, int], data: st.DataObject) -> None:
    """A tile of another shape may need other M and N blocks: that is the same choice."""
    product, isa, threads = case
    key, problem, tiles = problem_and_tiles(product, isa, threads)
    tile = data.draw(st.sampled_from(tiles))
    kc, nc = (data.draw(st.sampled_from(sizes)) for sizes in (grid.K_BLOCKS, grid.N_BLOCKS))
    mc = data.draw(st.sampled_from([size for size in grid.M_BLOCKS if size >= tile.mr]))
    copies = data.draw(st.sampled_from(grid.copies_of(problem)))
    centre = grid.made(tile, kc, mc, nc, copies, data.draw(st.integers(1, threads)), threads)
    near = grid.neighbours(problem, centre, tiles, threads)
    assert near[0] == centre
    for blocks in near[1:]:
        assert tuned.why_not(key, blocks) is None
        changed = {f.name for f in fields(Blocks) if getattr(blocks, f.name) != getattr(centre, f.name)}
        assert len(changed) == 1 or ("tile" in changed and changed <= {"tile", "mc", "nc"})
    assert {blocks.ahead for blocks in near} == {distance + 1 for distance in grid.AHEAD}


@pytest.mark.parametrize(("kind", "isa"), TILES)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_default_is_the_row_that_the_kernel_would_take(kind: str, isa: str, threads: int) -> None:
    row = native.tiles_of(kind, isa)[0]
    blocks = grid.default(TILES[kind, isa], threads)
    assert (blocks.tile, blocks.kc, blocks.mc, blocks.nc) == (row.name, row.kc, row.mc, row.nc)
    assert (blocks.ahead, blocks.copies, blocks.threads) == (row.ahead + 1, 0, 0)


def test_scales_leave_tiles_of_two_vectors_at_most() -> None:
    """What is wider has no kernel with scales; what is as wide has."""
    for isa in FAST:
        _, step = step_of(KINDS["f32, weights int8"].graph, isa, 1)
        usable = {tile.name for tile in usable_tiles(step, "f32", isa)}
        width = {"avx2": 8, "avx512": 16, "amx": 16}[isa]
        assert usable == {tile.name for tile in native.tiles_of("f32", isa) if tile.nr <= 2 * width}


# --- the model ---------------------------------------------------------------------------------------

rates = st.floats(1e8, 1e13)


@st.composite
def ceilings(draw: st.DrawFn) -> Roofline:
    """Machines of any speed, with and without the instructions for bf16 and int8."""
    peaks = {"fma": draw(rates), "bf16": draw(rates | st.just(0.0)), "i8": draw(rates | st.just(0.0))}
    level = Level("L1", draw(st.floats(4096, 1e6)), 4096, draw(rates), draw(rates), draw(rates))
    memory = Level("memory", math.inf, 1 << 27, draw(rates), draw(rates), draw(rates))
    levels = draw(st.sampled_from(((level, memory), (memory,))))
    return Roofline(2, "avx2", peaks, levels, draw(st.floats(0, 1e-3)))


@needs_tiles
@given(case=cases(), ceiling=ceilings(), keep=st.integers(0, 60))
@settings(max_examples=8, deadline=None)
def test_the_model_never_throws_the_default_away(
    case: tuple[Product, str, int], ceiling: Roofline, keep: int
) -> None:
    """Whatever the machine, the default is the first that is timed, and its neighbours are among the rest."""
    product, isa, threads = case
    _, problem, tiles = problem_and_tiles(product, isa, threads)
    chosen, size = grid.shortlist(problem, tiles, threads, ceiling, keep)
    near = grid.neighbours(problem, grid.default(tiles, threads), tiles, threads)
    assert chosen[0] == grid.default(tiles, threads)
    assert chosen[: len(near)] == near
    assert len(near) <= len(chosen) <= len(near) + keep
    assert size % len(grid.AHEAD) == 0


@needs_tiles
@given(case=cases(), ceiling=ceilings())
@settings(max_examples=8, deadline=None)
def test_the_model_gives_every_candidate_a_time(case: tuple[Product, str, int], ceiling: Roofline) -> None:
    """Above zero, not endless, and no less for a tile of rows more."""
    product, isa, threads = case
    _, problem, tiles = problem_and_tiles(product, isa, threads)
    by_name = {tile.name: tile for tile in tiles}
    for blocks in grid.candidates(problem, tiles, threads):
        tile = by_name[blocks.tile]
        seconds = grid.cost(problem, blocks, tile, threads, ceiling)
        assert 0 < seconds < math.inf
        taller = replace(problem, m=problem.m + tile.mr)
        assert grid.cost(taller, blocks, tile, threads, ceiling) >= seconds


@needs_tiles
def test_the_model_keeps_what_it_finds_best(ceiling: Roofline) -> None:
    _, problem, tiles = problem_and_tiles(replace(KINDS["f32"], m=300, n=300, k=300), FAST[-1], 2)
    by_name = {tile.name: tile for tile in tiles}

    def seconds(blocks: Blocks) -> float:
        return grid.cost(problem, blocks, by_name[blocks.tile], 2, ceiling)

    chosen, _ = grid.shortlist(problem, tiles, 2, ceiling, 7)
    best = sorted(map(seconds, grid.candidates(problem, tiles, 2)))[:7]
    assert set(best) <= set(map(seconds, chosen))
