"""Write a file so that a crash at any point leaves either the old content or the new one.

Temporary in the same directory -> fsync -> rename over the target -> fsync of the directory.
A writer holds a lock on its temporary; the kernel drops the lock when the writer dies, so whoever
writes next can tell an abandoned temporary from one in use, whatever its process number.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from volta.errors import CheckpointError

_PREFIX, _SUFFIX = ".volta-", ".tmp"
_FULL = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the limit on file sizes is smaller",
}


def write(path: Path, parts: Iterable[bytes | memoryview], size: int, what: str = "checkpoint") -> None:
    """Replace `path` by the `size` bytes of `parts`, durable on return.

    Raises CheckpointError, which says `what` could not be written; then `path` is what it was before and
    the temporary is gone.
    """
    try:
        remove_abandoned(path.parent)
        temporary, descriptor = _create(path.parent)
        try:
            for part in parts:
                _write_all(descriptor, memoryview(part))
            os.fsync(descriptor)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        finally:
            os.close(descriptor)
        sync_directory(path.parent)
    except OSError as error:
        raise CheckpointError(_explain(error, path, size, what)) from error


def write_text(path: Path, text: str, what: str) -> None:
    """The same for a text."""
    content = text.encode()
    write(path, (content,), len(content), what)


def make_directory(directory: Path) -> None:
    """Create `directory` and its parents, each durable in the one above it. Raises CheckpointError."""
    try:
        missing = [parent for parent in (directory, *directory.parents) if not parent.exists()]
        for parent in reversed(missing):
            parent.mkdir(exist_ok=True)
            sync_directory(parent.parent)
        if not directory.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "a file has this name")
    except OSError as error:
        raise CheckpointError(f"[checkpoint] {directory} cannot be created: {error.strerror}") from error


def sync_directory(directory: Path) -> None:
    """Make the names in `directory` durable; a file system that cannot (EINVAL) has no such step."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(descriptor)


def remove_abandoned(directory: Path) -> None:
    """Remove the temporaries that crashed writers left in `directory`."""
    for temporary in directory.iterdir():
        if not (temporary.name.startswith(_PREFIX) and temporary.name.endswith(_SUFFIX)):
            continue
        with suppress(OSError):  # taken, renamed or removed by its writer meanwhile: not ours
            descriptor = os.open(temporary, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                temporary.unlink()
            finally:
                os.close(descriptor)


def _create(directory: Path) -> tuple[Path, int]:
    """A new locked temporary; tried again when a cleaner took it between its open and its lock."""
    while True:
        temporary = directory / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        with suppress(OSError):  # a file system without locks: its cleaners remove nothing
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink == 1:
            return temporary, descriptor
        os.close(descriptor)


def _write_all(descriptor: int, rest: memoryview) -> None:
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _explain(error: OSError, path: Path, size: int, what: str) -> str:
    if error.errno not in _FULL:
        return f"[{what}] {path} cannot be written: {error.strerror}; nothing was changed"
    room = ""
    with suppress(OSError):
        space = os.statvfs(path.parent)
        room = f" ({space.f_bavail * space.f_frsize} bytes free)"
    return f"[{what}] {path} needs {size} bytes: {_FULL[error.errno]}{room}; nothing was changed"
