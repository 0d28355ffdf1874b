"""docs: what the documents name is there, what they show is accepted, and their examples run."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from gates.context import Context
from gates.documents import blocks, commands, names
from gates.documents.markdown import Document, documents
from gates.documents.surface import ASK, Surface, survey
from gates.evidence.verdict import Finding, Outcome, judged

RELEVANT = ("engine/", "examples/", "docs/", "README.md", "AGENTS.md")


@dataclass
class Seen:
    """What was judged so far. not_run: reasons, by place."""

    findings: list[Finding] = field(default_factory=list)
    names: int = 0
    blocks: int = 0
    not_run: dict[str, str] = field(default_factory=dict)


def check(context: Context) -> Outcome:
    context.build(context.head)
    asked = context.python("-c", ASK.read_text(), engine=context.head)
    noxfile = context.head.path / "noxfile.py"
    try:
        surface = survey(asked.output, noxfile.read_text() if noxfile.is_file() else "")
    except (ValueError, SyntaxError) as error:
        return judged([Finding(f"the head's commands cannot be listed: {error}")], "")
    texts = documents(context.head.path)
    seen = Seen()
    shown = written(context.head.path, texts, surface, seen)
    run(context, texts, seen)
    with ThreadPoolExecutor(2) as workers:
        helps = commands.documented(shown, surface.volta)
        failed = workers.map(lambda path: blocks.run_help(context, path), helps)
        seen.findings += [finding for finding in failed if finding]
    examples = context.alone or context.touches(*RELEVANT)
    seen.findings += blocks.run_examples(context) if examples else []
    return judged(
        seen.findings,
        f"{seen.names} names, {len(shown)} commands, blocks of Python: {seen.blocks}",
        notes={
            "documents": [text.path for text in texts],
            "not run": seen.not_run,
            "help pages": len(helps),
            "examples": "run" if examples else "not run: nothing that they show has changed",
        },
    )


def written(root: Path, texts: Sequence[Document], surface: Surface, seen: Seen) -> list[commands.Shown]:
    """Judges all that needs no process: names and commands; gives the commands."""
    places = names.Places(root)
    anchors = {text.path: text.anchors for text in texts}
    judge = commands.Judge(surface, places)
    all_shown = []
    for text in texts:
        shown = list(commands.shown(text))
        all_shown += shown
        answers = [
            *names.links(text, places, anchors),
            *names.paths(text, places),
            *names.variables(text, places.variables),
            *names.api(text, surface.public),
        ]
        seen.names += len(answers)
        seen.findings += [finding for finding in answers if finding]
        seen.findings += [finding for one in shown for finding in judge.findings(one)]
    return all_shown


def run(context: Context, texts: Sequence[Document], seen: Seen) -> None:
    """Compiles each block of Python, and runs those that are whole."""
    for text in texts:
        for block in blocks.python_blocks(text):
            seen.blocks += 1
            answer = blocks.read(block, text.path)
            if answer == blocks.Read():
                answer = blocks.run_block(context, block, text.path)
            if answer.finding:
                seen.findings.append(answer.finding)
            elif answer.not_run:
                seen.not_run[f"{text.path}:{block.line}"] = answer.not_run
