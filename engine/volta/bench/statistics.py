"""What a handful of noisy timings can say: medians, spread, and paired ratios with an exact interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CONFIDENCE = 0.95
LEAST_PAIRS = 6  # 2 * 0.5**6 is the first below 1 - CONFIDENCE


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times longer one side took than another, pair by pair; low and high bound the median with
    `confidence`."""

    median: float
    low: float
    high: float
    confidence: float
    pairs: int


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """theirs / ours over pairs measured side by side. Swapping the sides inverts all three numbers: of an
    even number of pairs the median is the geometric mean of the middle two.

    The interval holds the median of the distribution whatever its shape: of n sorted ratios the k-th
    lowest and k-th highest enclose it unless fewer than k lie on one side, which a fair coin decides
    (the sign test turned round; Conover, Practical Nonparametric Statistics, 3.2).
    """
    ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    count = len(ratios)
    k, outside = 1, 2 * 0.5**count
    while k < (count + 1) // 2:
        wider = outside + 2 * math.comb(count, k) * 0.5**count
        if wider > 1 - CONFIDENCE:
            break
        k, outside = k + 1, wider
    median = math.sqrt(ratios[(count - 1) // 2] * ratios[count // 2])
    return Ratio(median, ratios[k - 1], ratios[count - k], max(0.0, 1 - outside), count)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
