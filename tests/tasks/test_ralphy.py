"""tasks.yaml and .ralphy/config.yaml hold what Ralphy 4.7 knows."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError
from ruamel.yaml import YAML
from tasks.documents.prd import steps
from tasks.documents.ralphy import completed, config_yaml, rules, tasks_yaml
from tasks.errors import TaskError
from tasks.files import Entry
from tests.tasks.ralphy_queues import (
    ROOT,
    TEXTS,
    UNTIMED,
    configuration,
    queue,
    sample,
    states,
    task,
)


@UNTIMED
@given(states())
@example(({}, set()))
def test_tasks_yaml_holds_the_fields_that_ralphy_knows(state: tuple[dict[str, Entry], set[str]]) -> None:
    entries, done = state
    text = tasks_yaml(entries, done)
    assert text.startswith("# Generated")
    loaded = YAML(typ="safe", pure=True).load(text)
    assert list(loaded) == ["tasks"]
    found = steps(entries)
    numbers = {one.task.id: number for number, step in enumerate(found, 1) for one in step}
    ordered = [one for step in found for one in step]
    assert len(loaded["tasks"]) == len(ordered)
    titles = [row["title"] for row in loaded["tasks"]]
    assert len(set(titles)) == len(titles)
    for row, one in zip(loaded["tasks"], ordered, strict=True):
        assert set(row) == {"title", "description", "completed", "parallel_group"}
        assert f"{row['title']} ".startswith(f"[{one.task.id}] ")
        assert row["completed"] is (one.task.id in done)
        assert row["parallel_group"] == numbers[one.task.id]
        assert row["description"].split("\n")[0] == row["title"]
        assert one.path in row["description"]


@UNTIMED
@given(states())
def test_completed_is_read_back(state: tuple[dict[str, Entry], set[str]]) -> None:
    entries, done = state
    assert completed(tasks_yaml(entries, done)) == {name: name in done for name in entries}


@UNTIMED
@given(states(), st.data())
def test_what_ralphy_completes_is_read_back(
    state: tuple[dict[str, Entry], set[str]], draw: st.DataObject
) -> None:
    """yaml.ts: the first task of that title gets completed: true, and the whole document is written anew,
    without comments and folded."""
    entries, done = state
    if not entries:
        return
    loaded = YAML(typ="safe", pure=True).load(tasks_yaml(entries, done))
    title = draw.draw(st.sampled_from([row["title"] for row in loaded["tasks"]]))
    next(row for row in loaded["tasks"] if row["title"] == title)["completed"] = True
    name = title[1:].partition("]")[0]
    assert completed(written_anew(loaded)) == {one: one in done | {name} for one in entries}


def written_anew(document: dict[str, Any]) -> str:
    out = StringIO()
    YAML(typ="safe", pure=True).dump(document, out)
    return out.getvalue()


DATA = Path(__file__).parent / "data" / "ralphy-4.7.2-tasks.yaml"


def test_a_file_that_ralphy_wrote_is_read() -> None:
    """The file: sample(), of which T-004 was done, after Ralphy 4.7.2 had worked on two tasks of it."""
    text = DATA.read_text()
    assert completed(text) == {"T-004": True, "T-001": True, "T-002": True, "T-003": False}
    ours = YAML(typ="safe", pure=True).load(tasks_yaml(sample(), {"T-001", "T-002", "T-004"}))
    assert YAML(typ="safe", pure=True).load(text) == ours


def test_the_description_is_a_prompt_by_itself() -> None:
    entries = queue(
        task(
            7,
            "Explain the tuner",
            allow=["docs/", "engine/volta/tune/*.py"],
            commands={"help": "python -m volta tune --help"},
            acceptance=[
                {"says": "The page\nis right", "by": "gate:docs"},
                {"says": "Help works", "by": "command:help"},
            ],
        )
    )
    text = tasks_yaml(entries, ())
    row = YAML(typ="safe", pure=True).load(text)["tasks"][0]
    assert all(f"      {line}\n" in text for line in row["description"].split("\n")), "lines stay lines"
    assert row["description"].split("\n") == [
        "[T-007] Explain the tuner",
        "Its file is tasks/queue/T-007-a-slug.yaml: read it first. It says why, and with which commands it is"
        " judged.",
        "It may touch: docs/, engine/volta/tune/*.py",
        "It is judged by the gates of what it touches, and by:",
        "- The page is right (gate:docs)",
        "- Help works (command:help)",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tasks: [", "tasks.yaml:1: not YAML"),
        ("", "tasks.yaml"),
        ("other: []\n", "tasks.yaml"),
        ("tasks:\n  - title: '[T-001] a'\n    completed: maybe\n", "tasks.yaml:3: tasks.0.completed"),
        ("tasks:\n  - title: something\n", "'something': expected `[T-NNN] title`"),
        ("tasks:\n  - title: '[T-001] a'\n  - title: '[T-001] b'\n", "T-001 is there twice"),
    ],
)
def test_a_tasks_yaml_that_is_none_is_told(text: str, said: str) -> None:
    with pytest.raises(TaskError, match=re.escape(said)):
        completed(text)


def test_what_ralphy_may_leave_out_is_open() -> None:
    assert completed("tasks:\n  - title: '[T-001] a'\n") == {"T-001": False}


# .ralphy/config.yaml


def test_the_schema_rejects_what_ralphy_rejects_or_drops() -> None:
    for wrong in (
        "project: null",
        "project: {name: 3}",
        "rules: [1]",
        "rules: x",
        "capabilities: {browser: auto}",
    ):
        with pytest.raises(ValidationError):
            configuration(wrong)
    assert configuration("rules: null\nboundaries: {never_touch: null}").project.name == ""


@UNTIMED
@given(st.lists(TEXTS, max_size=5), st.lists(TEXTS, max_size=5))
def test_any_rules_and_paths_give_a_configuration_that_ralphy_accepts(
    given_rules: Sequence[str], paths: list[str]
) -> None:
    found = configuration(config_yaml(given_rules, paths))
    shown = [found.rules or [], found.boundaries.never_touch or []]
    assert [len(lines) for lines in shown] == [len(given_rules), len(paths)]
    assert all(len(line.splitlines()) <= 1 for lines in shown for line in lines), "each is an item of a list"
    assert found.project.name == "volta"


def test_the_commands_are_sessions_of_the_noxfile() -> None:
    found = configuration(config_yaml((), ())).commands.model_dump()
    assert found == {
        "test": "python3 noxfile.py -s tests",
        "lint": "python3 noxfile.py -s lint",
        "build": "python3 noxfile.py -s build",
    }
    names = {
        one.name
        for one in ast.parse((ROOT / "noxfile.py").read_text()).body
        if isinstance(one, ast.FunctionDef)
    }
    assert {command.split()[-1] for command in found.values()} <= names


def test_the_rules_of_this_repository() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    found = rules(text)
    assert len(found) == 9
    assert (
        found[0]
        == "Parity before speed. A kernel that differs in one bit from its reference is wrong, however fast."
    )
    assert len(text.splitlines()) <= 60, "so that it is read"


def test_rules_are_the_numbered_items_of_their_section_with_continuation_lines_joined() -> None:
    text = (
        "# A\n\n1. before\n\n## Rules\n\nSome words.\n\n- a bullet\n\n1. One\n   and `more`\nlazily.\n"
        "2. Two:\n   - a part\n\n   1. part of two\n\nBetween.\n\n3) ### Three\n4) Four\n"
        "\n## Later\n\n4. after\n\n```\n## Rules\n\n5. in a fence\n```\n"
    )
    assert rules(text) == ["One and `more` lazily.", "Two: a part part of two", "Three", "Four"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# Rules\n\n1. a\n",
        "## Rules\n\n- a\n",
        "## Rules\n\nNone.\n\n## B\n\n1. a\n",
        "## The Rules\n\n1. a\n",
    ],
)
def test_no_rules_are_an_error(text: str) -> None:
    with pytest.raises(TaskError, match="## Rules"):
        rules(text)
