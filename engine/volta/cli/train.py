"""volta train: a model from text, resumable to the bit."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Annotated, Any

import typer

from volta.cli import output
from volta.cli.progress import TrainingProgress
from volta.errors import UsageError
from volta.model.config import CONFIGS, named
from volta.train.checkpoint import load
from volta.train.loop import Settings, Trainer, resume
from volta.train.optim import KINDS as OPTIMIZERS
from volta.train.optim import Optimizer
from volta.train.schedule import KINDS as SCHEDULES
from volta.train.schedule import Schedule
from volta.train.text import load_text

NAME = "train"


def command(
    text: Annotated[
        Path | None, typer.Option(help="A file or directory to learn from (default: Python's own library)")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory for checkpoints (new runs need one)")] = None,
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
    if (out is None) == (resume_from is None):
        raise UsageError("[train] given --out and --resume, or neither: expected one of them")
    if resume_from is not None:
        trainer = resume(resume_from, load_text(_text_of(resume_from, text)), steps)
    else:
        changes: dict[str, Any] = {} if dropout is None else {"dropout": dropout}
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


def run(trainer: Trainer, quiet: bool) -> dict[str, Any]:
    """Trains to the end with a progress line; what came of it. Ctrl-C saves first."""
    losses: list[float] = []
    speeds: list[float] = []
    with TrainingProgress(trainer.step, trainer.settings.schedule.steps, quiet) as progress:
        try:
            for step in trainer.steps():
                progress.update(step)
                losses.append(step.loss)
                speeds.append(step.tokens / step.seconds)
        except KeyboardInterrupt:
            if trainer.directory is not None and trainer.step > 0:
                trainer.save()
                output.err.print(f"saved {trainer.last_saved}: continue with --resume {trainer.directory}")
            raise
    return {
        "step": trainer.step,
        "stopped_early": trainer.early_stop.stop,
        "first_loss": trainer.first_loss,
        "losses": losses,
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


def _text_of(directory: Path, text: Path | None) -> Path | None:
    """The text the run was started with, unless another path to it is given."""
    if text is not None:
        return text
    stored = load(directory).data.get("text")
    return Path(stored) if isinstance(stored, str) else None
