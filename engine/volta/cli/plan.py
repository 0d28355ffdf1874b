"""volta plan: what will run, and where every byte lies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from volta import functions as F
from volta.cli import output
from volta.cli.arena_svg import draw
from volta.cli.loading import load_model
from volta.infer.generate import Generator
from volta.ir.text import format_graph
from volta.plan.steps import Buffer, Plan, Step
from volta.runtime import gateway
from volta.train.loop import settings_of
from volta.train.step import training_step

NAME = "plan"


def command(
    run: Annotated[Path, typer.Argument(help="A run directory or a checkpoint file")],
    train: Annotated[
        bool, typer.Option("--train", help="The training step instead of one step of generation")
    ] = False,
    batch: Annotated[int, typer.Option(help="Rows of a generation step")] = 1,
    graph: Annotated[bool, typer.Option(help="Print the final graph's text")] = True,
    svg: Annotated[Path | None, typer.Option(help="Draw the arena, bytes over steps, into this file")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON")] = False,
) -> None:
    """Show the graph, each pass's effect, the steps, the buffers with their lifetimes, and the peak bytes."""
    checkpoint, config, model, parameters = load_model(run)
    if train:
        settings = settings_of(checkpoint)
        compiled = training_step(model, settings.optimizer, settings.shards, config.dropout > 0)
        shape = (settings.shards, settings.batch, config.context)
        arguments: tuple[Any, ...] = (
            parameters,
            settings.optimizer.init(parameters),
            F.zeros(shape, "i32"),
            F.zeros(shape, "i32"),
            F.zeros(()),
            F.random_key(settings.seed),
        )
        plan = gateway.plan(compiled.traced(*arguments).graph)
    else:
        plan = Generator(model, config, parameters, batch).call(1).executable.plan
    if svg is not None:
        svg.write_text(draw(plan))
    if json:
        output.print_json(document(plan))
        return
    if graph:
        output.out.print(format_graph(plan.graph), markup=False)
    show(plan)


def document(plan: Plan) -> dict[str, Any]:
    """The plan as plain data."""
    return {
        "fingerprint": plan.fingerprint,
        "passes": [{"name": n, "nodes_before": a, "nodes_after": b} for n, a, b in plan.passes],
        "graph": format_graph(plan.graph),
        "steps": [_step(i, step, plan) for i, step in enumerate(plan.steps)],
        "buffers": [_buffer(buffer) for buffer in plan.buffers],
        "bytes": plan.bytes_by_memory(),
        "arena_bytes": plan.arena_bytes,
        "peak_bytes": plan.peak_bytes,
    }


def show(plan: Plan) -> None:
    """The plan as tables."""
    passes = Table(title="passes", title_justify="left")
    for name in ("pass", "nodes before", "nodes after"):
        passes.add_column(name)
    for name, before, after in plan.passes:
        passes.add_row(name, str(before), str(after))
    output.out.print(passes)
    steps = Table(title="steps (| waits for all threads)", title_justify="left")
    for name in ("#", "kernel", "writes", "reads", "chain"):
        steps.add_column(name, overflow="fold")
    for index, step in enumerate(plan.steps):
        row = _step(index, step, plan)
        steps.add_row(
            f"{'|' if step.barrier else ' '}{index}",
            row["kernel"],
            ", ".join(row["writes"]),
            ", ".join(row["reads"]),
            " ".join(row["chain"]),
        )
    output.out.print(steps)
    buffers = Table(title="buffers", title_justify="left")
    for name in ("#", "name", "memory", "bytes", "arena offset", "live steps"):
        buffers.add_column(name, overflow="fold")
    for buffer in plan.buffers:
        at = f"{buffer.offset:,}" if buffer.in_arena else "-"
        live = f"{buffer.first}..{buffer.last}" if buffer.first >= 0 else "-"
        buffers.add_row(str(buffer.index), buffer.name, buffer.memory, f"{buffer.nbytes:,}", at, live)
    output.out.print(buffers)
    rows = [(memory, f"{count:,} bytes") for memory, count in plan.bytes_by_memory().items()]
    output.print_rows(f"peak {plan.peak_bytes:,} bytes", rows)
    output.out.print(f"fingerprint {plan.fingerprint}")


def _step(index: int, step: Step, plan: Plan) -> dict[str, Any]:
    return {
        "index": index,
        "kernel": step.kernel,
        "barrier": step.barrier,
        "writes": [f"{view.buffer}{list(view.shape)}" for view in step.writes()],
        "reads": [f"{view.buffer}{list(view.shape)}" for view in step.reads()],
        "chain": [instruction.op for instruction in step.code],
        "workspace_bytes": plan.buffers[step.workspace].nbytes if step.workspace is not None else 0,
    }


def _buffer(buffer: Buffer) -> dict[str, Any]:
    return {
        "index": buffer.index,
        "name": buffer.name,
        "memory": buffer.memory.value,
        "bytes": buffer.nbytes,
        "offset": buffer.offset if buffer.in_arena else None,
        "first": buffer.first,
        "last": buffer.last,
    }
