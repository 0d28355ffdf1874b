"""The ledger: records in a chain of digests, one git commit each, on a ref of its own.

Git moves a ref from one commit to the next or not at all, so a record is there whole or it is not, whatever
dies when; and two that append at once do so one after the other. `tasks/ledger.jsonl` is the copy that a
clone gets: the same records as lines, brought up to date whenever a task lands.

What the chain shows is that no record was changed, dropped or moved since the head was known to somebody
else (a clone, a pushed ref, a commit of the copy). It does not show that a record was true when it was
written, nor that nobody with write access made the whole chain anew: docs/tasks.md.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gates.errors import GateError
from gates.trees.repository import Repository

from tasks.errors import TaskError
from tasks.work.place import IDENTITY

REF = "refs/volta/ledger"
COPY = "tasks/ledger.jsonl"
FIRST = "0" * 64  # what the first record follows
ABSENT = "0" * 40  # git's name for a ref that is not there
TRIES = 100  # of an append, where others append at the same time
FIELDS = {
    "sequence": int,
    "time": str,
    "task": str,
    "kind": str,
    "data": dict,
    "previous": str,
    "digest": str,
}


@dataclass(frozen=True, slots=True)
class Record:
    """sequence: from 0. time: UTC, ISO 8601. kind: a phase's name. previous: the digest of the record before.
    digest: sha256 of all the rest, as canonical JSON."""

    sequence: int
    time: str
    task: str
    kind: str
    data: Mapping[str, Any]
    previous: str
    digest: str

    def line(self) -> str:
        return canonical({name: getattr(self, name) for name in FIELDS})


def canonical(document: Mapping[str, Any]) -> str:
    """One line, keys in order, ASCII: equal documents have equal bytes."""
    return json.dumps(document, sort_keys=True, ensure_ascii=True, separators=(",", ":"), allow_nan=False)


def following(before: Record | None, task: str, kind: str, data: Mapping[str, Any], time: str) -> Record:
    sequence, previous = (before.sequence + 1, before.digest) if before else (0, FIRST)
    content: dict[str, Any] = {
        "sequence": sequence,
        "time": time,
        "task": task,
        "kind": kind,
        "data": data,
        "previous": previous,
    }
    return Record(**content, digest=hashlib.sha256(canonical(content).encode()).hexdigest())


def parsed(line: str) -> Record:
    """Raises ValueError, in words that follow `record N`."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError("is no JSON") from error
    if not isinstance(found, dict) or set(found) != set(FIELDS):
        raise ValueError(f"has other fields than {', '.join(FIELDS)}")
    for name, kind in FIELDS.items():
        if type(found[name]) is not kind:
            raise ValueError(f"has a {name} that is no {kind.__name__}")
    return Record(**found)


def verify(lines: Iterable[str], head: str | None = None) -> tuple[list[Record], list[str]]:
    """The records, and what is wrong with the chain, a line each. head: the digest that it must end with."""
    records: list[Record] = []
    wrong: list[str] = []
    previous = FIRST
    for place, line in enumerate(lines):
        try:
            one = parsed(line)
        except ValueError as why:
            wrong.append(f"record {place} {why}")
            previous = ""
            continue
        content = {name: getattr(one, name) for name in FIELDS if name != "digest"}
        if hashlib.sha256(canonical(content).encode()).hexdigest() != one.digest:
            wrong.append(f"record {place} ({one.task} {one.kind}) was edited: its digest is another")
        if one.sequence != place:
            wrong.append(f"record {place} calls itself {one.sequence}: records were dropped, added or moved")
        if previous and one.previous != previous:
            wrong.append(f"record {place} ({one.task} {one.kind}) does not follow the one before it")
        previous = one.digest
        records.append(one)
    last = records[-1].digest if records else FIRST
    if head is not None and last != head:
        wrong.append(
            f"the last record is {last[:12]}: expected {head[:12]}, so records at the end are missing"
        )
    return records, wrong


class Ledger:
    """Of a repository. Reading it also checks it: TaskError names what is wrong."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self._tip, self._records = ABSENT, list[Record]()
        self._lock = threading.RLock()  # several agents' threads share it

    def records(self) -> Sequence[Record]:
        """All, oldest first. Where the ref is not there yet, those of the copy are adopted."""
        with self._lock:
            self._refresh()
            return tuple(self._records)

    def append(self, task: str, kind: str, data: Mapping[str, Any]) -> Record:
        """After whatever others have appended meanwhile."""
        with self._lock:
            for _ in range(TRIES):
                self._refresh()
                last = self._records[-1] if self._records else None
                now = datetime.now(UTC).isoformat(timespec="milliseconds")
                record = following(last, task, kind, data, now)
                tip = self._commit(record, self._tip)
                if self._move(tip, self._tip):
                    self._tip = tip
                    self._records.append(record)
                    return record
        raise TaskError(f"[ledger] {REF} moved {TRIES} times while a record was appended")

    def text(self) -> str:
        """As the copy has it."""
        return "".join(f"{record.line()}\n" for record in self.records())

    def _refresh(self) -> None:
        tip = self._read_tip()
        if tip == self._tip:
            return
        since = tip if self._tip == ABSENT else f"{self._tip}..{tip}"
        try:
            text = self.repository.git(
                "log", "--reverse", "--first-parent", "--no-show-signature", "--format=%B%x00", since, "--",
                env=IDENTITY,
            )  # fmt: skip
        except GateError as error:
            raise TaskError(f"[ledger] {REF} cannot be read: {error}") from error
        lines = [one.strip("\n") for one in text.split("\0")[:-1]]
        records, wrong = verify([*(record.line() for record in self._records), *lines])
        if wrong:
            raise TaskError("\n".join(f"[ledger] {one}" for one in wrong))
        self._tip, self._records = tip, records

    def _read_tip(self) -> str:
        found = self.repository.git("for-each-ref", "--format=%(objectname)", REF).strip()
        return found or self._adopt()

    def _adopt(self) -> str:
        """The copy's records, as commits."""
        file = self.repository.root / COPY
        if not file.is_file() or not file.stat().st_size:
            return ABSENT
        records, wrong = verify(file.read_text().splitlines())
        if wrong:
            raise TaskError("\n".join(f"[ledger] {COPY}: {one}" for one in wrong))
        tip = ABSENT
        for record in records:
            tip = self._commit(record, tip)
        if self._move(tip, ABSENT):
            return tip
        return self.repository.git("rev-parse", REF).strip()  # another was first

    def _commit(self, record: Record, parent: str) -> str:
        tree = self.repository.git("mktree").strip()
        parents = [] if parent == ABSENT else ["-p", parent]
        dates = {"GIT_AUTHOR_DATE": record.time, "GIT_COMMITTER_DATE": record.time}
        line = record.line()
        return self.repository.git(
            "commit-tree", tree, *parents, "-F", "-", env={**IDENTITY, **dates}, stdin=line
        ).strip()

    def _move(self, tip: str, before: str) -> bool:
        try:
            self.repository.git("update-ref", "--create-reflog", REF, tip, before)
        except GateError:
            return False
        return True


def compare(copy: Path, records: Sequence[Record]) -> list[str]:
    """What is wrong with a copy beside the ledger itself: it may only be shorter."""
    lines, wrong = verify(copy.read_text().splitlines())
    if wrong:
        return [f"{copy.name}: {one}" for one in wrong]
    if [one.digest for one in lines] != [one.digest for one in records[: len(lines)]]:
        return [f"{copy.name} is no beginning of {REF}: one of them was made anew"]
    return []
