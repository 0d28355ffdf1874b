"""fmt: Python is laid out as ruff does it, C as clang-format does it."""

from __future__ import annotations

from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, judged
from gates.tools import c_files, tool


def check(context: Context) -> Outcome:
    ruff = context.run((tool("ruff"), "format", "--check", "--no-cache", "--no-respect-gitignore", "."))
    findings = [
        Finding("ruff format lays it out differently", line.removeprefix("Would reformat: "))
        for line in ruff.output.splitlines()
        if line.startswith("Would reformat: ")
    ]
    if ruff.code and not findings:
        findings.append(Finding(f"ruff format: {ruff.tail(1)}"))
    files = c_files(context.head.path)
    clang = context.run((tool("clang-format"), "--dry-run", *files)) if files else None
    seen = set()
    for line in clang.output.splitlines() if clang else ():
        path, _, rest = line.partition(":")
        if "warning:" in line and path not in seen:
            seen.add(path)
            findings.append(Finding("clang-format lays it out differently", path, int(rest.split(":")[0])))
    if clang is not None and clang.code and not seen:
        findings.append(Finding(f"clang-format: {clang.tail(1)}"))
    return judged(
        findings, "fix with `python3 noxfile.py -s format`" if findings else f"{len(files)} C files"
    )
