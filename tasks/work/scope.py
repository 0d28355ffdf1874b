"""What a change touches beside what its task allows."""

from __future__ import annotations

from collections.abc import Iterable

from gates.law.tiers import Tiers, matches
from gates.trees.repository import SUBMODULE, SYMLINK, Change

from tasks.files import GENERATED, QUEUE
from tasks.model import Task

OWN = ("tasks/", *GENERATED)  # of the runner: tasks, evidence, what is generated from them
ABSENT = "000000"  # git's mode of a side that is not there


def breaches(task: Task, tiers: Tiers | None, changes: Iterable[Change], by_agent: bool = True) -> list[str]:
    """A line each. tiers: of the base; its strictest one is closed to agents, whatever the task allows and
    whoever owns it."""
    return [line for change in changes for line in of_change(task, tiers, change, by_agent)]


def of_change(task: Task, tiers: Tiers | None, change: Change, by_agent: bool) -> list[str]:
    found = []
    for path in change.paths:
        if not any(matches(pattern, path) for pattern in task.allow):
            found.append(f"{path} ({change.kind}) is not in allow: {', '.join(task.allow)}")
        elif by_agent and any(matches(pattern, path) for pattern in OWN):
            found.append(f"{path} ({change.kind}) belongs to the task runner ({QUEUE}, evidence)")
        elif by_agent and tiers and any(tier.holds(path) for tier in tiers.tiers[:1]):
            found.append(f"{path} ({change.kind}) belongs to the judges: {tiers.tiers[0].id}")
    if change.new_mode == SYMLINK:
        found.append(f"{change.path} is a link: it stands for a file that no path shows")
    elif change.new_mode == SUBMODULE:
        found.append(f"{change.path} is a submodule, or a repository inside this one")
    elif ABSENT not in (change.old_mode, change.new_mode) and change.old_mode != change.new_mode:
        found.append(f"{change.path} changed its mode from {change.old_mode} to {change.new_mode}")
    return found
