"""Python in documents and in examples/: it compiles, and what is whole runs."""

from __future__ import annotations

import ast
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gates.context import Context, Done
from gates.documents.markdown import Document, Piece
from gates.evidence.verdict import Finding

PYTHON = ("python", "py", "python3")
MUST_RUN = ("README.md",)  # the first thing that anyone tries
BLOCK_S, EXAMPLE_S, HELP_S = 60.0, 240.0, 30.0


@dataclass(frozen=True, slots=True)
class Read:
    """What compiling a block says: a finding, or why it is not run, or neither for one that runs."""

    finding: Finding | None = None
    not_run: str = ""


def python_blocks(document: Document) -> list[Piece]:
    return [block for block in document.blocks if block.language in PYTHON]


def read(block: Piece, path: str) -> Read:
    try:
        tree = ast.parse(block.text)
        compile(block.text, path, "exec")  # what only the compiler finds, such as `return` outside
    except (SyntaxError, ValueError) as error:
        line = block.line + (getattr(error, "lineno", None) or 1) - 1
        return Read(Finding(f"this Python does not compile: {getattr(error, 'msg', error)}", path, line))
    if block.not_run:
        return Read(not_run=block.not_run)
    return Read(not_run="it has `...` for what is left out") if has_ellipsis(tree) else Read()


def has_ellipsis(tree: ast.AST) -> bool:
    """`...` as a statement or a value; `x[..., 0]` is an index."""
    indices = {
        id(one) for node in ast.walk(tree) if isinstance(node, ast.Subscript) for one in ast.walk(node.slice)
    }
    return any(
        isinstance(node, ast.Constant) and node.value is ... and id(node) not in indices
        for node in ast.walk(tree)
    )


def run_block(context: Context, block: Piece, path: str) -> Read:
    """In a fresh process with the head's engine, in an empty directory."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "block.py")
        # empty lines before it, so that a traceback names the document's lines
        file.write_text("\n" * (block.line - 1) + block.text)
        done = timed(context, BLOCK_S, file, cwd=Path(scratch))
    if done is None:
        return Read(Finding(f"this Python takes longer than {BLOCK_S:.0f} s", path, block.line))
    if not done.code:
        return Read()
    said = done.tail(1) or f"exit code {done.code}"
    if said.startswith("FileNotFoundError") and path not in MUST_RUN:
        return Read(not_run=f"it needs a file: {said}")
    hint = "" if path in MUST_RUN else "; what cannot run says so: `<!-- not run: reason -->`"
    return Read(Finding(f"this Python fails: {said}{hint}", path, block.line))


def run_examples(context: Context) -> list[Finding]:
    found = []
    for example in sorted(context.head.path.glob("examples/*.py")):
        name = str(example.relative_to(context.head.path))
        with tempfile.TemporaryDirectory() as scratch:
            done = timed(context, EXAMPLE_S, example, cwd=Path(scratch))
        if done is None:
            found.append(Finding(f"it takes longer than {EXAMPLE_S:.0f} s", name))
        elif done.code:
            found.append(Finding(f"it fails: {done.tail(1)}", name))
    return found


def run_help(context: Context, path: Sequence[str]) -> Finding | None:
    """`volta .. --help` of a documented command."""
    done = timed(context, HELP_S, "-m", "volta", *path, "--help")
    name = " ".join(("volta", *path, "--help"))
    if done is None:
        return Finding(f"`{name}` takes longer than {HELP_S:.0f} s")
    return Finding(f"`{name}` fails: {done.tail(1)}") if done.code or not done.output.strip() else None


def timed(context: Context, limit_s: float, *arguments: str | Path, cwd: Path | None = None) -> Done | None:
    """None where it takes longer. The gate's own deadline holds too."""
    shorter = replace(context, deadline=min(context.deadline, time.monotonic() + limit_s))
    try:
        return shorter.python(*arguments, engine=context.head, cwd=cwd)
    except subprocess.TimeoutExpired:
        return None
