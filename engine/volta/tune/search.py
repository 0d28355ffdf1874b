"""Times the candidates that the model leaves and keeps what is surely faster than the default.

Candidates take turns in rounds, in an order that turns round; after each round the slower half goes. The
neighbours of the last three compete in the same way; the winner runs beside the default, pair by pair.
"""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from volta.bench.roofline import Roofline
from volta.bench.statistics import Ratio, paired_ratio
from volta.dtypes import BY_NAME, bfloat16_from_float32
from volta.errors import UsageError, VerifyError
from volta.ir.graph import Graph, GraphBuilder, Node
from volta.plan.layout import View
from volta.plan.steps import Step
from volta.runtime import gateway
from volta.runtime.gateway import Blocks, Session
from volta.runtime.policy import Policy
from volta.tune import grid
from volta.tune.grid import Problem, Tile

KEPT = 40  # candidates that the model leaves, beside those near the default
SAMPLE_SECONDS = 0.004
WORTH = 1.01  # a table entry must gain at least so much
COPIES_BYTES = 8 << 20  # sets of operands take turns, so that small ones do not stay in L1
HELD_BYTES = 1 << 30  # outputs and arenas of the candidates that are kept compiled


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
    (m, n), k = out.shape, a.shape[1]
    scaled = step.kernel == "matmul_scaled"
    group = k // step.operands[first + 2].shape[0] if scaled else 32  # K blocks hold whole groups
    in_place = b.dtype.name == "f32" and b.strides[1] == 1
    return Problem(a.dtype.name, m, n, k, a.strides[1] == 1, in_place, group)


def graph_of(step: Step) -> Graph | None:
    """A graph of this one product, over operands laid out as the step's; None where slices and transposes
    of a whole array do not lie so."""
    first = step.ints[0]
    build = GraphBuilder()
    factors = [_laid_out(build, name, step.operands[first + i]) for i, name in enumerate("ab")]
    if None in factors:
        return None
    inputs = [node for node in factors if node is not None]
    if step.kernel == "matmul":
        return build.freeze([build.add("matmul", inputs)])
    inputs.append(build.input("scale", step.operands[first + 2].shape, BY_NAME["f32"]))
    return build.freeze([build.add("quantized_matmul", inputs)])


def _laid_out(build: GraphBuilder, name: str, view: View) -> Node | None:
    """An operand of the view's shape and strides: some columns of an input, or those transposed."""
    by_rows = view.strides[1] == 1
    if not by_rows and view.strides[0] != 1:
        return None
    (rows, columns), pitch = (view.shape, view.strides[0]) if by_rows else (view.shape[::-1], view.strides[1])
    if pitch < columns and rows > 1:
        return None
    node = build.input(name, (rows, max(pitch, columns)), BY_NAME[view.dtype.name])
    if pitch > columns:
        node = build.add("slice", (node,), {"start": (0, 0), "stop": (rows, columns), "step": (1, 1)})
    return node if by_rows else build.add("transpose", (node,), {"axes": (1, 0)})


def usable_tiles(step: Step, kind: str, isa: str) -> tuple[Tile, ...]:
    """The register tiles that this step can run with, the default first."""
    tiles = tuple(Tile(t.name, t.mr, t.nr, t.kc, t.mc, t.nc) for t in gateway.register_tiles(kind, isa))
    if step.kernel == "matmul_scaled" and kind == "f32":  # tiles with scales are at most two vectors wide
        tiles = tuple(tile for tile in tiles if tile.nr <= 2 * min(each.nr for each in tiles))
    return tiles


def tune(key: str, step: Step, isa: str, threads: int, ceiling: Roofline, runs: int) -> Found | None:
    """Searches the blocks of one product; every candidate's result has the default's very bits. None where
    the product cannot be run alone in its layout."""
    if runs < 1:
        raise UsageError(f"[tune] runs is {runs}: expected at least 1")
    problem, graph = problem_of(step), graph_of(step)
    if graph is None or key not in gateway.matmul_keys(
        gateway.plan(graph, Policy(threads=threads, isa=isa)), isa, threads
    ):
        return None
    tiles = usable_tiles(step, problem.kind, isa)
    chosen, size = grid.shortlist(problem, tiles, threads, ceiling, KEPT)
    arrays = [operands(graph, index) for index in range(copies(graph))]
    bench = Bench(graph, isa, threads, key, arrays)
    left = bench.halve(chosen, 3)
    around = [near for blocks in left for near in grid.neighbours(problem, blocks, tiles, threads)]
    best = bench.halve(grid.once(problem, around, tiles), 1)[0]
    ours, theirs = bench.pairs(best, None, max(6, runs))
    ratio = paired_ratio(ours, theirs)
    return Found(
        key,
        problem,
        float(np.median(theirs)),
        ratio,
        replace(best, gain=round(ratio.median, 4)) if worth(ratio) else None,
        bench.timed,
        size,
    )


def worth(ratio: Ratio) -> bool:
    """Is the best surely faster than the default, and by enough for an entry?"""
    return ratio.median >= WORTH and ratio.low > 1.0


def expect_room(name: str, graph: Graph) -> None:
    """Raises UsageError where operands, and the results of some candidates, fill this machine's memory."""
    needed = held_bytes(graph) + 2 * sum(node.type.nbytes for node in graph.outputs)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if needed > memory // 2:
        raise UsageError(
            f"[tune] {name} needs {needed / 2**30:.1f} GiB: expected up to half of the "
            f"{memory / 2**30:.1f} GiB of this machine"
        )


def held_bytes(graph: Graph) -> int:
    return sum(node.type.nbytes for node in (*graph.inputs, *graph.outputs))


def copies(graph: Graph) -> int:
    return max(1, min(8, math.ceil(COPIES_BYTES / held_bytes(graph))))


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
    """The candidates of one product, compiled when they are first run. None: the default, whose result all
    others must have."""

    def __init__(
        self, graph: Graph, isa: str, threads: int, key: str, arrays: Sequence[list[np.ndarray]]
    ) -> None:
        self._graph, self._isa, self._threads, self._key = graph, isa, threads, key
        self._arrays = arrays
        self._ready: OrderedDict[Blocks | None, list[Session]] = OrderedDict()
        self._tried: set[Blocks] = set()
        self._turn = 0
        self._room = 1  # how many are held
        self._expected: np.ndarray | None = None
        self.sessions(None)

    @property
    def timed(self) -> int:
        return len(self._tried)

    def sessions(self, blocks: Blocks | None) -> list[Session]:
        if blocks in self._ready:
            self._ready.move_to_end(blocks)
            return self._ready[blocks]
        while len(self._ready) >= self._room:
            self._ready.popitem(last=False)
        table = {} if blocks is None else {self._key: blocks}
        executable = gateway.compile_tuned(self._graph, self._isa, self._threads, table)
        made = [executable.bind(arrays) for arrays in self._arrays]
        made[0].run()
        self._check(blocks, made[0].outputs[0])
        held = executable.nbytes + sum(output.nbytes for one in made for output in one.outputs)
        self._room = max(1, HELD_BYTES // held)
        self._ready[blocks] = made
        return made

    def _check(self, blocks: Blocks | None, result: np.ndarray) -> None:
        bits = result.view(np.uint32)
        if self._expected is None:
            self._expected = bits.copy()
        if blocks is None or blocks in self._tried:
            return
        if not np.array_equal(bits, self._expected):
            raise VerifyError("tune", f"{blocks} changes the bits of {self._key}: a kernel is wrong")
        self._tried.add(blocks)

    def sample(self, blocks: Blocks | None) -> float:
        """Seconds per run, over about SAMPLE_SECONDS; of one run where that takes long."""
        sessions = self.sessions(blocks)
        once = max(self._run(sessions, 1), 1e-7)
        if once > 10 * SAMPLE_SECONDS:
            return once
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
