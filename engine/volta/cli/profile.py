"""volta profile: where a run's time goes, per step and per kernel."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from volta import functions as F
from volta.bench import profile as profiles
from volta.bench import roofline
from volta.cli import output
from volta.cli.bench import show_profile, watching
from volta.cli.loading import load_model
from volta.errors import UsageError
from volta.infer.generate import Generator
from volta.infer.sample import Sampling
from volta.storage import atomic
from volta.train.loop import settings_of
from volta.train.step import training_step
from volta.transform import BoundCall

NAME = "profile"


def command(
    run: Annotated[Path, typer.Argument(help="A run directory or a checkpoint file")],
    train: Annotated[
        bool, typer.Option("--train", help="The training step instead of one token of generation")
    ] = False,
    batch: Annotated[int, typer.Option(help="Rows of a generation step")] = 1,
    position: Annotated[int, typer.Option(help="Tokens in the cache before it")] = 0,
    runs: Annotated[int, typer.Option(help="How often it is run; times are medians")] = 11,
    top: Annotated[int, typer.Option(help="How many groups of steps to show")] = 24,
    trace: Annotated[
        Path | None, typer.Option(help="Write one run for ui.perfetto.dev or chrome://tracing")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON")] = False,
) -> None:
    """Show time per step and kernel, GFLOP/s, GB/s and the share of this machine's roofline."""
    if runs < 1:
        raise UsageError(f"[profile] runs is {runs}: expected at least 1")
    if top < 0:
        raise UsageError(f"[profile] top is {top}: expected a number of groups")
    call = training_call(run) if train else generation_call(run, batch, position)
    with watching() as watch:
        watch("measuring the roofline")
        threads = int(call.executable.signature.split("/")[2].split()[0])
        ceiling = roofline.measure(threads)
        watch(f"running {runs} times")
        keys = None if train else position + 1
        found = profiles.profile(call.executable.plan, call.run_traced, ceiling, runs, keys)
    if trace is not None:
        names = [str(step.node) for step in call.executable.plan.steps]
        atomic.write_text(trace, json_module.dumps(profiles.trace(found, names)) + "\n", "profile")
    if json:
        output.print_json(profiles.document(found))
        return
    output.out.print(call.executable.signature, markup=False, style="dim")
    show_profile(found, top)
    if trace is not None:
        output.err.print(f"{trace}: open it at ui.perfetto.dev", markup=False, style="dim")


def training_call(run: Path) -> BoundCall:
    """The run's training step on random tokens."""
    checkpoint, config, model, parameters = load_model(run)
    settings = settings_of(checkpoint)
    compiled = training_step(model, settings.optimizer, settings.shards, config.dropout > 0)
    generator = np.random.default_rng(0)
    shape = (settings.shards, settings.batch, config.context)
    state = settings.optimizer.init(parameters)
    call = compiled.bind(parameters, state, *training_inputs(shape, settings.seed))
    for tokens in call.arguments[2:4]:
        tokens[...] = generator.integers(0, config.vocabulary, shape, np.int32)
    return call


def training_inputs(shape: tuple[int, ...], seed: int) -> tuple[Any, ...]:
    return F.zeros(shape, "i32"), F.zeros(shape, "i32"), F.zeros(()), F.random_key(seed)


def generation_call(run: Path, batch: int, position: int) -> BoundCall:
    """One token for each row, with `position` tokens before it."""
    _, config, model, parameters = load_model(run)
    if not 0 <= position < config.context:
        raise UsageError(f"[profile] position is {position}: expected 0 to {config.context - 1}")
    generator = Generator(model, config, parameters, batch)
    tokens = np.random.default_rng(0).integers(0, config.vocabulary, max(1, position), np.int32)
    generator.prefill([tokens] * batch, Sampling(0.0), 0, list(range(batch)))
    generator.cache.truncate(position)
    generator.advance(
        np.ones((batch, 1), np.int32), np.ones(batch, np.int32), Sampling(0.0), 0, list(range(batch))
    )
    return generator.call(1)
