"""The figures that a change must keep: floors, ceilings and margins, from governance/limits.yaml."""

from __future__ import annotations

from pydantic import Field

from gates.law.files import Article

PATH = "governance/limits.yaml"


class Counters(Article):
    """How much a counter of a pinned small case may grow, as a share: deterministic, so hardly at all."""

    instructions: float = Field(ge=0, le=0.1)
    planned_bytes: float = Field(ge=0, le=0.1)
    steps: float = Field(ge=0, le=0.1)
    allocations: float = Field(ge=0, le=0.1)


class Timing(Article):
    """margin: the slowdown, as a share, that is not worth an alarm. pairs: at least, and at most while
    undecided. confidence: of the interval and the test, after Holm's correction over all cases."""

    margin: float = Field(gt=0, lt=1)
    least_pairs: int = Field(ge=6)
    most_pairs: int = Field(ge=6)
    confidence: float = Field(gt=0.5, lt=1)
    noise: float = Field(gt=0, lt=1)  # an A/A interval wider than this voids the host


class Planning(Article):
    """Service levels of compiling TinyLM: milliseconds at the 95th percentile, and hits per lookup."""

    uncached_p95_ms: float = Field(gt=0)
    cached_p95_ms: float = Field(gt=0)
    hit_rate: float = Field(gt=0, le=1)


class Growth(Article):
    """Of a process's memory over 1,000 steps of training, in pages of 4 KiB."""

    pages: int = Field(ge=0)


class Limits(Article):
    """coverage: percent of lines, by package. changed_lines: percent of those that a change adds."""

    coverage: dict[str, float]
    changed_lines: float = Field(ge=0, le=100)
    counters: Counters
    timing: Timing
    planning: Planning
    growth: Growth
