"""`python -m gates NAME`: ask one gate, a set of them, or those that a change's tier asks for."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gates import capability, court
from gates.errors import GateError
from gates.evidence.record import Record
from gates.law.files import read
from gates.law.registers import OWNERS, Owners
from gates.policy import CODEOWNERS
from gates.progress import Progress
from gates.registry import FAST, GATES, SLOW
from gates.selftest.run import try_all
from gates.trees.checkout import build_in_place
from gates.trees.repository import Repository

SHOWN = 12  # findings of a gate in the terminal; the report has them all
COLOURS = {
    "PASS": "green", "FAIL": "red", "INCONCLUSIVE": "yellow", "UNPROVEN": "magenta", "NOT_APPLICABLE": "dim",
}  # fmt: skip
out, err = Console(highlight=False), Console(stderr=True, highlight=False)
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Judge a change by the base's gates. Exits 0 only where every verdict is PASS or NOT_APPLICABLE.",
)

Base = Annotated[str | None, typer.Option(help="What it is compared with (default: origin/main, else HEAD)")]
Head = Annotated[str | None, typer.Option(help="The commit to judge (default: the working tree as it is)")]
Json = Annotated[bool, typer.Option("--json", help="Print the summary as JSON instead of a table")]
Seed = Annotated[int | None, typer.Option(help="Of random inputs (default: a new one, printed)")]
Where = Annotated[Path, typer.Option("--repository", help="A directory of the repository")]
Evidence = Annotated[Path | None, typer.Option(help="Where records go (default: .gates/evidence/TREE)")]
Own = Annotated[bool, typer.Option("--own", help="Judge by this code, not the base's: no evidence")]


def judge(
    pick: Callable[[court.Case], tuple[str, list[str]]],
    alone: bool,
    base: str | None,
    head: str | None,
    json: bool,
    seed: int | None,
    repository: Path,
    evidence: Path | None,
    own: bool,
) -> None:
    try:
        case = court.open_case(repository, base, head, not own, evidence, seed)
        asked, names = pick(case)
        if not json:
            err.print(
                f"{asked}; base {case.base.tree.short}, head {case.head.tree.short}, seed {case.seed}",
                markup=False,
            )
        with Progress(err) as progress:
            records = court.run(case, names, alone, progress)
        where = court.publish(case, records, asked)
    except GateError as error:
        err.print(f"gates: {error}", markup=False, style="red", soft_wrap=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        err.print("gates: interrupted; every gate that ran has its record", style="red")
        raise typer.Exit(130) from error
    if json:
        sys.stdout.write(json_module.dumps([one.document() for one in records], indent=1) + "\n")
    else:
        show(records, where)
    if not all(one.outcome.verdict.merges for one in records):
        raise typer.Exit(1)


def show(records: Sequence[Record], where: Path) -> None:
    for one in records:
        for finding in list(one.outcome.findings)[:SHOWN]:
            out.print(f"{one.gate}: {finding}", markup=False, soft_wrap=True)
        more = len(one.outcome.findings) - SHOWN
        if more > 0:
            out.print(f"{one.gate}: and {more} more", markup=False)
    table = Table()
    for title in ("gate", "verdict", "time", "what decided", "evidence"):
        table.add_column(title, overflow="fold", justify="right" if title == "time" else "left")
    for one in records:
        verdict = str(one.outcome.verdict)
        table.add_row(
            one.gate,
            f"[{COLOURS[verdict]}]{verdict}[/]",
            f"{one.seconds:.1f} s",
            escape(one.outcome.figure),
            escape(short(Path(one.log).parent) if one.log else ""),
        )
    (out if out.is_terminal else Console(width=200, highlight=False)).print(table)
    out.print(f"report: {short(where)}", markup=False, soft_wrap=True)


def short(path: Path) -> str:
    """Relative to where the caller stands, where it lies below."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def register(name: str, says: str, pick: Callable[[court.Case], tuple[str, list[str]]], alone: bool) -> None:
    def command(
        base: Base = None,
        head: Head = None,
        json: Json = False,
        seed: Seed = None,
        repository: Where = Path(),
        evidence: Evidence = None,
        own: Own = False,
    ) -> None:
        judge(pick, alone, base, head, json, seed, repository, evidence, own)

    app.command(name, help=says)(command)


for row in GATES.values():
    register(row.name, row.says, lambda case, name=row.name: (name, [name]), True)  # type: ignore[misc]
for one_set in (FAST, SLOW):
    chosen = [row.name for row in GATES.values() if row.set == one_set or one_set == SLOW]
    says = f"every {one_set} gate, in order" if one_set == FAST else "every gate, the slow ones too"
    register(one_set, says, lambda case, names=chosen, name=one_set: (f"the {name} set", names), True)  # type: ignore[misc]
register("gate", "what a pull request gets: the gates that its tier asks for", court.tier_gates, False)


@app.command()
def codeowners(repository: Where = Path()) -> None:
    """Write .github/CODEOWNERS from governance/owners.yaml."""
    try:
        file = repository / CODEOWNERS
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(read(repository, OWNERS, Owners).codeowners())
    except GateError as error:
        err.print(f"gates: {error}", markup=False, style="red", soft_wrap=True)
        raise typer.Exit(2) from error


@app.command()
def selftest(
    names: Annotated[list[str] | None, typer.Argument(help="Gates or patches (default: all)")] = None,
    repository: Where = Path(),
    seed: Seed = None,
) -> None:
    """Ask every gate about its seeded bad patches, which it must reject, and about good ones."""
    try:
        case = court.open_case(repository, "HEAD", None, True, None, seed)
        with Progress(err) as progress:
            trials = try_all(case, names or (), progress)
    except GateError as error:
        err.print(f"gates: {error}", markup=False, style="red", soft_wrap=True)
        raise typer.Exit(2) from error
    table = Table()
    for title in ("gate", "patch", "time", "verdict", "what is wrong"):
        table.add_column(title, overflow="fold", justify="right" if title == "time" else "left")
    for trial in trials:
        verdict = str(trial.record.outcome.verdict) if trial.record else "-"
        table.add_row(
            trial.patch.gate, escape(trial.patch.name), f"{trial.seconds:.1f} s", verdict, escape(trial.why)
        )
    (out if out.is_terminal else Console(width=200, highlight=False)).print(table)
    failed = [trial for trial in trials if trial.why]
    bad = sum(not trial.patch.verdict.merges for trial in trials)
    out.print(f"{bad} bad and {len(trials) - bad} good patches: {len(failed)} judged wrongly")
    if failed:
        raise typer.Exit(1)


@app.command("write-capability")
def write_capability(repository: Where = Path()) -> None:
    """Write governance/capability.md from the working tree's tables; its kernels must be compiled."""
    try:
        capability.write(Repository.at(repository).root)
    except GateError as error:
        err.print(f"gates: {error}", markup=False, style="red", soft_wrap=True)
        raise typer.Exit(2) from error


@app.command()
def build(repository: Where = Path()) -> None:
    """Compile the working tree's kernels in place, where their sources have changed since."""
    try:
        found = Repository.at(repository)
        build_in_place(found, found.root)
    except GateError as error:
        err.print(f"gates: {error}", markup=False, style="red", soft_wrap=True)
        raise typer.Exit(2) from error


@app.command("list")
def list_() -> None:
    """The gates, their sets and time limits."""
    table = Table()
    for title in ("gate", "set", "limit", "what it says"):
        table.add_column(title)
    for row in GATES.values():
        table.add_row(row.name, row.set, f"{row.limit_s} s", row.says)
    out.print(table)


if __name__ == "__main__":
    app(prog_name="gates")
