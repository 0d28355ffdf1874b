"""Commands that write what others read: task files, generated files, pull requests, issues."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tasks.commands.desk import (
    Name,
    Onto,
    Where,
    app,
    desk,
    errors,
    out,
)
from tasks.commands.work import committed, open_shop
from tasks.errors import TaskError
from tasks.files import QUEUE, next_id, read_text, slug, to_text
from tasks.github import pull_request
from tasks.github import sync as sync_github
from tasks.landing import Target
from tasks.publish import publish


@app.command()
def new(
    title: Annotated[str | None, typer.Option(help="One line")] = None,
    why: Annotated[str | None, typer.Option(help="What would be better, for whom")] = None,
    allow: Annotated[list[str] | None, typer.Option(help="A path it may touch; may be repeated")] = None,
    owner: Annotated[str | None, typer.Option(help="human, or agent:NAME")] = None,
    repository: Where = Path(),
) -> None:
    """Asks for what a task needs and writes its file."""
    with errors():
        at = desk(repository)
        name = next_id(at.entries)
        title = title or typer.prompt("Title")
        fields = {
            "id": name,
            "title": title,
            "why": why or typer.prompt("Why"),
            "owner": owner or typer.prompt("Owner", default="human"),
            "allow": allow or typer.prompt("Paths it may touch (separated by spaces)").split(),
            "acceptance": [{"says": "The tests pass", "by": "gate:tests"}],
        }
        path = at.repository.root / QUEUE / f"{name}-{slug(title)}.yaml"
        text = to_text(fields)
        read_text(f"{QUEUE}/{path.name}", text)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(text)
        out.print(str(path.relative_to(at.repository.root)), markup=False)


@app.command()
def write(repository: Where = Path(), onto: Onto = None) -> None:
    """Commit what follows from queue and ledger: PRD.md, tasks.yaml, .ralphy/, the ledger's copy."""
    with errors():
        at = desk(repository)
        commit = publish(at.repository, at.ledger, Target.of(at.repository, onto))
        out.print(f"committed {commit.short}" if commit else "everything is as it should be")


@app.command("pr")
def pull_request_(name: Name, onto: Onto = None, repository: Where = Path()) -> None:
    """Open a pull request for what `run --no-land` left, filled in from the evidence. Needs `gh`."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, False, False)
        address = pull_request(shop, committed(at, shop, name))
        out.print(address, markup=False, soft_wrap=True)


@app.command()
def sync(
    github: Annotated[bool, typer.Option("--github", help="Issues, by `gh`")] = False,
    repository: Where = Path(),
) -> None:
    """Bring issues elsewhere into step with the ledger: opened, closed, opened again."""
    with errors():
        if not github:
            raise TaskError("[sync] with what? expected --github")
        at = desk(repository)
        lines = sync_github(at.repository, at.entries, at.statuses())
        for line in lines or ["every issue is as it should be"]:
            out.print(line, markup=False, soft_wrap=True)
