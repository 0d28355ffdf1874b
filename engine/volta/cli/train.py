"""volta train: a model from text, resumable to the bit."""

from __future__ import annotations

import signal
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from volta.cli import output
from volta.cli.progress import TrainingProgress
from volta.errors import DataError, UsageError
from volta.model.config import CONFIGS, named
from volta.train.checkpoint import info
from volta.train.loop import Settings, Trainer, resume
from volta.train.optim import KINDS as OPTIMIZERS
from volta.train.optim import Optimizer
from volta.train.schedule import KINDS as SCHEDULES
from volta.train.schedule import Schedule
from volta.train.text import load_text

NAME = "train"


def command(
    context: typer.Context,
    text: Annotated[
        Path | None, typer.Option(help="A file or directory to learn from (default: Python's own library)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for checkpoints (a new run needs one)")] = None,
    resume_from: Annotated[
        Path | None, typer.Option("--resume", help="Continue this run with the bits of an uninterrupted one")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Updates in all (default: 400)")] = None,
    config: Annotated[str, typer.Option(help=f"One of {', '.join(CONFIGS)}")] = "tiny",
    seed: Annotated[int, typer.Option(help="Of initial weights, batches and dropout")] = 1,
    batch: Annotated[int, typer.Option(help="Rows per shard")] = 12,
    shards: Annotated[
        int, typer.Option(help="Accumulate gradients over this many batches, as a fixed tree")
    ] = 1,
    rate: Annotated[float, typer.Option(help="Peak learning rate")] = 3e-3,
    schedule: Annotated[str, typer.Option(help=f"One of {', '.join(SCHEDULES)}")] = "cosine",
    warmup: Annotated[int, typer.Option(help="Steps of linear warmup")] = 40,
    final: Annotated[float, typer.Option(help="Last learning rate as a fraction of the peak")] = 0.1,
    optimizer: Annotated[str, typer.Option(help=f"One of {', '.join(OPTIMIZERS)}")] = "adamw",
    weight_decay: Annotated[float, typer.Option(help="On matrices only")] = 0.1,
    clip: Annotated[float, typer.Option(help="Largest global gradient norm; 0: off")] = 1.0,
    dtype: Annotated[
        str, typer.Option(help="Of linear layers' factors: f32, or bf16 with f32 master weights and sums")
    ] = "f32",
    dropout: Annotated[float | None, typer.Option(help="Overrides the configuration's")] = None,
    validation: Annotated[float, typer.Option(help="Fraction of the text held back")] = 0.05,
    evaluate_every: Annotated[int, typer.Option(help="Steps between evaluations; 0: only at the end")] = 100,
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints; 0: only at the end")] = 200,
    patience: Annotated[
        int, typer.Option(help="Stop after so many evaluations without a better loss; 0: never")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON")] = False,
) -> None:
    """Train a model on text; Ctrl-C saves a checkpoint before it ends."""
    if out is None and resume_from is None:
        raise UsageError("[train] neither --out nor --resume was given: expected a directory for the run")
    if resume_from is not None:
        _refuse_changes(context)
        trainer = resume(resume_from, load_text(_text_of(resume_from, text)), steps, out)
    else:
        changes: dict[str, Any] = {"dtype": dtype} | ({} if dropout is None else {"dropout": dropout})
        settings = Settings(
            config=named(config, **changes),
            schedule=Schedule(
                _kind(schedule),
                rate,
                400 if steps is None else steps,
                min(warmup, 400 if steps is None else max(steps, 0)),
                final,
            ),
            optimizer=Optimizer(kind=optimizer, weight_decay=weight_decay, clip=clip),
            batch=batch,
            shards=shards,
            seed=seed,
            validation=validation,
            evaluate_every=evaluate_every,
            save_every=save_every,
            patience=patience,
        )
        trainer = Trainer(settings, load_text(text), out, text_path=text)
    report(run(trainer, quiet=json), json)


def run(trainer: Trainer, quiet: bool, keeps: bool = True) -> dict[str, Any]:
    """Trains to the end with a progress line; what came of it. Ctrl-C (or SIGTERM) lets the step end and
    saves; a second one ends at once. keeps: whether the run's directory outlives this process."""
    losses: list[float] = []
    speeds: list[float] = []
    with (
        _stop_on_signals(trainer) as signals,
        TrainingProgress(trainer.step, trainer.settings.schedule.steps, quiet) as progress,
    ):
        for step in trainer.steps():
            progress.update(step)
            losses.append(step.loss)
            speeds.append(step.tokens / step.seconds)
    if signals:
        if trainer.directory is not None and trainer.step > 0 and keeps:
            trainer.save()
            saved = f"saved {trainer.last_saved}: continue with --resume {trainer.directory}"
            output.err.print(saved, markup=False)
        raise KeyboardInterrupt
    return {
        "step": trainer.step,
        "stopped_early": trainer.early_stop.stop,
        "first_loss": trainer.first_loss,
        "losses": output.thinned(losses),
        "last_loss": losses[-1] if losses else None,
        "validation_loss": trainer.early_stop.best,
        "tokens_per_second": statistics.median(speeds) if speeds else None,
        "planned_peak_bytes": trainer.plan.peak_bytes,
        "planned_arena_bytes": trainer.plan.arena_bytes,
        "measured_arena_bytes": trainer.measured_arena_bytes if losses else None,
        "process_peak_bytes": output.resident_bytes(),
        "parameters": trainer.model.size,
        "text_sha256": trainer.text_sha256,
        "weights_sha256": trainer.weights_sha256(),
        "checkpoint": str(trainer.last_saved) if trainer.last_saved else None,
    }


def _refuse_changes(context: typer.Context) -> None:
    """A resumed run keeps its settings: an option that would change them is refused, not ignored."""
    free = {"text", "out", "resume_from", "steps", "json"}
    given = [
        f"--{name.replace('_', '-')}"
        for name in context.params
        if name not in free and getattr(context.get_parameter_source(name), "name", "") == "COMMANDLINE"
    ]
    if given:
        raise UsageError(
            f"[train] --resume goes on with the run's own settings: leave out {', '.join(given)}"
        )


@contextmanager
def _stop_on_signals(trainer: Trainer) -> Iterator[list[int]]:
    """While it lasts, SIGINT and SIGTERM stop the trainer between steps; the list tells which came."""
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        trainer.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def report(result: dict[str, Any], json: bool) -> None:
    if json:
        output.print_json(result)
        return
    rows: list[tuple[str, Any]] = [
        ("steps", f"{result['step']}" + (" (stopped early)" if result["stopped_early"] else "")),
        ("loss", f"{_number(result['first_loss'])} -> {_number(result['last_loss'])}"),
        ("loss over steps", output.sparkline(result["losses"])),
        ("best validation loss", _number(result["validation_loss"])),
        ("speed", f"{result['tokens_per_second']:,.0f} tokens/s" if result["tokens_per_second"] else "-"),
        ("planned peak", output.bytes_text(result["planned_peak_bytes"])),
        ("sha256 of the text", result["text_sha256"]),
        ("sha256 of the weights", result["weights_sha256"]),
        ("checkpoint", result["checkpoint"]),
    ]
    output.print_rows("trained", rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def _kind(schedule: str) -> Any:
    return schedule  # Schedule refuses what is no kind


def _text_of(path: Path, text: Path | None) -> Path | None:
    """The text the run was started with, unless another path to it is given."""
    if text is not None:
        return text
    stored = info(path)["data"].get("text")
    if isinstance(stored, str) and not Path(stored).exists():
        raise DataError(
            f"[resume] the run's text was {stored}, which is not there: say where it is with --text"
        )
    return Path(stored) if isinstance(stored, str) else None
