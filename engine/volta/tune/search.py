"""Times the candidates that the model leaves and keeps what is surely faster than the default.

Candidates take turns in rounds, in an order that turns round; after each round the slower half goes. What
is left runs beside the default, pair by pair.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from volta.bench.roofline import Roofline
from volta.bench.statistics import Ratio, paired_ratio
from volta.dtypes import BY_NAME, bfloat16_from_float32
from volta.errors import UsageError
from volta.ir.graph import Graph, GraphBuilder
from volta.plan.steps import Step
from volta.runtime import gateway
from volta.runtime.gateway import Blocks, Session
from volta.tune import grid
from volta.tune.grid import Problem, Tile

KEPT = 40  # candidates that the model leaves, beside those near the default
SAMPLE_SECONDS = 0.004
WORTH = 1.01  # a table entry must gain at least so much
COPIES_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """One product. gain: the default's time over the best's, pair by pair. best: None where the default is
    kept. tried: candidates timed, of `all` in the grid."""

    key: str
    problem: Problem
    seconds: float
    gain: Ratio
    best: Blocks | None
    tried: int
    all: int


def problem_of(step: Step) -> Problem:
    """The product of a matmul step."""
    first = step.ints[0]
    out, a, b = step.operands[0], step.operands[first], step.operands[first + 1]
    kind = "f32" if a.dtype.name == "f32" else a.dtype.name
    groups = step.operands[first + 2].shape[0] if step.kernel == "matmul_scaled" else 1
    group = a.shape[1] // groups
    m, n = out.shape
    by_rows = a.strides[1] == 1, b.strides[1] == 1
    return Problem(kind, m, n, a.shape[1], *by_rows, group if groups > 1 else 32)


def graph_of(step: Step) -> Graph:
    """A graph of this one product, over operands laid out as the step's."""
    first = step.ints[0]
    a, b = step.operands[first], step.operands[first + 1]
    build = GraphBuilder()

    def operand(name: str, shape: tuple[int, ...], dtype: str, by_rows: bool) -> object:
        stored = shape if by_rows else shape[::-1]
        node = build.input(name, stored, BY_NAME[dtype])
        return node if by_rows else build.add("transpose", (node,), {"axes": (1, 0)})

    left = operand("a", a.shape, a.dtype.name, a.strides[1] == 1)
    right = operand("b", b.shape, b.dtype.name, b.strides[1] == 1)
    if step.kernel == "matmul":
        return build.freeze([build.add("matmul", (left, right))])  # type: ignore[arg-type]
    scale = build.input("scale", step.operands[first + 2].shape, BY_NAME["f32"])
    return build.freeze([build.add("quantized_matmul", (left, right, scale))])  # type: ignore[arg-type]


def tune(
    key: str,
    step: Step,
    isa: str,
    threads: int,
    ceiling: Roofline,
    runs: int,
    watch: Callable[[str], None] = lambda line: None,
) -> Found:
    """Searches the blocks of one product; every candidate's result has the default's very bits."""
    if runs < 1:
        raise UsageError(f"[tune] runs is {runs}: expected at least 1")
    problem, graph = problem_of(step), graph_of(step)
    tiles = tuple(
        Tile(t.name, t.mr, t.nr, t.kc, t.mc, t.nc) for t in gateway.register_tiles(problem.kind, isa)
    )
    if step.kernel == "matmul_scaled" and problem.kind == "f32":
        tiles = tiles[:1]  # tiles with scales are at most two vectors wide
    by_name = {tile.name: tile for tile in tiles}
    every = list(grid.candidates(problem, tiles, threads))
    every.sort(key=lambda blocks: grid.cost(problem, blocks, by_name[blocks.tile], threads, ceiling))
    first = tiles[0]
    plain = grid.made(first, first.kc, first.mc, first.nc, 0, threads, threads)  # the default, spelled out
    chosen = [*grid.neighbours(problem, plain, tiles, threads), *every[:KEPT]]
    arrays = [operands(graph, index) for index in range(copies(graph))]
    bench = Bench(graph, isa, threads, key, arrays)
    watch(f"{key}: {len(chosen)} of {len(every)} candidates, and what is near the best")
    left = bench.halve(chosen, 3)
    around = [near for blocks in left for near in grid.neighbours(problem, blocks, tiles, threads)]
    best = bench.halve(around, 1)[0]
    ours, theirs = bench.pairs(best, None, max(6, runs))
    ratio = paired_ratio(ours, theirs)
    worth = ratio.median >= WORTH and ratio.low > 1.0
    return Found(
        key,
        problem,
        float(np.median(theirs)),
        ratio,
        replace(best, gain=round(ratio.median, 4)) if worth else None,
        bench.timed,
        len(every),
    )


def copies(graph: Graph) -> int:
    held = sum(node.type.nbytes for node in (*graph.inputs, *graph.outputs))
    return max(1, min(8, math.ceil(COPIES_BYTES / held)))


def operands(graph: Graph, seed: int) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    made: list[np.ndarray] = []
    for node in graph.inputs:
        if node.dtype.name == "i8":
            made.append(generator.integers(-127, 128, node.shape, np.int8))
            continue
        values = generator.standard_normal(node.shape, np.float32)
        made.append(bfloat16_from_float32(values) if node.dtype.name == "bf16" else values)
    return made


class Bench:
    """The candidates of one product, each compiled once."""

    def __init__(
        self, graph: Graph, isa: str, threads: int, key: str, arrays: Sequence[list[np.ndarray]]
    ) -> None:
        self._graph, self._isa, self._threads, self._key = graph, isa, threads, key
        self._arrays = arrays
        self._ready: dict[Blocks | None, list[Session]] = {}
        self._expected: bytes | None = None
        self._turn = 0
        self.timed = 0

    def sessions(self, blocks: Blocks | None) -> list[Session]:
        if blocks not in self._ready:
            table = {} if blocks is None else {self._key: blocks}
            executable = gateway.compile_tuned(self._graph, self._isa, self._threads, table)
            made = [executable.bind(arrays) for arrays in self._arrays]
            made[0].run()
            result = made[0].outputs[0].tobytes()
            if self._expected is None:
                self._expected = result
            if result != self._expected:
                raise AssertionError(f"[tune] {blocks} changes the bits of {self._key}: a kernel is wrong")
            self._ready[blocks] = made
            self.timed += blocks is not None
        return self._ready[blocks]

    def sample(self, blocks: Blocks | None) -> float:
        """Seconds per run, over about SAMPLE_SECONDS."""
        sessions = self.sessions(blocks)
        once = max(self._run(sessions, 1), 1e-7)
        return self._run(sessions, max(1, int(SAMPLE_SECONDS / once)))

    def _run(self, sessions: Sequence[Session], count: int) -> float:
        turn = self._turn
        begin = time.perf_counter()
        for index in range(turn, turn + count):
            sessions[index % len(sessions)].run()
        self._turn = (turn + count) % len(sessions)
        return (time.perf_counter() - begin) / count

    def halve(self, candidates: Sequence[Blocks], keep: int) -> list[Blocks]:
        """Round after round the slower half goes, until `keep` are left; the fastest first."""
        left = list(dict.fromkeys(candidates))
        samples: dict[Blocks, list[float]] = {blocks: [] for blocks in left}
        while True:
            for blocks in left if len(samples[left[0]]) % 2 == 0 else reversed(left):
                samples[blocks].append(self.sample(blocks))
            left.sort(key=lambda blocks: float(np.median(samples[blocks])))
            if len(left) <= keep:
                return left
            left = left[: max(keep, math.ceil(len(left) / 2))]

    def pairs(self, a: Blocks | None, b: Blocks | None, rounds: int) -> tuple[list[float], list[float]]:
        """Samples of both, side by side, the first one last in the next round."""
        first: list[float] = []
        second: list[float] = []
        for round_ in range(rounds):
            for blocks, samples in (
                ((a, first), (b, second)) if round_ % 2 == 0 else ((b, second), (a, first))
            ):
                samples.append(self.sample(blocks))
        return first, second
