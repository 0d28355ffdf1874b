"""Who may use this host's processors: gates side by side, or one that measures alone."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

HELD = "GATES_HOST_HELD"  # set for all that a gate starts: a gate inside a gate waits for nobody


@contextmanager
def host(exclusive: bool, watch: Callable[[str], None] = lambda line: None) -> Iterator[None]:
    """Holds the host while a gate runs, with others or alone; the system lets go for a process that dies.
    Who comes first is served first: he who waits to be alone keeps the door, so no stream of others passes
    him. watch: told once that this one waits."""
    if os.environ.get(HELD):
        yield
        return
    with lock("door") as door, lock("host") as place:
        kind = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
        for file, how in ((door, fcntl.LOCK_EX), (place, kind)):
            try:
                fcntl.flock(file, how | fcntl.LOCK_NB)
            except BlockingIOError:
                watch("waits for gates that run on this host")
                fcntl.flock(file, how)
        fcntl.flock(door, fcntl.LOCK_UN)
        yield


def lock(name: str) -> TextIO:
    """A file of this user's, the same for every checkout on the host."""
    path = Path(tempfile.gettempdir()) / f"volta-gates-{os.getuid()}.{name}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "r+")
