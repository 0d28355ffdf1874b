"""`python -m tasks`: see what is to be done, let agents do it, land what the gates prove."""

from __future__ import annotations

import json as json_module
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from gates.errors import GateError
from gates.evidence.page import write as write_page
from gates.trees.repository import Repository
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tasks import report, show, watching, webhook
from tasks.agents import adapters, sandbox
from tasks.agents.adapters import Agent
from tasks.attempt import Shop
from tasks.crew import run_queue
from tasks.demonstration import demonstrate
from tasks.errors import TaskError
from tasks.evidence.ledger import COPY, Ledger, Record, compare, verify
from tasks.evidence.state import BLOCKED, ENDED, REOPENED, State, Status, statuses
from tasks.files import QUEUE, Entry, next_id, read_directory, read_text, slug, to_text
from tasks.github import pull_request
from tasks.github import sync as sync_github
from tasks.landing import Target
from tasks.loop import run_task
from tasks.model import Task
from tasks.proving import land_reviewed, prove_task, replay_task
from tasks.publish import drifted, publish, queue_of
from tasks.reconcile import reconcile
from tasks.verdict import Verdict
from tasks.work.lease import holder

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


# What an attempt without an agent of ours was asked by.
WITHOUT_US = {"ralphy": "python -m tasks reconcile", "none": "python -m tasks prove"}


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


# --- to see --------------------------------------------------------------------------------------------


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
        watching.watch(at.repository, at.ledger, at.entries, out, stopped)


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
            "ledger": f"{len(records)} records, head {records[-1].digest if records else 'none'}",
        }
        write_page(html, report.page(at.entries, at.statuses(), records, facts))
        out.print(str(html), markup=False, soft_wrap=True)


# --- to write ------------------------------------------------------------------------------------------


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


# --- to work -------------------------------------------------------------------------------------------


def open_shop(at: Desk, onto: str | None, lands: bool, sandboxed: bool) -> Shop:
    if sandboxed and (why := sandbox.available()):
        err.print(f"tasks: no sandbox: {why}; agents could write elsewhere", style="yellow", soft_wrap=True)
        sandboxed = False
    target = Target.of(at.repository, onto)

    def bring_up_to_date() -> None:
        publish(at.repository, at.ledger, target)

    return Shop(
        at.repository, at.ledger, target, bring_up_to_date, lands, sandboxed, watch=watch, stop=stopped
    )


def watch(line: str) -> None:
    err.print(line, markup=False, style="dim", soft_wrap=True)


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
        committed = queue_of(at.repository, shop.target.tip())
        if name not in committed:
            at.entry(name)
            raise TaskError(f"[{name}] its file is not in {shop.target.ref}: commit it first")
        chosen = agent_of(committed[name], agent)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, on_signal)
        finish(name, run_task(shop, committed[name], chosen))


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
        finish(name, land_reviewed(shop, queue_of(at.repository, shop.target.tip())[name]))


@app.command("pr")
def pull_request_(name: Name, onto: Onto = None, repository: Where = Path()) -> None:
    """Open a pull request for what `run --no-land` left, filled in from the evidence. Needs `gh`."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, False, False)
        at.entry(name)
        address = pull_request(shop, queue_of(at.repository, shop.target.tip())[name])
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


@app.command()
def prove(name: Name, onto: Onto = None, repository: Where = Path()) -> None:
    """Judge what is there already: a task that is done before anybody began it."""
    with errors():
        at = desk(repository)
        shop = open_shop(at, onto, True, False)
        committed = queue_of(at.repository, shop.target.tip())
        at.entry(name)
        finish(name, prove_task(shop, committed[name]))


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


if __name__ == "__main__":
    app(prog_name="tasks")
