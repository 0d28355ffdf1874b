"""Commands that a document shows, held against those that there are."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gates.documents.ask import MODULES
from gates.documents.markdown import Document
from gates.documents.names import Places
from gates.documents.surface import Command, Surface
from gates.evidence.verdict import Finding

SHELL = ("", "sh", "bash", "console", "shell", "text")  # a block of another language shows no commands
PYTHON = re.compile(r"python(3(\.\d+)?)?")
ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=.*")
ENDS = ("|", "||", "&&", ";", ">", ">>", "<", "2>&1", "&")
ELLIPSES = ("..", "...", "…")
MOST_READINGS = 64  # of `a|b` alternatives in one command


@dataclass(frozen=True, slots=True)
class Shown:
    """A command as a document shows it. whole: on a line of its own, to be copied; a span in a sentence may
    leave out what it does not speak of."""

    words: Sequence[str]
    path: str
    line: int
    whole: bool


def shown(document: Document) -> Iterator[Shown]:
    for span in document.spans:
        if not document.is_past(span) and (words := split(span.text)):
            yield Shown(words, document.path, span.line, False)
    for block in document.blocks:
        if block.language not in SHELL or document.is_past(block):
            continue
        held, number = "", block.line
        for count, line in enumerate(block.text.split("\n"), block.line):
            number = number if held else count
            held += line.removesuffix("\\")
            if line.endswith("\\"):
                continue
            if words := split(held):
                yield Shown(words, document.path, number, True)
            held = ""


def split(text: str) -> list[str]:
    """The words of a command of this project, from `volta`, `nox`, `-s` or `python`; else none. What a shell
    would do with them is left out: prompts, comments, settings, pipes."""
    try:
        words = shlex.split(text.removeprefix("$ "), comments=True)
    except ValueError:  # a lone quote: prose or mathematics
        return []
    while words and ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    words = list(itertools.takewhile(lambda word: word not in ENDS, words))
    return words if words and begins(words) else []


def begins(words: Sequence[str]) -> bool:
    return program(words[0]) in ("volta", "nox", "-s") or (program(words[0]) == "python" and len(words) > 1)


def program(word: str) -> str:
    """`python` for any of its names; a path is a program's where it ends in bin/NAME."""
    folder, _, name = word.rpartition("/")
    if folder and not folder.endswith("bin"):
        return ""
    return "python" if PYTHON.fullmatch(name) else name


class Judge:
    def __init__(self, surface: Surface, places: Places) -> None:
        self.surface, self.places = surface, places

    def findings(self, one: Shown) -> Iterator[Finding]:
        told = set()
        for words in readings(one.words):
            problem = self.problem(words, one.whole)
            if problem and problem not in told:
                told.add(problem)
                yield Finding(f"`{shlex.join(one.words)}`: {problem}", one.path, one.line)

    def problem(self, words: Sequence[str], whole: bool) -> str | None:
        first = program(words[0])
        if first == "python":
            return self.python(words[1:], whole)
        if first == "volta":
            return wrong(self.surface.volta, words[1:], "volta", whole)
        return self.nox(words[1:] if first == "nox" else words, whole)

    def python(self, words: Sequence[str], whole: bool) -> str | None:
        if words[0] == "-m":
            return self.module(words[1:], whole) if words[1:] else None
        if words[0].startswith("-"):
            return None
        if words[0].endswith(".py") and self.places.absent(words[0], ""):
            return f"{words[0]} is not there"
        return self.nox(words[1:], whole) if words[0].endswith("noxfile.py") else None

    def module(self, words: Sequence[str], whole: bool) -> str | None:
        """`python -m NAME ..`; other modules are not this project's."""
        name, rest = words[0], words[1:]
        if name == "volta":
            return wrong(self.surface.volta, rest, "volta", whole)
        if name == "nox":
            return self.nox(rest, whole)
        if name in self.surface.modules:
            return wrong(self.surface.modules[name], rest, name, whole)
        return f"there is no module {name}.__main__" if name in MODULES else None

    def nox(self, words: Sequence[str], whole: bool) -> str | None:
        """`-s NAME [NAME ..] [-- WORDS]`, where the words may be a command's in turn."""
        own = list(itertools.takewhile(lambda word: word != "--", words))
        given = list(words[len(own) + 1 :])
        names = [name for name in chosen(own) if name not in ELLIPSES and not placeholder(name)]
        for name in names:
            if name not in self.surface.nox:
                known = ", ".join(self.surface.nox)
                return f"the noxfile has no {name}: it has {known}"
            passed = self.surface.nox[name]
            if given and passed and (problem := self.module([*passed, *given], whole)):
                return problem
            if given and not passed and (gone := [word for word in given if self.places.absent(word, "")]):
                return f"{gone[0]} is not there"
        return None


def chosen(words: Sequence[str]) -> Iterator[str]:
    """What stands behind -s or --session(s), up to the next option."""
    active = False
    for word in words:
        if word.startswith("-"):
            option, equals, value = word.partition("=")
            active = option in ("-s", "--session", "--sessions")
            if active and equals:
                yield value
        elif active:
            yield word


def readings(words: Sequence[str]) -> Iterator[list[str]]:
    """`bench gemm|train [--json F]` is two commands; what is optional is there."""
    bare = [word if word in "[]" else word.removeprefix("[").removesuffix("]") for word in words]
    choices = [word.split("|") if "|" in word.strip("|") else [word] for word in bare]
    for reading in itertools.islice(itertools.product(*choices), MOST_READINGS):
        yield list(reading)


def placeholder(word: str) -> bool:
    return word.isupper() and word.replace("_", "").isalpha()


def wrong(
    command: Command, words: Sequence[str], path: str, whole: bool, above: frozenset[str] = frozenset()
) -> str | None:
    """What is wrong with the words behind a command: an unknown name, option, or number of arguments."""
    arguments, rest = 0, list(words)
    # flags of the commands above may stand anywhere: volta's --debug does
    flags = above | {name for name, takes in command.options.items() if not takes}
    while rest:
        word = rest.pop(0)
        if word in ELLIPSES:
            return None
        if word.startswith("-") and word != "-" and not number(word):
            name, equals, _ = word.partition("=")
            if name not in command.options and name not in flags:
                return f"`{path}` has no option {name}"
            if command.options.get(name) and not equals:
                if rest and not rest[0].startswith("--"):
                    rest.pop(0)
                elif whole:
                    return f"`{path}` {name} takes a value"
        elif command.commands and not arguments and command.most >= 0:
            if placeholder(word):
                return None
            if word not in command.commands:
                return f"`{path}` has no command {word}: it has {', '.join(command.commands)}"
            return wrong(command.commands[word], rest, f"{path} {word}", whole, flags)
        else:
            arguments += 1
    if 0 <= command.most < arguments:
        return f"`{path}` takes {command.most} arguments, here it has {arguments}"
    if whole and arguments < command.least and not {"-h", "--help"} & set(words):
        return f"`{path}` takes {command.least} arguments, here it has {arguments}"
    return None


def number(word: str) -> bool:
    return bool(re.fullmatch(r"-\d+(\.\d+)?", word))


def documented(commands: Sequence[Shown], volta: Command) -> list[tuple[str, ...]]:
    """Every command of volta that the documents show, once, () for volta itself."""
    found: set[tuple[str, ...]] = {()}
    for one in commands:
        for words in readings(one.words):
            at: tuple[str, ...] = ()
            command = volta
            if program(words[0]) != "volta" and list(words[1:3]) != ["-m", "volta"]:
                continue
            for word in words[1:] if program(words[0]) == "volta" else words[3:]:
                if word not in command.commands:
                    break
                at, command = (*at, word), command.commands[word]
                found.add(at)
    return sorted(found)
