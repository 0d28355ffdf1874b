"""volta tune: the blocks that make matmuls fastest on this processor, kept for every later run."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from volta.bench import cases, roofline
from volta.bench.report import duration
from volta.cli import output
from volta.cli.bench import listed, watching
from volta.cli.profile import generation_call, training_call
from volta.dtypes import BY_NAME
from volta.errors import UsageError
from volta.ir.graph import Graph, GraphBuilder
from volta.plan.steps import Step
from volta.runtime import gateway
from volta.runtime.gateway import Executable
from volta.runtime.policy import Policy, current, runtime
from volta.tune.search import Found, expect_room, tune

NAME = "tune"
HELP = "Search how matmuls are best cut up on this processor. No choice changes a bit of any result."
ENOUGH = 1.05  # a search that gains less says that the default was right
DEFAULT = gateway.Blocks()  # as an entry: there is none, or it switches a shipped one off
CACHED, SHIPPED = "cache", "shipped"

Runs = Annotated[int, typer.Option(help="Samples of the best and of the default, pair by pair (6 at least)")]
Threads = Annotated[int, typer.Option(help="0: as many as Volta would take for each product")]
Isa = Annotated[str, typer.Option(help="Instruction set (default: the best of this machine)")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON")]


@dataclass(frozen=True, slots=True)
class Work:
    """One product to tune, under the instruction set and threads that its program runs with."""

    key: str
    step: Step
    isa: str
    threads: int


def matmul(
    dim: Annotated[int | None, typer.Option(help="A cube of this size")] = None,
    shapes: Annotated[str, typer.Option(help="Comma-separated MxNxK")] = "",
    dtype: Annotated[str, typer.Option(help="f32, bf16 or int8")] = "f32",
    runs: Runs = 7,
    threads: Threads = 0,
    isa: Isa = "auto",
    json: Json = False,
) -> None:
    """Tune matrix products of given sizes."""
    products = [product(shape) for shape in listed(shapes)]
    if dim is not None:
        if dim < 1:
            raise UsageError(f"[tune] --dim is {dim}: expected a whole number above 0")
        products.append((dim, dim, dim))
    if not products:
        raise UsageError("[tune] no size was given: expected --dim N or --shapes MxNxK,..")
    policy = target(isa, threads, runs)
    work: list[Work] = []
    for sizes in products:
        graph = graph_of(dtype, *sizes)
        expect_room("x".join(map(str, sizes)), graph)
        work += work_of(gateway.compile(graph, policy))
    search(work, runs, json)


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
    policy = target(isa, threads, runs)
    work: list[Work] = []
    with runtime(isa=policy.isa, threads=policy.threads):
        if train:
            work += work_of(training_call(run).executable)
        if generate:
            work += work_of(generation_call(run, 1, 0).executable)
    if not work:
        raise UsageError(
            f"[tune] {run}: nothing of it was chosen that has blocks: expected --train or --generate"
        )
    search(work, runs, json)


def show(json: Json = False) -> None:
    """The entries for this processor: those of the cache, and those that ship with Volta."""
    tables, path = tables_in_use(), gateway.tuned_path()
    entries = dict(sorted({**tables.shipped, **tables.cached}.items()))
    origins = {key: CACHED if key in tables.cached else SHIPPED for key in entries}
    if json:
        blocks = {key: {**asdict(value), "from": origins[key]} for key, value in entries.items()}
        output.print_json({"path": str(path), "blocks": blocks})
        return
    output.out.print(f"{path}: {counted(len(tables.cached), 'entry', 'entries')}", markup=False)
    show_shipped(tables)
    if not entries:
        return
    shown = Table()
    for column in ("product", "gain", BLOCKS, "from"):
        shown.add_column(column, overflow="fold")
    for key, value in entries.items():
        blocks_of_it = described(value) if value != DEFAULT else "the default"
        shown.add_row(escape(in_lines(key)), f"{value.gain:.2f}", escape(blocks_of_it), origins[key])
    output.out.print(shown)


def clear() -> None:
    """Forget what was tuned for this processor. What ships with Volta stays."""
    there = gateway.tuned_path().exists()
    path = gateway.clear_tuned()
    output.out.print(f"removed {path}" if there else f"nothing was tuned: no {path}", markup=False)
    show_shipped(tables_in_use())


def show_shipped(tables: gateway.Tables) -> None:
    if tables.shipped:
        used = sum(key not in tables.cached for key in tables.shipped)
        entries = counted(len(tables.shipped), "entry", "entries")
        output.out.print(f"shipped with Volta: {entries}, {used} in use", markup=False)


COMMANDS: dict[str, Callable[..., None]] = {"matmul": matmul, "model": model, "show": show, "clear": clear}


# --- what is tuned -----------------------------------------------------------------------------------


def product(shape: str) -> tuple[int, ...]:
    """m, n, k."""
    parts = shape.split("x")
    if len(parts) != 3 or not all(re.fullmatch("0*[1-9][0-9]{0,99}", part) for part in parts):
        raise UsageError(f"[tune] shape is {shape!r}: expected MxNxK, whole numbers above 0")
    return tuple(map(int, parts))


def graph_of(dtype: str, m: int, n: int, k: int) -> Graph:
    """[m, k] by [k, n]; int8: with one scale for each column."""
    case = cases.gemm(dtype, m, n, k)  # which refuses what is no size or no dtype
    build = GraphBuilder()
    names = ("a", "b", "scale")
    inputs = [
        build.input(name, one.shape, BY_NAME[one.dtype])
        for name, one in zip(names, case.inputs, strict=False)
    ]
    return build.freeze([build.add("quantized_matmul" if dtype == "int8" else "matmul", inputs)])


def target(isa: str, threads: int, runs: int) -> Policy:
    """The instruction set and threads that are tuned for. Refuses early what would fail late: runs, a cache
    directory that cannot be written."""
    if runs < 1:
        raise UsageError(f"[tune] runs is {runs}: expected at least 1")
    gateway.keep_tuned({})
    tables_in_use()
    policy = current()
    chosen = Policy(isa=isa if isa != "auto" else policy.isa, threads=threads or policy.threads)
    name = gateway.resolve(chosen).target.signature.split("/")[1]
    if name == "ref":
        raise UsageError("[tune] isa is ref: the plain reference has no blocks to choose")
    return Policy(isa=name, threads=chosen.threads)


def work_of(executable: Executable) -> list[Work]:
    """The products of a program. Its signature tells what it runs with: a small one has one thread."""
    _, isa, count, *_ = executable.signature.split("/")
    threads = int(count.split()[0])
    return [
        Work(key, step, isa, threads)
        for key, step in gateway.matmul_keys(executable.plan, isa, threads).items()
    ]


# --- the search --------------------------------------------------------------------------------------


def search(work: Sequence[Work], runs: int, json: bool) -> None:
    """Tunes each product; what is faster is kept at once, so that Ctrl-C loses one product at most."""
    products = {one.key: one for one in work}.values()
    known = tables_in_use().used.blocks
    found: list[Found] = []
    skipped: list[str] = []
    path: Path | None = None
    ceilings: dict[tuple[int, str], roofline.Roofline] = {}
    try:
        with watching() as watch:
            for number, one in enumerate(products, start=1):
                where = one.threads, one.isa
                if where not in ceilings:
                    watch(f"measuring the roofline of {one.isa}, {counted(one.threads, 'thread')}")
                    ceilings[where] = roofline.measure(*where)
                watch(f"{number} of {len(products)}: {one.key}")
                best = tune(one.key, one.step, one.isa, one.threads, ceilings[where], runs)
                if best is None:
                    skipped.append(one.key)
                    continue
                if best.best is not None:
                    path = gateway.keep_tuned({one.key: best.best})
                elif one.key in known:
                    gateway.keep_tuned({one.key: DEFAULT})
                found.append(best)
    except KeyboardInterrupt:
        kept = sum(one.best is not None for one in found)
        output.err.print(
            f"stopped after {len(found)} of {counted(len(products), 'product')}: {kept} of them in the table",
            markup=False,
        )
        raise
    if json:
        output.print_json(document(found, skipped, path))
        return
    if found:
        show_found(found)
    for key in skipped:
        output.out.print(f"skipped, its layout cannot be run alone: {key}", markup=False)
    if path is not None:
        output.out.print(f"kept in {path}: matmul uses it from now on", markup=False)


def tables_in_use() -> gateway.Tables:
    """This processor's; why a file is not used is one line on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        tables = gateway.tuned_tables()
    for warning in caught:
        output.err.print(f"volta: {warning.message}", markup=False)
    return tables


# --- what is printed ---------------------------------------------------------------------------------

BLOCKS = "tile kc/mc/nc"


def show_found(found: Sequence[Found]) -> None:
    table = Table()
    for column in ("product", "default", "gain", BLOCKS, "timed"):
        table.add_column(column, overflow="fold")
    for one in found:
        best = described(one.best) if one.best is not None else "the default"
        gain = f"{one.gain.median:.2f}\n{one.gain.low:.2f} to {one.gain.high:.2f}"
        counts = f"{one.tried}\nof {one.all}"
        table.add_row(escape(in_lines(one.key)), duration(one.seconds), gain, escape(best), counts)
    output.out.print(table)
    output.out.print(verdict(found), markup=False)


def verdict(found: Sequence[Found]) -> str:
    """Whether the search gained 5% somewhere, or how near the default is to the best."""
    gains = [one.gain.median for one in found if one.best is not None]
    if gains and max(gains) >= ENOUGH:
        share = f"{len(gains)} of {counted(len(found), 'product')}"
        return f"faster than the default: {share}, the most by {max(gains) - 1:.1%}"
    most = max((max(1.0, one.gain.median) for one in found), default=1.0)
    near = f"within {most - 1:.1%} of the best of the grid"
    return f"the default is {near} for {counted(len(found), 'product')}"


def counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


def document(found: Sequence[Found], skipped: Sequence[str], path: Path | None) -> dict[str, Any]:
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
        "skipped": list(skipped),
    }


def in_lines(key: str) -> str:
    """A key in short lines: dtypes and sizes, a's layout, b's and its groups, instruction set and threads."""
    sizes, a, rest = re.split(" a | b ", key, maxsplit=2)
    *b, isa, threads, _ = rest.split(" ")
    return f"{sizes}\na {a}\nb {' '.join(b)}\n{isa}, {counted(int(threads), 'thread')}"


COPIES = {1: "B in place", 2: "B copied", 4: "A in place", 8: "A copied"}  # csrc/cpu/matmul_problem.h


def described(blocks: gateway.Blocks) -> str:
    """In short lines: the tile, kc/mc/nc, and what else is not left to the kernel (-: its own choice)."""
    tile = blocks.tile.split("_")[2] if blocks.tile else "-"
    sizes = "/".join(str(size or "-") for size in (blocks.kc, blocks.mc, blocks.nc))
    lines = [tile, sizes]
    if blocks.ahead:
        lines.append(f"{blocks.ahead - 1} ahead")
    lines += [word for bit, word in COPIES.items() if blocks.copies & bit]
    if blocks.threads:
        lines.append(counted(blocks.threads, "thread"))
    return "\n".join(lines)
