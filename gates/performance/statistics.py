"""What pairs of timings can say: a mean ratio with its interval, a test against a margin, a decision.

Each pair is one process of the base and one of the head, run next to each other, so what the machine does to
both cancels in their ratio. Ratios are head / base, as natural logarithms: those of A/B and B/A differ by
their sign alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy import stats

LEAST_PAIRS = 6  # with fewer, the least p value of Wilcoxon's test is above 3%


class Decision(StrEnum):
    NOT_SLOWER = "faster or equal"
    SLOWER = "slower"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Paired:
    """mean, low, high: of the log-ratio, with a two-sided t interval. p: of Wilcoxon's signed-rank test that
    the ratio is not above 1 + margin."""

    mean: float
    low: float
    high: float
    p: float
    pairs: int
    margin: float

    @property
    def ratio(self) -> tuple[float, float, float]:
        """The geometric mean of head / base, and the interval."""
        return math.exp(self.mean), math.exp(self.low), math.exp(self.high)

    def __str__(self) -> str:
        ratio, low, high = self.ratio
        return f"{ratio:.3f} ({low:.3f} to {high:.3f})"


def paired(base: Sequence[float], head: Sequence[float], confidence: float, margin: float = 0.0) -> Paired:
    """base, head: medians of processes, above 0, in the order of their pairs. confidence: of the interval.
    margin: the slowdown, as a share, that the test takes for none.

    ValueError where the numbers cannot be pairs of times.
    """
    if len(base) != len(head) or len(base) < LEAST_PAIRS:
        raise ValueError(f"{len(base)} and {len(head)} samples: expected as many, {LEAST_PAIRS} or more")
    if not all(math.isfinite(value) and value > 0 for value in (*base, *head)):
        raise ValueError("a sample is not a time above 0")
    if not 0 < confidence < 1 or margin < 0:
        raise ValueError(f"confidence is {confidence}, margin {margin}: expected 0 to 1, and 0 or more")
    logs = np.log(np.asarray(head, np.float64)) - np.log(np.asarray(base, np.float64))
    mean, count = float(logs.mean()), len(logs)
    half = float(stats.t.ppf((1 + confidence) / 2, count - 1) * logs.std(ddof=1) / math.sqrt(count))
    above = logs - math.log1p(margin)
    # the test drops zeros, and has nothing to say about nothing else
    p = float(stats.wilcoxon(above, alternative="greater").pvalue) if above.any() else 1.0
    return Paired(mean, mean - half, mean + half, p, count, margin)


def holm(p: Mapping[str, float]) -> dict[str, float]:
    """p values corrected for their number (Holm 1979): rejecting those at or below a level keeps the chance
    of any false alarm among all below that level."""
    found: dict[str, float] = {}
    highest = 0.0
    for rank, name in enumerate(sorted(p, key=lambda name: p[name])):
        highest = max(highest, min(1.0, (len(p) - rank) * p[name]))
        found[name] = highest
    return {name: found[name] for name in p}


def decide(one: Paired, p: float, level: float) -> Decision:
    """p: of its test after the correction. SLOWER needs the test; NOT_SLOWER needs the whole interval within
    the margin, since a test that finds nothing may only have seen too little."""
    limit = math.log1p(one.margin)
    if p <= level:  # ranks and mean that disagree mean outliers
        return Decision.SLOWER if one.mean > limit else Decision.UNDECIDED
    return Decision.NOT_SLOWER if one.high <= limit else Decision.UNDECIDED


@dataclass(frozen=True, slots=True)
class Judged:
    """A benchmark: its ratio, the test's p value after the correction, and what follows."""

    paired: Paired
    p: float
    decision: Decision


def judge(
    base: Mapping[str, Sequence[float]],
    head: Mapping[str, Sequence[float]],
    margins: Mapping[str, float],
    confidence: float,
    looks: int = 1,
) -> dict[str, Judged]:
    """Decides on benchmarks together. margins: by benchmark. looks: how often at most the same series is
    judged while it grows; each look gets its share of the error that `confidence` leaves (Bonferroni), or
    looking until something shows would find it.

    The correction over benchmarks is for the alarms. `NOT_SLOWER` needs none: all of them must be that for
    the whole to be so, and the chance of erring in all is no greater than in one.
    """
    level = (1 - confidence) / looks
    found = {name: paired(base[name], head[name], 1 - level, margins[name]) for name in base}
    corrected = holm({name: one.p for name, one in found.items()})
    return {
        name: Judged(one, corrected[name], decide(one, corrected[name], level)) for name, one in found.items()
    }


def noise(same: Paired) -> float:
    """How far from 1, as a share, the ratio of a base to itself may be by its interval: no slowdown below it
    can be told from none on this host."""
    return math.expm1(max(abs(same.low), abs(same.high)))


def void(same: Paired, limit: float) -> str:
    """Why a host on which a base was compared with itself can judge nothing; empty where it can. limit: of
    the interval's width and of its distance from 1, as a share."""
    _, low, high = same.ratio
    if high - low > limit:
        return f"the base beside itself takes {same} of its time: an interval wider than {limit:.0%}"
    if low > 1 + limit or high < 1 - limit:
        return f"the base beside itself takes {same} of its time: more than {limit:.0%} from 1"
    return ""
