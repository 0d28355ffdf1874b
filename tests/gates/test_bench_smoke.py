"""Counters are compared as they are, times by pairs, and what is undecided is no verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gates.bench_smoke import Part
from gates.evidence.verdict import Finding, Verdict
from gates.law.files import read
from gates.law.limits import PATH, Counters, Limits, Timing
from gates.timing.sampling import (
    BASE,
    HEAD,
    Answer,
    FailedError,
)
from gates.timing.worker import CASES, Callgrind
from tests.gates.timing_fakes import LIMITS, ROOT, FakeMeasure, Times, context, sample, spread

from gates import bench_smoke


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
