"""Queues for the tests of what is generated from them, and the boxes that Ralphy takes for tasks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict
from ruamel.yaml import YAML
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
