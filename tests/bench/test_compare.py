"""A result beside a baseline: a slowdown is found, noise is not taken for one, and nothing is left out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.bench.results import drawn, measurement, report

from volta.bench.compare import MARGIN, Change, changes, foreign, missing
from volta.bench.machine import machine

TRIALS = 200


def verdicts(slowdown: float, through_peer: bool = True, rounds: int = 11, busier: float = 1.0) -> list[str]:
    """Of many baselines, each beside a new run whose machine is `busier` and whose Volta is slower."""
    found = []
    for trial in range(TRIALS):
        before = drawn(2 * trial, 1e-3, 2e-3, rounds)
        now = drawn(2 * trial + 1, 1e-3 * slowdown * busier, 2e-3 * busier, rounds)
        if not through_peer:
            del before["numpy"], now["numpy"]
        found += [one.verdict for one in changes(report(measurement(before)), report(measurement(now)))]
    return found


@pytest.mark.parametrize("through_peer", [True, False])
def test_equal_runs_are_not_flagged(through_peer: bool) -> None:
    assert verdicts(1.0, through_peer).count("slower") == 0


@pytest.mark.parametrize("slowdown", [1.5, 3.0])
@pytest.mark.parametrize("through_peer", [True, False])
def test_a_slowdown_is_found(slowdown: float, through_peer: bool) -> None:
    assert verdicts(slowdown, through_peer).count("slower") > 0.95 * TRIALS


def test_a_gain_is_called_one() -> None:
    assert verdicts(1 / 1.5).count("faster") > 0.95 * TRIALS


def test_a_busier_machine_is_no_slowdown_where_a_peer_felt_it_too() -> None:
    """Times alone would call every one of these runs slower."""
    assert verdicts(1.0, busier=2.0).count("slower") == 0
    assert verdicts(1.0, through_peer=False, busier=2.0).count("slower") > 0.95 * TRIALS


@pytest.mark.parametrize("through_peer", [True, False])
def test_few_samples_give_no_verdict(through_peer: bool) -> None:
    """Two intervals of one sample each are two points: they would always differ."""
    assert set(verdicts(3.0, through_peer, rounds=5)) == {"too few samples"}
    assert "slower" in verdicts(3.0, through_peer, rounds=6)


def test_the_margin_is_on_the_side_of_doubt() -> None:
    assert Change("x", 1, 1 + MARGIN, 9.0, "time", True).verdict == "no clear change"
    assert Change("x", 1, 1 + 2 * MARGIN, 9.0, "time", True).verdict == "slower"
    assert Change("x", 1, 0.1, 1 - MARGIN, "time", True).verdict == "no clear change"
    assert Change("x", 1, 0.1, 1 - 2 * MARGIN, "time", True).verdict == "faster"


def test_a_peer_of_another_version_is_no_common_measure() -> None:
    """PyTorch may have become slower itself: then times decide."""
    before, now = drawn(0, 1e-3, 2e-3), drawn(1, 2e-3, 4e-3)
    old = measurement(before, descriptions={"numpy": "NumPy 1"})
    (same,) = changes(report(old), report(measurement(now, descriptions={"numpy": "NumPy 1"})))
    (other,) = changes(report(old), report(measurement(now, descriptions={"numpy": "NumPy 2"})))
    assert (same.through, same.verdict) == ("numpy", "no clear change")
    assert (other.through, other.verdict) == ("time", "slower")


def test_volta_is_not_compared_through_itself() -> None:
    """Generation without the cache is Volta, too: what slows both must not cancel."""
    before, now = drawn(0, 1e-3, 9e-3), drawn(1, 2e-3, 18e-3)
    old, new = (measurement({"volta": one["volta"], "recomputed": one["numpy"]}) for one in (before, now))
    (change,) = changes(report(old), report(new))
    assert (change.through, change.verdict) == ("time", "slower")


def test_left_out_cases_are_named() -> None:
    one = drawn(0, 1e-3, 2e-3)
    base = report(measurement(one), measurement(one, threads=2), measurement(one, name="f32 9x9x9"))
    new = report(measurement(one), measurement(one, name="f32 10x10x10"))
    assert missing(base, new) == ["f32 8x8x8, 2 threads", "f32 9x9x9, 1 thread"]
    assert len(list(changes(base, new))) == 1
    assert missing(new, new) == []


def test_other_parameters_under_one_name_are_another_case() -> None:
    one = drawn(0, 1e-3, 2e-3)
    base = report(measurement(one, name="one token", parameters={"prompt": 64}))
    new = report(measurement(one, name="one token", parameters={"prompt": 8}))
    assert list(changes(base, new)) == []
    assert missing(base, new) == ["one token, 1 thread"]


def test_another_machine_is_said() -> None:
    base = report(measurement(drawn(0, 1e-3, 2e-3)))
    assert foreign(base, machine()) is None
    other = replace(base, machine={**base.machine, "id": "0123456789abcdef", "cpu": "a faster one"})
    said = foreign(other, machine()) or ""
    assert "0123456789abcdef" in said
    assert "a faster one" in said
    assert machine()["id"] in said
