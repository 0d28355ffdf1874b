"""What pyproject.toml asks for: every requirement with its line, and the words beside it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates.evidence.verdict import Finding

PATH = "pyproject.toml"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")  # PEP 508
QUOTED = re.compile(r"""["']([^"']+)["']""")
WORD = re.compile(r"[^\W\d_]{3,}")
TABLES = ("project", "project.optional-dependencies", "dependency-groups")


@dataclass(frozen=True, slots=True)
class Requirement:
    """text: as it stands. line: from 1. reason: the comment beside it, or on the line above."""

    text: str
    line: int
    reason: str

    @property
    def name(self) -> str:
        """Normalized as PEP 503 says."""
        found = NAME.match(self.text)
        return re.sub(r"[-_.]+", "-", found[0]).lower() if found else self.text


def read(root: Path) -> list[Requirement]:
    """Those of the project, its extras and its dependency groups, wherever they stand; what groups include is
    theirs."""
    text = (root / PATH).read_text()
    lines = text.splitlines()
    asked = set(declared(tomllib.loads(text)))
    found = [
        Requirement(one, number, reason(lines, number))
        for number in places(lines)
        for one in QUOTED.findall(lines[number - 1].partition("#")[0])
        if one in asked
    ]
    # TOML can write a text in ways that no line shows; then there is no comment beside it either
    return found + [Requirement(one, 0, "") for one in sorted(asked - {one.text for one in found})]


def places(lines: Sequence[str]) -> Iterator[int]:
    """The lines, from 1, of the tables that hold requirements."""
    table = ""
    for number, line in enumerate(lines, 1):
        if match := re.match(r"\[+([\w.\"' -]+)\]+\s*(#|$)", line):
            table = match[1]
        elif table in TABLES:
            yield number


def declared(project: Mapping[str, Any]) -> Iterator[str]:
    given = project.get("project", {})
    yield from given.get("dependencies", ())
    for extra in given.get("optional-dependencies", {}).values():
        yield from extra
    for group in project.get("dependency-groups", {}).values():
        yield from (one for one in group if isinstance(one, str))


def reason(lines: Sequence[str], number: int) -> str:
    """The comment on a line (from 1), else on the one above where that is all comment."""
    beside = lines[number - 1].partition("#")[2].strip()
    above = lines[number - 2].strip() if number > 1 else ""
    return beside or (above.lstrip("# ") if above.startswith("#") else "")


def without_reason(requirements: Sequence[Requirement]) -> Iterator[Finding]:
    for one in requirements:
        if not WORD.search(one.reason):
            said = f"{one.text}: expected a comment of a few words beside it, what it is for"
            yield Finding(said, PATH, one.line)
