"""volta generate: text from a trained model."""

from __future__ import annotations

import sys
import time
from codecs import getincrementaldecoder
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
import typer

from volta.cli import output
from volta.cli.loading import load_model
from volta.errors import UsageError
from volta.infer.generate import Generator
from volta.infer.sample import Sampling
from volta.infer.weights import Weights
from volta.train.tokenizer import ByteTokenizer

NAME = "generate"


def command(
    run: Annotated[Path, typer.Argument(help="A run directory or a checkpoint file")],
    prompt: Annotated[
        list[str] | None, typer.Option(help="Text to continue; give it again for more rows")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(help="How many to generate (default: 200, or what fits)")
    ] = None,
    temperature: Annotated[float, typer.Option(help="0: always the likeliest token")] = 0.8,
    top_k: Annotated[int, typer.Option(help="Draw from the k likeliest; 0: all")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw from the fewest that reach this probability")] = 1.0,
    min_p: Annotated[
        float, typer.Option(help="Drop what is less likely than this share of the likeliest")
    ] = 0.0,
    repetition_penalty: Annotated[float, typer.Option(help="Above 1: seen tokens become less likely")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same text")] = 0,
    batch: Annotated[
        int | None, typer.Option(help="Rows to generate at once, each with draws of its own")
    ] = None,
    weights: Annotated[
        str, typer.Option(help="Of linear layers: f32 as trained, bf16, or int8 with scales")
    ] = "f32",
    group: Annotated[int, typer.Option(help="int8: neighbours that share a scale; 0: one per output")] = 0,
    activations: Annotated[
        str, typer.Option(help="With int8 weights: f32, or int8 to multiply whole numbers")
    ] = "f32",
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON")] = False,
) -> None:
    """Continue prompts with a trained model. The same seed gives the same text, whatever the batch."""
    sampling = Sampling(temperature, top_k, top_p, min_p, repetition_penalty)
    prompts = prompt or ["\n"]
    rows = batch if batch is not None else len(prompts)
    if rows < 1 or (len(prompts) > 1 and len(prompts) != rows):
        raise UsageError(
            f"[generate] batch is {rows} for {len(prompts)} prompts: expected one prompt or one per row"
        )
    tokenizer = ByteTokenizer()
    texts = prompts if len(prompts) == rows else prompts * rows
    fed = [tokenizer.encode(text) for text in texts]
    chosen = Weights(weights, group, activations)
    _, config, model, parameters = load_model(run, chosen)
    room = config.context + 1 - max(map(len, fed))
    count = tokens if tokens is not None else max(0, min(200, room))
    generator = Generator(model, config, parameters, rows)
    live = rows == 1 and not json
    decoder = getincrementaldecoder("utf-8")("replace")  # a character's bytes may come one by one
    if live:
        _write(decoder.decode(tokenizer.decode_bytes(fed[0])))
    made: list[npt.NDArray[np.int32]] = []
    begin = time.perf_counter()
    for step in generator.generate(fed, count, sampling, seed):
        made.append(step)
        if live:
            _write(decoder.decode(tokenizer.decode_bytes(step)))
    seconds = time.perf_counter() - begin
    columns = np.stack(made, axis=1) if made else np.zeros((rows, 0), np.int32)
    results = [tokenizer.decode(row) for row in columns]
    if json:
        output.print_json(
            {
                "prompts": texts,
                "texts": results,
                "tokens": columns.tolist(),
                "seed": seed,
                "seconds": seconds,
                "tokens_per_second": columns.size / seconds if columns.size else None,
            }
        )
        return
    if live:
        _write(decoder.decode(b"", final=True) + "\n")
    else:
        for index, (text, result) in enumerate(zip(texts, results, strict=True)):
            output.err.print(f"--- row {index}", style="dim")
            sys.stdout.write(f"{text}{result}\n")
    output.err.print(
        f"{columns.size} tokens, {columns.size / seconds:,.0f} tokens/s" if columns.size else "0 tokens",
        style="dim",
    )


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
