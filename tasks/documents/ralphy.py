"""What Ralphy 4.7 reads beside PRD.md: tasks.yaml, with a prompt for each task, and .ralphy/config.yaml.

It knows a task of tasks.yaml by its title. Of the configuration, rules and never_touch go into each prompt as
lines of text: they bind nobody. One field of a wrong type, and it goes on with no configuration at all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from io import StringIO
from typing import Any

from gates.law.files import Article, LawError, parse
from markdown_it import MarkdownIt
from ruamel.yaml import YAML
from ruamel.yaml.scalarstring import LiteralScalarString

from tasks.documents.prd import COMMAND, heading, one_line, steps
from tasks.errors import TaskError
from tasks.files import Entry
from tasks.model import ID

TASKS, CONFIG, AGENTS = "tasks.yaml", ".ralphy/config.yaml", "AGENTS.md"
TITLE = re.compile(rf"\[({ID})\] ")
WIDTH = 1 << 20  # so that no line is folded: one sentence is one line of a difference
PROJECT = {
    "name": "volta",
    "language": "Python, C",
    "framework": "",
    "description": "Trains and runs transformers; every result is defined bit for bit. Read AGENTS.md first.",
}
SESSIONS = {"test": "tests", "lint": "lint", "build": "build"}


class Row(Article):
    """A task as Ralphy knows it. Ralphy takes what is missing for open and of no group."""

    title: str
    description: str = ""
    completed: bool = False
    parallel_group: int = 0


class Rows(Article):
    tasks: list[Row]


def tasks_yaml(entries: dict[str, Entry], done: Collection[str]) -> str:
    """parallel_group is the number of the task's step, from 1: Ralphy starts all of a group at the same time,
    whatever depends on what, and to it 0 is no group."""
    rows = [
        Row(
            title=heading(entry),
            description=description(entry),
            completed=entry.task.id in done,
            parallel_group=number,
        )
        for number, step in enumerate(steps(entries), 1)
        for entry in step
    ]
    fields = [row.model_dump() for row in rows]
    for one in fields:
        one["description"] = LiteralScalarString(one["description"])
    return to_yaml({"tasks": fields}, "from tasks/queue and the ledger")


def description(entry: Entry) -> str:
    """What Ralphy tells an agent that works alone, for the title; those side by side get only that."""
    task = entry.task
    return "\n".join(
        (
            heading(entry),
            f"Its file is {entry.path}: read it first. It says why, and with which commands it is judged.",
            f"It may touch: {one_line(', '.join(task.allow))}",
            "It is judged by the gates of what it touches, and by:",
            *(f"- {one_line(one.says)} ({one_line(one.by)})" for one in task.acceptance),
        )
    )


def completed(text: str) -> dict[str, bool]:
    """By id, of a tasks.yaml, also one that Ralphy has written anew. Raises TaskError."""
    try:
        rows = parse(text, TASKS, Rows).tasks
    except LawError as error:
        raise TaskError(str(error)) from error
    found: dict[str, bool] = {}
    wrong: list[str] = []
    for row in rows:
        match = TITLE.match(f"{row.title} ")
        if match is None:
            wrong.append(f"{TASKS}: title {row.title[:60]!r}: expected `[T-NNN] title`")
        elif match[1] in found:
            wrong.append(f"{TASKS}: {match[1]} is there twice: expected it once")
        else:
            found[match[1]] = row.completed
    if wrong:
        raise TaskError("\n".join(wrong))
    return found


def config_yaml(rules: Sequence[str], never_touch: Sequence[str]) -> str:
    """never_touch: paths as governance/tiers.yaml writes them; Ralphy only shows them to agents."""
    fields = {
        "project": PROJECT,
        "commands": {name: f"python3 noxfile.py -s {session}" for name, session in SESSIONS.items()},
        "rules": [one_line(rule) for rule in rules],
        "boundaries": {"never_touch": [one_line(path) for path in never_touch]},
    }
    return to_yaml(fields, "from AGENTS.md and governance/tiers.yaml")


def rules(agents_md: str) -> list[str]:
    """The items of the numbered lists under `## Rules`, each as one line. Raises TaskError."""
    found: list[list[str]] = []
    here = numbered = False
    tokens = MarkdownIt("commonmark").parse(agents_md)
    for index, token in enumerate(tokens):
        if token.type == "heading_open" and token.level == 0:
            here = token.tag == "h2" and tokens[index + 1].content == "Rules"
        elif token.level == 0 and token.nesting:
            numbered = token.type == "ordered_list_open"
        elif here and numbered and token.type == "list_item_open" and token.level == 1:
            found.append([])
        elif here and numbered and token.content:
            found[-1].append(token.content)
    if not found:
        raise TaskError(
            f"{AGENTS}: it has no numbered list under `## Rules`: expected the rules of the house"
        )
    return [one_line(" ".join(parts)) for parts in found]


def to_yaml(fields: dict[str, Any], source: str) -> str:
    writer = YAML(typ="rt")
    writer.width = WIDTH
    writer.indent(mapping=2, sequence=4, offset=2)
    out = StringIO()
    writer.dump(fields, out)
    return f"# Generated {source} by `{COMMAND}`.\n{out.getvalue()}"
