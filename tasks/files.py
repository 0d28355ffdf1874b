"""The queue: tasks/queue/T-NNN-slug.yaml, read with each error at its line, written with comments kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from gates.law.files import MOST_BYTES, LawError, parse
from ruamel.yaml import YAML

from tasks.errors import TaskError
from tasks.model import Task

QUEUE = "tasks/queue"
GENERATED = ("PRD.md", "tasks.yaml", ".ralphy/")  # from the queue and the ledger
NAME = re.compile(r"(T-[0-9]{3,})-([a-z0-9]+(?:-[a-z0-9]+)*)\.yaml")


@dataclass(frozen=True, slots=True)
class Entry:
    """A task and the file that it stands in. digest: sha256 of the file's text: what evidence is about."""

    task: Task
    path: str
    digest: str

    @property
    def slug(self) -> str:
        return Path(self.path).stem

    @property
    def branch(self) -> str:
        return f"task/{self.slug}"


def read_queue(texts: Iterable[tuple[str, str]]) -> dict[str, Entry]:
    """Of (path, text), by id in order. Raises TaskError with all that is wrong, a line each."""
    entries: dict[str, Entry] = {}
    wrong: list[str] = []
    titles: dict[str, str] = {}
    for path, text in sorted(texts):
        try:
            one = read_text(path, text)
        except LawError as error:
            wrong.append(str(error))
            continue
        task = one.task
        if task.id in entries:
            wrong.append(f"{path}: {task.id} is {entries[task.id].path} already")
        elif task.title in titles:
            wrong.append(f"{path}: the title of {titles[task.title]}: expected one of its own")
        entries[task.id] = one
        titles[task.title] = task.id
    if not wrong:
        wrong = in_order(entries)
    if wrong:
        raise TaskError("\n".join(wrong))
    return dict(sorted(entries.items(), key=lambda item: number(item[0])))


def read_text(path: str, text: str) -> Entry:
    """One file. Raises LawError: file, line, key, what was expected."""
    match = NAME.fullmatch(Path(path).name)
    if match is None:
        raise LawError(path, 0, "its name: expected T-NNN-some-words.yaml")
    if len(text) > MOST_BYTES:
        raise LawError(path, 0, f"it has {len(text)} characters: expected at most {MOST_BYTES}")
    task = parse(text, path, Task)
    if task.id != match[1]:
        raise LawError(path, 1, f"id: {task.id} in a file named for {match[1]}")
    return Entry(task, path, hashlib.sha256(text.encode()).hexdigest())


def read_directory(root: Path) -> dict[str, Entry]:
    """The queue of a working tree."""
    texts = []
    for file in sorted((root / QUEUE).glob("*")):
        if not file.is_file() or file.is_symlink():
            raise TaskError(f"{QUEUE}/{file.name}: expected a plain file")
        try:
            texts.append((f"{QUEUE}/{file.name}", file.read_text()))
        except UnicodeDecodeError as error:
            raise TaskError(f"{QUEUE}/{file.name}: it is no UTF-8 text: byte {error.start}") from error
    return read_queue(texts)


def in_order(entries: dict[str, Entry]) -> list[str]:
    """What is wrong with dependencies: tasks that are not there, circles, a lower group that waits."""
    wrong = []
    for entry in entries.values():
        for name in entry.task.depends_on:
            if name not in entries:
                wrong.append(f"{entry.path}: depends_on: {name} is no task of the queue")
            elif entries[name].task.parallel_group > entry.task.parallel_group:
                wrong.append(f"{entry.path}: depends_on: {name} is of a later parallel_group")
    if not wrong and (circle := circle_of({name: one.task.depends_on for name, one in entries.items()})):
        wrong.append(f"{entries[circle[0]].path}: depends_on: a circle: {' -> '.join(circle)}")
    return wrong


def circle_of(edges: dict[str, list[str]]) -> list[str]:
    """A circle of dependencies, its first task again at its end; empty where there is none."""
    done: set[str] = set()
    path: dict[str, None] = {}  # from the start to here, in order
    for start in edges:
        waiting = [(start, False)]
        while waiting:
            name, leave = waiting.pop()
            if leave:
                del path[name]
                done.add(name)
            elif name in path:
                names = list(path)
                return [*names[names.index(name) :], name]
            elif name not in done:
                path[name] = None
                waiting.append((name, True))
                waiting += [(other, False) for other in edges[name]]
    return []


def number(name: str) -> int:
    return int(name.removeprefix("T-"))


def next_id(entries: dict[str, Entry]) -> str:
    return f"T-{max((number(name) for name in entries), default=0) + 1:03d}"


def slug(title: str) -> str:
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join(words[:6]) or "task"


def to_text(fields: dict[str, Any], before: str = "") -> str:
    """YAML of a task's fields; where there is a text already, its comments and order are kept."""
    writer = YAML(typ="rt")
    writer.width = 110
    writer.indent(mapping=2, sequence=4, offset=2)
    loaded = writer.load(before) if before else {}
    for key, value in fields.items():
        if key not in loaded or loaded[key] != value:
            loaded[key] = value
    for key in [key for key in loaded if key not in fields]:
        del loaded[key]
    out = StringIO()
    writer.dump(loaded, out)
    return out.getvalue()
