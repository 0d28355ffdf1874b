"""Learning rates and early stopping: exact, reproducible, and refused where they make no sense."""

from __future__ import annotations

import itertools
import json
import math
from typing import Any

import numpy as np
import pytest

from volta.errors import CheckpointError, UsageError
from volta.train.early_stop import EarlyStop
from volta.train.schedule import KINDS, Schedule, cosine_of_pi, learning_rate


def _rates(schedule: Schedule) -> list[float]:
    return [learning_rate(schedule, step) for step in range(schedule.steps)]


def test_warmup_rises_linearly_and_reaches_the_peak_at_its_last_update() -> None:
    for kind in KINDS:
        rates = _rates(Schedule(kind, 0.5, 20, warmup=4, final=0.1))
        assert rates[:5] == [0.125, 0.25, 0.375, 0.5, 0.5]


def test_the_last_update_has_the_final_rate_and_later_ones_keep_it() -> None:
    for kind in ("linear", "cosine"):
        schedule = Schedule(kind, 1.0, 100, warmup=10, final=0.25)
        for step in (99, 100, 10_000):
            assert learning_rate(schedule, step) == 0.25
    assert learning_rate(Schedule("constant", 1.0, 100, final=0.25), 1000) == 1.0


def test_rates_after_warmup_never_rise() -> None:
    for kind in KINDS:
        rates = _rates(Schedule(kind, 3e-4, 1000, warmup=50, final=0.1))[50:]
        assert all(a >= b for a, b in itertools.pairwise(rates))


def test_a_final_fraction_of_zero_ends_at_exactly_zero() -> None:
    for kind in ("linear", "cosine"):
        assert learning_rate(Schedule(kind, 0.3, 77, warmup=5), 76) == 0.0


def test_linear_is_halfway_in_the_middle_and_cosine_too() -> None:
    for kind in ("linear", "cosine"):
        assert learning_rate(Schedule(kind, 1.0, 101), 50) == 0.5


def test_rates_are_binary32_values_close_to_the_formula() -> None:
    schedule = Schedule("cosine", 3e-4, 977, warmup=31, final=0.1)
    for step, rate in enumerate(_rates(schedule)):
        assert rate == float(np.float32(rate))
        t = (step - 31) / (976 - 31)
        exact = 3e-4 * ((step + 1) / 31 if step < 31 else 0.1 + 0.9 * (1 + math.cos(math.pi * t)) / 2)
        assert abs(rate - exact) <= 6.1e-8 * exact


def test_the_cosine_is_within_4e_16_of_the_library_s() -> None:
    points = [i / 10_000 for i in range(10_001)]
    assert max(abs(cosine_of_pi(t) - math.cos(math.pi * t)) for t in points) < 4e-16
    assert cosine_of_pi(0.0) == 1.0
    assert abs(cosine_of_pi(0.5)) < 4e-16
    assert cosine_of_pi(1.0) == -1.0


def test_pinned_rates_of_a_cosine() -> None:
    """Pinned bits: a published run's rates may never change."""
    rates = np.array(
        [learning_rate(Schedule("cosine", 1e-3, 400, 20, 0.1), s) for s in (0, 19, 100, 211, 398)]
    )
    assert rates.astype(np.float32).view(np.uint32).tolist() == [
        944879383,
        981668463,
        980231351,
        974042726,
        953270116,
    ]


@pytest.mark.parametrize("steps", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_the_shortest_schedules_are_defined(kind: Any, steps: int) -> None:
    for warmup in range(steps + 1):
        assert all(0.0 <= rate <= 1.0 for rate in _rates(Schedule(kind, 1.0, steps, warmup)))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"kind": "step"}, "schedule is 'step': expected one of constant, linear, cosine"),
        ({"peak": 0.0}, "learning rate is 0.0: expected a finite number above 0"),
        ({"peak": -1.0}, "learning rate is -1.0"),
        ({"peak": math.nan}, "learning rate is nan"),
        ({"peak": math.inf}, "learning rate is inf"),
        ({"steps": 0}, "steps is 0: expected at least 1"),
        ({"warmup": -1}, "warmup is -1"),
        ({"warmup": 11}, r"warmup is 11: expected 0 \.\. 10 \(steps\)"),
        ({"final": 1.5}, r"final fraction is 1.5: expected 0 \.\. 1"),
        ({"final": math.nan}, "final fraction is nan"),
    ],
)
def test_settings_that_make_no_schedule_are_refused(changes: dict[str, Any], match: str) -> None:
    settings: dict[str, Any] = {"kind": "cosine", "peak": 1e-3, "steps": 10, "warmup": 2, "final": 0.1}
    with pytest.raises(UsageError, match=match):
        Schedule(**(settings | changes))


def test_a_negative_step_is_refused() -> None:
    with pytest.raises(UsageError, match="step is -1: expected at least 0"):
        learning_rate(Schedule("constant", 1.0, 1), -1)


# --- early stopping ----------------------------------------------------------------------------------


def _after(stop: EarlyStop, *losses: float) -> EarlyStop:
    for step, loss in enumerate(losses):
        stop = stop.after(step, loss)
    return stop


def test_it_stops_after_patience_evaluations_without_a_better_loss() -> None:
    assert not _after(EarlyStop(2), 3.0, 2.0, 2.0).stop
    stopped = _after(EarlyStop(2), 3.0, 2.0, 2.0, 2.5)
    assert stopped.stop
    assert (stopped.best, stopped.best_step) == (2.0, 1)


def test_a_better_loss_starts_the_waiting_again() -> None:
    assert not _after(EarlyStop(2), 3.0, 3.5, 2.0, 2.5).stop


def test_a_gain_within_the_margin_is_not_better() -> None:
    assert _after(EarlyStop(1, margin=0.1), 1.0, 0.95).stop
    assert not _after(EarlyStop(1, margin=0.1), 1.0, 0.85).stop


def test_no_patience_never_stops() -> None:
    assert not _after(EarlyStop(0), *range(100)).stop


def test_nan_and_infinity_are_never_better() -> None:
    assert _after(EarlyStop(2), math.nan, math.inf).stop
    assert _after(EarlyStop(2), math.nan, math.inf).best is None
    assert _after(EarlyStop(1), 1.0, math.nan).best == 1.0


def test_the_state_survives_json() -> None:
    before = _after(EarlyStop(3, 0.01), 3.0, 2.0, 2.0)
    assert EarlyStop.from_json(json.loads(json.dumps(before.to_json()))) == before


@pytest.mark.parametrize("value", [{}, {"patience": -1}, {"patience": 1, "unknown": 2}])
def test_a_damaged_state_is_an_error(value: dict[str, Any]) -> None:
    with pytest.raises(CheckpointError, match="early-stop state is"):
        EarlyStop.from_json(value)


@pytest.mark.parametrize(
    "settings", [{"patience": -1}, {"patience": 1, "margin": -0.1}, {"patience": 1, "margin": math.nan}]
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"\[early stop\] (patience|margin) is"):
        EarlyStop(**settings)
