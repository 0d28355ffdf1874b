"""api: a public name, parameter or command that goes needs a line in the changelog that names it."""

from __future__ import annotations

import json

from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, judged
from gates.trees.checkout import Checkout

CHANGELOG = "CHANGELOG.md"
# Runs in a process with one checkout's engine: name -> signature of everything public.
SURVEY = """
import inspect, json
import typer.main
import volta
found = {}
def note(name, value):
    try:
        found[name] = str(inspect.signature(value))
    except (TypeError, ValueError):
        found[name] = ""
for name in sorted(volta.__all__):
    value = getattr(volta, name)
    note(name, value)
    if inspect.isclass(value):
        for member in sorted(vars(value)):
            if not member.startswith("_"):
                note(f"{name}.{member}", getattr(value, member))
def commands(command, path):
    found[" ".join(path)] = ""
    for parameter in command.params:
        for option in parameter.opts:
            found[" ".join((*path, option))] = ""
    for name, one in sorted(getattr(command, "commands", {}).items()):
        commands(one, (*path, name))
from volta import cli
root = getattr(cli, "app", None)
if root is not None:
    commands(typer.main.get_command(root), ("volta",))
print(json.dumps(found))
"""


def check(context: Context) -> Outcome:
    before, after = survey(context, context.base), survey(context, context.head)
    if isinstance(before, Finding) or isinstance(after, Finding):
        return judged([one for one in (before, after) if isinstance(one, Finding)], "")
    said = added_lines(context)
    findings = []
    for name, signature in before.items():
        last = name.rpartition(".")[2].rpartition(" ")[2]
        if name not in after and not named(last, said):
            findings.append(
                Finding(f"{name} has gone: no new line of the changelog names `{last}`", CHANGELOG)
            )
        elif name in after and lost(signature, after[name]) and not named(last, said):
            findings.append(
                Finding(
                    f"{name}{signature} takes less as {name}{after[name]}: the changelog does not say so",
                    CHANGELOG,
                )
            )
    new = len(set(after) - set(before))
    return judged(findings, f"{len(after)} public names, {new} new")


def survey(context: Context, which: Checkout) -> dict[str, str] | Finding:
    context.build(which)
    done = context.python("-c", SURVEY, engine=which)
    try:
        found = json.loads(done.output.splitlines()[-1])
    except (ValueError, IndexError):
        return Finding(f"`import volta` of {which.tree.short} failed: {done.tail(1)}")
    return {str(name): str(signature) for name, signature in found.items()}


def parameters(signature: str) -> list[str]:
    """Names of parameters, in order: `(x, axis=-1) -> Tensor`."""
    inner, depth, part, parts = signature.partition(")")[0].removeprefix("("), 0, "", []
    if "(" in inner:
        inner = signature[1 : signature.rfind(")")]
    for letter in inner:
        depth += letter in "([{"
        depth -= letter in ")]}"
        if letter == "," and not depth:
            parts.append(part)
            part = ""
        else:
            part += letter
    parts.append(part)
    return [one.split(":")[0].split("=")[0].strip() for one in parts if one.strip()]


def lost(before: str, after: str) -> bool:
    """Whether some call that the first signature takes is refused by the second: a parameter has gone."""
    return not set(parameters(before)) <= set(parameters(after))


def added_lines(context: Context) -> str:
    """What the head's changelog says that the base's does not."""
    old = context.repository.text(context.base.tree, CHANGELOG) or ""
    new = context.repository.text(context.head.tree, CHANGELOG) or ""
    known = set(old.splitlines())
    return "\n".join(line for line in new.splitlines() if line not in known)


def named(name: str, text: str) -> bool:
    return name in text
