"""A task until it has landed, is blocked or waits for a person: attempts, each told what was wrong before."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from tasks.agents.adapters import Agent
from tasks.agents.process import Ending
from tasks.attempt import Attempt, Shop
from tasks.evidence.ledger import Record
from tasks.evidence.state import BLOCKED, CLAIMED, ENDED, JUDGED, LANDING, WORKED, opened
from tasks.files import Entry
from tasks.verdict import Verdict
from tasks.work.lease import Lease, claim
from tasks.work.workspace import Work, collect, holds

MOST_CONFLICTS = 5  # in a row, each with a fresh attempt
TICK_S = 0.5


def run_task(shop: Shop, entry: Entry, agent: Agent) -> Verdict:
    """Raises TaskError where another runner has the task."""
    with claim(shop.repository, entry.task.id) as lease:
        verdict = resume(shop, entry, lease)
        while verdict is None or again(shop, entry, verdict):
            if why := used_up(shop, entry):
                shop.ledger.append(entry.task.id, BLOCKED, {"why": why, "task": entry.digest})
                shop.watch(f"{entry.task.id}: blocked: {why}")
                return verdict or Verdict.OVER_BUDGET
            own = records_of(shop, entry)
            number = sum(one.kind == CLAIMED for one in own) + 1
            attempt = Attempt(shop, entry, lease, number, shop.target.tip())
            verdict = attempt.work(agent, findings(own), intents(own))
        return verdict


def resume(shop: Shop, entry: Entry, lease: Lease) -> Verdict | None:
    """Goes on where a runner died: from the last record, and from what git has. None: nothing was begun."""
    own = records_of(shop, entry)
    if not own or own[-1].kind in (ENDED, BLOCKED):
        return None
    begun = next((one for one in reversed(own) if one.kind == CLAIMED), None)
    if begun is None or opened(own)[-1:] == []:
        return None
    base = shop.repository.tree(begun.data["base"])
    attempt = Attempt(shop, entry, lease, int(begun.data["attempt"]), base)
    last = own[-1]
    if last.kind == LANDING and holds(shop.repository, last.data["commit"], shop.target.tip().commit):
        verdict = attempt.end(Verdict.LANDED, commit=last.data["commit"], base=last.data["before"])
        shop.publish()
        return verdict
    worked = next((one for one in reversed(own) if one.kind in (WORKED, CLAIMED)), begun)
    if worked.kind == CLAIMED:
        if attempt.workspace.path.is_dir():
            collect(shop.repository, attempt.workspace)
        return attempt.end(Verdict.INTERRUPTED, [], kept=attempt.workspace.kept)
    head = shop.repository.tree(worked.data["head"])
    if last.kind == WORKED:
        left = worked.data["left"]
        work = Work(head, Verdict[left] if left else None, worked.data["why"])
        data = worked.data
        return attempt.after_work(work, Ending[data["ending"]], data["exit"], data["why"], data["wait_s"])
    if last.kind == JUDGED and last.data["verdict"] is not None:
        return attempt.end(Verdict[last.data["verdict"]], last.data["findings"])
    return attempt.land(head) if shop.lands else attempt.end(Verdict.PASSED)


def again(shop: Shop, entry: Entry, verdict: Verdict) -> bool:
    """Whether another attempt follows."""
    if verdict.done or verdict in (Verdict.PASSED, Verdict.STOPPED) or shop.stop():
        return False
    if verdict is Verdict.RATE_LIMITED:
        last = records_of(shop, entry)[-1]
        return waited(shop, entry, float(last.data["wait_s"]))
    return True


def waited(shop: Shop, entry: Entry, seconds: float) -> bool:
    """False where it was stopped meanwhile."""
    shop.watch(f"{entry.task.id}: waits {seconds:.0f} s, as the agent's service asks")
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if shop.stop():
            return False
        time.sleep(min(TICK_S, max(0.0, until - time.monotonic())))
    return True


def used_up(shop: Shop, entry: Entry) -> str:
    """Which part of the budget, in words; empty where something is left."""
    own = opened(records_of(shop, entry))
    ends = [Verdict[one.data["verdict"]] for one in own if one.kind == ENDED]
    budget = entry.task.budget
    tried = sum(verdict.counts for verdict in ends)
    if tried >= budget.attempts:
        return f"{tried} of {budget.attempts} attempts, the last: {ends[-1].value}"
    conflicts = 0
    for verdict in reversed(ends):
        if verdict is not Verdict.CONFLICT:
            break
        conflicts += 1
    if conflicts >= MOST_CONFLICTS:
        return f"{conflicts} conflicts in a row"
    for name, most in (("tokens", budget.tokens), ("usd", budget.usd)):
        used = sum(one.data.get(name) or 0 for one in own if one.kind == WORKED)
        if most is not None and used >= most:
            return f"{used:g} {name} of {most:g}"
    return ""


def records_of(shop: Shop, entry: Entry) -> list[Record]:
    return [one for one in shop.ledger.records() if one.task == entry.task.id]


def findings(own: Sequence[Record]) -> list[str]:
    """What was wrong with the last attempt that its agent is to blame for."""
    for one in reversed(opened(own)):
        if one.kind == ENDED and Verdict[one.data["verdict"]].counts:
            return [Verdict[one.data["verdict"]].value, *one.data["findings"]]
    return []


def intents(own: Sequence[Record]) -> list[str]:
    last: dict[str, Any] = next((dict(one.data) for one in reversed(own) if one.kind == ENDED), {})
    return list(last.get("intents", ()))
