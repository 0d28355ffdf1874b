"""Samples that lie, or whose results are stale or wrong, are refused; pairs alternate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gates.performance.cases import leaves
from gates.performance.sampling import (
    BASE,
    HEAD,
    STRIKES,
    Answer,
    FailedError,
    RefusedError,
    Sample,
    Stopwatch,
    ask,
    collect,
    looks,
    quiet_cpu,
)
from gates.performance.worker import CASES
from tests.gates.performance_fakes import FakeMeasure, context, nobody, sample

# --- one process -------------------------------------------------------------------------------------------


class FakeChild:
    """Answers from a list; a function among them is asked when its turn comes. `now`: nanoseconds."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.said, self.now = list(answers), [], 0

    def say(self, line: str) -> None:
        self.said.append(line)

    def hear(self) -> str:
        if not self.answers:
            return ""
        answer = self.answers.pop(0)
        if isinstance(answer, dict):
            self.now += answer.get("wall", 0)
        return answer if isinstance(answer, str) else json.dumps(answer) + "\n"

    def ask(self) -> Sample:
        return ask(self, "softmax", 7, lambda: self.now)


def block(*took: int, whole: int, wall: int) -> dict[str, Any]:
    return {"took": list(took), "whole": whole, "wall": wall}


OUTPUTS = {"outputs": ["a", "b", "c", "d", "e", "f"]}


def test_a_sample_is_the_median_of_the_runs_and_of_the_blocks_by_our_clock() -> None:
    blocks = [
        block(10, 12, whole=30, wall=32),
        block(10, 90, whole=120, wall=130),
        block(11, 10, whole=25, wall=26),
    ]
    child = FakeChild({"ready": 3}, *blocks, OUTPUTS)
    sample = child.ask()
    assert sample.seconds == pytest.approx(10.5e-9)
    assert sample.wall == pytest.approx(16e-9)
    assert child.said == [json.dumps({"case": "softmax", "seed": 7}), "go", "go", "go"]


@pytest.mark.parametrize(
    "lie",
    [
        block(10, 10, whole=40, wall=30),  # its clock runs faster than ours
        block(10, 10, whole=22, wall=90),  # its clock runs slower
        block(30, 30, whole=40, wall=45),  # the runs took longer than the time they ran in
        block(1, 1, whole=85, wall=90),  # nearly all that went by went by between the runs
        block(0, 10, whole=40, wall=45),
        block(-5, 10, whole=40, wall=45),
        {"took": ["10", "10"], "whole": 40, "wall": 45},
        {"took": [], "whole": 40, "wall": 45},
        {"took": [10, 10], "whole": 0, "wall": 45},
        {"took": [10, 10], "whole": 30.5, "wall": 45},
    ],
)
def test_a_worker_that_lies_about_time_is_refused(lie: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match=r"patched timer|whole is"):
        FakeChild({"ready": 1}, lie, OUTPUTS).ask()


def test_a_worker_that_says_anything_else_is_refused() -> None:
    honest = block(10, 10, whole=22, wall=24)
    for answers, why in (
        ([], "ended"),
        (["nonsense\n"], "nonsense"),
        (["[1]\n"], r"\[1\]"),
        ([{"ready": 0}], "ready is"),
        ([{"ready": 1}], "ended"),
        ([{"ready": 1}, honest, {"outputs": ["one"]}], "every run"),
        ([{"ready": 1}, honest, {}], "every run"),
    ):
        with pytest.raises(RefusedError, match=why):
            FakeChild(*answers).ask()
    with pytest.raises(FailedError, match="no such function"):
        FakeChild({"failed": "no such function"}).ask()


# --- many processes ----------------------------------------------------------------------------------------


def test_pairs_alternate_and_share_inputs_and_order() -> None:
    measure = FakeMeasure(lambda side, case, number: sample(1.0))
    collect(measure, (BASE, HEAD), ["a", "b", "c"], 5, (6,), nobody)
    assert [side for side, _, _ in measure.asked] == [BASE, HEAD, HEAD, BASE] * 3
    pairs = [measure.asked[i : i + 2] for i in range(0, 12, 2)]
    assert all(first[1:] == second[1:] for first, second in pairs)
    assert len({seed for _, _, seed in measure.asked}) == 6
    assert len({order for _, order, _ in measure.asked}) > 1


def test_only_what_is_unsettled_gets_more_pairs() -> None:
    measure = FakeMeasure(lambda side, case, number: sample(1.0))
    series = collect(measure, (BASE, HEAD), ["a", "b"], 5, (6, 9, 12), lambda series: ["b"])
    assert (len(series.first["a"]), len(series.first["b"])) == (6, 12)


def test_without_time_the_series_is_what_it_is() -> None:
    measure = FakeMeasure(lambda side, case, number: sample(1.0))
    series = collect(
        measure, (BASE, HEAD), ["a"], 5, (6, 9), lambda series: ["a"], lambda: len(measure.asked) < 8
    )
    assert len(series.first["a"]) == 4


@pytest.mark.parametrize(
    ("least", "most", "expected"), [(10, 30, (10, 20, 30)), (6, 7, (6, 7)), (6, 6, (6,)), (8, 6, (7, 8))]
)
def test_a_series_is_looked_at_three_times(least: int, most: int, expected: tuple[int, ...]) -> None:
    assert looks(least, most) == expected


def test_a_cached_result_is_noticed() -> None:
    def times(side: str, case: str, number: int) -> Answer:
        return sample(1.0, 0.0, "x", "y", "y") if side == HEAD else sample(1.0, 0.0, "x", "y", "z")

    series = collect(FakeMeasure(times), (BASE, HEAD), ["a"], 5, (6,), nobody)
    assert series.problems == {"a": (HEAD, "1 of 3 runs gave what a run on other inputs had given")}
    assert series.times() == ({}, {})


def test_other_bits_than_the_base_are_noticed() -> None:
    def times(side: str, case: str, number: int) -> Answer:
        return sample(1.0, 0.0, "x", "z" if (side, case) == (HEAD, "a") else "y")

    series = collect(FakeMeasure(times), (BASE, HEAD), ["a", "b"], 5, (6,), nobody)
    assert series.problems == {"a": (HEAD, "1 of 2 runs gave other bits than the base")}
    assert len(series.times()[0]["b"]) == 6


def test_one_refused_sample_is_taken_again_but_not_many() -> None:
    def hiccup(side: str, case: str, number: int) -> Answer:
        return RefusedError("late") if number == 2 and side == HEAD else sample(1.0)

    series = collect(FakeMeasure(hiccup), (BASE, HEAD), ["a"], 5, (6,), nobody)
    assert len(series.second["a"]) == 6
    assert not series.problems
    liar = FakeMeasure(lambda side, case, n: RefusedError("patched timer") if side == HEAD else sample(1.0))
    assert collect(liar, (BASE, HEAD), ["a"], 5, (6,), nobody).problems == {"a": (HEAD, "patched timer")}
    assert len(liar.asked) == 2 * STRIKES


def test_a_case_that_cannot_run_is_not_asked_again() -> None:
    broken = FakeMeasure(lambda side, case, n: FailedError("gone") if side == HEAD else sample(1.0))
    assert collect(broken, (BASE, HEAD), ["a"], 5, (6,), nobody).problems == {"a": (HEAD, "gone")}
    assert len(broken.asked) == 2


# --- the worker --------------------------------------------------------------------------------------------


def test_a_real_process_gives_a_sample_of_each_case(tmp_path: Path) -> None:
    """Equal inputs give equal results in two processes, other inputs others; no time is looked at."""
    measure = Stopwatch(context(tmp_path), (quiet_cpu(),))
    cases = ["softmax", "decode step"]

    def believed_at_last(seed: int) -> dict[str, Sample]:
        """A busy host is refused, as it should be, and asked again."""
        found: dict[str, Sample] = {}
        for _ in range(50):
            answers = measure(BASE, [case for case in cases if case not in found], seed)
            found |= {case: one for case, one in answers.items() if isinstance(one, Sample)}
            if len(found) == len(cases):
                return found
        pytest.fail(f"no sample was believed: {answers}")

    first, second, third = (believed_at_last(seed) for seed in (1, 1, 2))
    for case, one in first.items():
        again, other = second[case], third[case]
        assert one.seconds > 0
        assert one.outputs == again.outputs
        assert not set(one.outputs) & set(other.outputs)
        assert len(set(one.outputs)) == len(one.outputs) > CASES[case].runs


ENGINE = """
import numpy as np
float32 = np.float32
class Tensor:
    def __init__(self, array): self.array = array
def asarray(values, dtype=None): return Tensor(np.array(values, np.float32))
def softmax(x): return x
class compile:
    def __init__(self, function): pass
    def bind(self, x):
        self.arguments, self.results, self.executable = (x.array,), np.zeros_like(x.array), None
        return self
    def run(self):
        for _ in range(20):
            np.exp(self.arguments[0], out=self.results)
"""
CACHING = """
    def run(self):
        if not self.results.any():
            np.exp(self.arguments[0], out=self.results)
        sum(range(20000))
"""
STANDARD_CLOCK = """
import time
time.perf_counter_ns = time.perf_counter = time.monotonic = lambda: 0
"""
OWN_CLOCK = """
import sys
from time import perf_counter_ns
sys.modules["__main__"].Bench.timed.__defaults__ = (lambda: perf_counter_ns() {},)
"""
LAZY = """
class Lazy(np.ndarray):
    pass
    def bind(self, x): pass
compile.bind = lambda self, x: (
    setattr(self, "arguments", (x.array,)), setattr(self, "results", np.zeros(2).view(Lazy)), self)[-1]
"""


def cheat(where: Path, text: str) -> Answer:
    """What a process says of an engine that is this text."""
    package = where / "engine" / "volta"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(ENGINE + text)
    return Stopwatch(context(where, head=where), (quiet_cpu(),))(HEAD, ["softmax"], 1)["softmax"]


def test_an_engine_that_replaces_the_standard_clocks_is_timed_all_the_same(tmp_path: Path) -> None:
    found = cheat(tmp_path, STANDARD_CLOCK)
    assert isinstance(found, Sample), found


@pytest.mark.parametrize("rate", ["* 2", "// 20"])
def test_an_engine_that_replaces_the_workers_clock_is_refused(tmp_path: Path, rate: str) -> None:
    found = cheat(tmp_path, OWN_CLOCK.format(rate))
    assert isinstance(found, RefusedError)
    assert str(found).startswith("patched timer")


def test_an_engine_that_keeps_its_first_result_is_noticed(tmp_path: Path) -> None:
    found = cheat(tmp_path, CACHING)
    assert isinstance(found, Sample), found
    assert len(set(found.outputs)) == 1


def test_an_engine_whose_results_are_no_plain_arrays_is_refused(tmp_path: Path) -> None:
    found = cheat(tmp_path, LAZY)
    assert isinstance(found, FailedError)
    assert "is Lazy: expected plain arrays" in str(found)


def test_an_engine_cannot_bring_its_own_judge(tmp_path: Path) -> None:
    """Modules beside `volta` that have the names of what the worker imports are not imported."""
    for name in ("json.py", "numpy.py", "gates.py"):
        (tmp_path / "engine").mkdir(exist_ok=True)
        (tmp_path / "engine" / name).write_text("raise SystemExit('imported')")
    found = cheat(tmp_path, "")
    assert isinstance(found, Sample), found


def test_an_engine_that_ends_its_process_is_refused(tmp_path: Path) -> None:
    assert "its process ended" in str(cheat(tmp_path, "\nimport os\nos._exit(0)\n"))


def test_leaves_come_in_one_order_with_their_ways() -> None:
    one, other = np.zeros(1), np.zeros(2)
    assert [name for name, _ in leaves(({"b": one, "a": [other]}, one))] == ["0/a/0", "0/b", "1"]
