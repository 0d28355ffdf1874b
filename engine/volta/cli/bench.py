"""volta bench: Volta beside its peers and beside what this machine can do at most."""

from __future__ import annotations

import json as json_module
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from volta import __version__
from volta.bench import bits, cases, infer, report, suite, train
from volta.bench import roofline as rooflines
from volta.bench.machine import described, machine
from volta.bench.profile import Profile, groups
from volta.bench.report import Report
from volta.bench.suite import Method
from volta.cli import output
from volta.cli.delivery import STDOUT, deliver, print_table, settled
from volta.errors import UsageError, VoltaError
from volta.infer.weights import Weights
from volta.model.config import CONFIGS, named
from volta.runtime import gateway
from volta.runtime.policy import MOST_THREADS, current, runtime

NAME = "bench"
HELP = "Measure: correctness in the same run, sides alternating, medians, spread and paired ratios."

Peers = Annotated[
    str, typer.Option(help="Comma-separated: torch, numpy (what is missing is skipped by name)")
]
Threads = Annotated[str, typer.Option(help="Comma-separated numbers of threads (default: 1 and all)")]
Rounds = Annotated[int, typer.Option(help="Samples of each side; 6 or more give a 95% interval")]
Seconds = Annotated[float, typer.Option(help="Length of one sample")]
Seed = Annotated[int | None, typer.Option(help="Of the inputs (default: a new one for every run)")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the result as JSON; - prints it")]
Csv = Annotated[Path | None, typer.Option("--csv", help="Write a line per side and case; - prints them")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown")]
Plot = Annotated[Path | None, typer.Option("--plot", help="Draw it (png, svg or pdf)")]
Save = Annotated[Path | None, typer.Option("--save", help="Keep the result as a baseline")]
Compare = Annotated[Path | None, typer.Option("--compare", help="Show what changed since this baseline")]
Fail = Annotated[
    bool, typer.Option("--fail-on-regression", help="Exit 1 where a case of the baseline is surely slower")
]

# TinyLM's products in a step of training: [rows, width] of its activations by its weights, batch 12.
TINYLM_SHAPES = ("3072x384x128", "3072x128x128", "3072x512x128", "3072x128x512", "3072x256x128")


def gemm(
    sizes: Annotated[str, typer.Option(help="Comma-separated: N for a cube, MxNxK, or tinylm")] = (
        "256,512,1024,2048,tinylm"
    ),
    dtypes: Annotated[str, typer.Option(help="Comma-separated: f32, bf16, int8")] = "f32",
    threads: Threads = "",
    peers: Peers = "",
    rounds: Rounds = 11,
    seconds: Seconds = 0.03,
    seed: Seed = None,
    json: Json = None,
    csv: Csv = None,
    markdown: Markdown = False,
    plot_to: Plot = None,
    save: Save = None,
    compare_to: Compare = None,
    fail: Fail = False,
) -> None:
    """Matrix products, f32 (N1), bf16 (N9) and int8 (N10)."""
    to = settled("gemm", json, csv, markdown, plot_to, save, compare_to, fail)
    shapes = [shape for size in some("sizes", sizes) for shape in shapes_of(size)]
    chosen = [cases.gemm(dtype, *shape) for dtype in some("dtypes", dtypes) for shape in shapes]
    found = run_cases("gemm", chosen, threads, peers, rounds, seconds, seed)
    deliver(found, to)


def attention(
    seq_lens: Annotated[str, typer.Option(help="Comma-separated lengths of the text")] = "128,512,2048",
    heads: Annotated[int, typer.Option(help="Query heads")] = 6,
    width: Annotated[int, typer.Option(help="Of a head")] = 64,
    batch: Annotated[int, typer.Option(help="Texts at once")] = 1,
    backward: Annotated[bool, typer.Option(help="The gradients, too")] = True,
    threads: Threads = "",
    peers: Peers = "",
    rounds: Rounds = 11,
    seconds: Seconds = 0.03,
    seed: Seed = None,
    json: Json = None,
    csv: Csv = None,
    markdown: Markdown = False,
    plot_to: Plot = None,
    save: Save = None,
    compare_to: Compare = None,
    fail: Fail = False,
) -> None:
    """Causal attention and its gradients (N5)."""
    to = settled("attention", json, csv, markdown, plot_to, save, compare_to, fail)
    chosen = [
        cases.attention(batch, heads, number("seq-lens", length), width, gradient)
        for length in some("seq-lens", seq_lens)
        for gradient in ((False, True) if backward else (False,))
    ]
    found = run_cases("attention", chosen, threads, peers, rounds, seconds, seed)
    deliver(found, to)


def ops(
    sizes: Annotated[str, typer.Option(help="Comma-separated ROWSxWIDTH")] = "768x128,2048x384,8192x1024",
    only: Annotated[str, typer.Option(help=f"Comma-separated, of {', '.join(cases.OPERATIONS)}")] = "",
    threads: Threads = "",
    peers: Peers = "",
    rounds: Rounds = 7,
    seconds: Seconds = 0.02,
    seed: Seed = None,
    json: Json = None,
    csv: Csv = None,
    markdown: Markdown = False,
    plot_to: Plot = None,
    save: Save = None,
    compare_to: Compare = None,
    fail: Fail = False,
) -> None:
    """The other operations of a transformer, as shares of the roofline."""
    to = settled("ops", json, csv, markdown, plot_to, save, compare_to, fail)
    kinds = some("only", only) if only else list(cases.OPERATIONS)
    shapes = [dimensions(size, "ROWSxWIDTH") for size in some("sizes", sizes)]
    chosen = [cases.op(kind, *shape) for shape in shapes for kind in kinds]
    found = run_cases("ops", chosen, threads, peers, rounds, seconds, seed)
    deliver(found, to)


def train_step(
    config: Annotated[str, typer.Option(help=f"One of {', '.join(CONFIGS)}")] = "nanogpt-cpu",
    batch: Annotated[int | None, typer.Option(help="Rows (default: 12, and 8 for small)")] = None,
    dtype: Annotated[str, typer.Option(help="Of Volta's linear layers: f32 or bf16")] = "f32",
    threads: Annotated[int | None, typer.Option(help="Of every side (default: all)")] = None,
    peers: Annotated[str, typer.Option(help="Comma-separated: torch, torch-compile, torch-bf16")] = "",
    rounds: Rounds = 9,
    steps: Annotated[int, typer.Option(help="Training steps per round")] = 10,
    json: Json = None,
    csv: Csv = None,
    markdown: Markdown = False,
    plot_to: Plot = None,
    save: Save = None,
    compare_to: Compare = None,
    fail: Fail = False,
) -> None:
    """A step of training: forward, backward, clipping, AdamW; losses are compared in the same run."""
    to = settled("train", json, csv, markdown, plot_to, save, compare_to, fail)
    rows = (8 if config == "small" else 12) if batch is None else batch
    count = gateway.cpu_info().cpus if threads is None else counts(str(threads))[0]
    with watching() as watch:
        found = train.run(
            config,
            named(config, dtype=dtype),
            rows,
            count,
            names(peers, ("torch", "torch-compile", "torch-bf16")),
            Method(rounds),
            steps,
            watch,
        )
    deliver(found, to)


def infer_tokens(
    config: Annotated[str, typer.Option(help=f"One of {', '.join(CONFIGS)}")] = "tiny",
    prompt: Annotated[int, typer.Option(help="Tokens read before the first is generated")] = 64,
    tokens: Annotated[int, typer.Option(help="Tokens generated after them")] = 64,
    runs: Annotated[int, typer.Option(help="How often the whole is measured")] = 7,
    warmup: Annotated[int, typer.Option(help="Runs before them that do not count")] = 1,
    threads: Annotated[int, typer.Option(help="0: as Volta chooses")] = 0,
    weights: Annotated[str, typer.Option(help="Of linear layers: f32, bf16 or int8")] = "f32",
    group: Annotated[int, typer.Option(help="int8: neighbours that share a scale; 0: one per output")] = 0,
    activations: Annotated[str, typer.Option(help="With int8 weights: f32 or int8")] = "f32",
    json: Json = None,
    csv: Csv = None,
    markdown: Markdown = False,
    plot_to: Plot = None,
    save: Save = None,
    compare_to: Compare = None,
    fail: Fail = False,
) -> None:
    """Generation: latency of each token, where its time goes, what the key/value cache gains."""
    to = settled("infer", json, csv, markdown, plot_to, save, compare_to, fail)
    chosen = Weights(weights, group, activations)
    with watching() as watch:
        found, profile = infer.run(
            config, named(config), infer.Load(prompt, tokens, runs, warmup), threads, chosen, watch
        )
    deliver(found, to)
    if to.prints_table:
        for one in found.measurements[:1]:
            output.print_rows("one token", [(name, f"{value:.6g}") for name, value in one.figures.items()])
        show_profile(profile, 12)


def roofline_command(
    threads: Threads = "",
    isa: Annotated[
        str, typer.Option(help="Comma-separated instruction sets (default: all of this machine)")
    ] = "",
    seconds: Annotated[float, typer.Option(help="Length of one sample")] = 0.02,
    json: Json = None,
) -> None:
    """What this machine can do at most: arithmetic, bandwidth per cache level, the cost of a barrier."""
    to = settled("roofline", json, None, False, None, None, None, False)
    rooflines.check_seconds(seconds)
    gateway.resolve(current())
    sets = some("isa", isa) if isa else list(gateway.cpu_info().isas)
    for one in sets:
        with runtime(isa=one) as policy:
            gateway.resolve(policy)
    found = []
    with watching() as watch:
        for count in counts(threads):
            for one in sets:
                watch(f"{one}, {report.counted(count, 'thread')}")
                found.append(rooflines.measure(count, one, seconds))
    result = Report(
        suite="roofline",
        command="volta " + shlex.join(sys.argv[1:]),
        version=__version__,
        machine=machine(),
        method={"sample_seconds": seconds},
        rooflines=tuple(one.document() for one in found),
        measurements=(),
    )
    if to.json == STDOUT:
        output.print_json(result.document())
    elif to.json is not None:
        report.write_json(result, to.json)
    if to.prints_table:
        show_rooflines(found)


def bits_command(
    peers: Annotated[str, typer.Option(help="torch, or nothing (what is missing is skipped by name)")] = "",
    json: Json = None,
) -> None:
    """How many output bits change when only the way of computing them does: batch, threads, ISA, cache."""
    to = settled("bits", json, None, False, None, None, None, False)
    with watching() as watch:
        found = bits.compare(["volta", *names(peers, ("torch",))], watch)
    if to.json == STDOUT:
        output.print_json(found.document())
    else:
        sys.stdout.write(bits.table(found))
        if to.json is not None:
            report.write_text(to.json, json_module.dumps(found.document(), indent=1) + "\n")
    differ = sum(cell["differ"] for cells in found.ways.values() if isinstance(cell := cells["volta"], dict))
    if differ:
        raise VoltaError(f"[bench] {differ} of Volta's elements differ: expected 0")


COMMANDS: dict[str, Callable[..., None]] = {
    "gemm": gemm,
    "train": train_step,
    "infer": infer_tokens,
    "attention": attention,
    "ops": ops,
    "roofline": roofline_command,
    "bits": bits_command,
}


# --- arguments ---------------------------------------------------------------------------------------


MOST_DIGITS = 18  # of a size: what fits a signed 64-bit integer


def listed(text: str) -> list[str]:
    """The parts between commas, each once."""
    return list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))


def some(option: str, text: str) -> list[str]:
    parts = listed(text)
    if not parts:
        raise UsageError(f"[bench] --{option} is {text!r}: expected at least one")
    return parts


def number(option: str, text: str) -> int:
    if not text.isdecimal() or len(text) > MOST_DIGITS or int(text) < 1:
        raise UsageError(
            f"[bench] --{option} is {text!r}: expected a whole number, 1 to below 10^{MOST_DIGITS}"
        )
    return int(text)


def dimensions(text: str, form: str) -> tuple[int, ...]:
    """Numbers in a form such as MxNxK."""
    parts = text.split("x")
    fit = [part.isdecimal() and len(part) <= MOST_DIGITS and int(part) > 0 for part in parts]
    if len(parts) != len(form.split("x")) or not all(fit):
        raise UsageError(f"[bench] size is {text!r}: expected {form}, each 1 to below 10^{MOST_DIGITS}")
    return tuple(map(int, parts))


def shapes_of(size: str) -> list[tuple[int, ...]]:
    if size == "tinylm":
        return [dimensions(shape, "MxNxK") for shape in TINYLM_SHAPES]
    return [dimensions(size, "MxNxK") if "x" in size else (number("sizes", size),) * 3]


def counts(threads: str) -> list[int]:
    usable = gateway.cpu_info().cpus
    chosen = [number("threads", part) for part in some("threads", threads)] if threads else [1, usable]
    for count in chosen:
        if count > MOST_THREADS:
            raise UsageError(f"[bench] threads is {count}: expected 1 to {MOST_THREADS}")
    return sorted(set(chosen))


def names(peers: str, known: Sequence[str]) -> list[str]:
    chosen = some("peers", peers) if peers else []
    for name in chosen:
        if name not in known:
            raise UsageError(f"[bench] peer is {name!r}: expected one of {', '.join(known)}")
    return chosen


# --- running -----------------------------------------------------------------------------------------


def run_cases(
    name: str,
    chosen: Sequence[cases.Case],
    threads: str,
    peers: str,
    rounds: int,
    seconds: float,
    seed: int | None,
) -> Report:
    method = Method(rounds, seconds, suite.fresh_seed() if seed is None else seed)
    with watching() as watch:
        return suite.run(name, chosen, counts(threads), names(peers, ("numpy", "torch")), method, watch)


@contextmanager
def watching() -> Iterator[Callable[[str], None]]:
    """What is being done, on standard error: one live line on a terminal, else a line each."""
    if not output.err.is_terminal:
        yield lambda line: output.err.print(line, style="dim", markup=False)
        return
    with output.err.status("starting") as status:
        yield lambda line: status.update(escape(line))


# --- tables ------------------------------------------------------------------------------------------


def show_rooflines(found: Sequence[rooflines.Roofline]) -> None:
    output.out.print(described(machine()), markup=False)
    peaks = Table(title="peaks (a fused multiply-add is two)", title_justify="left")
    for column in ("threads", "isa", *found[0].peaks, "barrier"):
        peaks.add_column(column, justify="right")
    walks = Table(title="bandwidth, GB/s: read, write, copy (read + written)", title_justify="left")
    walks.add_column("threads", justify="right")
    walks.add_column("isa", justify="right")
    levels = [level.name for level in max((roof.levels for roof in found), key=len)]
    for name in levels:
        walks.add_column(name, justify="right")
    for roof in found:
        rates = [f"{rate * 1e-9:,.1f}" if rate else "-" for rate in roof.peaks.values()]
        peaks.add_row(str(roof.threads), roof.isa, *rates, report.duration(roof.barrier_seconds))
        cells = {
            level.name: " ".join(f"{rate * 1e-9:.0f}" for rate in (level.read, level.write, level.copy))
            for level in roof.levels
        }
        walks.add_row(str(roof.threads), roof.isa, *(cells.get(name, "-") for name in levels))
    print_table(peaks)
    output.out.print("  peaks in G operations/s", style="dim")
    print_table(walks)


def show_profile(found: Profile, most: int) -> None:
    """The slowest groups of steps, and what is left for waiting."""
    table = Table(title=f"where {report.duration(found.seconds)} go", title_justify="left")
    for column in ("step", "calls", "time", "share", "GFLOP/s", "GB/s", "of the roofline"):
        table.add_column(column, justify="left" if column == "step" else "right", overflow="fold")
    for group in groups(found)[:most]:
        table.add_row(
            escape(group.label),
            str(group.calls),
            report.duration(group.seconds),
            f"{group.seconds / found.seconds:.1%}",
            f"{group.work.flops / group.seconds * 1e-9:.1f}" if group.seconds else "-",
            f"{group.work.bytes / group.seconds * 1e-9:.1f}" if group.seconds else "-",
            f"{group.share:.0%} ({group.bound})",
        )
    rest = sum(group.seconds for group in groups(found)[most:])
    if rest:
        table.add_row("all others", "", report.duration(rest), f"{rest / found.seconds:.1%}", "", "", "")
    waiting = found.waiting
    table.add_row(
        "waiting at barriers", "", report.duration(waiting), f"{waiting / found.seconds:.1%}", "", "", ""
    )
    print_table(table)
