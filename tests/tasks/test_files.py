"""Task files: an error names file, line and key; what is written reads back; dependencies hold together."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gates.law.files import LawError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tasks.errors import TaskError
from tasks.files import circle_of, next_id, read_directory, read_queue, read_text, slug, to_text
from tasks.model import Bounds, Task
from tests.tasks.workshop import fields, files

PATH = "tasks/queue/T-001-write-the-text-t-001.yaml"


def written(**changes: Any) -> str:
    return to_text(fields("T-001", **changes))


@pytest.mark.parametrize(
    ("changes", "line", "said"),
    [
        ({"title": "short"}, 2, "title: String should have at least 8 characters"),
        ({"title": "A title  with two spaces"}, 2, "title: expected one line"),
        ({"title": "A [title] with brackets"}, 2, "title: expected one line"),
        ({"why": ""}, 3, "why: "),
        ({"owner": "robot"}, 4, "owner: "),
        ({"allow": []}, 5, "allow: "),
        ({"allow": ["../other"]}, 5, "allow: '../other': expected one from the repository's root"),
        ({"allow": ["/etc"]}, 5, "allow: '/etc'"),
        ({"commands": {"look": "a | b"}}, 7, "commands: look has '|': commands run without a shell"),
        ({"commands": {"look": "a 'b"}}, 7, "cannot be split into words"),
        ({"expect": [{"command": "gone"}]}, 1, "expect: 'gone' is no command of this task"),
        ({"expect": [{"command": "look", "output": ["("]}]}, 11, "'(' is no regular expression"),
        ({"expect": [{"command": "look", "metrics": {"a": {}}}]}, 12, "neither min nor max"),
        ({"acceptance": [{"says": "x", "by": "gate:vibes"}]}, 1, "'gate:vibes' is unknown"),
        ({"acceptance": [{"says": "x", "by": "me"}]}, 15, "acceptance.0.by"),
        ({"budget": {"minutes": -1}}, 17, "budget.minutes: "),
        ({"depends_on": ["T-001"]}, 1, "T-001 depends on itself"),
        ({"depends_on": ["one"]}, 19, "'one' is no task: expected T-NNN"),
        ({"parallel_group": "first"}, 19, "parallel_group: "),
        ({"colour": "red"}, 19, "colour: Extra inputs are not permitted"),
    ],
)
def test_an_error_names_file_line_and_key(changes: dict[str, Any], line: int, said: str) -> None:
    with pytest.raises(LawError) as caught:
        read_text(PATH, written(**changes))
    assert caught.value.path == PATH
    assert said in caught.value.message
    assert caught.value.line == line, str(caught.value)


def test_what_is_no_yaml_or_no_task_file_is_one_line() -> None:
    for path, text, said in (
        (PATH, "id: [\n", "not YAML"),
        (PATH, "- 1\n", ""),
        (PATH, "id: T-001\nid: T-002\n", "not YAML"),
        ("tasks/queue/T-1-a.yaml", written(), "expected T-NNN-some-words.yaml"),
        ("tasks/queue/notes.txt", "", "expected T-NNN-some-words.yaml"),
        ("tasks/queue/T-002-a.yaml", written(), "id: T-001 in a file named for T-002"),
    ):
        with pytest.raises(LawError, match=r"^[^\n]*$") as caught:
            read_text(path, text)
        assert said in str(caught.value)


def test_a_queue_tells_all_that_is_wrong_at_once() -> None:
    broken = fields("T-003", why="")
    texts = {**files(fields("T-001", depends_on=["T-009"]), fields("T-002", title="Write the text T-001")),
             "tasks/queue/T-003-c.yaml": to_text(broken)}  # fmt: skip
    with pytest.raises(TaskError) as caught:
        read_queue(texts.items())
    assert len(str(caught.value).splitlines()) == 2
    assert "the title of T-001" in str(caught.value)


def test_dependencies_that_cannot_be_met_are_found() -> None:
    for tasks, said in (
        ([fields("T-001", depends_on=["T-009"])], "T-009 is no task of the queue"),
        (
            [fields("T-001", depends_on=["T-002"]), fields("T-002", depends_on=["T-001"])],
            "a circle: T-001 -> T-002",
        ),
        (
            [fields("T-001", depends_on=["T-002"]), fields("T-002", parallel_group=2)],
            "of a later parallel_group",
        ),
    ):
        with pytest.raises(TaskError, match=said):
            read_queue(files(*tasks).items())


@given(st.dictionaries(st.integers(0, 9), st.lists(st.integers(0, 9), max_size=4), max_size=10))
def test_a_circle_is_found_exactly_where_there_is_one(raw: dict[int, list[int]]) -> None:
    edges = {str(key): [str(one) for one in value if one in raw] for key, value in raw.items()}
    found = circle_of(edges)
    left = dict(edges)
    while free := [name for name, needs in left.items() if not set(needs) & set(left)]:
        for name in free:
            del left[name]
    assert bool(found) == bool(left)
    if found:
        assert found[0] == found[-1]
        assert all(after in edges[before] for before, after in itertools.pairwise(found))


def test_a_long_chain_of_dependencies_is_no_recursion() -> None:
    edges = {str(n): [str(n + 1)] if n < 50_000 else [] for n in range(50_001)}
    assert circle_of(edges) == []


def test_comments_and_order_survive_a_change() -> None:
    before = (
        "# the first\nid: T-001 # its name\ntitle: Write some text\nwhy: |\n  Two\n  lines.\nowner: human\n"
    )
    changed = to_text(
        {"id": "T-001", "title": "Write another text", "why": "Two\nlines.\n", "owner": "human"}, before
    )
    assert changed == before.replace("some", "another")


def test_a_directory_is_read_and_what_is_no_plain_file_refused(tmp_path: Path) -> None:
    assert read_directory(tmp_path) == {}
    for path, text in files(fields("T-010"), fields("T-002")).items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    entries = read_directory(tmp_path)
    assert list(entries) == ["T-002", "T-010"]
    assert next_id(entries) == "T-011"
    (tmp_path / "tasks/queue/T-003-x.yaml").symlink_to("/etc/passwd")
    with pytest.raises(TaskError, match="expected a plain file"):
        read_directory(tmp_path)


def test_the_schema_takes_what_the_reader_takes() -> None:
    schema = Task.model_json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(fields("T-001"), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**fields("T-001"), "colour": "red"}, schema)
    assert json.loads(json.dumps(schema)) == schema


def test_bounds_hold_inside_and_never_for_what_is_no_number() -> None:
    bounds = Bounds(min=1.0, max=2.0)
    assert [bounds.hold(value) for value in (0.9, 1.0, 2.0, 2.1, float("nan"))] == [
        False,
        True,
        True,
        False,
        False,
    ]
    assert not Bounds(max=2.0).hold(float("nan"))
    with pytest.raises(ValidationError, match="above max"):
        Bounds(min=2.0, max=1.0)


def test_a_slug_is_a_file_name_whatever_the_title() -> None:
    for title in ("Ä ö", "a/b\\c..", "Write THE text, now!", "x" * 200):
        assert read_text(f"tasks/queue/T-001-{slug(title)}.yaml", written()).task.id == "T-001"
