"""types: mypy --strict finds nothing."""

from __future__ import annotations

import sys

from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, judged
from gates.lint import located

JUDGED = ("engine/volta", "gates", "tasks", "noxfile.py")  # what exists of it


def check(context: Context) -> Outcome:
    places = [place for place in JUDGED if (context.head.path / place).exists()]
    cache = context.repository.root / ".gates" / "cache" / "mypy"
    done = context.run(
        (sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", cache, *places),
        env=context.environment(context.head),
    )
    findings = [
        finding
        for line in done.output.splitlines()
        if ": error: " in line and (finding := located(line.replace(": error:", ":0: error:", 1)))
    ]
    if done.code and not findings:
        findings = [Finding(f"mypy: {done.tail(1)}")]
    return judged(findings, "mypy --strict")
