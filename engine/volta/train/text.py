"""Training text: the bytes of a file, of a directory, or of Python's own library."""

from __future__ import annotations

import hashlib
import os
import stat
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from volta.errors import DataError

DEFAULT_LIMIT = 8 << 20  # bytes of the standard library that are read, in the order of names
SUFFIXES = frozenset(
    f".{kind}"
    for kind in (
        *("txt", "md", "rst", "tex", "html", "css"),
        *("py", "pyi", "c", "h", "cc", "cpp", "hpp", "cu", "rs", "go", "java", "js", "ts", "sh"),
        *("json", "yaml", "yml", "toml", "ini", "cfg"),
    )
)
# Tests, tables of characters and what a distribution adds; no Python code that reads like Python
_LIBRARY_SKIPS = frozenset({"test", "tests", "idle_test", "encodings", "site-packages", "dist-packages"})
_BUILD_FILE = "_sysconfigdata"  # differs between builds of one version of Python


def load_text(path: Path | None) -> bytes:
    """The text at `path`; None: the standard library's sources on this machine, first 8 MiB.

    A file is taken as it is. A directory is walked: regular files with a known suffix (SUFFIXES) whose
    content is UTF-8 without NUL, in ascending order of their POSIX-relative names, each ending in a
    newline; hidden names, and links that lead out of the tree, are left out. Raises DataError.
    """
    if path is None:
        return _library()
    try:
        if path.is_dir():
            text = _join(path, lambda name: Path(name).suffix.lower() in SUFFIXES, frozenset())
            if not text:
                raise DataError(
                    f"[data] {path} holds no text: expected UTF-8 files named *.txt, *.md, *.py, ..."
                )
            return text
        if not stat.S_ISREG(path.stat().st_mode):
            raise DataError(f"[data] {path} is not a regular file: expected a file or a directory of text")
        text = path.read_bytes()
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"[data] {path} is not there: expected a file or a directory of text") from None
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error
    if not text:
        raise DataError(f"[data] {path} is empty: expected text")
    return text


def text_sha256(text: bytes) -> str:
    """What a run states so that others can train on the same text."""
    return hashlib.sha256(text).hexdigest()


def _library() -> bytes:
    root = Path(sysconfig.get_path("stdlib"))
    try:
        text = _join(root, _is_library_source, _LIBRARY_SKIPS, DEFAULT_LIMIT)
    except OSError as error:
        raise _unreadable(root, error) from error
    if not text:
        raise DataError(f"[data] {root} holds no Python sources: give --text FILE_OR_DIR")
    return text


def _is_library_source(name: str) -> bool:
    return name.endswith(".py") and not name.startswith(_BUILD_FILE)


def _join(root: Path, wanted: Callable[[str], bool], skip: frozenset[str], limit: int | None = None) -> bytes:
    """The files under `root`, in order, cut after `limit` bytes."""
    parts: list[bytes] = []
    total = 0
    for file in sorted(_walk(root, wanted, skip), key=lambda file: file.relative_to(root).as_posix()):
        if limit is not None and total >= limit:
            break
        part = file.read_bytes()
        if not part or not _is_text(part):
            continue
        parts.append(part if part.endswith(b"\n") else part + b"\n")
        total += len(parts[-1])
    return b"".join(parts)[:limit]


def _walk(root: Path, wanted: Callable[[str], bool], skip: frozenset[str]) -> Iterator[Path]:
    """Regular files below `root`, in no order; a link counts only if its target is a file below `root`."""
    top = root.resolve()
    for folder, folders, files in os.walk(root, onerror=_raise):
        folders[:] = [name for name in folders if name not in skip and not name.startswith(".")]
        for name in files:
            file = Path(folder, name)
            if name.startswith(".") or not wanted(name):
                continue
            if file.is_symlink() and not file.resolve().is_relative_to(top):
                continue
            if file.is_file():
                yield file


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def _raise(error: OSError) -> None:
    raise error


def _unreadable(path: Path, error: OSError | ValueError) -> DataError:
    if isinstance(error, OSError):
        return DataError(f"[data] {error.filename or path} cannot be read: {error.strerror}")
    return DataError(f"[data] {str(path)!a} cannot be read: {error}")
