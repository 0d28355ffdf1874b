"""volta quickstart: train, save, reload in a fresh process, generate, and prove that no bit was lost."""

from __future__ import annotations

import json as json_of
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from volta.cli import output
from volta.cli.reload import logits_sha256
from volta.cli.train import run
from volta.dtypes import float32
from volta.errors import VoltaError
from volta.model.config import named
from volta.tensor import from_storage
from volta.train.loop import Settings, Trainer
from volta.train.schedule import Schedule
from volta.train.text import load_text

NAME = "quickstart"
STEPS, SHORT_STEPS = 400, 60


def command(
    text: Annotated[
        Path | None, typer.Option(help="A file or directory to learn from (default: Python's own library)")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep the run here (default: a temporary directory)")
    ] = None,
    short: Annotated[bool, typer.Option("--short", help=f"{SHORT_STEPS} steps instead of {STEPS}")] = False,
    seed: Annotated[int, typer.Option(help="Of everything that is drawn")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON")] = False,
) -> None:
    """Train TinyLM on real text, save it, reload it in a fresh process, generate, compare every bit."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="volta-quickstart-") as scratch:
        directory = out if out is not None else Path(scratch) / "run"
        content = load_text(text)
        if not json:
            where = text if text is not None else "Python's own library (give --text FILE_OR_DIR for another)"
            output.err.print(f"training TinyLM on {len(content):,} bytes of {where}")
        steps = SHORT_STEPS if short else STEPS
        settings = Settings(
            named("tiny"),
            Schedule("cosine", 3e-3, steps, min(40, steps // 4), 0.1),
            seed=seed,
            evaluate_every=100,
            save_every=0,
        )
        trainer = Trainer(settings, content, directory, text_path=text)
        result = run(trainer, quiet=json, keeps=out is not None)
        parameters = {name: from_storage(array, float32) for name, array in trainer.parameters.items()}
        ours = logits_sha256(trainer.model, settings.config, parameters, content)
        sample = Path(scratch) / "sample"
        sample.write_bytes(content[: settings.config.context])
        again = reload(trainer, sample)
        equal = again["logits_sha256"] == ours and again["weights_sha256"] == result["weights_sha256"]
        result.update(
            generation_tokens_per_second=again["tokens_per_second"],
            text=again["text"],
            logits_sha256=ours,
            reloaded_logits_sha256=again["logits_sha256"],
            bits_equal=equal,
            seconds=time.monotonic() - begin,
        )
        if out is None:
            result["checkpoint"] = None  # it goes with the temporary directory
    if json:
        output.print_json(result)
    else:
        show(result)
    raise typer.Exit(0 if equal else 1)


def reload(trainer: Trainer, sample: Path) -> dict[str, Any]:
    """Loads the run in a fresh Python process; what that process found."""
    command = [sys.executable, "-m", "volta.cli.reload", str(trainer.last_saved), "--text", str(sample)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reason = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
        raise VoltaError(f"[quickstart] the fresh process failed with exit code {done.returncode}: {reason}")
    answer: dict[str, Any] = json_of.loads(done.stdout)
    return answer


def show(result: dict[str, Any]) -> None:
    output.out.print("\ngenerated after reloading in a fresh process:", style="bold")
    output.out.print(result["text"], markup=False, style="dim")
    arena = f"{output.bytes_text(result['planned_arena_bytes'])} planned, " + (
        "the same measured"
        if result["planned_arena_bytes"] == result["measured_arena_bytes"]
        else f"{output.bytes_text(result['measured_arena_bytes'])} measured"
    )
    proof = "equal in every bit" if result["bits_equal"] else "DIFFERENT"
    validation = result["validation_loss"]
    output.out.print()
    output.print_rows(
        "quickstart",
        [
            (
                "loss before, after",
                f"{result['first_loss']:.4f}, {result['last_loss']:.4f}"
                + (f" (validation {validation:.4f})" if validation is not None else ""),
            ),
            ("loss over steps", output.sparkline(result["losses"])),
            ("training", f"{result['tokens_per_second']:,.0f} tokens/s"),
            ("generation", f"{result['generation_tokens_per_second']:,.0f} tokens/s"),
            (
                "peak memory of the step",
                f"{output.bytes_text(result['planned_peak_bytes'])} planned, of which arena {arena}",
            ),
            ("peak memory of the process", output.bytes_text(result["process_peak_bytes"])),
            ("sha256 of the text", result["text_sha256"]),
            ("sha256 of the weights", result["weights_sha256"]),
            ("logits after reloading", proof),
            ("time", f"{result['seconds']:.0f} s"),
        ],
    )
    output.out.print("The same text, config and seed give the same weights on every machine.", style="dim")
