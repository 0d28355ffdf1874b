"""What can be called: the commands of the engine, of gates and tasks, and the noxfile's."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ASK = Path(__file__).with_name("ask.py")


@dataclass(frozen=True, slots=True)
class Command:
    """options: whether each takes a value. most, least: positional arguments; most is -1 for any number."""

    options: Mapping[str, bool] = field(default_factory=dict)
    most: int = 0
    least: int = 0
    commands: Mapping[str, Command] = field(default_factory=dict)

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Command:
        below = {str(name): cls.of(one) for name, one in given["commands"].items()}
        return cls(dict(given["options"]), given["most"], given["least"], below)


@dataclass(frozen=True, slots=True)
class Surface:
    """modules: `python -m NAME` of this tree. nox: by name, the command that gets the words after `--`;
    empty where another program does. public: names of `import volta`."""

    volta: Command
    modules: Mapping[str, Command] = field(default_factory=dict)
    nox: Mapping[str, Sequence[str]] = field(default_factory=dict)
    public: frozenset[str] = frozenset()


def survey(answer: str, noxfile: str) -> Surface:
    """answer: of ASK, whose last line it is. noxfile: its text. Raises ValueError for what is none."""
    try:
        given = json.loads(answer.strip().splitlines()[-1])
        return Surface(
            Command.of(given["volta"]),
            {str(name): Command.of(one) for name, one in given["modules"].items()},
            nox_names(noxfile),
            frozenset(given["public"]),
        )
    except (IndexError, KeyError, TypeError) as error:
        raise ValueError(f"no answer: {answer[-200:]!r}") from error


def nox_names(source: str) -> dict[str, Sequence[str]]:
    """Functions decorated with nox.session, by their name or the one given: where their arguments go."""
    found: dict[str, Sequence[str]] = {}
    for node in ast.parse(source).body:
        for decorator in node.decorator_list if isinstance(node, ast.FunctionDef) else ():
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(call) in ("nox.session", "session"):
                assert isinstance(node, ast.FunctionDef)
                found[given_name(decorator) or node.name] = passed_to(node)
    return found


def given_name(decorator: ast.expr) -> str:
    for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return ""


def passed_to(function: ast.FunctionDef) -> Sequence[str]:
    """`session.run("python", "-m", "volta", "bench", *session.posargs)`: ("volta", "bench")."""
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and call.args and isinstance(call.args[-1], ast.Starred):
            words = [one.value for one in call.args if isinstance(one, ast.Constant)]
            if words[:2] == ["python", "-m"] and "posargs" in ast.unparse(call.args[-1]):
                return tuple(str(word) for word in words[2:])
    return ()
