"""A gate that crashes, hangs or says nothing has a verdict of its own: FAIL with the reason."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gates.context import Context
from gates.evidence import page, record
from gates.evidence.record import Record
from gates.evidence.verdict import Finding, Outcome, Verdict
from gates.registry import FAST, Row
from gates.runner import run_gate
from gates.trees.checkout import checkout
from gates.trees.repository import Repository
from tests.gates.repositories import commit, put, repository

from gates import court

ROOT = Path(__file__).parents[2]
GATES = {
    "passes": "return Outcome(Verdict.PASS, 'all well', samples={'a': [1.0, 2.0]}, outputs={'x': '00'})",
    "fails": "return judged([Finding('wrong', 'a.txt', 3)], 'one thing')",
    "crashes": "raise RuntimeError('on purpose')",
    "exits": "import os; os._exit(9)",
    "dies": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "hangs": "import time; time.sleep(600)",
    "ignores": "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)",
    "leaves": "import subprocess; subprocess.Popen(['sleep', '600']); return Outcome(Verdict.PASS, '')",
    "refuses": "raise GateError('[x] it cannot be judged')",
}
HEAD = """from __future__ import annotations
from gates.context import Context
from gates.errors import GateError
from gates.evidence.verdict import Finding, Outcome, Verdict, judged


def check(context: Context) -> Outcome:
    """
SECONDS = 3


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the gates, with some that behave badly."""
    root = tmp_path_factory.mktemp("judge")
    shutil.copytree(ROOT / "gates", root / "gates", ignore=shutil.ignore_patterns("__pycache__"))
    rows = "".join(f"GATES['{name}'] = Row('{name}', '', FAST, {SECONDS})\n" for name in GATES)
    with (root / "gates/registry.py").open("a") as file:
        file.write(rows)
    put(root, {f"gates/{name}.py": HEAD + body + "\n" for name, body in GATES.items()})
    return root


def asked(name: str, judge: Path, tmp_path: Path) -> Record:
    root = repository(tmp_path / "it", {"a.txt": "a\n"})
    commit(root, {"a.txt": "b\n"})
    found = Repository(root)
    base, head = (checkout(found, found.tree(revision)) for revision in ("HEAD~1", "HEAD"))
    context = Context(found, base, head, 7, tmp_path / "evidence" / name, time.monotonic() + SECONDS)
    limit = SECONDS if name in ("hangs", "ignores") else 60
    return run_gate(Row(name, "", FAST, limit), context, judge, "here")


@pytest.mark.parametrize(
    ("name", "verdict", "figure"),
    [
        ("passes", Verdict.PASS, "all well"),
        ("fails", Verdict.FAIL, "1 finding; one thing"),
        ("crashes", Verdict.FAIL, "it crashed: RuntimeError: on purpose"),
        ("exits", Verdict.FAIL, "it crashed: exit code 9"),
        ("dies", Verdict.FAIL, "it crashed: exit code -11"),
        ("hangs", Verdict.FAIL, f"it hung: ended after its {SECONDS} s"),
        ("refuses", Verdict.FAIL, "[x] it cannot be judged"),
    ],
)
def test_every_way_to_end_has_its_verdict(
    name: str, verdict: Verdict, figure: str, judge: Path, tmp_path: Path
) -> None:
    found = asked(name, judge, tmp_path)
    assert (found.outcome.verdict, found.outcome.figure[: len(figure)]) == (verdict, figure)
    assert verdict is Verdict.PASS or found.outcome.findings
    written = tmp_path / "evidence" / name / "record.json"
    assert record.read(written) == found
    document = json.loads(written.read_text())
    assert document["head"]["tree"] == found.head.tree != found.base.tree
    assert document["seed"] == 7
    assert document["machine"]["fingerprint"]


def test_a_traceback_lands_in_the_log(judge: Path, tmp_path: Path) -> None:
    found = asked("crashes", judge, tmp_path)
    assert "RuntimeError: on purpose" in Path(found.log).read_text()


@pytest.mark.slow
def test_a_gate_that_will_not_end_is_killed(judge: Path, tmp_path: Path) -> None:
    assert asked("ignores", judge, tmp_path).outcome.figure.startswith("it hung")


def test_nothing_that_a_gate_started_outlives_it(judge: Path, tmp_path: Path) -> None:
    asked("leaves", judge, tmp_path)
    log = str(tmp_path)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes().split(b"\0")
            where = str((process / "cwd").readlink())
        except OSError:
            continue
        assert not (command[:2] == [b"sleep", b"600"] and where.startswith((str(judge), log)))


def test_the_base_judges_and_a_new_gate_is_said_to_be_the_heads(tmp_path: Path) -> None:
    root = repository(tmp_path / "it", {"gates/fmt.py": "", "a.txt": "a\n"})
    case = court.open_case(root, "HEAD", None, True, None, 1)
    assert case.judge(Row("fmt", "", FAST, 1)) == (case.base.path, f"base {case.base.tree.short}")
    where, said = case.judge(Row("lint", "", FAST, 1))
    assert where == court.HERE
    assert "has no such gate" in said
    own = court.open_case(root, "HEAD", None, False, None, 1)
    assert "no evidence" in own.judge(Row("fmt", "", FAST, 1))[1]


def test_only_pass_and_not_applicable_merge() -> None:
    assert [verdict.name for verdict in Verdict if verdict.merges] == ["PASS", "NOT_APPLICABLE"]


# --- the page --------------------------------------------------------------------------------------------


def outcome_record(outcome: Outcome, tmp_path: Path) -> Record:
    root = repository(tmp_path / "page", {"a.txt": "a\n"})
    tree = Repository(root).tree("HEAD")
    return Record("fmt", 1, "base", outcome, tree, tree, 1, [], [], 0, record.now(), 1.0)


def test_the_page_needs_nothing_else_and_trusts_nothing(tmp_path: Path) -> None:
    """A change's own words are escaped; no script, no address of elsewhere."""
    evil = "<script>alert(1)</script>"
    outcome = Outcome(
        Verdict.FAIL, evil, [Finding(evil, evil, 3)] * 600, samples={evil: [1.0, 2.0, 4.0], "b": [3.0]}
    )
    text = page.page([outcome_record(outcome, tmp_path)], "title", {"who": evil})
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text
    assert "and 100 more" in text
    assert text.count("<circle") == 4
    assert "&lt;script&gt;" in text


def test_a_strip_keeps_its_points_inside_whatever_the_values() -> None:
    for values in ({"a": [5.0, 5.0]}, {"a": [-1.0, 3.0], "b": [1e9]}, {"a": [0.0]}):
        plot = page.strips(values)
        for row in plot["rows"]:
            assert all(page.LEFT <= x <= page.WIDTH for x in row["points"])
    assert page.strips({}) == {}


# --- the command -----------------------------------------------------------------------------------------


def gates(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gates", *arguments]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_what_cannot_be_judged_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    root = repository(tmp_path / "it", {"a.txt": "a\n"})
    (tmp_path / "no").mkdir()
    for arguments, where, said in (
        (("fmt",), tmp_path / "no", "is not in a git repository"),
        (("fmt", "--base", "nowhere"), root, "expected a commit"),
        (("fmt", "--head", "nowhere"), root, "expected a commit"),
        (("selftest", "vibes"), root, "is no patch and no gate"),
    ):
        done = gates(*arguments, cwd=where)
        assert done.returncode == 2, done.stderr
        assert done.stderr.count("\n") == 1
        assert said in done.stderr
        assert done.stdout == ""


def test_an_unknown_gate_is_refused(tmp_path: Path) -> None:
    assert gates("vibes", cwd=tmp_path).returncode == 2


def test_the_tier_of_a_change_chooses_its_gates(tmp_path: Path) -> None:
    law = (ROOT / "governance/tiers.yaml").read_text()
    root = repository(tmp_path / "it", {"governance/tiers.yaml": law, "docs/a.md": "a\n"})
    commit(root, {"docs/a.md": "b\n"})
    texts = court.tier_gates(court.open_case(root, "HEAD~1", "HEAD", True, None, 1))
    assert texts == ("T4: Texts", ["fmt", "lint", "policy", "docs", "security"])
    commit(root, {"engine/csrc/x.c": "\n"})
    assert "parity" in court.tier_gates(court.open_case(root, "HEAD~1", "HEAD", True, None, 1))[1]
    assert court.tier_gates(court.open_case(root, "HEAD", "HEAD", True, None, 1)) == ("no change", [])
