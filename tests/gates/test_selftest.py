"""The seeded patches fit the sources they were made for, and every gate has one that it must reject."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from gates.errors import GateError
from gates.evidence.record import Record
from gates.evidence.verdict import Finding, Outcome, Verdict
from gates.registry import GATES
from gates.selftest import edits
from gates.selftest.patches import PATCHES, Patch
from gates.selftest.run import wrong
from gates.trees.repository import SUBMODULE, SYMLINK, Repository, Tree
from tests.gates.repositories import commit as commit_files
from tests.gates.repositories import repository

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.name)
def test_a_patch_fits_the_sources(patch: Patch) -> None:
    for edit in patch.edits:
        file = ROOT / edit.path
        if edit.remove or edit.to:
            assert file.is_file()
        elif edit.old:
            count = file.read_text().count(edit.old)
            assert count == 1 or (edit.every and count > 1), f"{edit.path} has {count} of {edit.old!r}"


def test_there_are_forty_bad_patches_and_every_gate_has_one() -> None:
    bad = Counter(patch.gate for patch in PATCHES if not patch.verdict.merges)
    assert bad.total() >= 40
    assert set(bad) == set(GATES)
    assert len({patch.name for patch in PATCHES}) == len(PATCHES)
    assert sum(patch.verdict.merges for patch in PATCHES) >= 6


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "it", {"a.txt": "one two one\n", "b/c.txt": "c\n", "run.sh": "true\n"})


def forged(root: Path, *some: edits.Edit) -> tuple[Repository, Tree]:
    found = Repository(root)
    return found, edits.commit(found, found.tree("HEAD"), some, "RFC-0001: forged")


def test_edits_become_a_commit_and_nothing_else_moves(root: Path) -> None:
    (root / "run.sh").chmod(0o755)
    commit_files(root, {})
    found, head = forged(
        root,
        edits.replace("a.txt", "two", "four"),
        edits.replace("a.txt", "four", "three"),  # on top of the one before
        edits.remove("b/c.txt"),
        edits.write("new/file.txt", "n\n"),
        edits.rename("run.sh", "bin/run.sh"),
        edits.link("to", "a.txt"),
        edits.submodule("sub"),
    )
    base = found.tree("HEAD")
    changes = {one.path: one for one in found.changes(base, head)}
    assert {path: one.kind for path, one in changes.items()} == {
        "a.txt": "modified", "b/c.txt": "deleted", "new/file.txt": "added", "bin/run.sh": "renamed",
        "to": "added", "sub": "added",
    }  # fmt: skip
    assert found.text(head, "a.txt") == "one three one\n"
    assert (changes["to"].new_mode, changes["sub"].new_mode) == (SYMLINK, SUBMODULE)
    assert changes["bin/run.sh"].new_mode == "100755"
    assert "RFC-0001" in found.git("log", "-1", "--format=%B", head.commit)
    assert found.git("rev-parse", f"{head.commit}^").strip() == base.commit
    assert found.git("status", "--porcelain") == ""
    assert found.git("rev-parse", "HEAD").strip() == base.commit


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (edits.replace("a.txt", "four", "five"), "has 0 of 'four'"),
        (edits.replace("a.txt", "one", "five"), "has 2 of 'one'"),
        (edits.replace("none.txt", "a", "b"), "is not there any more"),
        (edits.remove("none.txt"), "is not there any more"),
    ],
)
def test_an_edit_that_fits_no_more_is_stale(root: Path, edit: edits.Edit, said: str) -> None:
    with pytest.raises(GateError, match="the patch is stale") as caught:
        forged(root, edit)
    assert said in str(caught.value)


def test_a_patch_is_judged_rightly_only_for_its_own_reason() -> None:
    tree = Tree("HEAD", "0" * 40, "0" * 40)
    patch = Patch("x", "fmt", "tolerance", ())

    def judged(verdict: Verdict, *said: str) -> str:
        outcome = Outcome(verdict, "2 findings", [Finding(one) for one in said])
        return wrong(patch, Record("fmt", 1, "", outcome, tree, tree, 1, [], [], 0, "", 0.0))

    assert judged(Verdict.FAIL, "another", "the tolerance of x") == ""
    assert "no finding says 'tolerance'" in judged(Verdict.FAIL, "another")
    assert "expected FAIL" in judged(Verdict.PASS)
    assert "expected FAIL" in judged(Verdict.UNPROVEN)
