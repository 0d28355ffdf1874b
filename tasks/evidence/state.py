"""Where every task stands: from the ledger and from git, never from a box that somebody ticked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gates.trees.repository import Repository

from tasks.evidence.ledger import Record
from tasks.files import Entry
from tasks.verdict import Verdict
from tasks.work.lease import Holder, holder
from tasks.work.workspace import holds

# Kinds of records: of an attempt, in their order; and of a task, between attempts.
CLAIMED, WORKED, JUDGED, LANDING, ENDED = "claimed", "worked", "judged", "landing", "ended"
BLOCKED, REOPENED = "blocked", "reopened"


class State(StrEnum):
    DONE = "done"
    RUNNING = "running"
    REVIEW = "review"  # judged and not landed
    BLOCKED = "blocked"
    READY = "ready"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class Status:
    """why: in a few words. attempts: that count, since it was opened. record: what decided."""

    state: State
    why: str
    attempts: int = 0
    record: Record | None = None
    holder: Holder | None = None


def statuses(
    repository: Repository, entries: Mapping[str, Entry], records: Sequence[Record], target: str
) -> dict[str, Status]:
    """target: the commit on which work lands."""
    by_task = by_name(entries, records)
    done = proved(repository, by_task, target)
    return {name: status(repository, entry, by_task[name], done, entries) for name, entry in entries.items()}


def done_tasks(
    repository: Repository, entries: Collection[str], records: Sequence[Record], target: str
) -> set[str]:
    """Those whose work is in the target, whoever holds them just now."""
    return proved(repository, by_name(entries, records), target)


def by_name(names: Collection[str], records: Sequence[Record]) -> dict[str, list[Record]]:
    found: dict[str, list[Record]] = {name: [] for name in names}
    for record in records:
        if record.task in found:
            found[record.task].append(record)
    return found


def proved(repository: Repository, by_task: Mapping[str, Sequence[Record]], target: str) -> set[str]:
    return {name for name, own in by_task.items() if (one := proof(own)) and landed(repository, one, target)}


def status(
    repository: Repository,
    entry: Entry,
    own: Sequence[Record],
    done: Collection[str],
    entries: Mapping[str, Entry],
) -> Status:
    name = entry.task.id
    attempts = sum(record.kind == ENDED and Verdict[record.data["verdict"]].counts for record in opened(own))
    if held := holder(repository, name):
        return Status(State.RUNNING, held.phase, attempts, own[-1] if own else None, held)
    if name in done:
        last = proof(own)
        changed = last is not None and last.data.get("task") != entry.digest
        why = "proved by its evidence" + ("; its file has changed since" if changed else "")
        return Status(State.DONE, why, attempts, last)
    last = opened(own)[-1] if opened(own) else None
    if last is not None and last.kind == BLOCKED:
        return Status(State.BLOCKED, str(last.data.get("why", "")), attempts, last)
    if last is not None and last.kind == ENDED and last.data["verdict"] == Verdict.PASSED.name:
        return Status(State.REVIEW, Verdict.PASSED.value, attempts, last)
    if missing := [one for one in entry.task.depends_on if one not in done]:
        return Status(State.WAITING, f"for {', '.join(missing)}", attempts, last)
    group = entry.task.parallel_group
    if earlier := sorted(
        other for other, one in entries.items() if one.task.parallel_group < group and other not in done
    ):
        return Status(
            State.WAITING,
            f"for group {entries[earlier[0]].task.parallel_group}: {earlier[0]}",
            attempts,
            last,
        )
    if last is not None and last.kind == ENDED:
        return Status(State.READY, f"after {Verdict[last.data['verdict']].value}", attempts, last)
    return Status(State.READY, "nobody has tried it" if last is None else "", attempts, last)


def opened(own: Sequence[Record]) -> Sequence[Record]:
    """Since it was opened again last."""
    places = [place for place, record in enumerate(own) if record.kind == REOPENED]
    return own[places[-1] + 1 :] if places else own


def proof(own: Sequence[Record]) -> Record | None:
    """The record that says it is done, unless it was opened again since."""
    ends = [record for record in opened(own) if record.kind == ENDED]
    return next((record for record in reversed(ends) if Verdict[record.data["verdict"]].done), None)


def landed(repository: Repository, record: Record, target: str) -> bool:
    """Whether the work is still there: a commit that was thrown away again proves nothing."""
    commit = record.data.get("commit", "")
    return bool(commit) and holds(repository, commit, target)
