"""Every way to cut one matmul up, and what each should cost: a model that throws most of them away before
anything is timed.

Sizes: m n k of the product; mr x nr the register tile; kc, mc, nc the blocks for L1, L2 and L3.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product

from volta.bench.roofline import Roofline
from volta.runtime.gateway import Blocks

K_BLOCKS = (64, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024, 1536, 2048)
M_BLOCKS = (32, 48, 64, 96, 128, 168, 192, 256, 336)
N_BLOCKS = (256, 512, 1024, 2048, 4096)
AHEAD = (0, 4, 8, 16, 32)
DEFAULT_AHEAD = 8
B_NEVER, B_ALWAYS, A_NEVER, A_ALWAYS = 1, 2, 4, 8  # csrc/cpu/matmul_problem.h


@dataclass(frozen=True, slots=True)
class Tile:
    """What the model knows of a register tile."""

    name: str
    mr: int
    nr: int
    kc: int
    mc: int
    nc: int


@dataclass(frozen=True, slots=True)
class Problem:
    """One product. kind: f32, bf16 or i8; a_rows, b_rows: whether a tile may read it in place, rows of it
    having unit stride and B being f32; step: what a K block is a multiple of (32; a group of int8)."""

    kind: str
    m: int
    n: int
    k: int
    a_rows: bool
    b_rows: bool
    step: int = 32


def candidates(problem: Problem, tiles: tuple[Tile, ...], threads: int) -> Iterator[Blocks]:
    """The grid, with the default's prefetch distance: K, M and N blocks, register tiles, copies and threads;
    those that cut this product up in the same way appear once."""
    seen: set[tuple[object, ...]] = set()
    for tile, kc, mc, nc, copies, count in product(
        tiles, K_BLOCKS, M_BLOCKS, N_BLOCKS, copies_of(problem), range(1, threads + 1)
    ):
        if mc < tile.mr:
            continue
        blocks = made(tile, kc, mc, nc, copies, count, threads)
        if (cut := cut_of(problem, blocks, tile)) not in seen:
            seen.add(cut)
            yield blocks


def default(tiles: tuple[Tile, ...], threads: int) -> Blocks:
    """The kernel's own choice, spelled out: what the first of the tiles has in csrc/cpu/matmul_tiles.def."""
    first = tiles[0]
    return made(first, first.kc, first.mc, first.nc, 0, threads, threads)


def shortlist(
    problem: Problem, tiles: tuple[Tile, ...], threads: int, ceiling: Roofline, keep: int
) -> tuple[list[Blocks], int]:
    """What is worth timing: the default, what differs from it in one choice, and of the grid the `keep` that
    the model finds best; each cut once. And the size of the grid, prefetch distances included."""
    by_name = {tile.name: tile for tile in tiles}
    every = sorted(
        candidates(problem, tiles, threads),
        key=lambda blocks: cost(problem, blocks, by_name[blocks.tile], threads, ceiling),
    )
    near = neighbours(problem, default(tiles, threads), tiles, threads)
    return once(problem, [*near, *every[:keep]], tiles), len(every) * len(AHEAD)


def made(tile: Tile, kc: int, mc: int, nc: int, copies: int, count: int, threads: int) -> Blocks:
    """nc in whole panels; no word on threads where all take part."""
    wide = max(tile.nr, nc // tile.nr * tile.nr)
    return Blocks(tile.name, kc, mc, wide, DEFAULT_AHEAD + 1, copies, count if count < threads else 0)


def cut_of(problem: Problem, blocks: Blocks, tile: Tile) -> tuple[object, ...]:
    """What the blocks amount to for this product."""
    k_blocks = math.ceil(problem.k / max(blocks.kc, problem.step))
    chunk = min(blocks.mc // tile.mr, math.ceil(problem.m / tile.mr))
    columns = math.ceil(problem.n / blocks.nc)
    return (tile.name, k_blocks, chunk, columns, blocks.copies, blocks.threads, blocks.ahead)


def copies_of(problem: Problem) -> list[int]:
    """f32 may be read in place where its layout allows it; the others are always copied."""
    f32 = problem.kind == "f32"
    of_b = (0, B_NEVER, B_ALWAYS) if f32 and problem.b_rows else (0,)
    of_a = (0, A_NEVER, A_ALWAYS) if f32 else (0,)
    return [a + b for a in of_a for b in of_b]


def neighbours(problem: Problem, blocks: Blocks, tiles: tuple[Tile, ...], threads: int) -> list[Blocks]:
    """The blocks, first, and what differs from them in one choice alone; each cut once."""
    own = next(tile for tile in tiles if tile.name == blocks.tile)
    found = [blocks]
    found += [replace(blocks, kc=kc) for kc in K_BLOCKS]
    found += [replace(blocks, mc=mc) for mc in M_BLOCKS if mc >= own.mr]
    found += [replace(blocks, nc=max(own.nr, nc // own.nr * own.nr)) for nc in N_BLOCKS]
    found += [replace(blocks, copies=copies) for copies in copies_of(problem)]
    found += [replace(blocks, ahead=ahead + 1) for ahead in AHEAD]
    found += [replace(blocks, threads=count if count < threads else 0) for count in range(1, threads + 1)]
    for tile in tiles:
        wide = max(tile.nr, blocks.nc // tile.nr * tile.nr)
        found.append(replace(blocks, tile=tile.name, mc=max(blocks.mc, tile.mr), nc=wide))
    return once(problem, found, tiles)


def once(problem: Problem, found: Iterable[Blocks], tiles: tuple[Tile, ...]) -> list[Blocks]:
    """The first of those that cut the product up in the same way."""
    by_name = {tile.name: tile for tile in tiles}
    by_cut: dict[tuple[object, ...], Blocks] = {}
    for blocks in found:
        by_cut.setdefault(cut_of(problem, blocks, by_name[blocks.tile]), blocks)
    return list(by_cut.values())


def cost(problem: Problem, blocks: Blocks, tile: Tile, threads: int, ceiling: Roofline) -> float:
    """Seconds, roughly: multiplications at the peak over padded tiles, copies at the speed of the cache they
    come from, sums that leave and enter registers, panels that outgrow their cache."""
    m, n, k = problem.m, problem.n, problem.k
    count = blocks.threads or threads
    share = threads / count  # ceilings are of all threads together
    fma = ceiling.peaks["fma"]
    peak = {"f32": fma, "bf16": max(fma, ceiling.peaks["bf16"]), "i8": max(fma, ceiling.peaks["i8"])}
    size = {"f32": 4, "bf16": 2, "i8": 1}[problem.kind]
    first, second = (ceiling.levels[level] for level in (0, min(1, len(ceiling.levels) - 1)))
    rows = math.ceil(m / tile.mr)
    padded = rows * tile.mr * math.ceil(n / tile.nr) * tile.nr
    # a tile loads nr / width vectors of B and mr splats of A for mr * nr / width products
    loads = 1 + max(0.0, (tile.mr + tile.nr / 16) / (tile.mr * tile.nr / 16) - 0.55)
    seconds = 2.0 * padded * k / peak[problem.kind] * loads
    depth = min(max(blocks.kc, problem.step), k)
    panel = depth * tile.nr * size
    if panel > first.upto * 0.8:
        seconds *= 1.04
    if min(blocks.mc, m) * depth * size > second.upto * 0.8:
        seconds *= 1.10
    k_blocks = math.ceil(k / depth)
    seconds += (k_blocks - 1) * 8.0 * m * n / second.copy
    packs_b = problem.kind != "f32" or blocks.copies & 3 == B_ALWAYS or not problem.b_rows
    packs_a = problem.kind != "f32" or blocks.copies & 12 == A_ALWAYS or not problem.a_rows
    if packs_b:
        seconds += (4.0 + size) * k * n / second.copy
    if packs_a:
        seconds += (4.0 + size) * m * k * math.ceil(n / max(blocks.nc, tile.nr)) / second.copy
    meetings = k_blocks * math.ceil(n / max(blocks.nc, 1)) if packs_b and count > 1 else 1
    return seconds * share + meetings * ceiling.barrier_seconds
