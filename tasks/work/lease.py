"""Who works on a task: one process at a time, for as long as it lives."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from gates.trees.repository import Repository

from tasks.errors import TaskError
from tasks.work.place import home


@dataclass(frozen=True, slots=True)
class Holder:
    """pid: on host. since: UTC, ISO 8601. phase: what it does now."""

    pid: int
    host: str
    since: str
    phase: str


class Lease:
    """A lock that the system lets go when its process ends, however it ends; the file says who has it and, as
    a heartbeat, when its phase changed last."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor
        self._since = datetime.now(UTC).isoformat(timespec="seconds")
        self.beat("claimed")

    def beat(self, phase: str) -> None:
        holder = Holder(os.getpid(), socket.gethostname(), self._since, phase)
        text = json.dumps(asdict(holder)).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)


def path_of(repository: Repository, name: str) -> Path:
    return home(repository, "leases") / f"{name}.json"


@contextmanager
def claim(repository: Repository, name: str) -> Iterator[Lease]:
    """Raises TaskError where another process has it."""
    path = path_of(repository, name)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            found = holder_in(path)
            by = f" by process {found.pid} on {found.host} since {found.since}" if found else ""
            raise TaskError(f"[{name}] it is held{by}: another runner works on it") from None
        yield Lease(path, descriptor)
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def holder(repository: Repository, name: str) -> Holder | None:
    """Who has it now; None where nobody does, also where its last holder died."""
    path = path_of(repository, name)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return holder_in(path) or Holder(0, "", "", "claimed")
    finally:
        os.close(descriptor)
    return None


def holder_in(path: Path) -> Holder | None:
    try:
        found = json.loads(path.read_text())
        return Holder(int(found["pid"]), str(found["host"]), str(found["since"]), str(found["phase"]))
    except (OSError, ValueError, KeyError, TypeError):  # between being emptied and being written
        return None
