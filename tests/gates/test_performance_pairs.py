"""Times are judged by pairs, and what is undecided is no verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from gates.evidence.verdict import Finding
from gates.law.limits import Timing
from gates.performance import pairs
from gates.performance.answer import Part
from gates.performance.cases import SMOKE
from gates.performance.sampling import HEAD, Answer, FailedError, Stopwatch, quiet_cpu
from tests.gates.performance_fakes import LIMITS, FakeMeasure, Times, context, sample, spread


def timing(where: Path, times: Times, limits: Timing = LIMITS) -> Part:
    return pairs.timing(context(where), limits, ["a", "b"], FakeMeasure(times))


def test_an_equal_head_is_not_slower(tmp_path: Path) -> None:
    part = timing(tmp_path, lambda side, case, n: sample(spread(side, case, n)))
    assert not part.findings
    assert not part.open
    assert part.figure.startswith("worst case 1.0") or part.figure.startswith("worst case 0.9")
    assert {name: len(values) for name, values in part.samples.items()} == dict.fromkeys(
        ["a base", "a head", "b base", "b head"], LIMITS.least_pairs
    )


def test_a_slower_case_is_named_with_its_ratio(tmp_path: Path) -> None:
    part = timing(
        tmp_path,
        lambda side, case, n: sample(spread(side, case, n) * (1.1 if (side, case) == (HEAD, "b") else 1.0)),
    )
    (finding,) = part.findings
    assert finding.message.startswith("b: 1.")
    assert "allowed 1.030" in finding.message


def test_time_hidden_from_the_worker_is_found_by_the_judges_clock(tmp_path: Path) -> None:
    """Its own times are the base's, but what we see go by is more."""

    def times(side: str, case: str, number: int) -> Answer:
        seconds = spread(side, case, number)
        return sample(seconds, seconds * (2.4 if (side, case) == (HEAD, "a") else 2.0))

    (finding,) = timing(tmp_path, times).findings
    assert finding.message.startswith("a: ")
    assert finding.message.endswith("by the judge's: patched timer")


def test_a_host_too_noisy_to_judge_leaves_it_open(tmp_path: Path) -> None:
    part = timing(tmp_path, lambda side, case, n: sample(spread(side, case, n, 0.5)))
    assert not part.findings
    assert [one[:20] for one in part.open] == ["a: the base beside i", "b: the base beside i"]


def test_what_the_base_cannot_run_is_open_and_what_the_head_cannot_run_is_wrong(tmp_path: Path) -> None:
    def times(side: str, case: str, number: int) -> Answer:
        return FailedError("gone") if (side, case) == (HEAD, "a") else sample(1.0)

    assert timing(tmp_path, times).findings == [Finding("a: gone")]
    part = timing(tmp_path, lambda side, case, n: FailedError("gone") if case == "a" else sample(1.0))
    assert (part.findings, part.open) == ([], ["a: the base: gone"])


@pytest.mark.slow
def test_thirty_real_runs_of_an_unchanged_engine_raise_no_alarm(tmp_path: Path) -> None:
    """What is undecided on a busy host is no alarm; of thirty runs, some must decide."""
    decided = 0
    for seed in range(30):
        where = tmp_path / str(seed)
        where.mkdir()
        asked = context(where, seed=seed)
        part = pairs.timing(asked, LIMITS, tuple(SMOKE), Stopwatch(asked, (quiet_cpu(),)))
        assert part.findings == []
        decided += len(SMOKE) - len(part.open)
    assert decided > 0
