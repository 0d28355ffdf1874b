"""Whatever an agent does, only work that its task allows and its judges pass lands, and none is lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from gates.trees.repository import Tree
from tasks.agents.adapters import Agent
from tasks.attempt import Attempt, Shop
from tasks.errors import TaskError
from tasks.evidence.state import State, statuses
from tasks.files import Entry
from tasks.loop import run_task
from tasks.publish import queue_of
from tasks.verdict import Verdict
from tasks.work.lease import claim
from tests.gates.repositories import git
from tests.tasks.workshop import agent, entry, fields, kinds, last, records, workshop

from tasks.agents import sandbox

BAD = {
    "nothing": Verdict.NO_CHANGE,
    "says_done": Verdict.NO_CHANGE,
    "empty_commit": Verdict.NO_CHANGE,
    "ticks_its_box": Verdict.REJECTED_SCOPE,
    "wrong_result": Verdict.REJECTED_EXPECTATION,
    "edits_its_task": Verdict.REJECTED_SCOPE,
    "edits_the_ledger": Verdict.REJECTED_SCOPE,
    "edits_a_gate": Verdict.REJECTED_SCOPE,
    "edits_the_law": Verdict.REJECTED_SCOPE,
    "edits_a_test": Verdict.REJECTED_SCOPE,
    "renames_a_judge": Verdict.REJECTED_SCOPE,
    "links_out": Verdict.REJECTED_SCOPE,
    "its_file_a_link": Verdict.REJECTED_SCOPE,
    "a_repository_inside": Verdict.REJECTED_SCOPE,
    "changes_a_mode": Verdict.REJECTED_SCOPE,
    "hides_by_gitignore": Verdict.REJECTED_SCOPE,
    "commits_elsewhere": Verdict.COMMITTED_ELSEWHERE,
    "detaches": Verdict.COMMITTED_ELSEWHERE,
    "rewrites_history": Verdict.REWROTE_HISTORY,
    "pushes_to_main": Verdict.COMMITTED_ELSEWHERE,
    "leaves_conflict_marks": Verdict.CONFLICT_MARKERS,
    "leaves_a_merge": Verdict.CONFLICT_MARKERS,
    "fails": Verdict.AGENT_FAILED,
    "is_killed": Verdict.AGENT_FAILED,
    "hangs": Verdict.TIMED_OUT,
    "loops": Verdict.TIMED_OUT,
    "is_silent": Verdict.IDLE,
    "floods": Verdict.FLOODED,
    "fills_the_disk": Verdict.DISK_FULL,
}
LIMITS = {"idle_s": 2.5, "output_bytes": 1 << 20, "disk_bytes": 16 << 20}


def tip(shop: Shop) -> str:
    return git(shop.repository.root, "rev-parse", "main")


def state(shop: Shop, name: str = "T-001") -> State:
    at = shop.target.tip()
    entries = queue_of(shop.repository, at)
    return statuses(shop.repository, entries, shop.ledger.records(), at.commit)[name].state


@pytest.mark.parametrize("way", ["", "commit"])
def test_what_the_task_asked_for_lands_as_one_commit_with_its_evidence(tmp_path: Path, way: str) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    before = tip(shop)
    assert run_task(shop, entry(shop), agent("honest", way)) is Verdict.LANDED, last(shop)
    assert kinds(shop) == ["claimed", "worked", "judged", "landing", "ended"]
    root = shop.repository.root
    assert (root / "docs/t-001.md").read_text().startswith("word")
    change = last(shop).data["commit"]
    assert git(root, "rev-parse", f"{change}^") == before
    assert git(root, "log", "-1", "--format=%an", change) == "honest for T-001"
    assert "Task: T-001" in git(root, "log", "-1", "--format=%b", change)
    assert git(root, "diff", "--name-only", before, change) == "docs/t-001.md"
    assert "- [x] [T-001] " in (root / "PRD.md").read_text()
    assert git(root, "status", "--porcelain") == ""
    assert state(shop) is State.DONE
    assert (root / "tasks/ledger.jsonl").read_text() == shop.ledger.text()


@pytest.mark.parametrize("way", BAD)
def test_what_is_wrong_has_a_name_and_lands_nothing(tmp_path: Path, way: str) -> None:
    minutes = 0.06 if way in ("hangs", "loops") else 2
    task = fields("T-001", budget={"minutes": minutes, "attempts": 1})
    shop = workshop(tmp_path, task, **LIMITS)
    before = tip(shop)
    found = run_task(shop, entry(shop), agent("bad", way))
    assert found is BAD[way], (found, last(shop).data, records(shop)[-2].data)
    assert tip(shop) == before
    assert git(shop.repository.root, "status", "--porcelain") == ""
    assert git(shop.repository.root, "branch", "--format=%(refname:short)") == "main"
    assert kinds(shop)[-2:] == ["ended", "blocked"]
    assert state(shop) is State.BLOCKED


@pytest.mark.parametrize(
    "way", ["fails", "is_killed", "edits_a_test", "commits_elsewhere", "rewrites_history"]
)
def test_the_work_of_a_rejected_attempt_is_kept(tmp_path: Path, way: str) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    run_task(shop, entry(shop), agent("bad", way))
    names = git(shop.repository.root, "for-each-ref", "--format=%(refname)", "refs/volta/work/T-001").split()
    texts = [git(shop.repository.root, "ls-tree", "-r", "--name-only", name) for name in names]
    assert any("docs/t-001.md" in text for text in texts)


@pytest.mark.parametrize("way", ["destroys_its_clone", "leaves_children"])
def test_what_harms_nobody_but_itself_is_judged_by_its_files(tmp_path: Path, way: str) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    assert run_task(shop, entry(shop), agent("bad", way)) is Verdict.LANDED, last(shop)


def test_a_poisoned_clone_runs_nothing_of_its_own(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    assert run_task(shop, entry(shop), agent("bad", "poisons_its_clone")) is Verdict.LANDED, last(shop)
    assert not list(shop.repository.root.rglob("poisoned"))


@pytest.mark.skipif(bool(sandbox.available()), reason="needs bubblewrap, which this machine has not")
def test_a_sandboxed_agent_reaches_neither_the_repository_it_was_cloned_from_nor_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_test").write_text("secret")
    monkeypatch.setenv("HOME", str(home))
    shop = workshop(tmp_path, fields("T-001"), sandboxed=True)
    root = shop.repository.root
    before = tip(shop), (root / ".git/config").read_text()
    assert run_task(shop, entry(shop), agent("bad", "reaches_out")) is Verdict.LANDED, last(shop)
    assert git(root, "rev-parse", "main~2") == before[0]
    assert (root / ".git/config").read_text() == before[1]
    assert (root / "docs/a.md").read_text() == "a\n"
    assert not (root / "new").exists()
    assert not (root / ".git/hooks/post-merge").exists()
    assert "key: none" in (root / ".tasks/runs/T-001/1/agent.log").read_text()


def test_an_agent_that_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    missing = Agent("missing", ("volta-no-such-agent",))
    assert run_task(shop, entry(shop), missing) is Verdict.AGENT_MISSING
    assert "volta-no-such-agent" in records(shop)[-2].data["findings"][0]


def test_a_second_attempt_is_told_what_was_wrong_with_the_first(tmp_path: Path) -> None:
    task = fields("T-001", budget={"minutes": 2, "attempts": 2})
    shop = workshop(tmp_path, task)
    run_task(shop, entry(shop), agent("bad", "wrong_result"))
    assert kinds(shop).count("claimed") == 2
    runs = shop.repository.root / ".tasks/runs/T-001"
    prompts = [path.read_text() for path in sorted(runs.glob("*/prompt.md"))]
    assert "What was wrong" not in prompts[0]
    assert "command look: it printed nothing that matches 'word'" in prompts[1]
    assert last(shop).data["why"].startswith("2 of 2 attempts")


def test_a_service_that_asks_to_wait_uses_up_no_attempt(tmp_path: Path) -> None:
    asked: list[str] = []
    shop = workshop(tmp_path, fields("T-001"), watch=asked.append)
    limited = 3
    shop = replace(shop, stop=lambda: sum("waits" in line for line in asked) >= limited)
    assert run_task(shop, entry(shop), agent("bad", "is_limited")) is Verdict.RATE_LIMITED
    assert kinds(shop).count("claimed") == limited
    assert state(shop) is State.READY


def test_one_task_has_one_runner(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    with claim(shop.repository, "T-001"), pytest.raises(TaskError, match="another runner works on it"):
        run_task(shop, entry(shop), agent("honest"))
    assert kinds(shop) == []


def late(shop: Shop, task: Entry, base: Tree, word: str) -> Verdict:
    """An attempt that began when `base` was the tip."""
    with claim(shop.repository, task.task.id) as lease:
        return Attempt(shop, task, lease, 1, base).work(agent("honest", word), [], [])


def test_a_change_that_landed_meanwhile_is_kept_and_judged_together(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"), fields("T-002"))
    base, second = shop.target.tip(), entry(shop, "T-002")
    assert run_task(shop, entry(shop), agent("honest", "one")) is Verdict.LANDED
    assert late(shop, second, base, "two") is Verdict.LANDED, last(shop, "T-002")
    assert kinds(shop, "T-002") == ["claimed", "worked", "judged", "judged", "landing", "ended"]
    assert (shop.repository.root / "docs/t-001.md").is_file()
    assert (shop.repository.root / "docs/t-002.md").is_file()


def test_a_conflict_becomes_a_fresh_attempt_that_knows_both(tmp_path: Path) -> None:
    shared = {"allow": ["docs/t-001.md"], "commands": {"look": "git --version"}, "expect": []}
    shop = workshop(tmp_path, fields("T-001"), fields("T-002", **shared))
    base, second = shop.target.tip(), entry(shop, "T-002")
    assert run_task(shop, entry(shop), agent("honest", "one")) is Verdict.LANDED
    assert late(shop, second, base, "two") is Verdict.CONFLICT
    assert run_task(shop, second, agent("honest", "two")) is Verdict.LANDED, last(shop, "T-002")
    prompt = (shop.repository.root / ".tasks/runs/T-002/2/prompt.md").read_text()
    assert "Write the text T-001 (docs/t-001.md)" in prompt
    assert (shop.repository.root / "docs/t-001.md").read_text() == "word two\n"
