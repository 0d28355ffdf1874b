"""bench_smoke and bench: nothing to judge, and one verdict of several parts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from gates.evidence.verdict import Finding, Verdict
from gates.performance.answer import Part, outcome
from gates.performance.cases import FULL, SMOKE
from gates.performance.sampling import JUDGE
from gates.trees.checkout import engine_hash
from tests.gates.performance_fakes import ROOT, context

from gates import bench, bench_smoke


def part(open_is: Verdict, *findings: Finding, still: str = "", figure: str = "") -> Part:
    return Part(open_is, list(findings), [still] if still else [], figure)


def test_findings_fail_and_what_is_open_is_no_pass() -> None:
    finding, missing, noisy = Finding("worse"), "valgrind is not installed", "a: undecided"
    counted, timed = Verdict.UNPROVEN, Verdict.INCONCLUSIVE
    for parts, verdict in (
        ((part(counted), part(timed)), Verdict.PASS),
        ((part(counted), part(timed, still=noisy)), Verdict.INCONCLUSIVE),
        ((part(counted, still=missing), part(timed)), Verdict.UNPROVEN),
        ((part(counted, still=missing), part(timed, still=noisy)), Verdict.UNPROVEN),
        ((part(counted, still=missing), part(timed, finding)), Verdict.FAIL),
        ((part(counted, finding), part(timed, still=noisy)), Verdict.FAIL),
    ):
        assert outcome(dict(zip(("counters", "time"), parts, strict=True))).verdict is verdict
    both = {"counters": part(counted, figure="9 cases"), "time": part(timed, still=noisy)}
    assert outcome(both).figure == "a: undecided; 9 cases"


def test_a_part_names_its_threads_wherever_it_names_a_case() -> None:
    one = Part(Verdict.INCONCLUSIVE, [Finding("a: slow")], ["b: undecided"], "worst 1.2", {"a base": [1.0]})
    named = bench.named(one, "2 threads")
    assert [finding.message for finding in named.findings] == ["2 threads: a: slow"]
    assert (named.open, named.figure) == (["2 threads: b: undecided"], "2 threads: worst 1.2")
    assert named.samples == {"2 threads: a base": [1.0]}


def test_an_engine_that_is_the_same_in_every_byte_is_not_judged(tmp_path: Path) -> None:
    for gate in (bench_smoke, bench):
        assert gate.check(context(tmp_path)).verdict is Verdict.NOT_APPLICABLE


@pytest.mark.parametrize("case", [*SMOKE, *FULL])
def test_every_case_runs_on_this_engine_with_other_results_for_other_inputs(case: str) -> None:
    """The real worker, a block of each case on one thread."""
    request = json.dumps({"case": case, "seed": 5})
    done = subprocess.run(
        [sys.executable, "-m", "gates.performance.worker", "time", str(ROOT / "engine")],
        input=request + "\n" + "go\n" * 5,
        cwd=JUDGE,
        env={"PYTHONPATH": str(JUDGE), "PATH": "/usr/bin:/bin", "VOLTA_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    *_, last = (json.loads(line) for line in done.stdout.splitlines())
    assert len(last["outputs"]) == len(set(last["outputs"])) > 5


@pytest.mark.parametrize(
    "path", ["engine/volta/new.py", "engine/volta/train/bits.json", "engine/csrc/pool.c", "setup.py"]
)
def test_any_byte_that_an_engine_runs_is_in_its_hash(tmp_path: Path, path: str) -> None:
    file = tmp_path / path
    for place in ("engine/csrc", "engine/volta/train"):
        (tmp_path / place).mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml"):
        (tmp_path / name).write_text("")
    before = engine_hash(tmp_path)
    (tmp_path / "engine/volta/_native.abi3.so").write_bytes(b"compiled")
    assert engine_hash(tmp_path) == before
    file.write_text("changed")
    assert engine_hash(tmp_path) != before
