"""A gate's answer: a verdict, the figure that decided, and every finding at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"  # not enough evidence, either way
    UNPROVEN = "UNPROVEN"  # a device or a tool that the proof needs is missing
    NOT_APPLICABLE = "NOT_APPLICABLE"  # nothing that this gate judges has changed

    @property
    def merges(self) -> bool:
        return self in (Verdict.PASS, Verdict.NOT_APPLICABLE)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong. path: of the head, where there is one; line from 1, 0 for the whole."""

    message: str
    path: str = ""
    line: int = 0

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}: " if self.line else f"{self.path}: " if self.path else ""
        return where + self.message


@dataclass(frozen=True, slots=True)
class Outcome:
    """figure: what decided, in a few words. samples: seconds, counts or ratios by name, for the plots.
    outputs: sha256 of what was computed, by name."""

    verdict: Verdict
    figure: str
    findings: Sequence[Finding] = ()
    samples: Mapping[str, Sequence[float]] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)


def judged(findings: Sequence[Finding], figure: str, **rest: Any) -> Outcome:
    """FAIL where there is any finding, else PASS."""
    if not findings:
        return Outcome(Verdict.PASS, figure, **rest)
    counted = "1 finding" if len(findings) == 1 else f"{len(findings)} findings"
    return Outcome(Verdict.FAIL, f"{counted}; {figure}" if figure else counted, findings, **rest)
