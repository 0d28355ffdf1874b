"""GitHub by its own command, `gh`: a pull request filled in from the evidence, an issue for each task."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from gates.errors import GateError
from gates.trees.repository import Repository, Tree

from tasks.attempt import Shop
from tasks.documents.prd import heading
from tasks.errors import TaskError
from tasks.evidence.ledger import Record
from tasks.evidence.state import State, Status
from tasks.files import Entry
from tasks.landing import merged
from tasks.proving import passed
from tasks.work.place import home

LABEL = "volta-task"
LIMIT_S = 120.0
MOST_ISSUES = "1000"


def gh(repository: Repository, *arguments: str) -> str:
    """Raises TaskError with the last line that it said."""
    if shutil.which("gh") is None:
        raise TaskError("[github] there is no `gh` on the PATH: expected GitHub's command line")
    try:
        done = subprocess.run(
            ["gh", *arguments], cwd=repository.root, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=LIMIT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise TaskError(f"[github] `gh {arguments[0]}` took longer than {LIMIT_S:.0f} s") from error
    if done.returncode:
        last_line = ["", *done.stderr.strip().splitlines()][-1]
        raise TaskError(f"[github] `gh {' '.join(arguments[:2])}` failed: {last_line or done.returncode}")
    return done.stdout


def remote(repository: Repository) -> str:
    """The one that is pushed to. Raises TaskError."""
    names = repository.git("remote").split()
    if not names:
        raise TaskError("[github] no remote is set: `git remote add origin ADDRESS`")
    return "origin" if "origin" in names else names[0]


# --- a pull request ----------------------------------------------------------------------------------


def pull_request(shop: Shop, entry: Entry) -> str:
    """Of work that passed and waits to land: pushed as one commit on the target's tip. Gives its address."""
    begun, worked, judged = passed(shop, entry)
    base, work = (shop.repository.tree(str(commit)) for commit in (begun.data["base"], worked.data["head"]))
    by = f"{begun.data['agent']} for {entry.task.id}"
    change = merged(shop.repository, entry, base, work, shop.target.tip(), by)
    push(shop.repository, change, entry.branch)
    text = home(shop.repository, "runs", entry.task.id, str(begun.data["attempt"])) / "pull-request.md"
    text.write_text(body(entry, judged))
    return gh(
        shop.repository, "pr", "create", "--head", entry.branch, "--base", branch_of(shop.target.ref),
        "--title", heading(entry), "--body-file", str(text),
    ).strip()  # fmt: skip


def push(repository: Repository, change: Tree, branch: str) -> None:
    try:
        repository.git(
            "push", "--quiet", "--force", remote(repository), f"{change.commit}:refs/heads/{branch}"
        )
    except GateError as error:
        raise TaskError(f"[github] {branch} was not pushed: {error}") from error


def branch_of(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def body(entry: Entry, judged: Record) -> str:
    """The sections that the policy gate asks for, from the record of the judgement."""
    data = judged.data
    gates = [f"- {one['gate']}: {one['verdict']}, {one['figure']}" for one in data.get("gates", ())]
    commands = [
        f"- {one['command']}: `{' '.join(one['argv'])}`: exit code {one['exit']}{figures(one)}"
        for one in data.get("commands", ())
    ]
    machine = data.get("machine", {})
    on = f"{machine.get('processor', 'unknown')}, {machine.get('cpus', '?')} CPUs"
    statements = [
        f"- [{'x' if one['passed'] else ' '}] {one['says']} ({one['by']})" for one in data["acceptance"]
    ]
    return "\n".join(
        [
            "## What changes", "", f"{heading(entry)}.", "", entry.task.why.strip(), "", *statements, "",
            "## Tier", "", str(data.get("tier", "")), "",
            "## Evidence", "", *gates, *commands, "",
            f"On {on}, seed {data.get('seed')}, trees `{data['base'][:12]}` and `{data['head'][:12]}`;",
            f"record {judged.sequence} of the ledger, `{judged.digest[:16]}`.", "",
            "## Determinism", "", determinism(data), "",
            "## Rollback", "", "`git revert` of the one commit; the ledger keeps what was proven.", "",
        ]
    )  # fmt: skip


def figures(command: Mapping[str, object]) -> str:
    metrics = command.get("metrics") or {}
    assert isinstance(metrics, Mapping)
    return "".join(f", {name} {value:g}" for name, value in metrics.items())


def determinism(data: Mapping[str, object]) -> str:
    gates = data.get("gates", ())
    assert isinstance(gates, list | tuple)
    named = [one["gate"] for one in gates if one["gate"] in ("parity", "determinism")]
    passed = [one["gate"] for one in gates if one["gate"] in named and one["verdict"] == "PASS"]
    if passed:
        return f"No bit changes: {' and '.join(passed)} passed."
    return "The gates of this tier do not ask; no committed hash is touched."


# --- issues --------------------------------------------------------------------------------------------


def sync(repository: Repository, entries: Mapping[str, Entry], found: Mapping[str, Status]) -> list[str]:
    """One issue per task, by `[T-NNN]` in its title: opened where there is none, closed where the ledger
    proves it done, opened again where it does not. What was done, a line each."""
    remote(repository)
    listing = gh(
        repository, "issue", "list", "--label", LABEL, "--state", "all", "--limit", MOST_ISSUES,
        "--json", "number,title,state",
    )  # fmt: skip
    known = {title_id(one["title"]): one for one in json.loads(listing or "[]")}
    lines = []
    for name, entry in entries.items():
        done, issue = found[name].state is State.DONE, known.get(name)
        if issue is None and not done:
            address = gh(
                repository, "issue", "create", "--label", LABEL, "--title", heading(entry),
                "--body", issue_body(entry), *assigned(entry),
            )  # fmt: skip
            lines.append(f"{name}: opened {address.strip()}")
        elif issue is not None and done and issue["state"] == "OPEN":
            gh(repository, "issue", "close", str(issue["number"]), "--comment", "Proven by the ledger.")
            lines.append(f"{name}: closed #{issue['number']}")
        elif issue is not None and not done and issue["state"] == "CLOSED":
            gh(
                repository,
                "issue",
                "reopen",
                str(issue["number"]),
                "--comment",
                "The ledger does not prove it.",
            )
            lines.append(f"{name}: opened #{issue['number']} again")
    return lines


def assigned(entry: Entry) -> list[str]:
    """A person's task is the caller's until somebody else takes it; an agent has no account."""
    return [] if entry.task.agent else ["--assignee", "@me"]


def title_id(title: str) -> str:
    return title.partition("]")[0].removeprefix("[")


def issue_body(entry: Entry) -> str:
    statements = "\n".join(f"- {one.says} (`{one.by}`)" for one in entry.task.acceptance)
    where = Path(entry.path).as_posix()
    return f"{entry.task.why.strip()}\n\nIts file is `{where}`.\n\nDone when:\n\n{statements}\n"
