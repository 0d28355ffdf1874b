"""What an agent is told: the task, the rules, how it will be judged, what went wrong before."""

from __future__ import annotations

from collections.abc import Sequence

from tasks.files import Entry

RULES = "AGENTS.md"
MOST_FINDINGS = 40
TEXT = """\
# {id}: {title}

{why}

You work alone, in this directory: a clone of the repository, on branch `{branch}`. Nobody answers questions.
What you leave here is judged when you end, committed or not; your word that it is done counts for nothing.

## What you may change

{allow}

A change of any other path rejects all of it, also by renaming, a link or a mode.

## How it is judged

In this order, on your change merged into what others did meanwhile, by the code and the law of the base:

1. the gates of the change's tier, as `python3 noxfile.py -s gate` asks them;
2. these commands, on your change's files:
{commands}
3. these statements, each by its gate or command:
{acceptance}

You have {minutes:g} minutes.
"""


def prompt(entry: Entry, rules: str, findings: Sequence[str] = (), intents: Sequence[str] = ()) -> str:
    """findings: of earlier attempts. intents: of changes that landed and did not merge with this one."""
    task = entry.task
    expected = {one.command: one for one in task.expect}
    commands = []
    for name, command in task.commands.items():
        commands.append(f"   - {name}: `{command}`")
        if one := expected.get(name):
            commands += [f"     prints what matches `{pattern}`" for pattern in one.output]
            commands += [
                f"     `{path}` in the JSON that it prints: {bounds}" for path, bounds in one.metrics.items()
            ]
    text = TEXT.format(
        id=task.id,
        title=task.title,
        why=task.why.strip(),
        branch=entry.branch,
        allow="\n".join(f"- `{path}`" for path in task.allow),
        commands="\n".join(commands) or "   (none)",
        acceptance="\n".join(f"   - {one.says} ({one.by})" for one in task.acceptance),
        minutes=task.budget.minutes,
    )
    if findings:
        shown = list(findings)[:MOST_FINDINGS]
        more = [f"- and {len(findings) - len(shown)} more"] if len(findings) > len(shown) else []
        text += "\n## What was wrong with the attempt before this one\n\n"
        text += "\n".join([*(f"- {line}" for line in shown), *more]) + "\n"
    if intents:
        text += "\n## What landed meanwhile and did not merge with the attempt before\n\n"
        text += "Keep what it does as well.\n\n"
        text += "\n".join(f"- {line}" for line in intents) + "\n"
    if rules:
        text += f"\n---\n\n{rules.strip()}\n"
    return text
