"""Whether the generated files are what the queue, the ledger and the law say, and how they become so."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from itertools import zip_longest
from pathlib import Path

from gates.law import tiers
from gates.law.files import LawError, read

from tasks.documents import prd, ralphy
from tasks.errors import TaskError
from tasks.files import GENERATED, QUEUE, Entry

# The first rule: agents that Ralphy runs side by side are told only the title and the rules.
READ = f"A task is a file: {QUEUE}/T-NNN-*.yaml. Read it and AGENTS.md first; touch only what it allows."


def settings(root: Path) -> str:
    agents = root / ralphy.AGENTS
    if not agents.is_file():
        raise TaskError(f"{ralphy.AGENTS}: it is not there: expected the rules of the house")
    try:
        law = read(root, tiers.PATH, tiers.Tiers).tiers[0].paths
        rules = ralphy.rules(agents.read_text())
    except LawError as error:
        raise TaskError(str(error)) from error
    except UnicodeDecodeError as error:
        raise TaskError(f"{ralphy.AGENTS}: it is no UTF-8 text: byte {error.start}") from error
    return ralphy.config_yaml([READ, *rules], list(dict.fromkeys([*law, "tasks/", *GENERATED])))


Generator = Callable[[Path, dict[str, Entry], Collection[str]], str]
FILES: Mapping[str, Generator] = {
    prd.PATH: lambda root, entries, done: prd.prd(entries, done),
    ralphy.TASKS: lambda root, entries, done: ralphy.tasks_yaml(entries, done),
    ralphy.CONFIG: lambda root, entries, done: settings(root),
}


def generated(root: Path, entries: dict[str, Entry], done: Collection[str]) -> dict[str, str]:
    """By path from the root. Raises TaskError."""
    return {path: make(root, entries, done) for path, make in FILES.items()}


def drift(root: Path, entries: dict[str, Entry], done: Collection[str]) -> list[str]:
    """A line for each file that is not what it would be, and where that begins. Raises TaskError."""
    found = []
    for path, text in generated(root, entries, done).items():
        given = content(root / path)
        if given is None:
            found.append(f"{path}: it is not there as a plain file: `{prd.COMMAND}` writes it")
        elif given != text.encode():
            pairs = enumerate(zip_longest(given.split(b"\n"), text.encode().split(b"\n")), 1)
            line = next(number for number, (old, new) in pairs if old != new)
            found.append(f"{path}:{line}: it is not what is generated: `{prd.COMMAND}` writes it")
    return found


def write(root: Path, entries: dict[str, Entry], done: Collection[str]) -> list[Path]:
    """The files that it changed: a crash leaves each as it was or as it shall be. Raises TaskError."""
    changed = []
    for path, text in generated(root, entries, done).items():
        file = root / path
        if content(file) != text.encode():
            replace(file, text.encode())
            changed.append(file)
    return changed


def content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() and not file.is_symlink() else None


def replace(file: Path, text: bytes) -> None:
    """By a temporary name, never through a link: the tree may hold what an agent left in it."""
    if file.parent.is_symlink() or file.is_dir():
        raise TaskError(f"{file}: its place is a link or a directory: expected a plain file's")
    file.parent.mkdir(exist_ok=True)
    partial = file.with_name(f".{file.name}.{os.getpid()}")
    partial.unlink(missing_ok=True)
    with partial.open("xb") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    partial.replace(file)
