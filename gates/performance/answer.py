"""What counters and pairs answer, and the verdict of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gates.evidence.verdict import Finding, Outcome, Verdict, judged
from gates.performance.sampling import Times


@dataclass
class Part:
    """Of the answer. open: what could not be found out, and why; the verdict where something is."""

    open_is: Verdict
    findings: list[Finding] = field(default_factory=list)
    open: list[str] = field(default_factory=list)
    figure: str = ""
    samples: Times = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)


def outcome(parts: Mapping[str, Part]) -> Outcome:
    """Of parts by name. Whatever is wrong fails; else the first part with something open decides."""
    figure = "; ".join(part.figure for part in parts.values() if part.figure)
    still = [one for part in parts.values() for one in part.open]
    notes = {**{name: part.notes for name, part in parts.items()}, "open": still}
    findings = [finding for part in parts.values() for finding in part.findings]
    samples = {name: values for part in parts.values() for name, values in part.samples.items()}
    if findings or not still:
        return judged(findings, figure, samples=samples, notes=notes)
    verdict = next(part.open_is for part in parts.values() if part.open)
    why = f"{still[0]}{f' ({len(still) - 1} more)' if len(still) > 1 else ''}"
    return Outcome(verdict, f"{why}; {figure}" if figure else why, samples=samples, notes=notes)
