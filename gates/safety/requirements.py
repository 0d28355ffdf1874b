"""What pyproject.toml asks for: every requirement with its line, and the words beside it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gates.evidence.verdict import Finding

PATH = "pyproject.toml"
NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")  # PEP 508
WORD = re.compile(r"[^\W\d_]{2,}")


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
    """Those of the project, its extras and its dependency groups; what groups include is theirs."""
    text = (root / PATH).read_text()
    lines = text.splitlines()
    found = []
    used: set[tuple[str, int]] = set()
    for one in declared(tomllib.loads(text)):
        number = next((n for n, line in enumerate(lines, 1) if quotes(line, one) and (one, n) not in used), 0)
        used.add((one, number))
        found.append(Requirement(one, number, reason(lines, number)))
    return found


def declared(project: Mapping[str, Any]) -> Iterator[str]:
    given = project.get("project", {})
    yield from given.get("dependencies", ())
    for extra in given.get("optional-dependencies", {}).values():
        yield from extra
    for group in project.get("dependency-groups", {}).values():
        yield from (one for one in group if isinstance(one, str))


def quotes(line: str, requirement: str) -> bool:
    code = line.partition(" #")[0]
    return f'"{requirement}"' in code or f"'{requirement}'" in code


def reason(lines: list[str], number: int) -> str:
    """Of one line (1, 2, ..): what follows its last quote and a #; else a line above that is all comment."""
    if not number:
        return ""
    tail = re.split(r"[\"']", lines[number - 1])[-1] if "#" not in lines[number - 1] else lines[number - 1]
    beside = tail.partition("#")[2].strip()
    above = lines[number - 2].strip() if number > 1 else ""
    return beside or (above.removeprefix("#").strip() if above.startswith("#") else "")


def without_reason(requirements: list[Requirement]) -> Iterator[Finding]:
    for one in requirements:
        if len(WORD.findall(one.reason)) < 2:
            yield Finding(
                f"{one.text}: expected a comment of a few words beside it, why it is needed", PATH, one.line
            )
