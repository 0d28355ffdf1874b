"""What every command shares: the queue and the ledger, options, errors in one line."""

from __future__ import annotations

import json as json_module
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from gates.errors import GateError
from gates.trees.repository import Repository
from rich.console import Console

from tasks.errors import TaskError
from tasks.evidence.ledger import Ledger, Record
from tasks.evidence.state import Status, statuses
from tasks.files import Entry, read_directory

out, err = Console(highlight=False), Console(stderr=True, highlight=False)
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Work as task files: agents do it, gates judge it, the ledger keeps the evidence.",
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON")]
Where = Annotated[Path, typer.Option("--repository", help="A directory of the repository")]
Onto = Annotated[str | None, typer.Option(help="The branch on which work lands (default: the current one)")]
Name = Annotated[str, typer.Argument(metavar="T-NNN", help="The task")]
AgentName = Annotated[
    str | None, typer.Option("--agent", help='A name, command:"..." or patch:FILE (default: the owner)')
]
NoLand = Annotated[bool, typer.Option("--no-land", help="Leave what passed for `land`")]
Sandbox = Annotated[bool, typer.Option(help="Let the agent write to its workspace alone (bubblewrap)")]


@dataclass(frozen=True)
class Desk:
    """What every command looks at. The queue is the working tree's."""

    repository: Repository
    ledger: Ledger
    entries: dict[str, Entry]

    def statuses(self) -> dict[str, Status]:
        tip = self.repository.tree("HEAD").commit
        return statuses(self.repository, self.entries, self.ledger.records(), tip)

    def entry(self, name: str) -> Entry:
        if name not in self.entries:
            raise TaskError(
                f"[tasks] {name!r} is no task: expected one of {', '.join(self.entries) or 'none'}"
            )
        return self.entries[name]

    def records(self, name: str) -> list[Record]:
        return [one for one in self.ledger.records() if one.task == name]


def desk(where: Path) -> Desk:
    repository = Repository.at(where)
    return Desk(repository, Ledger(repository), read_directory(repository.root))


@contextmanager
def errors() -> Iterator[None]:
    """One line each, and an exit code: 2 for a question that cannot be answered, 130 for Ctrl-C."""
    try:
        yield
    except (TaskError, GateError) as error:
        err.print(f"tasks: {error}", markup=False, style="red", soft_wrap=True)
        raise typer.Exit(2) from error
    except KeyboardInterrupt as error:
        err.print("tasks: interrupted; what agents did is kept: `python -m tasks resume`", style="red")
        raise typer.Exit(130) from error


def print_json(document: Any) -> None:
    sys.stdout.write(json_module.dumps(document, indent=1) + "\n")
