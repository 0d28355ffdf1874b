"""Who works on what just now: a table that is drawn anew on a terminal, else a line for each change."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from gates.trees.repository import Repository
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tasks.agents.adapters import Usage, usage
from tasks.agents.output import TAIL, plain
from tasks.evidence.ledger import Ledger, Record
from tasks.evidence.state import BLOCKED, CLAIMED, ENDED, WORKED, by_name, opened
from tasks.files import Entry
from tasks.verdict import Verdict
from tasks.work.lease import Holder, holder
from tasks.work.place import HOME

WIDTH = 120  # characters of the last line
QUIET = 3  # looks in a row that find nobody: between two tasks a crew holds none for a moment
COLUMNS = ("task", "agent", "attempt", "phase", "time", "tokens", "USD", "says")
FIGURES = ("attempt", "time", "tokens", "USD")


@dataclass(frozen=True, slots=True)
class Row:
    """seconds: in this attempt. line: the last that the agent printed, plain text. tokens, usd: of the task
    since it was opened, as its agents report; None where none does."""

    task: str
    agent: str
    attempt: int
    phase: str
    seconds: float
    line: str
    tokens: int | None
    usd: float | None

    def __str__(self) -> str:
        says = f": {self.line}" if self.line else ""
        return f"{self.task}: {self.agent}, attempt {self.attempt}, {clock(self.seconds)}, {self.phase}{says}"


def snapshot(
    repository: Repository, entries: Mapping[str, Entry], records: Sequence[Record], now: datetime
) -> list[Row]:
    """A row for each task that somebody holds, in the queue's order. now: with a time zone."""
    held = {name: one for name in entries if (one := holder(repository, name))}
    return [row(repository, name, held[name], own, now) for name, own in by_name(held, records).items()]


def row(repository: Repository, name: str, held: Holder, own: Sequence[Record], now: datetime) -> Row:
    begun = next((one for one in reversed(own) if one.kind == CLAIMED), None)
    attempt = int(begun.data["attempt"]) if begun else 0
    line, used = heard(repository.root / HOME / "runs" / name / str(attempt) / "agent.log")
    paid = [Usage(one.data.get("tokens"), one.data.get("usd")) for one in opened(own) if one.kind == WORKED]
    if begun and not any(one.kind == WORKED and one.sequence > begun.sequence for one in own):
        paid.append(used)  # what is in no record yet
    since = [datetime.fromisoformat(one) for one in (held.since, begun.time if begun else "") if one]
    resting = own[-1] if own and own[-1].kind == ENDED else None
    verdict = Verdict[resting.data["verdict"]] if resting else None
    return Row(
        task=name,
        agent=str(begun.data["agent"]) if begun else "",
        attempt=attempt,
        phase=f"after: {verdict.value}" if verdict and not verdict.done else held.phase,
        seconds=max(0.0, (now - max(since)).total_seconds()) if since else 0.0,
        line=line,
        tokens=sum(known) if (known := [one.tokens for one in paid if one.tokens is not None]) else None,
        usd=sum(cost) if (cost := [one.usd for one in paid if one.usd is not None]) else None,
    )


def heard(log: Path) -> tuple[str, Usage]:
    """The last line that says anything, and what the agent says of its cost, by the end of its log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            text = file.read()
    except OSError:  # it has not begun, or it has no log
        return "", Usage()
    line = next(filter(None, map(plain, reversed(text.splitlines()))), "")
    try:
        used = usage(text.decode(errors="replace"))
    except RecursionError:  # of a document deeper than any that an agent reports with
        used = Usage()
    return line[:WIDTH], used


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def table(rows: Sequence[Row]) -> Table:
    shown = Table(expand=True)
    for title in COLUMNS:
        shown.add_column(
            title,
            justify="right" if title in FIGURES else "left",
            no_wrap=title != "phase",
            ratio=1 if title == "says" else None,
        )
    for one in rows:
        tokens = "" if one.tokens is None else f"{one.tokens:,}"
        usd = "" if one.usd is None else f"{one.usd:.2f}"
        cells = (one.task, one.agent, str(one.attempt), one.phase, clock(one.seconds), tokens, usd, one.line)
        shown.add_row(*map(Text, cells))
    return shown


# --- while it goes on ------------------------------------------------------------------------------------


def watch(
    repository: Repository,
    ledger: Ledger,
    entries: Mapping[str, Entry],
    out: Console,
    stop: Callable[[], bool],
    every_s: float = 1.0,
) -> None:
    """Until nobody works any more, stop() or Ctrl-C; it says which. Who works is not disturbed."""
    try:
        seen = looks(repository, ledger, entries, stop, every_s)
        if out.is_terminal:
            with Live(console=out, auto_refresh=False, transient=True) as live:
                for _, rows, ended in seen:
                    for line in ended:
                        out.print(Text(line))
                    live.update(table(rows), refresh=True)
        else:
            for before, rows, ended in seen:
                for line in (*ended, *changed(before, rows)):
                    out.print(Text(line), soft_wrap=True)
        stopped = stop()
    except KeyboardInterrupt:
        stopped = True
    out.print(Text("stopped watching; who works goes on" if stopped else "nobody works on a task"))


def looks(
    repository: Repository,
    ledger: Ledger,
    entries: Mapping[str, Entry],
    stop: Callable[[], bool],
    every_s: float,
) -> Iterator[tuple[Mapping[str, Row], list[Row], list[str]]]:
    """Rows by task of the look before, rows of this one, lines on what was let go between."""
    before: dict[str, Row] = {}
    quiet, most = 0, 1
    while not stop():
        rows = snapshot(repository, entries, ledger.records(), datetime.now(UTC))
        gone = before.keys() - {one.task for one in rows}
        after = ledger.records() if gone else ()  # a record comes before its lease is let go
        yield before, rows, [let_go(name, after) for name in sorted(gone)]
        quiet, most = (0, QUIET) if rows else (quiet + 1, most)
        if quiet >= most:
            return
        before = {one.task: one for one in rows}
        time.sleep(every_s)


def let_go(name: str, records: Sequence[Record]) -> str:
    """How a task stands that nobody holds any more."""
    last = next((one for one in reversed(records) if one.task == name), None)
    if last is not None and last.kind == ENDED:
        return f"{name}: {Verdict[last.data['verdict']].value}"
    if last is not None and last.kind == BLOCKED:
        return f"{name}: blocked: {last.data['why']}"
    return f"{name}: its runner let it go before it ended"


def changed(before: Mapping[str, Row], rows: Sequence[Row]) -> list[str]:
    """Lines of those that do or say something else than at the look before."""
    return [
        str(one)
        for one in rows
        if (was := before.get(one.task)) is None
        or (was.agent, was.attempt, was.phase, was.line) != (one.agent, one.attempt, one.phase, one.line)
    ]
