"""A document, read as GitHub reads it: links, spans and blocks of code, each with its line, and anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

CHANGELOG = "CHANGELOG.md"
PLACES = ("README.md", "AGENTS.md", CHANGELOG, "docs/*.md", "governance/*.md")
NOT_RUN = re.compile(r"<!--\s*not run:\s*(\S.*?)\s*-->", re.DOTALL)
HTML_TARGET = re.compile(r"""<(?:a|img)\b[^>]*?\b(?:href|src)\s*=\s*["']([^"']+)["']""", re.IGNORECASE)
HTML_ANCHOR = re.compile(r"""<[a-z]+\b[^>]*?\b(?:id|name)\s*=\s*["']([^"']+)["']""", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Piece:
    """text: a link's target, or code. line: from 1. under: the headings above it, by level from 1.
    language: a fence's first word. not_run: the reason of a `<!-- not run: reason -->` before it."""

    text: str
    line: int
    under: Sequence[str] = ()
    language: str = ""
    not_run: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """path: from the root. spans: code in a line of text; blocks: code on lines of its own."""

    path: str
    links: list[Piece] = field(default_factory=list)
    spans: list[Piece] = field(default_factory=list)
    blocks: list[Piece] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def is_past(self, piece: Piece) -> bool:
        """Whether it tells of what was: in the changelog, released versions and what has been removed."""
        if self.path != CHANGELOG:
            return False
        version, kind = (*piece.under, "", "", "")[1:3]
        return "unreleased" not in version.lower() or kind.lower() == "removed"


def documents(root: Path) -> list[Document]:
    """Those that the gate judges, in the order of PLACES."""
    files = [path for place in PLACES for path in sorted(root.glob(place))]
    return [read(path.read_text(errors="replace"), str(path.relative_to(root))) for path in files]


def read(text: str, path: str) -> Document:
    document = Document(path)
    under: list[str] = []
    not_run = ""
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    for index, token in enumerate(tokens):
        first = token.map[0] + 1 if token.map else 0
        if token.type == "heading_open":
            title = plain(tokens[index + 1])
            level = int(token.tag[1:])
            under = [*under[: level - 1], *[""] * (level - 1 - len(under)), title]
            document.anchors.add(unused(slug(title), document.anchors))
        elif token.type == "inline":
            inline(document, token, first, tuple(under))
        elif token.type in ("fence", "code_block"):
            language = (token.info.split() or [""])[0].lower()
            after = first + (token.type == "fence")
            document.blocks.append(Piece(token.content, after, tuple(under), language, not_run))
        elif token.type == "html_block":
            html(document, token.content, first, tuple(under))
        # the comment speaks of the block that comes next
        said = NOT_RUN.search(token.content) if token.type == "html_block" else None
        not_run = said[1] if said else ""
    return document


def inline(document: Document, token: Token, line: int, under: Sequence[str]) -> None:
    """The parts of one paragraph, heading or cell. The parser gives the line of the whole; line breaks count
    on from there, and so do those inside a span, of which it leaves only spaces."""
    cursor = 0
    for part in token.children or ():
        if part.type == "code_inline":
            begin = token.content.find(part.markup, cursor) + len(part.markup)
            end = token.content.find(part.markup, begin)
            document.spans.append(Piece(part.content, line, under))
            line += token.content.count("\n", begin, end)
            cursor = end + len(part.markup)
        elif part.type in ("softbreak", "hardbreak"):
            line += 1
        elif part.type == "link_open":
            document.links.append(Piece(unquote(str(part.attrs["href"])), line, under))
        elif part.type == "image":
            document.links.append(Piece(unquote(str(part.attrs["src"])), line, under))
            line += sum(child.type in ("softbreak", "hardbreak") for child in part.children or ())
        elif part.type == "html_inline":
            html(document, part.content, line, under)
            line += part.content.count("\n")


def html(document: Document, text: str, line: int, under: Sequence[str]) -> None:
    document.anchors.update(HTML_ANCHOR.findall(text))
    for match in HTML_TARGET.finditer(text):
        document.links.append(Piece(unquote(match[1]), line + text.count("\n", 0, match.start()), under))


def plain(token: Token) -> str:
    """A heading as it reads, without markup."""
    return "".join(part.content for part in token.children or () if part.type in ("text", "code_inline"))


def slug(title: str) -> str:
    """GitHub's anchor of a heading: lower case, no signs but - and _, each space a -."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def unused(name: str, taken: set[str]) -> str:
    """A second heading of the same text is name-1, a third name-2."""
    return next(one for one in candidates(name) if one not in taken)


def candidates(name: str) -> Iterator[str]:
    yield name
    number = 0
    while True:
        number += 1
        yield f"{name}-{number}"
