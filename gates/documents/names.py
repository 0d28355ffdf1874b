"""Links, paths and names of a document, and whether the tree has them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path

from gates.documents.markdown import Document
from gates.evidence.verdict import Finding

# From where a document may count a path: it speaks of the engine as one who stands in it.
BASES = ("", "engine", "engine/volta", "engine/csrc")
SUFFIXES = (".py", ".c", ".h", ".md", ".yaml", ".def")
PATH = re.compile(r"(?:~|\.{1,2}|[\w.*-]+)(?:/[\w.*-]+)*/?")
# What need not be there, and why.
ABSENT = {
    r"runs?\d*/.*": "training writes it",
    r"\.(venv|nox|gates)(/.*)?": "made by the first command, and ignored by git",
    r"~/.*|/.*": "outside of the repository",
    r"(.*/)?[A-Z_]+(/.*)?": "a placeholder: FILE, DIR",
    r"(.*/)?(FILE|NAME|X|NNNN[\w-]*)\.\w+": "a placeholder: NAME.py, NNNN-title.md",
}
EXTERNAL = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
LINE_ANCHOR = re.compile(r"L\d+(-L\d+)?")
VARIABLE = re.compile(r"\bVOLTA_[A-Z0-9_]+")
SOURCES = (".py", ".c", ".h", ".def", ".toml", ".cl", ".cu")
API = re.compile(r"\bvt\.([A-Za-z_]\w*)")
UNSEEN = {".git", ".venv", ".nox", ".gates", ".tasks", "__pycache__"}  # in a tree, and no part of it


class Places:
    """The files of a tree. files, folders: from the root, with `/`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: set[str] = set()
        self.folders: set[str] = {"."}
        for where, below, names in os.walk(root):
            below[:] = sorted(name for name in below if name not in UNSEEN and not name.endswith("_cache"))
            here = Path(where).relative_to(root).as_posix()
            self.folders.update(posixpath.normpath(f"{here}/{name}") for name in below)
            self.files.update(posixpath.normpath(f"{here}/{name}") for name in names)

    @cached_property
    def file_names(self) -> set[str]:
        return {posixpath.basename(path) for path in self.files}

    @cached_property
    def folder_names(self) -> set[str]:
        return {posixpath.basename(path) for path in self.folders}

    @cached_property
    def variables(self) -> set[str]:
        """Every VOLTA_ name of a source file. What tests alone mention is nothing that a user can set."""
        found: set[str] = set()
        for path in self.files:
            if path.endswith(SOURCES) and not path.startswith("tests/"):
                found.update(VARIABLE.findall((self.root / path).read_text(errors="replace")))
        return found

    def exist(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def holds(self, text: str, near: str) -> bool:
        """Whether a path or pattern names something. near: the document's folder. A bare file name may lie
        anywhere: tables name the files of the folder in their first column."""
        if "/" not in text and any(fnmatchcase(name, text) for name in self.file_names):
            return True
        wanted = [posixpath.normpath(posixpath.join(base, text)) for base in (*BASES, near)]
        if "*" not in text:
            return any(map(self.exist, wanted))
        return any(fnmatchcase(path, one) for one in wanted for path in (*self.files, *self.folders))

    def absent(self, text: str, near: str) -> bool:
        """Whether it is a path of this repository that names nothing."""
        return self.is_path(text) and not self.holds(bare(text), near) and not may_be_absent(bare(text))

    def is_path(self, text: str) -> bool:
        return bool(PATH.fullmatch(bare(text))) and self.looks_like_path(bare(text))

    def looks_like_path(self, text: str) -> bool:
        """By its ending, or by a first folder that exists: not 1/n, f32/bf16 or origin/main."""
        if text.endswith((*SUFFIXES, "/")):
            return True
        first, slash, _ = text.partition("/")
        return bool(slash) and (first in self.folder_names or first in (".", ".."))


def bare(text: str) -> str:
    """Without the place in the file: path::test, path:line."""
    return re.sub(r"(::.*|:\d+(-\d+)?)$", "", text)


def may_be_absent(path: str) -> bool:
    return any(re.fullmatch(pattern, path) for pattern in ABSENT)


# Each of these gives an answer for every name that it judges: a finding, or None for one that is there.


def links(
    document: Document, places: Places, anchors: Mapping[str, Collection[str]]
) -> Iterator[Finding | None]:
    """anchors: of every document that is known, by path."""
    for link in document.links:
        if not EXTERNAL.match(link.text):
            problem = broken(document, link.text, places, anchors)
            yield Finding(problem, document.path, link.line) if problem else None


def broken(
    document: Document, target: str, places: Places, anchors: Mapping[str, Collection[str]]
) -> str | None:
    name, _, anchor = target.partition("#")
    path = document.path
    if name:
        folder = "" if name.startswith("/") else posixpath.dirname(document.path)
        path = posixpath.normpath(posixpath.join(folder, name.partition("?")[0].lstrip("/")))
    if not places.exist(path):
        return f"the link {target} leads to {path}, which is not there"
    if not anchor or LINE_ANCHOR.fullmatch(anchor):
        return None
    if path.endswith(".md") and anchor not in anchors.get(path, ()):
        return f"the link {target} leads to #{anchor}: no heading of {path} has that anchor"
    return None


def paths(document: Document, places: Places) -> Iterator[Finding | None]:
    near = posixpath.dirname(document.path)
    for span in document.spans:
        if document.is_past(span) or not places.is_path(span.text):
            continue
        gone = places.absent(span.text, near)
        said = f"`{span.text}` is not there: {tried(span.text, near)}"
        yield Finding(said, document.path, span.line) if gone else None


def tried(text: str, near: str) -> str:
    if "/" not in text:
        return "no file has that name"
    return "looked in " + ", ".join(base or "the root" for base in dict.fromkeys((*BASES, near)))


def variables(document: Document, known: Collection[str]) -> Iterator[Finding | None]:
    for line, text in code(document):
        for name in VARIABLE.findall(text):
            # `VOLTA_NEEDS_..` stands for all that begin so
            begins = name.endswith("_") and any(one.startswith(name) for one in known)
            there = name in known or begins
            yield None if there else Finding(f"{name} is in no source file", document.path, line)


def api(document: Document, public: Collection[str]) -> Iterator[Finding | None]:
    """`vt.matmul` in a span; what a block says is found by running it."""
    for span in document.spans:
        for name in API.findall(span.text) if not document.is_past(span) else ():
            said = f"`{span.text}`: volta has no {name}"
            yield None if name in public else Finding(said, document.path, span.line)


def code(document: Document) -> Iterator[tuple[int, str]]:
    """Every line of code that speaks of what is, in spans and in blocks."""
    for span in document.spans:
        if not document.is_past(span):
            yield span.line, span.text
    for block in document.blocks:
        if not document.is_past(block):
            yield from enumerate(block.text.split("\n"), block.line)
