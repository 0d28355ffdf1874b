"""Tasks for people: tables, trees and one task whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from tasks.evidence.ledger import Record
from tasks.evidence.state import ENDED, State, Status
from tasks.files import Entry
from tasks.verdict import Verdict

COLOURS = {
    State.DONE: "green", State.RUNNING: "cyan", State.REVIEW: "yellow", State.BLOCKED: "red",
    State.READY: "bold", State.WAITING: "dim",
}  # fmt: skip


def listing(entries: Mapping[str, Entry], found: Mapping[str, Status]) -> Table:
    table = Table()
    for title in ("task", "state", "owner", "group", "title", "why"):
        table.add_column(title, overflow="fold")
    for name, entry in entries.items():
        status = found[name]
        table.add_row(
            name, coloured(status.state), entry.task.owner, str(entry.task.parallel_group),
            escape(entry.task.title), escape(status.why),
        )  # fmt: skip
    return table


def coloured(state: State) -> str:
    return f"[{COLOURS[state]}]{state.value}[/]"


def document(entry: Entry, status: Status, records: Sequence[Record] = ()) -> dict[str, Any]:
    """One task as JSON, with its records where they are asked for."""
    found: dict[str, Any] = {
        **entry.task.model_dump(), "path": entry.path, "digest": entry.digest, "branch": entry.branch,
        "state": status.state.value, "why_state": status.why, "attempts": status.attempts,
    }  # fmt: skip
    if records:
        found["records"] = [
            {"sequence": one.sequence, "time": one.time, "kind": one.kind, "data": dict(one.data)}
            for one in records
        ]
    return found


def whole(entry: Entry, status: Status, records: Sequence[Record]) -> str:
    """One task: what is asked, where it stands, how every attempt ended."""
    task = entry.task
    lines = [
        f"[bold]{task.id}[/]: {escape(task.title)}",
        f"  {coloured(status.state)}: {escape(status.why)}",
        f"  file {entry.path}, owner {task.owner}, group {task.parallel_group}",
        f"  depends on {', '.join(task.depends_on) or 'nothing'}",
        f"  may touch {escape(', '.join(task.allow))}",
        f"  budget {budget(entry)}; {status.attempts} used",
        "",
        *(f"  {escape(line)}" for line in task.why.strip().splitlines()),
        "",
    ]
    expected = {one.command: one for one in task.expect}
    for name, command in task.commands.items():
        lines.append(f"  command {name}: {escape(command)}")
        if one := expected.get(name):
            lines += [f"    prints what matches {escape(repr(pattern))}" for pattern in one.output]
            lines += [f"    {path}: {bounds}" for path, bounds in one.metrics.items()]
    lines += [f"  accepted when: {escape(one.says)} ({one.by})" for one in task.acceptance]
    if records:
        lines.append("")
    for record in records:
        lines.append(f"  {record.time[:19]} {record.kind:8} {escape(told(record))}")
        if record.kind == ENDED:
            lines += [f"    - {escape(line)}" for line in record.data["findings"][:12]]
    return "\n".join(lines)


def budget(entry: Entry) -> str:
    given = entry.task.budget
    parts = [f"{given.minutes:g} minutes an attempt", f"{given.attempts} attempts"]
    parts += [f"{given.tokens:,} tokens"] if given.tokens else []
    parts += [f"{given.usd:g} USD"] if given.usd else []
    return ", ".join(parts)


def told(record: Record) -> str:
    """A record in a few words."""
    data = record.data
    match record.kind:
        case "claimed":
            return f"attempt {data['attempt']} by {data['agent']}, on {data['base'][:12]}"
        case "worked":
            how = f"{data['ending'].lower()}, exit code {data['exit']}"
            return f"{how}, {data['seconds']:g} s, {data['head'][:12]}"
        case "judged":
            verdicts = ", ".join(f"{one['gate']} {one['verdict']}" for one in data.get("gates", ()))
            return verdicts or "no gate"
        case "landing":
            return f"{data['commit'][:12]} on {data['before'][:12]}"
        case "ended":
            return Verdict[data["verdict"]].value
        case _:
            return str(data.get("why", ""))


def graph(entries: Mapping[str, Entry], found: Mapping[str, Status]) -> Tree:
    """Every task below those that wait for it alone; one that several wait for stands below each."""
    tree = Tree("tasks, below each what it depends on")
    needed = {name for entry in entries.values() for name in entry.task.depends_on}

    def add(to: Tree, name: str) -> None:
        branch = to.add(f"{name} {coloured(found[name].state)} {escape(entries[name].task.title)}")
        for other in entries[name].task.depends_on:
            add(branch, other)

    for name in entries:
        if name not in needed:
            add(tree, name)
    return tree


def dot(entries: Mapping[str, Entry], found: Mapping[str, Status]) -> str:
    """For Graphviz."""
    lines = ["digraph tasks {", "  rankdir=LR; node [shape=box, fontname=sans];"]
    for name, entry in entries.items():
        title = entry.task.title.replace("\\", "\\\\").replace('"', '\\"')
        lines.append(f'  "{name}" [label="{name}\\n{title}\\n{found[name].state.value}"];')
        lines += [f'  "{other}" -> "{name}";' for other in entry.task.depends_on]
    return "\n".join([*lines, "}"])
