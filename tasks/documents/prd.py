"""PRD.md: what is to be done and why, and a list of boxes that Ralphy works through.

Ralphy takes each line for a task that begins with `- [ ] ` or `- [x] ` at column 0, wherever it stands, hands
the first open one to an agent, and ticks it by the line's number, also after an attempt that failed for good.
So a task is one line here, no other line begins so, and a tick proves nothing: the ledger does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection
from graphlib import TopologicalSorter
from itertools import chain, groupby

from tasks.errors import TaskError
from tasks.files import Entry
from tasks.model import ID

PATH = "PRD.md"
COMMAND = "python -m tasks write"
BOX = re.compile(rf"- \[(?P<mark>[ xX])\] (?:\[(?P<id>{ID})\] )?")
# What YAML 1.2 calls not printable (5.1), and what makes text run the other way for those who read it.
UNSEEN = re.compile("[^ -~\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|[\u202a-\u202e\u2066-\u2069]")
HEAD = f"""\
# What is to be done

Generated from `tasks/queue` and the ledger by `{COMMAND}`: what is written here by hand is
lost. A box is ticked where the ledger proves that its task is done. Each task comes after those that it
depends on.

## Requirements
"""


def prd(entries: dict[str, Entry], done: Collection[str]) -> str:
    """entries: as read_queue gives them. done: ids."""
    ordered = list(chain.from_iterable(steps(entries)))
    parts = [HEAD]
    for group, members in groupby(ordered, lambda one: one.task.parallel_group):
        whys = "".join(f"- {one.task.id}: {one_line(one.task.why)}\n" for one in members)
        parts.append(f"\n### Group {group}\n\n{whys}")
    boxed = "".join(
        f"- [{'x' if one.task.id in done else ' '}] {heading(one)} ({one.path})\n" for one in ordered
    )
    parts.append(f"\n## Tasks\n\n{boxed}")
    return "".join(parts)


def boxes(text: str) -> dict[str, bool]:
    """By id: whether it is ticked. Raises TaskError: a line for each box of no task and each second one."""
    found: dict[str, bool] = {}
    wrong: list[str] = []
    for number, line in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        box = BOX.match(line)
        if box is None:
            continue
        name = box["id"]
        if name is None:
            wrong.append(f"{PATH}:{number}: {line[:60]!r}: expected `- [ ] [T-NNN] title`")
        elif name in found:
            wrong.append(f"{PATH}:{number}: {name} has a box already: expected one")
        else:
            found[name] = box["mark"] != " "
    if wrong:
        raise TaskError("\n".join(wrong))
    return found


def steps(entries: dict[str, Entry]) -> list[list[Entry]]:
    """The queue, cut into what may be done side by side once all before it is done: a parallel_group, or
    the parts of one in which tasks wait for each other."""
    places: dict[str, tuple[int, int]] = {}
    for name in TopologicalSorter(
        {name: one.task.depends_on for name, one in entries.items()}
    ).static_order():
        task = entries[name].task
        before = [places[other] for other in task.depends_on]
        inside = [depth for group, depth in before if group == task.parallel_group]
        places[name] = (task.parallel_group, max(inside, default=0) + 1)
    found: defaultdict[tuple[int, int], list[Entry]] = defaultdict(list)
    for name, entry in entries.items():
        found[places[name]].append(entry)
    return [found[place] for place in sorted(found)]


def heading(entry: Entry) -> str:
    """A title of its own: ids are unique."""
    return f"[{entry.task.id}] {one_line(entry.task.title)}".rstrip()


def one_line(text: str) -> str:
    """All white space and what cannot be shown becomes one space: no line break to any reader."""
    return " ".join(UNSEEN.sub(" ", text).split())
