"""Verdicts without an agent: on what is there already, on what waits for a person, and once more."""

from __future__ import annotations

from collections.abc import Sequence

from gates.trees.repository import Repository, Tree

from tasks.attempt import Attempt, Shop
from tasks.errors import TaskError
from tasks.evidence.ledger import Record
from tasks.evidence.state import CLAIMED, ENDED, JUDGED, WORKED, opened
from tasks.files import Entry
from tasks.judging import judge
from tasks.loop import records_of
from tasks.verdict import Verdict
from tasks.work.lease import claim
from tasks.work.place import home


def prove_task(shop: Shop, entry: Entry) -> Verdict:
    """Of a task whose work is in the tip: its own gates and its commands, on the tip."""
    with claim(shop.repository, entry.task.id) as lease:
        tip = shop.target.tip()
        own = records_of(shop, entry)
        number = sum(one.kind == CLAIMED for one in own) + 1
        attempt = Attempt(shop, entry, lease, number, tip)
        attempt.claim("none")
        attempt.phase("judged by its own gates")
        found = judge(shop.repository, entry, tip, tip, attempt.place / "evidence", shop.watch)
        verdict = found.verdict.name if found.verdict else None
        attempt.record(JUDGED, **found.data, verdict=verdict, findings=found.findings[:200])
        if found.verdict is not None:
            return attempt.end(found.verdict, found.findings)
        attempt.end(Verdict.PROVED, commit=tip.commit, base=tip.commit)
        shop.publish()
        return Verdict.PROVED


def land_reviewed(shop: Shop, entry: Entry) -> Verdict:
    """What passed and was left for a person."""
    with claim(shop.repository, entry.task.id) as lease:
        begun, worked, _ = passed(shop, entry)
        base = shop.repository.tree(begun.data["base"])
        attempt = Attempt(shop, entry, lease, int(begun.data["attempt"]), base)
        return attempt.land(shop.repository.tree(worked.data["head"]))


def change_of(repository: Repository, own: Sequence[Record]) -> str:
    """The diff of the last attempt that left one; empty where none did."""
    for one in reversed(own):
        if one.kind == WORKED:
            begun = next(
                other for other in own if other.kind == CLAIMED and attempt_of(other) == attempt_of(one)
            )
            return repository.git("diff", "--no-ext-diff", begun.data["base"], one.data["head"])
    return ""


def attempt_of(record: Record) -> int:
    return int(record.data["attempt"])


def replay_task(shop: Shop, entry: Entry) -> list[str]:
    """Where a second judgement of the recorded trees differs from the last one that the ledger has."""
    own = records_of(shop, entry)
    before = next((one for one in reversed(own) if one.kind == JUDGED), None)
    if before is None:
        raise TaskError(f"[{entry.task.id}] it was never judged: nothing to replay")
    base, head = (tree_of(shop, before, side) for side in ("base", "head"))
    place = home(shop.repository, "runs", entry.task.id, "replay")
    found = judge(shop.repository, entry, base, head, place, shop.watch, before.data["seed"])
    wrong = []
    for kind, key, values in (
        ("gate", "gate", ("verdict", "outputs")),
        ("command", "command", ("exit", "passed")),
    ):
        old, new = ({one[key]: one for one in data.get(f"{kind}s", ())} for data in (before.data, found.data))
        for name in dict.fromkeys((*old, *new)):
            for value in values:
                was, is_now = (side.get(name, {}).get(value) for side in (old, new))
                if was != is_now:
                    wrong.append(f"{kind} {name}: {value} was {was}, is {is_now}")
    return wrong


def tree_of(shop: Shop, record: Record, side: str) -> Tree:
    """By the commit that the record names."""
    return shop.repository.tree(str(record.data[f"{side}_commit"]))


def passed(shop: Shop, entry: Entry) -> tuple[Record, Record, Record]:
    """How what waits to land was claimed, worked and judged. Raises TaskError where nothing does."""
    own = opened(records_of(shop, entry))
    if not own or own[-1].kind != ENDED or own[-1].data["verdict"] != Verdict.PASSED.name:
        raise TaskError(f"[{entry.task.id}] nothing waits to land: `run --no-land` leaves what passed")
    latest = {one.kind: one for one in own}
    return latest[CLAIMED], latest[WORKED], latest[JUDGED]
