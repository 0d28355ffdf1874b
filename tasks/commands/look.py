"""Commands that only look: at the queue, at one task, at who works, at the evidence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from gates.evidence.page import write as write_page
from gates.trees.repository import Repository
from rich.console import Console

from tasks import report, show, watching
from tasks.commands.desk import (
    Json,
    Name,
    Where,
    app,
    desk,
    errors,
    out,
    print_json,
)
from tasks.errors import TaskError
from tasks.evidence.ledger import COPY, Ledger, compare, verify
from tasks.evidence.state import State
from tasks.model import Task
from tasks.proving import change_of
from tasks.publish import drifted


@app.command("list")
def list_(repository: Where = Path(), json: Json = False) -> None:
    """Every task and where it stands, by its evidence."""
    with errors():
        at = desk(repository)
        found = at.statuses()
        if json:
            print_json([show.document(one, found[name]) for name, one in at.entries.items()])
            return
        wide = out if out.is_terminal else Console(width=200, highlight=False)
        wide.print(show.listing(at.entries, found))
        counts = {state: sum(one.state is state for one in found.values()) for state in State}
        wide.print(
            ", ".join(f"{count} {state.value}" for state, count in counts.items() if count) or "no task"
        )


@app.command("show")
def show_(name: Name, repository: Where = Path(), json: Json = False) -> None:
    """One task whole, with every record of it."""
    with errors():
        at = desk(repository)
        entry, status, records = at.entry(name), at.statuses()[name], at.records(name)
        if json:
            print_json(show.document(entry, status, records))
        else:
            out.print(show.whole(entry, status, records), soft_wrap=True)


@app.command()
def review(name: Name, repository: Where = Path(), json: Json = False) -> None:
    """What a person decides on: the evidence of the last attempt and its change. `land` or `pr` follow."""
    with errors():
        at = desk(repository)
        entry, status, records = at.entry(name), at.statuses()[name], at.records(name)
        change = change_of(at.repository, records)
        if json:
            print_json({**show.document(entry, status, records), "diff": change})
            return
        out.print(show.whole(entry, status, records), soft_wrap=True)
        out.print()
        out.print(change or "no change is kept", markup=False, soft_wrap=True)


@app.command("next")
def next_(repository: Where = Path(), json: Json = False) -> None:
    """The first task that can begin now. Exit code 1 where there is none."""
    with errors():
        at = desk(repository)
        found = at.statuses()
        name = next((name for name, one in found.items() if one.state is State.READY), None)
        if json:
            print_json(show.document(at.entries[name], found[name]) if name else None)
        elif name:
            out.print(f"{name}: {at.entries[name].task.title}", markup=False)
        if name is None:
            raise typer.Exit(1)


@app.command()
def graph(
    repository: Where = Path(), dot: Annotated[bool, typer.Option("--dot", help="For Graphviz")] = False
) -> None:
    """What waits for what."""
    with errors():
        at = desk(repository)
        if dot:
            sys.stdout.write(show.dot(at.entries, at.statuses()) + "\n")
        else:
            out.print(show.graph(at.entries, at.statuses()))


@app.command()
def schema() -> None:
    """The JSON Schema of a task file, for editors."""
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **Task.model_json_schema()}
    print_json(document)


@app.command("watch")
def watch_(repository: Where = Path()) -> None:
    """Live: every agent's task, phase, last words, time, tokens and money."""
    with errors():
        at = desk(repository)
        watching.watch(at.repository, at.ledger, at.entries, out, lambda: False)


@app.command("report")
def report_(
    html: Annotated[Path, typer.Option(help="The file to write")] = Path("tasks.html"),
    repository: Where = Path(),
) -> None:
    """Queue, evidence, timings and costs as one HTML file that needs no network."""
    with errors():
        at = desk(repository)
        records = at.ledger.records()
        facts = {
            "repository": at.repository.root.name,
            "commit": at.repository.tree("HEAD").short,
        }
        write_page(html, report.page(at.entries, at.statuses(), records, facts))
        out.print(str(html), markup=False, soft_wrap=True)


@app.command()
def drift(
    files: Annotated[Path, typer.Argument(help="A directory with the files of a commit")] = Path(),
    before: Annotated[Path | None, typer.Option(help="One with those of an earlier commit")] = None,
    commit: Annotated[str, typer.Option(help="The commit that must hold what is done")] = "HEAD",
    repository: Where = Path(),
) -> None:
    """Is what is generated what queue and ledger say, and did the ledger only grow? Exit code 1 where not."""
    with errors():
        wrong = drifted(Repository.at(repository), files, before, commit)
        for line in wrong:
            out.print(line, markup=False, soft_wrap=True)
        if wrong:
            raise typer.Exit(1)


@app.command("verify-ledger")
def verify_ledger(
    file: Annotated[
        Path | None, typer.Argument(help="A copy as JSON lines (default: this repository's)")
    ] = None,
    head: Annotated[str | None, typer.Option(help="The digest that it must end with")] = None,
    repository: Where = Path(),
) -> None:
    """Find any record that was edited, dropped or moved. Needs no network, and for a file no repository."""
    with errors():
        if file is not None:
            if not file.is_file():
                raise TaskError(f"[ledger] {file} is not there: expected records as JSON lines")
            records, wrong = verify(file.read_text(errors="replace").splitlines(), head)
        else:
            found = Repository.at(repository)
            records, wrong = verify(Ledger(found).text().splitlines(), head)
            copy = found.root / COPY
            wrong += compare(copy, records) if copy.is_file() else []
        for line in wrong:
            out.print(line, markup=False, soft_wrap=True)
        last = records[-1].digest if records else "none"
        out.print(f"{len(records)} records, {len(wrong)} faults, head {last}", soft_wrap=True)
        if wrong:
            raise typer.Exit(1)
