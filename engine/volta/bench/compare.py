"""A result beside an earlier one of the same machine: which cases are surely slower.

Where a peer ran both times, Volta is compared through it: a machine that is busier today slows both. A case
is slower when even the most favourable reading of both intervals says so by more than the margin.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from volta.bench.report import Measurement, Report

MARGIN = 0.05


@dataclass(frozen=True, slots=True)
class Change:
    """How many times longer a case takes than before: at least `low`, at most `high`. through: the peer that
    both were measured beside, or "time"."""

    name: str
    threads: int
    low: float
    high: float
    through: str

    @property
    def verdict(self) -> str:
        if self.low > 1 + MARGIN:
            return "slower"
        if self.high < 1 - MARGIN:
            return "faster"
        return "no clear change"


def comparable(base: Report, new: Report) -> str | None:
    """Why two results do not compare, or None where they do."""
    if base.suite != new.suite:
        return f"the baseline is of the suite {base.suite}, this is {new.suite}"
    if base.machine["id"] != new.machine["id"]:
        was = base.machine.get("cpu", "unknown")
        return f"the baseline is from another machine ({was}, {base.machine['id']}): shown, not compared"
    return None


def changes(base: Report, new: Report) -> Iterator[Change]:
    """One per case that both have."""
    before = {(one.name, one.threads): one for one in base.measurements}
    for one in new.measurements:
        if (one.name, one.threads) in before:
            yield _change(before[one.name, one.threads], one)


def missing(base: Report, new: Report) -> list[str]:
    """Cases of the baseline that the new result lacks: nobody may win by leaving them out."""
    now = {(one.name, one.threads) for one in new.measurements}
    return [
        f"{one.name}, {one.threads} threads"
        for one in base.measurements
        if (one.name, one.threads) not in now
    ]


def _change(before: Measurement, now: Measurement) -> Change:
    shared = [peer for peer in now.ratios if peer in before.ratios]
    if shared:
        old, new = before.ratios[shared[0]], now.ratios[shared[0]]
        return Change(now.name, now.threads, old.low / new.high, old.high / new.low, shared[0])
    old_side, new_side = before.sides["volta"], now.sides["volta"]
    return Change(now.name, now.threads, new_side.low / old_side.high, new_side.high / old_side.low, "time")
