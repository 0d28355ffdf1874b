"""`gh` is asked with what the evidence says. The command is a script that writes down how it was called; what
it would do on GitHub is GitHub's."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gates.law.tiers import Tiers
from tasks.crew import overview
from tasks.errors import TaskError
from tasks.github import pull_request, sync
from tasks.loop import run_task
from tasks.proving import prove_task
from tests.gates.repositories import git
from tests.tasks.workshop import agent, entry, fields, workshop

from gates import policy

GH = """#!{python}
import json, pathlib, sys
here = pathlib.Path(__file__).parent
with (here / "calls.jsonl").open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
answer = here / f"{{sys.argv[1]}}-{{sys.argv[2]}}"
if answer.is_file():
    print(answer.read_text())
"""


@pytest.fixture
def gh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of the script; its answers are files, its calls lines."""
    place = tmp_path / "bin"
    place.mkdir()
    (place / "gh").write_text(GH.format(python=sys.executable))
    (place / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    return place


def calls(place: Path) -> list[list[str]]:
    return [json.loads(line) for line in (place / "calls.jsonl").read_text().splitlines()]


def test_a_pull_request_is_one_commit_with_a_body_that_the_policy_gate_takes(
    tmp_path: Path, gh: Path
) -> None:
    shop = workshop(tmp_path, fields("T-001"), lands=False)
    root = shop.repository.root
    git(tmp_path, "init", "-q", "--bare", "remote")
    git(root, "remote", "add", "origin", str(tmp_path / "remote"))
    with pytest.raises(TaskError, match="nothing waits to land"):
        pull_request(shop, entry(shop))
    run_task(shop, entry(shop), agent("honest"))
    (gh / "pr-create").write_text("https://example.com/pull/1")
    assert pull_request(shop, entry(shop)) == "https://example.com/pull/1"
    (call,) = calls(gh)
    options = dict(zip(call[2::2], call[3::2], strict=True))
    assert options["--title"] == "[T-001] Write the text T-001"
    assert (options["--head"], options["--base"]) == ("task/T-001-write-the-text-t-001", "main")
    pushed = git(tmp_path / "remote", "rev-parse", options["--head"])
    assert git(root, "rev-parse", f"{pushed}^") == git(root, "rev-parse", "main")
    text = Path(options["--body-file"]).read_text()
    law = Tiers.model_validate(
        {"tiers": [{"id": "T2", "title": "texts", "paths": ["docs/"], "gates": ["fmt"], "approvals": 1}]}
    )
    assert "- fmt: PASS" in text
    assert "T2: texts" in text
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(policy.BODY, options["--body-file"])
        assert list(policy.body(law.tiers[0])) == []


def test_issues_follow_the_ledger(tmp_path: Path, gh: Path) -> None:
    there = {"commands": {"look": "git --version"}, "expect": []}
    shop = workshop(tmp_path, fields("T-001", **there), fields("T-002", owner="human"), fields("T-003"))
    git(shop.repository.root, "remote", "add", "origin", str(tmp_path / "remote"))
    prove_task(shop, entry(shop))
    known = [
        {"number": 7, "title": "[T-001] Write the text T-001", "state": "OPEN"},
        {"number": 8, "title": "[T-003] Write the text T-003", "state": "CLOSED"},
    ]
    (gh / "issue-list").write_text(json.dumps(known))
    (gh / "issue-create").write_text("https://example.com/issues/9")
    assert sync(shop.repository, *overview(shop)) == [
        "T-001: closed #7", "T-002: opened https://example.com/issues/9", "T-003: opened #8 again",
    ]  # fmt: skip
    created = next(call for call in calls(gh) if call[:2] == ["issue", "create"])
    assert created[-2:] == ["--assignee", "@me"]


def test_what_is_missing_is_said(tmp_path: Path, gh: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    with pytest.raises(TaskError, match="no remote is set"):
        sync(shop.repository, *overview(shop))
    git(shop.repository.root, "remote", "add", "origin", str(tmp_path / "remote"))
    (gh / "gh").write_text("#!/bin/sh\necho 'not logged in' >&2\nexit 4\n")
    with pytest.raises(TaskError, match="`gh issue list` failed: not logged in"):
        sync(shop.repository, *overview(shop))
    (gh / "gh").unlink()
    with pytest.raises(TaskError, match="there is no `gh` on the PATH"):
        sync(shop.repository, *overview(shop))
