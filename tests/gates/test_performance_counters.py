"""Counters are compared as they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gates.evidence.verdict import Finding, Verdict
from gates.law.files import read
from gates.law.limits import PATH, Counters, Limits
from gates.performance import counters
from gates.performance.answer import Part
from gates.performance.cases import SMOKE
from gates.performance.sampling import BASE, HEAD
from gates.performance.worker import Callgrind
from tests.gates.performance_fakes import ROOT, context

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
    assert counters.dump(file) == ("layer norm", {"instructions": 1234, "allocations": 6})


def compared(before: dict[str, Any], after: dict[str, Any]) -> Part:
    part = Part(Verdict.UNPROVEN)
    limits = Counters(instructions=0.02, planned_bytes=0.0, steps=0.0, allocations=0.0)
    counters.compare({"a": before}, {"a": after}, limits, part)
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
    monkeypatch.setattr(counters.shutil, "which", lambda name: None)
    part = counters.counters(context(tmp_path), read(ROOT, PATH, Limits).counters)
    assert part.findings == []
    assert part.open == ["valgrind is not installed: instructions and allocations were not counted"]
    assert list(part.notes[HEAD]) == list(SMOKE)
    assert all(row["planned_bytes"] > 0 and row["steps"] > 0 for row in part.notes[HEAD].values())


@pytest.mark.slow
def test_counts_of_one_engine_repeat_exactly(tmp_path: Path) -> None:
    part = counters.counters(context(tmp_path), read(ROOT, PATH, Limits).counters)
    assert part.findings == []
    assert part.notes[BASE] == part.notes[HEAD]
    if not part.open:
        assert all(row["instructions"] > 1000 for row in part.notes[HEAD].values())


def test_marks_run_what_they_mark_and_nothing_else_outside_of_valgrind() -> None:
    marks, calls = Callgrind(), []
    marks.count(lambda: calls.append(1))
    marks.dump("anything")
    assert calls == [1]
