"""Of the lines that a change adds to the package, the tests run enough."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from gates.context import Context
from gates.evidence.verdict import Verdict
from gates.trees.checkout import LIBRARY, Checkout
from gates.trees.repository import Repository
from tests.gates.repositories import commit, repository

from gates import coverage

ROOT = Path(__file__).parents[2]
PYPROJECT = """[tool.coverage.run]
source_pkgs = ["volta"]
relative_files = true
"""
TEST = """from volta import one


def test_one() -> None:
    assert one(1) == 2
"""
ONE = "def one(x):\n    return x + 1\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package of one function with its test; its kernels count as compiled."""
    limits = (ROOT / "governance/limits.yaml").read_text()
    files = {
        "engine/volta/__init__.py": ONE,
        "pyproject.toml": PYPROJECT,
        "tests/test_one.py": TEST,
        "governance/limits.yaml": limits,
        LIBRARY: "",
    }
    return repository(tmp_path / "it", files)


def context(root: Path, where: Path, alone: bool = False) -> Context:
    found = Repository(root)
    base, head = (Checkout(found.tree(name), root) for name in ("HEAD~1", "HEAD"))
    where.mkdir(parents=True, exist_ok=True)
    return Context(found, base, head, 1, where, time.monotonic() + 300, alone)


def test_lines_that_no_test_runs_are_named(root: Path, tmp_path: Path) -> None:
    commit(root, {"engine/volta/__init__.py": ONE + "\n\ndef two(x):\n    y = x\n    return y\n"})
    outcome = coverage.check(context(root, tmp_path / "evidence" / "coverage"))
    assert outcome.verdict is Verdict.FAIL
    (finding,) = outcome.findings
    assert (finding.path, finding.line) == ("engine/volta/__init__.py", 6)
    assert finding.message.endswith("lines 6, 7")
    assert "33.3% of 3 added statements" in outcome.figure
    assert (tmp_path / "evidence/coverage/html/index.html").is_file()


def test_added_lines_that_run_pass_and_a_moved_file_adds_none(root: Path, tmp_path: Path) -> None:
    body = "".join(f"\n\ndef more{i}(x):\n    return x * {i}\n" for i in range(20))
    commit(root, {"engine/volta/other.py": ONE.replace("one", "other") + body})
    (root / "engine/volta/other.py").rename(root / "engine/volta/moved.py")
    commit(root, {"engine/volta/__init__.py": ONE.replace("x + 1", "1 + x")})
    outcome = coverage.check(context(root, tmp_path / "evidence" / "coverage"))
    assert (outcome.verdict, outcome.figure[:20]) == (Verdict.PASS, "100.0% of 1 added st")


def test_a_module_that_no_test_imports_counts(root: Path, tmp_path: Path) -> None:
    commit(root, {"engine/volta/other.py": "def other(x):\n    return x\n"})
    assert coverage.check(context(root, tmp_path / "coverage")).verdict is Verdict.FAIL


def test_tests_that_fail_are_findings_and_no_share(root: Path, tmp_path: Path) -> None:
    commit(root, {"engine/volta/__init__.py": ONE.replace("1", "7")})
    outcome = coverage.check(context(root, tmp_path / "coverage"))
    assert outcome.verdict is Verdict.FAIL
    assert "test_one" in outcome.findings[0].message


def test_a_change_of_other_files_is_not_judged_unless_asked(root: Path, tmp_path: Path) -> None:
    commit(root, {"docs/a.md": "a\n", "engine/volta/data.json": "{}\n"})
    assert coverage.check(context(root, tmp_path / "coverage")).verdict is Verdict.NOT_APPLICABLE
    assert coverage.check(context(root, tmp_path / "coverage", alone=True)).verdict is Verdict.PASS


def test_what_the_gate_tests_measured_on_this_head_is_used_and_nothing_else(
    root: Path, tmp_path: Path
) -> None:
    commit(root, {"engine/volta/other.py": "x = 1\n"})
    asked = context(root, tmp_path / "coverage")
    assert coverage.measured_before(asked) is None
    (tmp_path / "tests").mkdir()
    for broken in ("", "[]", "{}"):
        (tmp_path / "tests" / "record.json").write_text(broken)
        assert coverage.measured_before(asked) is None
