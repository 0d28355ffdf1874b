"""What the policy gate asks of a change, on small repositories with a law of their own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from gates.context import Context
from gates.evidence.verdict import Outcome, Verdict
from gates.law.files import read
from gates.law.registers import OWNERS, Owners
from gates.trees.checkout import checkout
from gates.trees.repository import Repository
from tests.gates.repositories import commit, git, repository

from gates import policy

TIERS = """\
tiers:
  - {id: T0, title: judges, paths: [gates/, governance/, .github/], gates: [policy], approvals: 2, rfc: true}
  - {id: T1, title: engine, paths: [engine/, tests/], gates: [parity], approvals: 1}
  - {id: T2, title: texts, paths: [docs/], gates: [docs], approvals: 1}
"""
RFCS = """\
rfcs:
  - {id: RFC-0001, title: one, state: Accepted, owner: me, file: governance/rfcs/0001-one.md}
  - {id: RFC-0002, title: two, state: Draft, owner: me, file: governance/rfcs/0002-two.md}
"""
LAW = {
    "governance/tiers.yaml": TIERS,
    "governance/rfcs.yaml": RFCS,
    "governance/rfcs/0001-one.md": "one\n",
    "governance/rfcs/0002-two.md": "two\n",
    "governance/waivers.yaml": "waivers: []\n",
    "governance/owners.yaml": 'owners:\n  - paths: ["*"]\n    owners: ["@me"]\n',
    "docs/a.md": "a\n",
    "engine/a.py": "x = 1\n",
    "tests/test_a.py": "def test_a() -> None:\n    assert 1 + 1 == 2\n",
    "gates/a.py": "x = 1\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = repository(tmp_path / "it", LAW)
    owners = read(made, OWNERS, Owners)
    return commit(made, {policy.CODEOWNERS: owners.codeowners()})


def judged(root: Path) -> Outcome:
    """The last commit by the one before it."""
    found = Repository(root)
    base, head = (checkout(found, found.tree(revision)) for revision in ("HEAD~1", "HEAD"))
    return policy.check(Context(found, base, head, 1, root / ".gates", time.monotonic() + 60))


def said(root: Path) -> list[str]:
    return [str(finding) for finding in judged(root).findings]


def test_a_change_of_texts_needs_nothing(root: Path) -> None:
    commit(root, {"docs/a.md": "b\n"})
    found = judged(root)
    assert found.verdict is Verdict.PASS
    assert found.figure == "T2: texts; 1 paths changed"
    assert found.notes["paths"] == {"T2": ["modified docs/a.md"]}


def test_a_tier_names_gates_that_there_are_or_that_come_with_it(root: Path) -> None:
    named = TIERS.replace("gates: [docs]", "gates: [docs, fresh]")
    commit(root, {"governance/tiers.yaml": named}, "as RFC-0001 says")
    assert any("gate 'fresh' is unknown" in one for one in said(root))
    git(root, "reset", "-q", "--hard", "HEAD~1")
    commit(root, {"governance/tiers.yaml": named, "gates/fresh.py": "x = 1\n"}, "as RFC-0001 says")
    assert said(root) == []


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("faster", "this change names none"),
        ("as RFC-0002 says", "names RFC-0002, none of them accepted"),
        ("as RFC-0009 says", "names RFC-0009, none of them accepted"),
        ("as RFC-0001 says", ""),
    ],
)
def test_a_judge_changes_only_by_an_rfc_in_force(root: Path, message: str, expected: str) -> None:
    commit(root, {"gates/a.py": "x = 2\n"}, message)
    found = said(root)
    assert bool(found) == bool(expected)
    assert all(expected in line for line in found)


def test_a_change_cannot_accept_its_own_rfc(root: Path) -> None:
    accepted = RFCS.replace("state: Draft", "state: Accepted")
    commit(root, {"governance/rfcs.yaml": accepted, "gates/a.py": "x = 2\n"}, "as RFC-0002 says")
    assert any("none of them accepted in the base" in line for line in said(root))


def test_a_change_cannot_lower_its_own_tier(root: Path) -> None:
    commit(root, {"governance/tiers.yaml": TIERS.replace("gates/, ", ""), "gates/a.py": "x = 2\n"})
    assert judged(root).notes["tier"] == "T0"


def test_a_weakened_test_is_a_finding_unless_an_rfc_agrees(root: Path) -> None:
    weaker = {"tests/test_a.py": "def test_a() -> None:\n    1 + 1\n"}
    commit(root, weaker)
    assert said(root) == ["tests/test_a.py:1: test test_a asserts less: 1 before, 0 now"]
    git(root, "commit", "--quiet", "--amend", "-m", "RFC-0001: it goes")
    assert said(root) == []
    assert "asserts less" in judged(root).notes["judges weaker than before"][0]


def test_links_are_named_with_where_they_lead(root: Path) -> None:
    (root / "docs/out.md").symlink_to("../../../etc/passwd")
    (root / "docs/in.md").symlink_to("../gates/a.py")
    commit(root, {}, "RFC-0001")
    lines = said(root)
    assert any("docs/out.md" in line and "leaves the repository" in line for line in lines)
    assert any("docs/in.md: a link to gates/a.py" in line for line in lines)


def test_a_register_without_its_texts_is_a_finding(root: Path) -> None:
    (root / "governance/rfcs/0001-one.md").unlink()
    commit(root, {}, "RFC-0001")
    assert said(root) == [
        "governance/rfcs.yaml: RFC-0001 has no text: governance/rfcs/0001-one.md is not there"
    ]


BODY = "".join(f"## {name}\n\n{'T2' if name == 'Tier' else 'something'}\n\n" for name in policy.FIELDS)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (BODY, []),
        (
            BODY.replace("## Rollback\n\nsomething", "## Rollback\n\n<!-- how -->"),
            ["nothing under `## Rollback`"],
        ),
        ("", [f"nothing under `## {name}`" for name in policy.FIELDS]),
        (BODY.replace("T2", "T3"), ["says tier 'T3': its paths say T2"]),
    ],
)
def test_the_fields_of_a_pull_request_are_filled(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: list[str]
) -> None:
    commit(root, {"docs/a.md": "b\n"})
    (tmp_path / "body.md").write_text(text)
    monkeypatch.setenv(policy.BODY, str(tmp_path / "body.md"))
    found = said(root)
    assert len(found) == len(expected)
    assert all(part in line for part, line in zip(expected, found, strict=True))


def test_the_commit_that_brings_the_law_is_judged_by_it(tmp_path: Path) -> None:
    root = repository(tmp_path / "new", {"docs/a.md": "a\n"})
    commit(root, LAW)
    commit(root, {policy.CODEOWNERS: read(root, OWNERS, Owners).codeowners()})
    git(root, "reset", "--quiet", "--soft", "HEAD~2")
    commit(root, {})
    found = judged(root)
    assert (found.verdict, found.notes["tier"]) == (Verdict.PASS, "T0")
