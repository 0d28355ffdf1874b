"""One real task through the whole loop, in a copy of the repository that nobody else uses: for newcomers, and
to show that it works on this machine. The agent is the tuner: no language model, no network."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gates.trees.checkout import HOME as GATES_HOME
from gates.trees.repository import Repository

from tasks.agents import adapters, sandbox
from tasks.attempt import Shop
from tasks.evidence.ledger import Ledger, Record, verify
from tasks.evidence.state import JUDGED, LANDING, WORKED
from tasks.files import QUEUE
from tasks.landing import Target
from tasks.loop import run_task
from tasks.publish import publish, queue_of, with_files
from tasks.verdict import Verdict
from tasks.work.place import IDENTITY
from tasks.work.workspace import commit_tree

TASK = """\
id: T-900
title: Tune products of TinyLM on this machine
why: |
  No table knows this processor's best blocks for the products of a training step of TinyLM. Blocks change
  no bit of any result, only its time.

  tune: 192x640x448, 80x112x288, 96x1024x160, 256x384x128 f32
owner: agent:tuner
allow: [engine/volta/backends/cpu/tables/]
commands:
  read: python -m volta tune show
expect:
  - command: read
    output: ["shipped"]
acceptance:
  - says: The engine takes every entry of the table
    by: command:read
  - says: No bit of training or generation differs
    by: gate:determinism
budget: {minutes: 10, attempts: 1}
parallel_group: 0
"""
BRANCH = "demonstration"
Watch = Callable[[str], None]


@dataclass(frozen=True)
class Shown:
    """verdict: NO_CHANGE where no block is faster than the default, no failure. lines: (what, how)."""

    verdict: Verdict
    lines: list[tuple[str, str]]


def demonstrate(root: Path, watch: Watch) -> Shown:
    """On the commit that is checked out. The repository itself is only read."""
    source = Repository.at(root)
    with tempfile.TemporaryDirectory(prefix="volta-task-") as scratch:
        place = Path(scratch, "repository")
        source.git("clone", "--quiet", "--no-hardlinks", "--no-tags", str(source.root), str(place))
        copy = Repository(place)
        builds(source.root, place)
        start = copy.tree("HEAD")
        path = f"{QUEUE}/T-900-tune-products-of-tinylm-on-this.yaml"
        commit = commit_tree(copy, with_files(copy, start, {path: TASK}), [start.commit], "A task to show\n")
        copy.git("checkout", "--quiet", "-B", BRANCH, commit.commit, env=IDENTITY)
        ledger, target = Ledger(copy), Target.of(copy)

        def bring_up_to_date() -> None:
            publish(copy, ledger, target)

        sandboxed = not sandbox.available()
        shop = Shop(copy, ledger, target, bring_up_to_date, sandboxed=sandboxed, watch=watch)
        entry = queue_of(copy, target.tip())["T-900"]
        verdict = run_task(shop, entry, adapters.AGENTS["tuner"])
        own = [one for one in ledger.records() if one.task == "T-900"]
        return Shown(verdict, told(copy, own, verdict, sandboxed))


def builds(source: Path, place: Path) -> None:
    """Kernels that are compiled already, by the hash of their sources: nobody waits for them twice."""
    compiled = source / GATES_HOME / "builds"
    if compiled.is_dir():
        shutil.copytree(compiled, place / GATES_HOME / "builds", ignore=shutil.ignore_patterns("tmp*"))
        (place / GATES_HOME / ".gitignore").write_text("*\n")


def told(copy: Repository, own: list[Record], verdict: Verdict, sandboxed: bool) -> list[tuple[str, str]]:
    by_kind = {record.kind: record.data for record in own}
    lines = [("task", "T-900: Tune products of TinyLM on this machine")]
    where = "a clone of its own" + (", and nothing else that it could write" if sandboxed else ", no sandbox")
    lines.append(("workspace", where))
    if worked := by_kind.get(WORKED):
        lines.append(("agent", f"tuner, {worked['seconds']:.0f} s, exit code {worked['exit']}"))
    if judged := by_kind.get(JUDGED):
        gates = ", ".join(f"{one['gate']} {one['verdict']}" for one in judged["gates"])
        lines += [("tier", str(judged["tier"])), ("gates", gates)]
        lines += [(f"accepted: {one['by']}", one["says"]) for one in judged["acceptance"] if one["passed"]]
    if landing := by_kind.get(LANDING):
        changed = copy.git("diff", "--stat=80", f"{landing['before']}..{landing['commit']}").strip()
        lines.append(("landed", f"{landing['commit'][:12]}: {' '.join(changed.splitlines()[-1].split())}"))
    else:
        lines.append(("ended", verdict.value))
    records, wrong = verify([record.line() for record in Ledger(copy).records()])
    lines.append(("ledger", f"{len(records)} records, {len(wrong)} faults, head {records[-1].digest[:16]}"))
    return lines
