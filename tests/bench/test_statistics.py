"""Medians, intervals and paired ratios: what they claim, proved by enumeration or for any times."""

from __future__ import annotations

import math
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volta.bench.statistics import CONFIDENCE, LEAST_PAIRS, Ratio, geometric_mean, paired_ratio

TIMES = st.floats(1e-7, 1e3)
PAIRS = st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=40)


def ratio_of(pairs: list[tuple[float, float]]) -> Ratio:
    return paired_ratio([a for a, _ in pairs], [b for _, b in pairs])


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-12)


@pytest.mark.parametrize("count", range(1, 13))
def test_the_interval_covers_the_median_exactly_as_often_as_it_says(count: int) -> None:
    """Every sample lies below or above the true median, 1, with equal chance: of all 2^n cases the share
    that is covered is `confidence`."""
    covered = 0
    for below in product((False, True), repeat=count):
        found = paired_ratio([1.0] * count, [(0.5 if low else 2.0) + 0.01 * i for i, low in enumerate(below)])
        covered += found.low <= 1.0 <= found.high
    assert covered == found.confidence * 2**count
    assert (found.confidence >= CONFIDENCE) == (count >= LEAST_PAIRS)


@pytest.mark.parametrize("count", range(LEAST_PAIRS, 60))
def test_no_narrower_interval_would_be_confident_enough(count: int) -> None:
    """The next order statistics inwards enclose the median with less than 95%."""
    values = [float(i) for i in range(1, count + 1)]
    found = paired_ratio([1.0] * count, values)
    k = values.index(found.low) + 1
    assert found.high == values[count - k]
    assert found.confidence >= CONFIDENCE
    narrower = 1 - 2 * sum(math.comb(count, i) for i in range(k + 1)) / 2**count
    assert narrower < CONFIDENCE or k == (count + 1) // 2


@given(PAIRS)
def test_the_median_lies_in_its_interval(pairs: list[tuple[float, float]]) -> None:
    found = ratio_of(pairs)
    assert found.low * (1 - 1e-15) <= found.median <= found.high * (1 + 1e-15)
    assert found.pairs == len(pairs)


@given(PAIRS)
def test_swapping_the_sides_inverts_the_ratio(pairs: list[tuple[float, float]]) -> None:
    """In logarithms it changes its sign, whatever the number of pairs: neither side is favoured."""
    there, back = ratio_of(pairs), ratio_of([(b, a) for a, b in pairs])
    assert close(there.median * back.median, 1)
    assert close(there.low * back.high, 1)
    assert close(there.high * back.low, 1)
    assert there.confidence == back.confidence


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_the_pairs_does_not_matter(pairs: list[tuple[float, float]], random: Random) -> None:
    shuffled = list(pairs)
    random.shuffle(shuffled)
    assert ratio_of(shuffled) == ratio_of(pairs)


@given(PAIRS, st.floats(0.1, 10))
def test_a_peer_that_takes_longer_by_a_factor_has_a_ratio_larger_by_it(
    pairs: list[tuple[float, float]], factor: float
) -> None:
    before, after = ratio_of(pairs), ratio_of([(a, b * factor) for a, b in pairs])
    assert close(after.median, before.median * factor)
    assert close(after.low, before.low * factor)
    assert close(after.high, before.high * factor)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=40), st.floats(0.1, 10))
def test_what_slows_both_sides_of_a_pair_cancels(slower: list[float], ratio: float) -> None:
    found = paired_ratio(slower, [ratio * factor for factor in slower])
    assert close(found.median, ratio)
    assert close(found.low, found.high)


def test_unpaired_samples_are_refused() -> None:
    with pytest.raises(ValueError, match="zip"):
        paired_ratio([1.0, 2.0], [1.0])


@given(st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_the_geometric_mean_favours_neither_side(ratios: list[float]) -> None:
    mean = geometric_mean(ratios)
    assert min(ratios) * (1 - 1e-12) <= mean <= max(ratios) * (1 + 1e-12)
    assert close(mean * geometric_mean([1 / ratio for ratio in ratios]), 1)
