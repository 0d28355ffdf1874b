"""PRD.md, tasks.yaml and .ralphy/config.yaml, read as Ralphy 4.7.2 reads them, and whether they are current.

What is said here of Ralphy stands in its sources (npm: ralphy-cli; github: michaelshimeles/ralphy):
cli/src/tasks/markdown.ts, cli/src/tasks/yaml.ts, cli/src/config/types.ts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from tasks.documents.drift import FILES, READ, drift, generated, write
from tasks.documents.prd import boxes, prd, steps
from tasks.documents.ralphy import completed, config_yaml, rules, tasks_yaml
from tasks.errors import TaskError
from tasks.files import Entry, read_queue, to_text
from tasks.model import Task

ROOT = Path(__file__).parents[2]
UNTIMED = settings(deadline=None)  # what a test takes is this machine's business

# markdown.ts: it makes \r\n and \r to \n, splits there, and matches each line with /^- \[ \] (.+)$/ and
# /^- \[x\] /i. JavaScript's `.` takes neither line breaks nor U+2028 and U+2029; trim() takes U+FEFF, too.
OPEN = re.compile(r"^- \[ \] ([^\n\r\u2028\u2029]+)$")
CLOSED = re.compile(r"^- \[x\] ", re.IGNORECASE)


def lines_of(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def open_boxes(text: str) -> dict[int, str]:
    """What Ralphy finds to do: titles by line from 0; the line is the task's id."""
    found = ((number, OPEN.match(line)) for number, line in enumerate(lines_of(text)))
    return {number: match[1].strip(" \t\ufeff") for number, match in found if match}


def closed_boxes(text: str) -> list[str]:
    return [line for line in lines_of(text) if CLOSED.match(line)]


def tick(text: str, number: int) -> str:
    """markComplete: .replace(/^- \\[ \\] /, "- [x] ") on the line of that number."""
    lines = lines_of(text)
    lines[number] = re.sub(r"^- \[ \] ", "- [x] ", lines[number])
    return "\n".join(lines)


NASTY = (
    "- [ ] x", "- [x] fake", "\n- [ ] x\n", "\n\n- [X] [T-001] fake\n\n", "\r- [ ] x", "\u2028- [ ] x",
    "\x85- [x] x", "```\n- [ ] in a fence\n", "`", "|", " | ", "# heading\n", "## Tasks\n", "<!--", "-->",
    "\x00", "\x1b[31m", "\ufeff", "\u200d", "\u202e", "\uffff", "☃", "🚀", "é", "'", '"', ": ", " #",
    "%", "@", "&a *a", "{}", "]", "...", "---\n", "\t", "  \n", "\\", "yes", "null", "long " * 400,
)  # fmt: skip
TEXTS = (
    st.lists(st.sampled_from(NASTY) | st.text(max_size=8), min_size=1, max_size=8).map("".join).filter(bool)
)


def allowed(title: str) -> bool:
    return 8 <= len(title) <= 120


TITLES = TEXTS.map(lambda text: " ".join(text.replace("[", "(").split())).filter(allowed)


def task(number: int, title: str = "", **fields: Any) -> dict[str, Any]:
    return {
        "id": f"T-{number:03d}",
        "title": title or f"Do the thing of number {number}",
        "why": "It is wanted.",
        "owner": "agent:some",
        "allow": ["docs/"],
        "acceptance": [{"says": "The law holds", "by": "gate:lint"}],
    } | fields


def entry(fields: dict[str, Any]) -> Entry:
    return Entry(Task.model_validate(fields), f"tasks/queue/{fields['id']}-a-slug.yaml", "0" * 64)


def queue(*tasks: dict[str, Any]) -> dict[str, Entry]:
    """As files give it."""
    return read_queue((f"tasks/queue/{one['id']}-a-slug.yaml", to_text(one)) for one in tasks)


@st.composite
def queues(draw: st.DrawFn) -> dict[str, Entry]:
    """Any that tasks/model.py and read_queue allow: dependencies go from later groups to earlier ones and, in
    a group, along a random order."""
    count = draw(st.integers(0, 6))
    titles = draw(st.lists(TITLES, min_size=count, max_size=count, unique=True))
    numbers = draw(st.lists(st.integers(1, 2000), min_size=count, max_size=count, unique=True).map(sorted))
    groups = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    order = draw(st.permutations(range(count)))
    entries = {}
    for i in range(count):
        before = [j for j in range(count) if (groups[j], order[j]) < (groups[i], order[i])]
        chosen = draw(st.lists(st.sampled_from(before), unique=True)) if before else []
        one = entry(
            task(
                numbers[i],
                titles[i],
                why=draw(TEXTS),
                depends_on=[f"T-{numbers[j]:03d}" for j in chosen],
                parallel_group=groups[i],
                acceptance=[{"says": draw(TEXTS), "by": "gate:parity"}],
            )
        )
        entries[one.task.id] = one
    return entries


@st.composite
def states(draw: st.DrawFn) -> tuple[dict[str, Entry], set[str]]:
    entries = draw(queues())
    return entries, {name for name in entries if draw(st.booleans())}


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


# tasks.yaml


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


def sample() -> dict[str, Entry]:
    return queue(
        task(1, 'Write the second page: it\'s "quoted" # and | long ' + "enough to be folded " * 3 + "twice"),
        task(
            2,
            "Ünïcödé 🚀 and `code`",
            parallel_group=2,
            acceptance=[{"says": "- [ ] x:\n y", "by": "gate:docs"}],
        ),
        task(3, "yes: no, null, 1e3 and ~", parallel_group=2, depends_on=["T-002"]),
        task(4, "Something that is done", parallel_group=0),
    )


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


class Part(BaseModel):
    """cli/src/config/types.ts, 4.7.2. Ralphy drops keys that it does not know: here they are errors, since
    they do nothing. A field may be left out; with a wrong type anywhere it goes on without configuration."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Project(Part):
    name: str = ""
    language: str = ""
    framework: str = ""
    description: str = ""


class Commands(Part):
    test: str = ""
    lint: str = ""
    build: str = ""


class Boundaries(Part):
    never_touch: list[str] | None = []


class Notifications(Part):
    discord_webhook: str = ""
    slack_webhook: str = ""
    custom_webhook: str = ""


class Config(Part):
    project: Project = Project()
    commands: Commands = Commands()
    rules: list[str] | None = []
    boundaries: Boundaries = Boundaries()
    notifications: Notifications = Notifications()


def configuration(text: str) -> Config:
    return Config.model_validate(YAML(typ="safe", pure=True).load(text))


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


# Whether they are current


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "AGENTS.md").write_text("# A\n\n## Rules\n\n1. Be right.\n2. Be\n   quick.\n")
    (tmp_path / "governance").mkdir()
    (tmp_path / "governance" / "tiers.yaml").write_text(
        "tiers:\n"
        "  - {id: T0, title: The law, paths: [gates/, tasks/, '*conftest.py'], gates: [lint], approvals: 2}\n"
        "  - {id: T1, title: The rest, paths: [engine/], gates: [lint], approvals: 1}\n"
    )
    return tmp_path


def test_a_missing_and_an_edited_file_are_found_and_writing_ends_it(root: Path) -> None:
    entries = sample()
    assert [line.partition(": ")[0] for line in drift(root, entries, ())] == list(FILES)
    assert write(root, entries, ()) == [root / path for path in FILES]
    assert drift(root, entries, ()) == []
    assert write(root, entries, ()) == []
    page = root / "PRD.md"
    ticked = tick(page.read_text(), min(open_boxes(page.read_text())))
    page.write_text(ticked)
    (root / "tasks.yaml").unlink()
    found = drift(root, entries, ())
    line = next(number for number, text in enumerate(ticked.split("\n"), 1) if CLOSED.match(text))
    assert [one.partition(": ")[0] for one in found] == [f"PRD.md:{line}", "tasks.yaml"]
    assert all("`python -m tasks write`" in one for one in found)
    assert write(root, entries, ()) == [page, root / "tasks.yaml"]
    assert drift(root, entries, ()) == []


def test_what_is_done_and_what_the_law_says_decide_what_is_current(root: Path) -> None:
    entries = sample()
    write(root, entries, ())
    assert [line.partition(":")[0] for line in drift(root, entries, {"T-001"})] == ["PRD.md", "tasks.yaml"]
    agents = root / "AGENTS.md"
    agents.write_text(agents.read_text().replace("Be right", "Be exact"))
    assert [line.partition(":")[0] for line in drift(root, entries, ())] == [".ralphy/config.yaml"]


def test_the_end_of_a_file_belongs_to_it(root: Path) -> None:
    write(root, {}, ())
    with (root / "tasks.yaml").open("a") as file:
        file.write("\n")
    assert len(drift(root, {}, ())) == 1
    (root / "tasks.yaml").write_bytes(b"\xff\xfe")
    assert drift(root, {}, ())[0].startswith("tasks.yaml:1: ")


def test_the_configuration_is_of_the_law_and_the_rules(root: Path) -> None:
    found = configuration(generated(root, {}, ())[".ralphy/config.yaml"])
    assert found.rules == [READ, "Be right.", "Be quick."]
    assert found.boundaries.never_touch == [
        "gates/",
        "tasks/",
        "*conftest.py",
        "PRD.md",
        "tasks.yaml",
        ".ralphy/",
    ]


def test_this_repository_gives_all_files() -> None:
    texts = generated(ROOT, {}, ())
    assert list(texts) == ["PRD.md", "tasks.yaml", ".ralphy/config.yaml"]
    found = configuration(texts[".ralphy/config.yaml"])
    assert found.boundaries.never_touch is not None
    assert {"gates/", "governance/", "tasks/", "PRD.md"} <= set(found.boundaries.never_touch)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("AGENTS.md", None, "AGENTS.md: it is not there"),
        ("AGENTS.md", b"\xff", "AGENTS.md: it is no UTF-8"),
        ("AGENTS.md", b"# A\n", "AGENTS.md: it has no numbered list"),
        ("governance/tiers.yaml", None, "governance/tiers.yaml: it is not there"),
        ("governance/tiers.yaml", b"tiers: 3\n", "governance/tiers.yaml:1: tiers"),
    ],
)
def test_a_source_that_cannot_be_read_is_told(
    root: Path, path: str, content: bytes | None, said: str
) -> None:
    (root / path).unlink()
    if content is not None:
        (root / path).write_bytes(content)
    with pytest.raises(TaskError, match=re.escape(said)):
        write(root, {}, ())
    assert not (root / "PRD.md").exists(), "all is generated before anything is written"


def test_nothing_is_written_through_a_link(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "PRD.md").write_text("mine")
    (root / "PRD.md").symlink_to(outside / "PRD.md")
    assert drift(root, {}, ())[0].startswith("PRD.md: it is not there as a plain file")
    write(root, {}, ())
    assert (outside / "PRD.md").read_text() == "mine"
    assert (root / "PRD.md").read_text() == prd({}, ())
    (root / ".ralphy" / "config.yaml").unlink()
    (root / ".ralphy").rmdir()
    (root / ".ralphy").symlink_to(outside)
    with pytest.raises(TaskError, match=r"\.ralphy.*a link or a directory"):
        write(root, {}, ())
    (root / "PRD.md").unlink()
    (root / "PRD.md").mkdir()
    with pytest.raises(TaskError, match=r"PRD\.md.*a link or a directory"):
        write(root, {}, ())
    assert not (outside / "config.yaml").exists()


def test_a_crash_leaves_the_old_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {}, ())
    before = (root / "PRD.md").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write(root, sample(), ())
    assert (root / "PRD.md").read_bytes() == before
    monkeypatch.undo()
    write(root, sample(), ())
    assert {path.name for path in root.iterdir()} == {
        "AGENTS.md",
        "governance",
        "PRD.md",
        "tasks.yaml",
        ".ralphy",
    }
