"""PRD.md: Ralphy finds its tasks and nothing else, and what it ticks is read back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks.documents.prd import boxes, prd, steps
from tasks.errors import TaskError
from tasks.files import Entry
from tests.tasks.ralphy_queues import (
    UNTIMED,
    closed_boxes,
    open_boxes,
    queue,
    queues,
    states,
    task,
    tick,
)


@UNTIMED
@given(states())
def test_ralphy_finds_the_tasks_in_prd_and_nothing_else(state: tuple[dict[str, Entry], set[str]]) -> None:
    entries, done = state
    text = prd(entries, done)
    ordered = [one for step in steps(entries) for one in step]
    still = [one for one in ordered if one.task.id not in done]
    titles = list(open_boxes(text).values())
    assert [title[: len(one.task.id) + 2] for title, one in zip(titles, still, strict=True)] == [
        f"[{one.task.id}]" for one in still
    ]
    assert all(title.endswith(f"({one.path})") for title, one in zip(titles, still, strict=True))
    assert len(set(titles)) == len(titles)
    assert len(closed_boxes(text)) == len(done)
    assert re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202e\ufffe\uffff]", text) is None


@UNTIMED
@given(states())
def test_boxes_are_read_back_as_they_were_written(state: tuple[dict[str, Entry], set[str]]) -> None:
    entries, done = state
    assert boxes(prd(entries, done)) == {name: name in done for name in entries}


@UNTIMED
@given(states(), st.data())
def test_what_ralphy_ticks_is_read_back(
    state: tuple[dict[str, Entry], set[str]], draw: st.DataObject
) -> None:
    entries, done = state
    text = prd(entries, done)
    for _ in range(len(entries) - len(done)):
        number = draw.draw(st.sampled_from(sorted(open_boxes(text))))
        name = open_boxes(text)[number][1:].partition("]")[0]
        text = tick(text, number)
        done = done | {name}
        assert boxes(text) == {name: name in done for name in entries}
        assert text == prd(entries, done), "ticking and generating agree"


@UNTIMED
@given(queues())
def test_each_task_comes_after_what_it_depends_on_and_after_lower_groups(entries: dict[str, Entry]) -> None:
    found = steps(entries)
    place = {one.task.id: number for number, step in enumerate(found) for one in step}
    assert sorted(place) == sorted(entries)
    for one in entries.values():
        assert all(place[other] < place[one.task.id] for other in one.task.depends_on)
        for other in entries.values():
            if other.task.parallel_group < one.task.parallel_group:
                assert place[other.task.id] < place[one.task.id]


def test_tasks_of_a_group_that_do_not_wait_for_each_other_are_one_step() -> None:
    entries = queue(
        task(1, depends_on=["T-003"]),
        task(2),
        task(3),
        task(4, parallel_group=5),
        task(5, parallel_group=5, depends_on=["T-001"]),
    )
    assert [[one.task.id for one in step] for step in steps(entries)] == [
        ["T-002", "T-003"],
        ["T-001"],
        ["T-004", "T-005"],
    ]


def test_prd_of_a_small_queue() -> None:
    entries = queue(
        task(1, "Explain the second page", why="Readers\nask.\n\n- [ ] not a task\n", parallel_group=2),
        task(2, "Write | the `first` page", why="There is none.", parallel_group=1),
    )
    text = prd(entries, {"T-002", "T-999"})
    assert text.partition("\n\n## Requirements\n")[2] == (
        "\n### Group 1\n\n- T-002: There is none.\n"
        "\n### Group 2\n\n- T-001: Readers ask. - [ ] not a task\n"
        "\n## Tasks\n\n"
        "- [x] [T-002] Write | the `first` page (tasks/queue/T-002-a-slug.yaml)\n"
        "- [ ] [T-001] Explain the second page (tasks/queue/T-001-a-slug.yaml)\n"
    )
    assert "Generated" in text.partition("## Requirements")[0]
    assert "`python -m tasks write`" in text.partition("## Requirements")[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        (
            "- [ ] [T-001] a\r\n- [X] [T-002] b\r- [x] [T-0003] c",
            {"T-001": False, "T-002": True, "T-0003": True},
        ),
        ("  - [ ] x\n* [ ] x\n- [x]x\n-  [ ] x\n1. - [ ] x", {}),
    ],
)
def test_boxes_are_lines_that_ralphy_takes_for_boxes(text: str, expected: dict[str, bool]) -> None:
    assert boxes(text) == expected


def test_every_box_of_no_task_and_every_second_box_is_told_with_its_line() -> None:
    text = "- [ ] [T-001] a\n- [ ] something\n\n- [x] [T-001] a\n- [x] [T-12] b\n- [ ] [T-004]no space"
    with pytest.raises(TaskError) as raised:
        boxes(text)
    assert [line.partition(": ")[0] for line in str(raised.value).split("\n")] == [
        "PRD.md:2", "PRD.md:4", "PRD.md:5", "PRD.md:6",
    ]  # fmt: skip
    assert "T-001 has a box already" in str(raised.value)
