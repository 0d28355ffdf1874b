"""capability: governance/capability.md is what the head's own tables say that it can do.

`python -m gates write-capability` writes it. A row is an operation.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from gates.context import Context
from gates.errors import GateError
from gates.evidence.verdict import Finding, Outcome, judged

PATH = "governance/capability.md"
TARGET = re.compile(r"^VOLTA_TARGET\((\w+),\s*(\w+),\s*(\w+),\s*(\w+)\)", re.MULTILINE)
TARGETS = "engine/csrc/cpu/targets.def"
ISAS = ("ref", "avx2", "avx512")
# Runs with the engine on its path: the rows of the operation table.
SURVEY = """
import json
from volta.ir.ops import OPS
print(json.dumps([
    [op.name, op.kind, op.kernel or "", op.clause, op.signature, "no" if type(op.gradient) is str else "yes"]
    for op in OPS.values()
]))
"""
HEAD = """\
# What there is

Generated from `engine/volta/ir/ops.py` and `engine/csrc/cpu/targets.def` by
`python -m gates write-capability`; the gate `capability` fails where it is not what they say.

Devices: cpu. The determinism levels `balanced` and `fast` are accepted and compute what `strict` does. An
operation without a gradient says why when one is asked for. *own*: the instruction set has a kernel of its
own; *C*: it runs the plain C, which gives the same bits. AMX runs the kernels of AVX-512, and products of
bf16 and int8 of its own.

| operation | operands | clause | gradient | ref | avx2 | avx512 |
|---|---|---|---|---|---|---|
"""


def check(context: Context) -> Outcome:
    context.build(context.head)
    done = context.python("-c", SURVEY, engine=context.head)
    rows = parsed(done.output, context.head.tree.short)
    expected = page(rows, context.head.path)
    file = context.head.path / PATH
    given = file.read_text(errors="replace") if file.is_file() else ""
    findings = []
    if given != expected:
        old, new = given.splitlines(), expected.splitlines()
        line = next(
            (i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
        )
        said = "it is not what the tables say: `python -m gates write-capability`"
        findings.append(Finding(said, PATH, line + 1))
    return judged(findings, f"{len(rows)} operations")


def parsed(output: str, who: str) -> list[list[str]]:
    try:
        rows = json.loads(output.splitlines()[-1])
    except (ValueError, IndexError):
        raise GateError(f"[capability] {who} has no table of operations: {output[-200:]}") from None
    return [[str(cell) for cell in row] for row in rows]


def page(rows: list[list[str]], root: Path) -> str:
    kernels = targets((root / TARGETS).read_text())
    lines = [line(row, kernels) for row in rows if row[1] not in ("leaf", "result", "fused")]
    return HEAD + "\n".join(lines) + "\n"


def targets(text: str) -> dict[str, tuple[str, ...]]:
    """Kernel -> what runs it under each instruction set: own or C."""
    return {
        match[1].lower(): ("C", *("C" if name.endswith("_ref") else "own" for name in match.groups()[2:]))
        for match in TARGET.finditer(text)
    }


def line(row: list[str], kernels: Mapping[str, tuple[str, ...]]) -> str:
    name, kind, kernel, clause, operands, gradient = row
    runs = ("view",) * len(ISAS) if kind == "view" else kernels.get(kernel, ("none",) * len(ISAS))
    shown = operands.replace("*", "..") or "-"
    return f"| {' | '.join((name, shown, clause, gradient, *runs))} |"


def write(root: Path) -> None:
    """Writes the page of the working tree."""
    done = subprocess.run(
        [sys.executable, "-c", SURVEY],
        cwd=root / "engine",
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    (root / PATH).write_text(page(parsed(done.stdout + done.stderr, "the working tree"), root))
