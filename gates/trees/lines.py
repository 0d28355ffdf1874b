"""The lines that one tree has and another has not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gates.trees.repository import Repository, Tree


@dataclass(frozen=True, slots=True)
class Line:
    """number: from 1, in the head."""

    path: str
    number: int
    text: str


def added_lines(
    repository: Repository, base: Tree, head: Tree, paths: Sequence[str], renames: bool = False
) -> Iterator[Line]:
    """Of these paths (a directory: all below it). renames: a file that moved has the lines that changed, not
    all of its own. Files that git takes for binary are read as well."""
    text = repository.git(
        "diff", "--text", "--unified=0", "--no-color", "--find-renames" if renames else "--no-renames",
        "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/", base.tree, head.tree, "--",
        *(f":(literal,top){path}" for path in paths),
    )  # fmt: skip
    return parsed(text)


def parsed(text: str) -> Iterator[Line]:
    """A diff without context. Hunks are counted out: an added line may look like a header."""
    path, number, left = "", 0, 0
    for line in text.split("\n"):  # not splitlines: a form feed ends no line of a file
        if left and line.startswith("+"):
            yield Line(path, number, line[1:])
            number, left = number + 1, left - 1
        elif line.startswith("+++ "):
            path = readable(line[4:].rstrip("\t").strip('"').removeprefix("b/"))
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            number, left = int(match[1]), int(match[2] or 1)


def readable(path: str) -> str:
    """Without the surrogates that stand for bytes which are no UTF-8: a record could not be written."""
    return path.encode(errors="surrogateescape").decode(errors="replace")
