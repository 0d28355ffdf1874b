"""The paired statistics raise no false alarm and find what is there."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from gates.performance import statistics
from gates.performance.sampling import (
    quiet_cpu,
)
from gates.performance.statistics import Decision, decide, holm, judge, noise, paired, void
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gates.performance_fakes import LIMITS

UNTIMED = settings(deadline=None)  # what a test takes is this machine's business
TIMES = st.lists(st.floats(1e-6, 1e3), min_size=12, max_size=30)


def halves(times: list[float]) -> tuple[list[float], list[float]]:
    half = len(times) // 2
    return times[:half], times[half : 2 * half]


@UNTIMED
@given(TIMES)
def test_exchanging_the_sides_changes_the_sign_of_the_log_ratio_alone(times: list[float]) -> None:
    base, head = halves(times)
    one, other = paired(base, head, 0.95), paired(head, base, 0.95)
    assert one.mean == pytest.approx(-other.mean)
    assert one.low == pytest.approx(-other.high)
    assert one.low <= one.mean <= one.high


@UNTIMED
@given(TIMES, st.floats(1e-3, 1e3))
def test_the_unit_of_time_does_not_matter(times: list[float], unit: float) -> None:
    base, head = halves(times)
    scaled = paired([unit * one for one in base], [unit * one for one in head], 0.95)
    assert scaled.mean == pytest.approx(paired(base, head, 0.95).mean, abs=1e-9)


@UNTIMED
@given(TIMES, st.floats(0.5, 0.98))
def test_more_confidence_and_a_smaller_margin_ask_for_more(times: list[float], confidence: float) -> None:
    base, head = halves(times)
    narrow, wide = paired(base, head, confidence, 0.5), paired(base, head, confidence + 0.01)
    assert wide.low <= narrow.low <= narrow.high <= wide.high
    assert 0 <= wide.p <= narrow.p <= 1


@UNTIMED
@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=9))
def test_holm_keeps_the_order_and_lowers_no_p_value(p: dict[str, float]) -> None:
    corrected = holm(p)
    assert list(corrected) == list(p)
    for name in p:
        assert p[name] <= corrected[name] <= 1
        assert all(corrected[name] <= corrected[other] for other in p if p[name] < p[other])
    if p:
        least = min(p, key=lambda name: p[name])
        assert corrected[least] == min(1.0, len(p) * p[least])


@UNTIMED
@given(st.dictionaries(st.text(max_size=3), st.floats(0, 1), min_size=1, max_size=9), st.floats(0, 1))
def test_holm_with_one_more_benchmark_lowers_no_p_value(p: dict[str, float], one_more: float) -> None:
    corrected, before = holm({**p, "one more": one_more}), holm(p)
    assert all(before[name] <= corrected[name] for name in p)


def synthetic(seed: int, slowdown: float, spread: float, pairs: int) -> tuple[list[float], list[float]]:
    """Times of pairs on a host that drifts by a factor of two; the ratio within a pair spreads by a share."""
    generator = np.random.default_rng(seed)
    drift = 1e-3 * np.exp(0.7 * generator.standard_normal(pairs))
    base, head = (np.exp(spread / math.sqrt(2) * generator.standard_normal(pairs)) for _ in range(2))
    return list(drift * base), list(drift * head * (1 + slowdown))


def decided(seed: int, slowdown: float, spread: float, pairs: int = 10, cases: int = 9) -> list[Decision]:
    """Nine benchmarks, of which the first is slower."""
    base, head = {}, {}
    for case in range(cases):
        one, other = synthetic(100 * seed + case, slowdown if case == 0 else 0.0, spread, pairs)
        base[str(case)], head[str(case)] = one, other
    margins = dict.fromkeys(base, LIMITS.margin)
    return [one.decision for one in judge(base, head, margins, LIMITS.confidence, looks=3).values()]


@pytest.mark.parametrize("spread", [0.005, 0.03, 0.2])
def test_thirty_series_of_a_base_beside_itself_raise_no_alarm(spread: float) -> None:
    for seed in range(30):
        assert Decision.SLOWER not in decided(seed, 0.0, spread)


def test_a_slowdown_of_a_tenth_is_found_and_nothing_else() -> None:
    for seed in range(30):
        first, *rest = decided(seed, 0.10, 0.01)
        assert first is Decision.SLOWER
        assert set(rest) == {Decision.NOT_SLOWER}


def test_noise_leaves_it_undecided_whatever_the_head_does() -> None:
    for seed in range(30):
        found = decided(seed, 0.0, 0.3)
        assert Decision.UNDECIDED in found
        assert Decision.SLOWER not in found


def test_equal_times_are_not_slower_and_twice_the_time_is() -> None:
    """Without any spread, too: the interval is a point, and the test has only ties."""
    base = {"a": [1.0] * 10, "b": [1.0] * 10}
    found = judge(base, {"a": [1.0] * 10, "b": [2.0] * 10}, {"a": 0.0, "b": 0.03}, 0.95)
    assert found["a"].decision is Decision.NOT_SLOWER
    assert found["b"].decision is Decision.SLOWER
    assert found["b"].paired.ratio == pytest.approx((2, 2, 2))


def test_ranks_and_mean_that_disagree_decide_nothing() -> None:
    """Nine pairs above the margin, one process of the base that took a hundred times as long."""
    one = paired([1.0] * 11 + [100.0], [1.1] * 12, 0.95, 0.03)
    assert one.p < 0.05 < math.log(1.1)
    assert decide(one, one.p, 0.05) is Decision.UNDECIDED


@pytest.mark.parametrize(
    ("base", "head", "confidence", "margin"),
    [
        ([1.0] * 5, [1.0] * 5, 0.95, 0.0),
        ([1.0] * 8, [1.0] * 7, 0.95, 0.0),
        ([1.0] * 7 + [0.0], [1.0] * 8, 0.95, 0.0),
        ([1.0] * 7 + [math.nan], [1.0] * 8, 0.95, 0.0),
        ([1.0] * 8, [1.0] * 8, 1.0, 0.0),
        ([1.0] * 8, [1.0] * 8, 0.95, -0.1),
    ],
)
def test_what_is_no_series_of_pairs_is_refused(
    base: list[float], head: list[float], confidence: float, margin: float
) -> None:
    with pytest.raises(ValueError, match=r"expected|not a time"):
        paired(base, head, confidence, margin)


def test_a_host_is_void_where_a_base_is_not_equal_to_itself() -> None:
    quiet = paired(*synthetic(1, 0.0, 0.01, 10), 0.95)
    assert void(quiet, 0.1) == ""
    assert 0 < noise(quiet) < 0.03
    assert "wider" in void(paired(*synthetic(1, 0.0, 0.3, 10), 0.95), 0.1)
    assert "from 1" in void(paired(*synthetic(1, 0.3, 0.01, 10), 0.95), 0.1)
    assert "from 1" in void(paired(*synthetic(1, -0.3, 0.01, 10), 0.95), 0.1)


def test_the_least_number_of_pairs_is_the_laws() -> None:
    assert LIMITS.least_pairs >= statistics.LEAST_PAIRS
    assert os.sched_getaffinity(0) >= {quiet_cpu()}
