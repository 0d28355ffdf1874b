"""The training step beside PyTorch's: same weights, same batches, losses compared in the same run."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from volta import __version__
from volta import functions as F
from volta.bench.cases import AbsentError
from volta.bench.machine import machine
from volta.bench.peers.training import SEED, settings
from volta.bench.report import Measurement, Report, counted
from volta.bench.roofline import measure
from volta.bench.sides import Side, Sides
from volta.bench.statistics import paired_ratio
from volta.bench.suite import ORDER, Method, Skipped, timing
from volta.errors import UsageError, VoltaError
from volta.ir.cost import Work
from volta.ir.ops import work_of
from volta.model.config import Config
from volta.model.transformer import tinylm
from volta.runtime import gateway
from volta.runtime.policy import runtime
from volta.train.optim import Optimizer
from volta.train.step import training_step

CLOSE = {"f32": 2e-3, "bf16": 2e-2}  # relative difference of losses; both round, in different orders
COMPARED = 20  # steps
MOST_STEPS = 10_000


def run(
    name: str,
    config: Config,
    batch: int,
    threads: int,
    peers: Sequence[str],
    method: Method,
    steps: int,
    watch: Callable[[str], None] = lambda line: None,
) -> Report:
    """Alternating rounds of `steps` training steps; a sample is the median step of a round."""
    if not 1 <= steps <= MOST_STEPS:
        raise UsageError(f"[bench] steps is {steps}: expected 1 to {MOST_STEPS}")
    settings(config, batch)  # refuses a batch that no run could have
    with runtime(threads=threads) as policy:
        gateway.resolve(policy)
    if config.dtype not in CLOSE:
        raise UsageError(f"[bench] dtype is {config.dtype!r}: expected one of {', '.join(CLOSE)}")
    skipped = Skipped()
    watch(f"measuring the roofline of {counted(threads, 'thread')}")
    ceiling = measure(threads)
    work = work_of_step(config, batch)
    samples: dict[str, list[float]] = {}
    losses: dict[str, list[float]] = {}
    descriptions: dict[str, str] = {}
    with Sides("train") as sides:
        ready: dict[str, Side] = {}
        for side in ("volta", *peers):
            watch(f"starting {side}")
            try:
                worker = sides.get(side, threads)
                answer = worker.ask("prepare", config=name, batch=batch, dtype=config.dtype)
                descriptions[side] = answer["description"]
                losses[side] = worker.ask("run", steps=steps)["losses"]  # warms up, and compiles
            except AbsentError as why:
                skipped.add(side, name, why)
                continue
            ready[side], samples[side] = worker, []
        for side in samples:
            compared(side, losses, config.dtype)
        for round_ in range(method.rounds):
            watch(f"round {round_ + 1} of {method.rounds}")
            for side in ready if round_ % 2 == 0 else reversed(ready):
                answer = ready[side].ask("run", steps=steps)
                samples[side].append(float(np.median(answer["seconds"])))
                losses[side] += answer["losses"]
    checks = {side: compared(side, losses, config.dtype) for side in samples}
    limit = ceiling.limit(work, "bf16" if config.dtype == "bf16" else "f32")
    one = Measurement(
        name=f"training step {name}, batch {batch}, {config.dtype}",
        parameters={"config": name, "batch": batch, "dtype": config.dtype, "steps_per_round": steps},
        threads=threads,
        flops=work.flops,
        bytes=work.bytes,
        sides={side: timing(descriptions[side], values, checks[side]) for side, values in samples.items()},
        ratios={
            side: paired_ratio(samples["volta"], values)
            for side, values in samples.items()
            if side != "volta"
        },
        limit=limit.seconds,
        bound=limit.bound,
        figures={"tokens_per_step": float(batch * config.context)},
    )
    return Report(
        suite="train",
        command="volta " + shlex.join(sys.argv[1:]),
        version=__version__,
        machine=machine(),
        method={"rounds": method.rounds, "steps_per_round": steps, "seed": SEED, "order": ORDER},
        rooflines=(ceiling.document(),),
        measurements=(one,),
        skipped=skipped.lines(),
    )


def compared(side: str, losses: dict[str, list[float]], dtype: str) -> str:
    """The losses of the first steps must agree with Volta's; Volta's own, with those of each peer."""
    if side == "volta":
        others = [name for name in losses if name != "volta"]
        return (
            f"losses agree with those of {', '.join(others)}" if others else "no peer to compare losses with"
        )
    ours, theirs = losses["volta"][:COMPARED], losses[side][:COMPARED]
    worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    allowed = CLOSE["bf16" if dtype == "bf16" or "bf16" in side else "f32"]
    if not worst <= allowed:
        raise VoltaError(
            f"[bench] the losses of volta and {side} differ by {worst:.1e} within {COMPARED} steps: "
            f"expected {allowed:.0e} at most"
        )
    return f"losses of the first {len(ours)} steps differ by {worst:.1e} at most (allowed {allowed:.0e})"


def work_of_step(config: Config, batch: int) -> Work:
    """Operations of the whole graph; bytes: what comes from and goes back to memory, once."""
    model = tinylm(config)
    parameters = model.init(1)
    optimizer = Optimizer("adamw")
    shape = (1, batch, config.context)
    arguments: tuple[Any, ...] = (
        parameters,
        optimizer.init(parameters),
        F.zeros(shape, "i32"),
        F.zeros(shape, "i32"),
        F.zeros(()),
        F.random_key(1),
    )
    graph = training_step(model, optimizer, 1).traced(*arguments).graph
    total = [work_of(node) for node in graph.nodes]
    ends = sum(node.type.nbytes for node in (*graph.inputs, *graph.outputs))
    return Work(sum(w.contraction for w in total), sum(w.steps for w in total), ends)
