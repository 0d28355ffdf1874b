"""A result beside an earlier one of the same machine: which cases are surely slower.

Where the same peer ran both times, Volta is compared through it: a machine that is busier today slows both.
A case is slower when even the most favourable reading of both intervals says so by more than the margin; with
too few samples there is no such interval, and no verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from volta.bench.report import Measurement, Report, counted
from volta.bench.statistics import CONFIDENCE, LEAST_PAIRS

MARGIN = 0.05
OWN = ("volta", "recomputed")  # sides that are Volta: what slows one may slow the other


@dataclass(frozen=True, slots=True)
class Change:
    """How many times longer a case takes than before: at least `low`, at most `high`. through: the peer that
    both were measured beside, or "time". enough: samples for an interval of 95%, both times."""

    name: str
    threads: int
    low: float
    high: float
    through: str
    enough: bool

    @property
    def verdict(self) -> str:
        if not self.enough:
            return "too few samples"
        if self.low > 1 + MARGIN:
            return "slower"
        if self.high < 1 - MARGIN:
            return "faster"
        return "no clear change"


def foreign(base: Report, machine: Mapping[str, Any]) -> str | None:
    """Why times of this machine do not compare with the baseline's, or None where they do."""
    if base.machine["id"] == machine["id"]:
        return None
    was, is_ = (f"{facts['id']} ({facts['cpu']})" for facts in (base.machine, machine))
    return f"the baseline is from machine {was}: expected this one, {is_}"


def changes(base: Report, new: Report) -> Iterator[Change]:
    """One per case that both have."""
    before = {_key(one): one for one in base.measurements}
    for one in new.measurements:
        if _key(one) in before:
            yield _change(before[_key(one)], one)


def missing(base: Report, new: Report) -> list[str]:
    """Cases of the baseline that the new result lacks: nobody may win by leaving them out."""
    now = {_key(one) for one in new.measurements}
    return [
        f"{one.name}, {counted(one.threads, 'thread')}" for one in base.measurements if _key(one) not in now
    ]


def _key(one: Measurement) -> tuple[str, int, str]:
    """What must be the same for two measurements to be of one case."""
    return one.name, one.threads, json.dumps(dict(one.parameters), sort_keys=True)


def _change(before: Measurement, now: Measurement) -> Change:
    for peer in now.ratios:
        if peer in OWN or peer not in before.ratios:
            continue
        if now.sides[peer].description == before.sides[peer].description:  # its version, too
            old, new = before.ratios[peer], now.ratios[peer]
            enough = min(old.confidence, new.confidence) >= CONFIDENCE
            return Change(now.name, now.threads, old.low / new.high, old.high / new.low, peer, enough)
    old_side, new_side = before.sides["volta"], now.sides["volta"]
    enough = min(len(old_side.seconds), len(new_side.seconds)) >= LEAST_PAIRS
    low, high = new_side.low / old_side.high, new_side.high / old_side.low
    return Change(now.name, now.threads, low, high, "time", enough)
