"""One attempt at a task, from the claim to the verdict. Every boundary between phases is a record in the
ledger, so that whoever comes after a runner that died goes on from there."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gates.law.files import LawError, read
from gates.law.tiers import PATH as TIERS
from gates.law.tiers import Tiers
from gates.trees.checkout import checkout
from gates.trees.repository import Repository, Tree

from tasks.agents import adapters, sandbox
from tasks.agents.adapters import Agent
from tasks.agents.process import Ended, Ending, Limits, run
from tasks.agents.prompt import RULES, prompt
from tasks.evidence.ledger import Ledger, Record
from tasks.evidence.state import CLAIMED, ENDED, JUDGED, LANDING, WORKED
from tasks.files import Entry
from tasks.judging import Judgement, judge
from tasks.landing import ConflictError, Target, merged, queue
from tasks.verdict import Verdict
from tasks.work.lease import Lease
from tasks.work.place import home
from tasks.work.scope import breaches
from tasks.work.workspace import Work, Workspace, collect, kept_ref, open_workspace, place_of

OUTPUT_BYTES, DISK_BYTES = 32 << 20, 4 << 30
IDLE_S = 900.0
PATCH = "patch"  # an agent that is none: a person's own change, judged like any other
ENDINGS = {
    Ending.MISSING: Verdict.AGENT_MISSING,
    Ending.TIMED_OUT: Verdict.TIMED_OUT,
    Ending.IDLE: Verdict.IDLE,
    Ending.FLOODED: Verdict.FLOODED,
    Ending.DISK_FULL: Verdict.DISK_FULL,
    Ending.STOPPED: Verdict.STOPPED,
}
Watch = Callable[[str], None]


@dataclass(frozen=True)
class Shop:
    """Where work is done, and how. publish: brings what is generated from the ledger up to date, after a task
    has landed. lands: False leaves what passed for a person."""

    repository: Repository
    ledger: Ledger
    target: Target
    publish: Callable[[], None]
    lands: bool = True
    sandboxed: bool = True
    idle_s: float = IDLE_S
    output_bytes: int = OUTPUT_BYTES
    disk_bytes: int = DISK_BYTES
    watch: Watch = lambda line: None
    stop: Callable[[], bool] = lambda: False


@dataclass
class Attempt:
    """number: from 1, over all that the task ever had. findings: for the next prompt."""

    shop: Shop
    entry: Entry
    lease: Lease
    number: int
    base: Tree
    findings: list[str] = field(default_factory=list)

    @property
    def place(self) -> Path:
        """For logs and evidence of this attempt."""
        return home(self.shop.repository, "runs", self.entry.task.id, str(self.number))

    @property
    def workspace(self) -> Workspace:
        kept = kept_ref(self.entry, self.number)
        return Workspace(place_of(self.shop.repository, self.entry), self.entry.branch, self.base, kept)

    def record(self, kind: str, **data: Any) -> Record:
        return self.shop.ledger.append(self.entry.task.id, kind, {"attempt": self.number, **data})

    def claim(self, agent: str, asked: str = "", version: str = "") -> None:
        """The first record: who works, on which base, for which text of the task."""
        self.record(
            CLAIMED, base=self.base.commit, base_tree=self.base.tree, target=self.shop.target.ref,
            agent=agent, asked=asked or agent, version=version, task=self.entry.digest,
        )  # fmt: skip

    def phase(self, name: str) -> None:
        self.lease.beat(name)
        self.shop.watch(f"{self.entry.task.id}: {name}")

    def end(self, verdict: Verdict, findings: Sequence[str] = (), **data: Any) -> Verdict:
        self.findings += findings
        self.record(
            ENDED, verdict=verdict.name, findings=list(findings)[:200], task=self.entry.digest, **data
        )
        self.shop.watch(f"{self.entry.task.id}: {verdict.value}")
        return verdict

    # --- the phases --------------------------------------------------------------------------------------

    def work(self, agent: Agent, said_before: Sequence[str], intents: Sequence[str]) -> Verdict:
        """From the claim on."""
        self.phase("preparing")
        self.claim(agent.name, agent.asked, adapters.version_of(agent))
        open_workspace(self.shop.repository, self.entry, self.base, self.number)
        rules = self.shop.repository.text(self.base, RULES) or ""
        text = prompt(self.entry, rules, said_before, intents)
        self.phase(f"{agent.name} at work")
        ended, output = self._run(agent, text)
        work = collect(self.shop.repository, self.workspace)
        usage = adapters.usage(output)
        wait_s = adapters.wait_s(output) if ended.code != 0 else None
        self.record(
            WORKED, head=work.head.commit, head_tree=work.head.tree, kept=self.workspace.kept,
            prompt=digest(text), output=digest(output), ending=ended.ending.name, exit=ended.code,
            seconds=round(ended.seconds, 3), tokens=usage.tokens, usd=usage.usd, wait_s=wait_s,
            left=work.verdict.name if work.verdict else None, why=work.why or ended.said,
        )  # fmt: skip
        return self.after_work(work, ended.ending, ended.code, ended.said, wait_s)

    def after_work(
        self, work: Work, ending: Ending, code: int | None, said: str, wait_s: float | None
    ) -> Verdict:
        """What the agent's end alone decides; else its change goes to the judges."""
        if wait_s is not None:
            return self.end(Verdict.RATE_LIMITED, [said], wait_s=wait_s)
        if ending in ENDINGS:
            return self.end(ENDINGS[ending], [said])
        if code != 0:
            return self.end(Verdict.AGENT_FAILED, [f"exit code {code}: {said}"])
        if work.verdict is not None:
            return self.end(work.verdict, [work.why])
        changes = self.shop.repository.changes(self.base, work.head)
        by_agent = self.agent_name() != PATCH
        law = tiers_of(self.shop.repository, self.base)
        if wrong := breaches(self.entry.task, law, changes, by_agent):
            return self.end(Verdict.REJECTED_SCOPE, wrong, kept=self.workspace.kept)
        return self.judge(work.head)

    def judge(self, head: Tree) -> Verdict:
        self.phase("judged by the gates")
        found = self._judged(self.base, head, self.place / "evidence")
        if found.verdict is not None:
            return self.end(found.verdict, found.findings)
        return self.land(head) if self.shop.lands else self.end(Verdict.PASSED)

    def land(self, head: Tree) -> Verdict:
        """Judges again where something else landed since the base."""
        with queue(self.shop.repository, self.shop.watch):
            self.phase("landing")
            tip = self.shop.target.tip()
            by = f"{self.agent_name()} for {self.entry.task.id}"
            try:
                change = merged(self.shop.repository, self.entry, self.base, head, tip, by)
            except ConflictError as conflict:
                intents = titles(self.shop.repository, self.base, tip)
                return self.end(Verdict.CONFLICT, [f"{conflict} changed meanwhile"], intents=intents)
            if tip.tree != self.base.tree:
                found = self._judged(tip, change, self.place / "evidence-merged")
                if found.verdict is not None:
                    return self.end(found.verdict, found.findings)
            self.record(LANDING, commit=change.commit, before=tip.commit)
            self.shop.target.move(change, tip)
            self.end(Verdict.LANDED, commit=change.commit, base=tip.commit)
            self.shop.publish()
        return Verdict.LANDED

    # --- what they are made of -----------------------------------------------------------------------------

    def _judged(self, base: Tree, head: Tree, place: Path) -> Judgement:
        found = judge(self.shop.repository, self.entry, base, head, place, self.shop.watch)
        verdict = found.verdict.name if found.verdict else None
        self.record(JUDGED, **found.data, verdict=verdict, findings=found.findings[:200])
        return found

    def _run(self, agent: Agent, text: str) -> tuple[Ended, str]:
        """In the workspace; all that it printed is in the log."""
        log = self.place / "agent.log"
        (self.place / "prompt.md").write_text(text)
        command, stdin = agent.argv(text)
        env = sandbox.environment(agent.secrets, {"PWD": str(self.workspace.path), **agent.variables()})
        if self.shop.sandboxed and shutil.which(command[0], path=env.get("PATH")):  # else it is missing
            own = [Path.home() / name for name in agent.writable if (Path.home() / name).exists()]
            secrets = [Path.home() / name for name in sandbox.SECRETS]
            command = sandbox.wrapped(command, [self.workspace.path, *own], secrets, agent.network)
        minutes = self.entry.task.budget.minutes
        limits = Limits(
            minutes * 60, min(self.shop.idle_s, minutes * 60), self.shop.output_bytes, self.shop.disk_bytes
        )

        def watch(line: str) -> None:
            self.shop.watch(f"{self.entry.task.id}: {agent.name}: {line}")

        ended = run(command, self.workspace.path, env, stdin, log, limits, watch, self.shop.stop)
        return ended, log.read_text(errors="replace") if log.is_file() else ""

    def agent_name(self) -> str:
        mine = [
            one
            for one in self.shop.ledger.records()
            if one.task == self.entry.task.id and one.kind == CLAIMED
        ]
        return str(mine[-1].data["agent"]) if mine else "agent"


def digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def tiers_of(repository: Repository, base: Tree) -> Tiers | None:
    """The base's law; None where it has none."""
    try:
        return read(checkout(repository, base).path, TIERS, Tiers)
    except LawError:
        return None


def titles(repository: Repository, base: Tree, tip: Tree) -> list[str]:
    """Of the commits since the base, newest first, with the files that each touches."""
    text = repository.git(
        "log", "--no-merges", "--format=%x00%s", "--name-only", f"{base.commit}..{tip.commit}"
    )
    found = []
    for block in text.split("\0")[1:]:
        title, *paths = [line for line in block.splitlines() if line]
        found.append(f"{title} ({', '.join(paths[:8])}{', ..' if len(paths) > 8 else ''})")
    return found
