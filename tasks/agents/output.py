"""What an agent leaves while it runs: words in a log, files on the disk; both within limits."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

WATCH_S, DISK_S = 0.3, 2.0  # between: told lines, samples of the disk
CHUNK, UNFINISHED, TAIL = 1 << 16, 1 << 13, 1 << 16  # bytes: of a read, of a line without an end, of a log
WIDTH, LOOKS = 200, 40  # characters of a line that is shown; lines in which one is looked for
ENTRIES = 100_000  # files of a tree that one sample of its size looks at
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")


def tail(log: Path, lines: int = 40) -> str:
    """The last lines that say anything, as plain text."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        shown = [plain(line) for line in file.read().splitlines()]
    return "\n".join([line for line in shown if line][-lines:])


def plain(line: bytes) -> str:
    """At most WIDTH characters, none of which does anything to a terminal."""
    text = ESCAPES.sub("", line.decode("utf-8", "replace")).replace("\t", " ")
    return "".join(filter(str.isprintable, text)).strip()[:WIDTH]


class Output:
    """What is printed: into the log as it comes, up to a limit; what is beyond is read and dropped."""

    def __init__(self, log: BinaryIO, most: int, watch: Callable[[str], None]) -> None:
        self._log, self._most, self._watch = log, most, watch
        self._unfinished, self._line, self._told = b"", "", 0.0
        self.kept, self.flooded = 0, False
        self.broken: OSError | None = None  # of the log: raised when the agent is ended, not before

    def take(self, data: bytes) -> None:
        kept = data[: self._most - self.kept]
        self.flooded |= len(kept) < len(data)
        try:
            self._log.write(kept)
            self._log.flush()
        except OSError as error:
            self.broken = self.broken or error
        self.kept += len(kept)
        lines = (self._unfinished + kept).splitlines(keepends=True)
        whole = not lines or lines[-1].endswith((b"\n", b"\r"))
        self._unfinished = b"" if whole else lines.pop()[:UNFINISHED]
        self._line = next(filter(None, map(plain, reversed(lines[-LOOKS:]))), self._line)

    def tell(self, now: float) -> None:
        if self._line and now - self._told >= WATCH_S:
            line, self._line, self._told = self._line, "", now
            self._watch(line)

    def finish(self) -> None:
        """No more will come: the last line is whole."""
        if self.broken:
            raise self.broken
        self._line, self._told = plain(self._unfinished) or self._line, 0.0
        self.tell(time.monotonic())


class Disk:
    """What a directory has grown by, in bytes on the disk. It does not see what is deleted but still open,
    what may not be read, and what lies beyond ENTRIES files."""

    def __init__(self, root: Path, most: int) -> None:
        self._root, self._most = root, most
        self._before, self._next = tree_bytes(root), time.monotonic() + DISK_S

    def grown(self) -> int:
        return tree_bytes(self._root) - self._before

    def full(self, now: float) -> bool:
        """False between samples, which take a tenth of the time at most."""
        if now < self._next:
            return False
        full = self.grown() >= self._most
        after = time.monotonic()
        self._next = after + max(DISK_S, 10 * (after - now))
        return full


def tree_bytes(root: Path) -> int:
    """Of the first ENTRIES files below it: no link is followed, a file with two names is counted once."""
    total = seen = 0
    linked: set[tuple[int, int]] = set()
    waiting = [str(root)]
    while waiting and seen < ENTRIES:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                with contextlib.suppress(OSError):  # it is gone again
                    found = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif found.st_nlink > 1:
                        if (found.st_dev, found.st_ino) in linked:
                            continue
                        linked.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * 512  # POSIX, whatever the blocks of the file system are
                if seen >= ENTRIES:
                    break
    return total
