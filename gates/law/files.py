"""Governance files: YAML whose every error names file, line, key and what was expected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from gates.errors import GateError

MOST_BYTES = 1 << 20  # of one governance file


class LawError(GateError):
    """A governance file that cannot be read: path and line (from 1), then what was expected."""

    def __init__(self, path: str, line: int, message: str) -> None:
        super().__init__(f"{path}:{line}: {message}" if line else f"{path}: {message}")
        self.path, self.line, self.message = path, line, message


class Article(BaseModel):
    """What every part of the law has in common: no unknown keys, nothing changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Model = TypeVar("Model", bound=Article)


def read(root: Path, path: str, model: type[Model]) -> Model:
    """A governance file below `root`, validated. Raises LawError."""
    file = root / path
    if not file.is_file() or file.is_symlink():
        raise LawError(path, 0, "it is not there: expected a governance file")
    if file.stat().st_size > MOST_BYTES:
        raise LawError(path, 0, f"it has {file.stat().st_size} bytes: expected at most {MOST_BYTES}")
    try:
        return parse(file.read_text(), path, model)
    except UnicodeDecodeError as error:
        raise LawError(path, 0, f"it is no UTF-8 text: byte {error.start}") from error


def in_force(base: Path, head: Path, path: str, model: type[Model]) -> Model:
    """The base's law; the head's where the base has none yet."""
    try:
        return read(base, path, model)
    except LawError:
        return read(head, path, model)


def parse(text: str, path: str, model: type[Model]) -> Model:
    reader = YAML(typ="rt")
    reader.allow_duplicate_keys = False
    try:
        loaded = reader.load(StringIO(text))
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise LawError(path, mark.line + 1 if mark else 0, f"not YAML: {one_line(error.problem)}") from error
    except YAMLError as error:
        raise LawError(path, 0, f"not YAML: {one_line(str(error))}") from error
    try:
        return model.model_validate(plain(loaded))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        given = first["input"]
        shown = "" if isinstance(given, (Mapping, list)) else f", it is {given!r}"
        raise LawError(
            path,
            line_of(loaded, first["loc"]),
            f"{where}: {one_line(first['msg']).removeprefix('Value error, ')}{shown}",
        ) from error


def one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def plain(node: Any) -> Any:
    """Without the comments that ruamel keeps: what pydantic's strict mode takes for dicts, lists and text."""
    if isinstance(node, Mapping):
        return {plain(key): plain(value) for key, value in node.items()}
    if isinstance(node, (list, tuple)):
        return [plain(value) for value in node]
    if isinstance(node, str):
        return str(node)
    if isinstance(node, bool):
        return node
    if isinstance(node, int):
        return int(node)
    if isinstance(node, float):
        return float(node)
    return node


def line_of(node: Any, where: Sequence[int | str]) -> int:
    """The line of a key or an item: the deepest part of the way there that the file has."""
    line = 1
    for part in where:
        try:
            if isinstance(node, Mapping):
                line = node.lc.key(part)[0] + 1  # type: ignore[attr-defined]  # ruamel's round-trip types
            elif isinstance(node, list) and isinstance(part, int):
                line = node.lc.item(part)[0] + 1  # type: ignore[attr-defined]
            node = node[part]
        except (KeyError, IndexError, TypeError, AttributeError):
            break
    return line
