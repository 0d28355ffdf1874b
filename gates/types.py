"""types: mypy --strict finds nothing."""

from __future__ import annotations

import sys

from gates.context import Context
from gates.evidence.verdict import Outcome, judged
from gates.evidence.verdict import Finding
from gates.lint import located


def check(context: Context) -> Outcome:
    cache = context.repository.root / ".gates" / "cache" / "mypy"
    done = context.run(
        (sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", cache),
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
