"""Commands that work: agents, landings, proofs, and what ends or opens them."""

from __future__ import annotations

import atexit
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from gates.progress import Progress
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tasks import webhook
from tasks.agents import adapters, sandbox
from tasks.agents.adapters import Agent
from tasks.attempt import Shop
from tasks.commands.desk import (
    AgentName,
    Desk,
    Name,
    NoLand,
    Onto,
    Sandbox,
    Where,
    app,
    desk,
    err,
    errors,
    out,
)
from tasks.crew import run_queue
from tasks.demonstration import demonstrate
from tasks.errors import TaskError
from tasks.evidence.state import BLOCKED, ENDED, REOPENED, State
from tasks.files import Entry
from tasks.landing import Target
from tasks.loop import run_task
from tasks.proving import land_reviewed, prove_task, replay_task
from tasks.publish import publish, queue_of
from tasks.reconcile import reconcile
from tasks.verdict import Verdict
from tasks.work.lease import holder

# What an attempt without an agent of ours was asked by.
WITHOUT_US = {"ralphy": "python -m tasks reconcile", "none": "python -m tasks prove"}


def open_shop(at: Desk, onto: str | None, lands: bool, sandboxed: bool) -> Shop:
    if sandboxed and (why := sandbox.available()):
        err.print(f"tasks: no sandbox: {why}; agents could write elsewhere", style="yellow", soft_wrap=True)
        sandboxed = False
    target = Target.of(at.repository, onto)

    _progress.__enter__()
    atexit.register(_progress.__exit__)

    def bring_up_to_date() -> None:
        publish(at.repository, at.ledger, target)

    return Shop(
        at.repository, at.ledger, target, bring_up_to_date, lands, sandboxed, watch=watch, stop=stopped
    )


def committed(at: Desk, shop: Shop, name: str) -> Entry:
    """As the target branch has it: what nobody can change while work goes on. Raises TaskError."""
    entries = queue_of(at.repository, shop.target.tip())
    if name not in entries:
        at.entry(name)
        raise TaskError(f"[{name}] its file is not in {shop.target.ref}: commit it first")
    return entries[name]


def watch(line: str) -> None:
    """A gate's log now and then; what happens to a task always."""
    match line.split(": ", 2):
        case [name, _] if name.startswith("T-"):
            err.print(line, markup=False, style="dim", soft_wrap=True)
        case _:
            _progress(line)


_progress = Progress(err)


_stop = False


def stopped() -> bool:
    return _stop


def on_signal(number: int, frame: object) -> None:
    """The first asks agents to end and keeps their work; the second ends this process."""
    global _stop
    if _stop:
        raise KeyboardInterrupt
    _stop = True
    err.print("tasks: stopping; what agents did is kept", style="yellow")


def agent_of(entry: Entry, given: str | None) -> Agent:
    if given:
        return adapters.find(given)
    if entry.task.agent is None:
        raise TaskError(f"[{entry.task.id}] its owner is a person: name an agent with --agent")
    return adapters.find(entry.task.agent)


@app.command()
def run(
    name: Name,
    agent: AgentName = None,
    onto: Onto = None,
    no_land: NoLand = False,
    sandbox: Sandbox = True,
    repository: Where = Path(),
) -> None:
    """Let an agent do one task: claim, work, scope, gates, commands, land. Exit code 0 where it landed."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, not no_land, sandbox)
        entry = committed(at, shop, name)
        chosen = agent_of(entry, agent)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        finish(name, run_task(shop, entry, chosen))


def finish(name: str, verdict: Verdict) -> None:
    out.print(f"{name}: {verdict.name}: {verdict.value}", markup=False)
    if not (verdict.done or verdict is Verdict.PASSED):
        raise typer.Exit(1)


@app.command()
def agents(
    agent: AgentName = None,
    parallel: Annotated[int, typer.Option(min=1, max=64, help="So many at once")] = 3,
    budget: Annotated[str | None, typer.Option(help="For all together: 5usd")] = None,
    onto: Onto = None,
    no_land: NoLand = False,
    sandbox: Sandbox = True,
    repository: Where = Path(),
) -> None:
    """Let agents do the whole queue. Exit code 0 where every task that was begun has landed."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, not no_land, sandbox)
        given = adapters.find(agent) if agent else None

        def choose(entry: Entry) -> Agent | None:
            return given or (adapters.AGENTS.get(entry.task.agent) if entry.task.agent else None)

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        done = run_queue(shop, choose, parallel, money(budget))
        for name, verdict in sorted(done.items()):
            said = f"{verdict.name}: {verdict.value}" if isinstance(verdict, Verdict) else verdict
            out.print(f"{name}: {said}", markup=False, soft_wrap=True)
        if not done:
            out.print("no task is ready that an agent may do")
        report_end(at, done)
        if not all(isinstance(one, Verdict) and (one.done or one is Verdict.PASSED) for one in done.values()):
            raise typer.Exit(1)


def report_end(at: Desk, done: Mapping[str, Verdict | str]) -> None:
    """To the webhooks, where any is named."""
    found = at.statuses()
    blocked = [name for name in done if found[name].state is State.BLOCKED]
    facts = {
        "repository": at.repository.root.name,
        "tasks": {name: one.name if isinstance(one, Verdict) else one for name, one in done.items()},
        "blocked": blocked,
    }
    for line in webhook.tell("blocked" if blocked else "ended", facts):
        err.print(f"tasks: {line}", style="yellow", markup=False)


def money(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text.lower().removesuffix("usd").strip())
    except ValueError:
        value = 0.0
    if not value > 0:
        raise TaskError(f"[agents] --budget {text!r}: expected an amount such as 5usd")
    return value


@app.command()
def resume(
    agent: AgentName = None, onto: Onto = None, sandbox: Sandbox = True, repository: Where = Path()
) -> None:
    """Go on with every task whose runner died, from its last record."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, True, sandbox)
        committed = queue_of(at.repository, shop.target.tip())
        unfinished = []
        for name, entry in committed.items():
            own = at.records(name)
            if own and own[-1].kind not in (ENDED, BLOCKED, REOPENED) and not holder(at.repository, name):
                by = next(one.data["asked"] for one in reversed(own) if one.kind == "claimed")
                unfinished.append((name, entry, agent or by))
        for name, entry, by in unfinished:
            if by in WITHOUT_US:
                out.print(f"{name}: begun by `{WITHOUT_US[by]}`, which goes on with it")
                continue
            out.print(f"{name}: {run_task(shop, entry, adapters.find(by)).value}", markup=False)
        if not unfinished:
            out.print("no runner died in the middle of a task")


@app.command("reconcile")
def reconcile_(
    branches: Annotated[
        list[str] | None, typer.Argument(help="Branches (default: those below ralphy/)")
    ] = None,
    onto: Onto = None,
    repository: Where = Path(),
) -> None:
    """Judge what Ralphy left (`ralphy --prd PRD.md --no-merge`): branches land by proof, boxes reopen."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, True, False)
        found = reconcile(shop, queue_of(at.repository, shop.target.tip()), branches or None)
        for one in found:
            said = f"{one.verdict.name}: " if one.verdict else ""
            out.print(f"{one.task or '?'} {one.branch}: {said}{one.why}", markup=False, soft_wrap=True)
        if not found:
            out.print("no branch of Ralphy's, no box that the ledger does not prove")


@app.command()
def stop(repository: Where = Path()) -> None:
    """Ask the runners on this machine to end; their agents' work is kept."""
    with errors():
        at = desk(repository)
        found = {held.pid for name in at.entries if (held := holder(at.repository, name)) and held.pid}
        for pid in sorted(found):
            os.kill(pid, signal.SIGTERM)
            out.print(f"asked process {pid} to end")
        if not found:
            out.print("nobody works on a task")


@app.command()
def retry(name: Name, repository: Where = Path()) -> None:
    """Open a task again: its attempts count from none."""
    with errors():
        at = desk(repository)
        entry = at.entry(name)
        if holder(at.repository, name):
            raise TaskError(f"[{name}] a runner works on it: `python -m tasks stop` first")
        at.ledger.append(name, REOPENED, {"why": "by hand", "task": entry.digest})
        out.print(f"{name} is open")


@app.command()
def land(name: Name, onto: Onto = None, repository: Where = Path()) -> None:
    """Land what `run --no-land` left: judged again where something else has landed since."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, True, False)
        finish(name, land_reviewed(shop, committed(at, shop, name)))


@app.command()
def prove(name: Name, onto: Onto = None, repository: Where = Path()) -> None:
    """Judge what is there already: a task that is done before anybody began it."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, True, False)
        finish(name, prove_task(shop, committed(at, shop, name)))


@app.command()
def replay(name: Name, repository: Where = Path(), onto: Onto = None) -> None:
    """Ask gates and commands again about the trees that the ledger names. Exit code 1 where they differ."""
    with errors():
        at = desk(repository)
        different = replay_task(open_shop(at, onto, False, False), at.entry(name))
        for line in different:
            out.print(line, markup=False, soft_wrap=True)
        out.print(
            f"{name}: {len(different)} differences" if different else f"{name}: the same verdicts again"
        )
        if different:
            raise typer.Exit(1)


@app.command("demonstrate")
def demonstrate_(repository: Where = Path()) -> None:
    """Take one task through the whole loop in a copy of this repository: the tuner works, the gates judge."""
    with errors():
        shown = demonstrate(repository, watch)
        table = Table(title="one task, from its file to the landing", show_header=False)
        for what, how in shown.lines:
            table.add_row(what, escape(how))
        (out if out.is_terminal else Console(width=120, highlight=False)).print(table)
        if shown.verdict is Verdict.NO_CHANGE:
            out.print("no block is surely faster than the default here, so nothing landed")
        elif not shown.verdict.done:
            raise typer.Exit(1)
