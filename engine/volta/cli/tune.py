"""volta tune: the blocks that make matmuls fastest on this processor, kept for every later run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from volta.bench import cases, roofline
from volta.bench.report import duration, shown_ratio
from volta.cli import output
from volta.cli.bench import dimensions, listed, watching
from volta.cli.profile import generation_call, training_call
from volta.errors import UsageError
from volta.plan.steps import Step
from volta.runtime import gateway
from volta.runtime.policy import Policy, current
from volta.transform import compile
from volta.tune.search import Found, tune

NAME = "tune"
HELP = "Search how matmuls are best cut up on this processor. No choice changes a bit of any result."
ENOUGH = 1.05  # a search that gains less says that the default was right

Runs = Annotated[int, typer.Option(help="Samples of the best and of the default, pair by pair (6 at least)")]
Threads = Annotated[int, typer.Option(help="0: all that this process may use")]
Isa = Annotated[str, typer.Option(help="Instruction set (default: the best of this machine)")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON")]


def matmul(
    dim: Annotated[int, typer.Option(help="A cube of this size")] = 0,
    shapes: Annotated[str, typer.Option(help="Comma-separated MxNxK")] = "",
    dtype: Annotated[str, typer.Option(help="f32, bf16 or int8")] = "f32",
    runs: Runs = 7,
    threads: Threads = 0,
    isa: Isa = "auto",
    json: Json = False,
) -> None:
    """Tune matrix products of given sizes."""
    sizes = [dimensions(shape, 3) for shape in listed(shapes)] + ([(dim,) * 3] if dim else [])
    if not sizes:
        raise UsageError("[tune] no size was given: expected --dim N or --shapes MxNxK,..")
    steps: dict[str, Step] = {}
    chosen, count = target(isa, threads)
    for size in sizes:
        case = cases.gemm(dtype, *size)
        plan = gateway.plan(
            compile(case.volta).traced(*case.tensors(case.arrays(0))).graph, Policy(threads=count, isa=chosen)
        )
        steps |= gateway.matmul_keys(plan, chosen, count)
    search(steps, chosen, count, runs, json)


def model(
    run: Annotated[Path, typer.Argument(help="A run directory or a checkpoint file")],
    train: Annotated[bool, typer.Option(help="The products of its training step")] = True,
    generate: Annotated[bool, typer.Option(help="The products of generating one token")] = True,
    runs: Runs = 7,
    threads: Threads = 0,
    isa: Isa = "auto",
    json: Json = False,
) -> None:
    """Tune every matrix product of a model's training step and of its generation."""
    chosen, count = target(isa, threads)
    steps: dict[str, Step] = {}
    if train:
        steps |= gateway.matmul_keys(training_call(run).executable.plan, chosen, count)
    if generate:
        executable = generation_call(run, 1, 0).executable
        own = int(executable.signature.split("/")[2].split()[0])  # a small program runs on one thread
        if own == count:
            steps |= gateway.matmul_keys(executable.plan, chosen, count)
    search(steps, chosen, count, runs, json)


def show(json: Json = False) -> None:
    """The table of this processor."""
    table, path = gateway.tuned_table(), gateway.tuned_path()
    if json:
        blocks = {key: asdict(value) for key, value in table.blocks.items()}
        output.print_json({"path": str(path), "blocks": blocks})
        return
    output.out.print(f"{path}: {len(table.blocks)} entries", markup=False)
    for key, value in table.blocks.items():
        output.out.print(
            f"  {key}: {value.gain:.2f} times the default's speed, {described(value)}", markup=False
        )


def clear() -> None:
    """Forget what was tuned for this processor."""
    output.out.print(f"removed {gateway.clear_tuned()}", markup=False)


COMMANDS: dict[str, Callable[..., None]] = {"matmul": matmul, "model": model, "show": show, "clear": clear}


def target(isa: str, threads: int) -> tuple[str, int]:
    """The instruction set and threads that are tuned for."""
    policy = current()
    chosen = isa if isa != "auto" else policy.isa
    backend = gateway.resolve(Policy(isa=chosen, threads=threads or policy.threads))
    _, name, count, *_ = backend.target.signature.split("/")
    if name == "ref":
        raise UsageError("[tune] isa is ref: the plain reference has no blocks to choose")
    return name, int(count.split()[0])


def search(steps: Mapping[str, Step], isa: str, threads: int, runs: int, json: bool) -> None:
    """Tunes each product and keeps what is faster; what is found before Ctrl-C is kept."""
    found: list[Found] = []
    entries: dict[str, Any] = {}
    try:
        with watching() as watch:
            watch("measuring the roofline")
            ceiling = roofline.measure(threads, isa)
            for key, step in steps.items():
                one = tune(key, step, isa, threads, ceiling, runs, watch)
                found.append(one)
                if one.best is not None:
                    entries[key] = one.best
    finally:
        path = gateway.keep_tuned(entries) if entries else None
    if json:
        output.print_json(document(found, path))
        return
    table = Table()
    for column in ("product", "default", "default / best", "best", "timed"):
        table.add_column(column, justify="right" if column == "timed" else "left", overflow="fold")
    for one in found:
        best = described(one.best) if one.best is not None else "the default"
        counts = f"{one.tried} of {one.all}"
        table.add_row(escape(one.key), duration(one.seconds), shown_ratio(one.gain), best, counts)
    output.out.print(table)
    output.out.print(verdict(found), markup=False)
    if path is not None:
        output.out.print(f"kept in {path}: matmul uses it from now on", markup=False)


def verdict(found: list[Found]) -> str:
    """Whether the search gained 5% somewhere, or how near the default is to the best."""
    gains = [one.gain.median for one in found if one.best is not None]
    if gains and max(gains) >= ENOUGH:
        return f"{len(gains)} of {products(found)} are faster, the most by {max(gains) - 1:.1%}"
    most = max((max(1.0, one.gain.median) for one in found), default=1.0)
    return f"the default is within {most - 1:.1%} of the best of the grid for {products(found)}"


def products(found: list[Found]) -> str:
    return f"{len(found)} product{'s' * (len(found) != 1)}"


def document(found: list[Found], path: Path | None) -> dict[str, Any]:
    return {
        "path": str(path) if path is not None else None,
        "verdict": verdict(found),
        "products": [
            {
                "key": one.key,
                "default_seconds": one.seconds,
                "default_over_best": asdict(one.gain),
                "blocks": asdict(one.best) if one.best is not None else None,
                "timed": one.tried,
                "grid": one.all,
            }
            for one in found
        ],
    }


def described(blocks: gateway.Blocks) -> str:
    threads = f", {blocks.threads} threads" if blocks.threads else ""
    copies = f", copies {blocks.copies}" if blocks.copies else ""
    return (
        f"{blocks.tile.split('_')[2]}, K {blocks.kc}, M {blocks.mc}, N {blocks.nc}, "
        f"{blocks.ahead - 1} ahead{copies}{threads}"
    )
