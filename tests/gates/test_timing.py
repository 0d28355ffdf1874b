"""The paired statistics raise no false alarm and find what is there; samples that lie, or whose results are
stale or wrong, are refused; counters are compared as they are."""

from __future__ import annotations

import json
import math
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gates.bench_smoke import Part
from gates.context import Context
from gates.evidence.verdict import Finding, Verdict
from gates.law.files import read
from gates.law.limits import PATH, Counters, Limits, Timing
from gates.timing import statistics
from gates.timing.sampling import (
    BASE,
    HEAD,
    STRIKES,
    Answer,
    FailedError,
    RefusedError,
    Sample,
    Series,
    Stopwatch,
    ask,
    collect,
    looks,
    quiet_cpu,
)
from gates.timing.statistics import Decision, decide, holm, judge, noise, paired, void
from gates.timing.worker import CASES, Callgrind, leaves
from gates.trees.checkout import Checkout
from gates.trees.repository import Repository, Tree
from hypothesis import given, settings
from hypothesis import strategies as st

from gates import bench_smoke

ROOT = Path(__file__).resolve().parents[2]
LIMITS = read(ROOT, PATH, Limits).timing
UNTIMED = settings(deadline=None)  # what a test takes is this machine's business
TIMES = st.lists(st.floats(1e-6, 1e3), min_size=12, max_size=30)


def halves(times: list[float]) -> tuple[list[float], list[float]]:
    half = len(times) // 2
    return times[:half], times[half : 2 * half]


# --- statistics --------------------------------------------------------------------------------------------


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

Times = Callable[[str, str, int], Answer]  # of a side, a case, and how often the side was asked before


class FakeMeasure:
    """A Measure whose times come from a function; keeps what it was asked."""

    def __init__(self, times: Times) -> None:
        self.times, self.asked = times, []

    def __call__(self, side: str, cases: Sequence[str], seed: int) -> dict[str, Answer]:
        self.asked.append((side, tuple(cases), seed))
        number = sum(one[0] == side for one in self.asked) - 1
        answers = {case: self.times(side, case, number) for case in cases}
        # of equal inputs, equal results
        outputs = {case: (f"{case} {seed}", f"{case} {seed} again") for case in cases}
        return {
            case: replace(one, outputs=outputs[case]) if isinstance(one, Sample) and not one.outputs else one
            for case, one in answers.items()
        }


def sample(seconds: float, wall: float = 0.0, *outputs: str) -> Sample:
    return Sample(seconds, wall or 2 * seconds, outputs)


def nobody(series: Series) -> list[str]:
    return []


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


# --- the gate ----------------------------------------------------------------------------------------------


def context(where: Path, base: Path = ROOT, head: Path = ROOT, alone: bool = False) -> Context:
    tree = Tree("", "", "")
    return Context(
        Repository(where),
        Checkout(tree, base),
        Checkout(tree, head),
        seed=3,
        evidence=where,
        deadline=time.monotonic() + 1000,
        alone=alone,
    )


def spread(side: str, case: str, number: int, share: float = 0.01) -> float:
    return math.exp(random.Random(f"{side} {case} {number}").gauss(0, share))


def timing(where: Path, times: Times, limits: Timing = LIMITS) -> Part:
    return bench_smoke.timing(context(where), limits, ["a", "b"], FakeMeasure(times))


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


def test_findings_fail_and_what_is_open_is_no_pass() -> None:
    finding, missing, noisy = Finding("worse"), "valgrind is not installed", "a: undecided"
    for counted, timed, verdict in (
        (Part(), Part(), Verdict.PASS),
        (Part(), Part(open=[noisy]), Verdict.INCONCLUSIVE),
        (Part(open=[missing]), Part(), Verdict.UNPROVEN),
        (Part(open=[missing]), Part(open=[noisy]), Verdict.UNPROVEN),
        (Part(open=[missing]), Part(findings=[finding]), Verdict.FAIL),
        (Part(findings=[finding]), Part(open=[noisy]), Verdict.FAIL),
    ):
        assert bench_smoke.outcome(counted, timed).verdict is verdict
    assert bench_smoke.outcome(Part(figure="9 cases"), Part(open=[noisy])).figure == "a: undecided; 9 cases"


def test_an_engine_that_is_the_same_in_every_byte_is_not_judged(tmp_path: Path) -> None:
    assert bench_smoke.check(context(tmp_path)).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize(
    "path", ["engine/volta/new.py", "engine/volta/train/bits.json", "engine/csrc/pool.c", "setup.py"]
)
def test_any_byte_that_an_engine_runs_is_in_its_hash(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    for place in ("engine/csrc", "engine/volta/train"):
        (tmp_path / place).mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml"):
        (tmp_path / name).write_text("")
    before = bench_smoke.engine_hash(tmp_path)
    (tmp_path / "engine/volta/_native.abi3.so").write_bytes(b"compiled")
    assert bench_smoke.engine_hash(tmp_path) == before
    file.write_text("changed")
    assert bench_smoke.engine_hash(tmp_path) != before


# --- counters ----------------------------------------------------------------------------------------------

DUMP = """\
# callgrind format
desc: Trigger: Client Request: layer norm
events: Ir

fn=(1) run
0 24
cfn=(2) malloc
calls=3 0
0 21
cfn=(3) PyObject_Malloc
calls=5 0
0 34
cfn=(4) malloc'2
calls=1 0
0 1
fn=(2)
0 2
cfn=(5) _int_malloc
calls=4 0
0 3
fn=(3)
0 5
cfn=(2)
calls=2 0
0 7
totals: 1234
"""


def test_a_dump_gives_its_name_instructions_and_calls_of_allocators(tmp_path: Path) -> None:
    file = tmp_path / "out.1"
    file.write_text(DUMP)
    assert bench_smoke.dump(file) == ("layer norm", {"instructions": 1234, "allocations": 6})


def compared(before: dict[str, Any], after: dict[str, Any]) -> Part:
    part = Part()
    limits = Counters(instructions=0.02, planned_bytes=0.0, steps=0.0, allocations=0.0)
    bench_smoke.compare({"a": before}, {"a": after}, limits, part)
    return part


COUNTS = {"instructions": 1000, "allocations": 14, "planned_bytes": 64, "steps": 3, "outputs": ["x"]}


def test_a_counter_that_grows_beyond_its_limit_is_named_with_both_figures() -> None:
    assert compared(COUNTS, {**COUNTS, "instructions": 1020, "steps": 2}).findings == []
    for counter, value in (("instructions", 1021), ("allocations", 15), ("planned_bytes", 65), ("steps", 4)):
        (finding,) = compared(COUNTS, {**COUNTS, counter: value}).findings
        assert finding.message.startswith(f"a: {value:,} {counter}, {COUNTS[counter]:,} in the base: +")
    (finding,) = compared({**COUNTS, "allocations": 0}, {**COUNTS, "allocations": 1}).findings
    assert "there were none" in finding.message


def test_counts_of_other_results_or_of_none_are_wrong() -> None:
    assert "other bits" in compared(COUNTS, {**COUNTS, "outputs": ["y"]}).findings[0].message
    assert compared(COUNTS, {"failed": "gone"}).findings == [Finding("a: gone")]
    part = compared({"failed": "not there yet"}, {"failed": "gone"})
    assert (part.findings, part.notes) == ([], {"not in the base": {"a": "not there yet"}})


def test_without_valgrind_plans_are_still_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The real worker on this engine: every case has a plan, and what was not counted is said."""
    monkeypatch.setattr(bench_smoke.shutil, "which", lambda name: None)
    part = bench_smoke.counters(context(tmp_path), read(ROOT, PATH, Limits).counters)
    assert part.findings == []
    assert part.open == ["valgrind is not installed: instructions and allocations were not counted"]
    assert list(part.notes[HEAD]) == list(CASES)
    assert all(row["planned_bytes"] > 0 and row["steps"] > 0 for row in part.notes[HEAD].values())


@pytest.mark.slow
def test_counts_of_one_engine_repeat_exactly(tmp_path: Path) -> None:
    part = bench_smoke.counters(context(tmp_path), read(ROOT, PATH, Limits).counters)
    assert part.findings == []
    assert part.notes[BASE] == part.notes[HEAD]
    if not part.open:
        assert all(row["instructions"] > 1000 for row in part.notes[HEAD].values())


def test_marks_run_what_they_mark_and_nothing_else_outside_of_valgrind() -> None:
    marks, calls = Callgrind(), []
    marks.count(lambda: calls.append(1))
    marks.dump("anything")
    assert calls == [1]


# --- the worker --------------------------------------------------------------------------------------------


def test_a_real_process_gives_a_sample_of_each_case(tmp_path: Path) -> None:
    """Equal inputs give equal results in two processes, other inputs others; no time is looked at."""
    measure = Stopwatch(context(tmp_path), quiet_cpu())
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
    return Stopwatch(context(where, head=where), quiet_cpu())(HEAD, ["softmax"], 1)["softmax"]


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


def test_the_least_number_of_pairs_is_the_laws() -> None:
    assert LIMITS.least_pairs >= statistics.LEAST_PAIRS
    assert os.sched_getaffinity(0) >= {quiet_cpu()}
