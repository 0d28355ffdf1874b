"""docs/benchmarks.md: its commands are accepted as they stand, and it names every field of the schema."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.bench.conftest import SCHEMA, Bench
from tests.bench.results import drawn, measurement, report

from volta.bench import bits, infer, suite, train
from volta.bench.bits import Comparison
from volta.cli import bench as commands

PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"


def written() -> list[list[str]]:
    """The words of each command of its shell blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return [shlex.split(line)[2:] for block in blocks for line in block.splitlines()]


def test_every_command_on_the_page_is_accepted(
    bench: Bench, quick_roofline: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Options, names and files; what they measure is left out."""
    one = replace(measurement(drawn(0, 1e-3, 2e-3)), figures={"p50_seconds": 1.0})
    cell = {"elements": 1, "differ": 0, "share": 0.0}
    monkeypatch.setattr(suite, "run", lambda name, *given: report(one, suite=name))
    monkeypatch.setattr(train, "run", lambda *given: report(one, suite="train"))
    monkeypatch.setattr(infer, "run", lambda *given: (report(one, suite="infer"), None))
    monkeypatch.setattr(bits, "compare", lambda *given: Comparison({"a, b": {"volta": cell}}, ()))
    monkeypatch.setattr(commands, "show_profile", lambda *given: None)
    monkeypatch.chdir(tmp_path)
    ran = []
    for words in written():
        done = bench(*words)
        assert done.returncode == 0, (words, done.stderr)
        ran.append(words[0])
    assert set(ran) == set(commands.COMMANDS)


def named(part: Any) -> Iterator[str]:
    """All properties inside a schema."""
    if isinstance(part, dict):
        yield from part.get("properties", {})
        for inner in part.values():
            yield from named(inner)


def test_the_page_names_every_field_of_the_schema() -> None:
    text = PAGE.read_text()
    assert [name for name in sorted(set(named(SCHEMA))) if f"`{name}`" not in text] == []


def test_every_link_on_the_page_leads_to_a_file() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text()):
        assert (PAGE.parent / target).is_file(), target
