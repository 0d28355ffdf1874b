"""What Ralphy left is believed no more than what our own agents leave, and lost no more either."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tasks.attempt import Attempt, Shop
from tasks.errors import TaskError
from tasks.evidence.state import State, statuses
from tasks.files import Entry
from tasks.publish import queue_of
from tasks.reconcile import Found, reconcile
from tasks.verdict import Verdict
from tasks.work.lease import claim
from tests.gates.repositories import commit, git, put
from tests.tasks.workshop import fields, kinds, last, records, workshop

NAME = "ralphy/agent-1-1700000000000-abc123-t-001-write-the-text-t-001"
WORD = {"docs/t-001.md": "word\n"}


def opened(where: Path, *tasks: dict[str, object], **how: object) -> Shop:
    """A shop whose generated files are committed, as Ralphy finds them."""
    shop = workshop(where, *tasks, **how)
    shop.publish()
    return shop


def branch(shop: Shop, name: str, files: dict[str, str], message: str = "work", start: str = "main") -> None:
    root = shop.repository.root
    git(root, "checkout", "--quiet", "-b", name, start)
    commit(root, files, message)
    git(root, "checkout", "--quiet", "main")


def ticked(shop: Shop, path: str = "PRD.md", name: str = "T-001") -> str:
    text = (shop.repository.root / path).read_text()
    if path == "PRD.md":
        return text.replace(f"- [ ] [{name}]", f"- [x] [{name}]")
    before, title, after = text.partition(f"[{name}]")
    return before + title + after.replace("completed: false", "completed: true", 1)


def done(shop: Shop, branches: list[str] | None = None) -> list[Found]:
    return reconcile(shop, queue(shop), branches)


def queue(shop: Shop) -> dict[str, Entry]:
    return queue_of(shop.repository, shop.target.tip())


def state(shop: Shop, name: str = "T-001") -> State:
    tip = shop.target.tip().commit
    return statuses(shop.repository, queue(shop), shop.ledger.records(), tip)[name].state


def clean(shop: Shop) -> bool:
    return git(shop.repository.root, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (NAME, "work"),
        ("ralphy/agent-12-1700000000000-T-001-write", "work"),
        ("ralphy/t-001-write-the-text-t-001-tasks-queue-t-001-writ", "work"),
        ("ralphy/t-001-as-in-t-002", "T-002 and T-002"),
        ("ralphy/agent-1-1700000000000-abc123-something", "feat: [T-001] Write the text T-001"),
        ("ralphy/agent-1-1700000000000-abc123-say-how-the-planner-cuts-a-graph-into-parts-that-f", "work"),
        ("ralphy/say-how-the-planner-cuts-a", "work"),
    ],
)
def test_an_honest_branch_lands_however_it_says_its_task(tmp_path: Path, name: str, message: str) -> None:
    title = "Say how the planner cuts a graph into parts that fit the memory"
    shop = opened(tmp_path, fields("T-001", title), fields("T-002"))
    branch(shop, name, WORD, message)
    assert done(shop) == [Found("T-001", name, Verdict.LANDED, "landed")]
    assert kinds(shop) == ["claimed", "worked", "judged", "landing", "ended"]
    root = shop.repository.root
    assert (root / "docs/t-001.md").read_text() == "word\n"
    assert git(root, "log", "-1", "--format=%an", last(shop).data["commit"]) == "ralphy for T-001"
    assert git(root, "rev-parse", records(shop)[1].data["kept"]) == git(root, "rev-parse", name)
    assert "- [x] [T-001]" in (root / "PRD.md").read_text()
    assert state(shop) is State.DONE
    assert clean(shop)


def test_what_ralphy_itself_writes_rejects_no_honest_work(tmp_path: Path) -> None:
    """It copies PRD.md with the ticks of the batch before into each worktree, writes tasks.yaml in its own
    form, and tells agents to keep notes."""
    shop = opened(tmp_path, fields("T-001"), fields("T-002"))
    rows = ticked(shop, "tasks.yaml").split("\n", 1)[1].replace("parallel_group: 1", "parallel_group: 0x1")
    notes = {".ralphy/progress.txt": "did it\n", ".ralphy/deferred.json": "{}\n", "progress.txt": "did it\n"}
    crlf = ticked(shop, name="T-002").replace("\n", "\r\n")
    branch(shop, NAME, {**WORD, **notes, "PRD.md": crlf, "tasks.yaml": rows})
    assert [one.verdict for one in done(shop)] == [Verdict.LANDED]
    root, change = shop.repository.root, last(shop).data["commit"]
    assert git(root, "diff", "--name-only", f"{change}^", change) == "docs/t-001.md"


@pytest.mark.parametrize("path", ["PRD.md", "tasks.yaml"])
def test_who_only_ticks_its_box_has_changed_nothing(tmp_path: Path, path: str) -> None:
    shop = opened(tmp_path, fields("T-001"))
    branch(shop, NAME, {path: ticked(shop, path), "progress.txt": "Done! All tests pass.\n"})
    before = git(shop.repository.root, "rev-parse", "main:docs")
    (found,) = done(shop)
    assert found.verdict is Verdict.NO_CHANGE, found
    assert kinds(shop) == ["claimed", "worked", "ended", "blocked"]
    assert git(shop.repository.root, "rev-parse", "main:docs") == before
    assert "- [ ] [T-001]" in (shop.repository.root / "PRD.md").read_text()
    assert state(shop) is State.BLOCKED


@pytest.mark.parametrize(
    "files",
    [
        {"docs/other.md": "more\n"},
        {"gates/fmt.py": "def check(context):\n    return None\n"},
        {"governance/tiers.yaml": "tiers: []\n"},
        {"PRD.md": "- [x] [T-001] Write the text T-001\n"},
        {"tasks.yaml": "tasks: [\n"},
        {".ralphy/config.yaml": "rules: []\n"},
        {"tasks/ledger.jsonl": "{}\n"},
    ],
)
def test_out_of_scope_is_rejected_by_its_path(tmp_path: Path, files: dict[str, str]) -> None:
    shop = opened(tmp_path, fields("T-001"))
    branch(shop, NAME, {**WORD, **files})
    (found,) = done(shop)
    assert found.verdict is Verdict.REJECTED_SCOPE
    assert next(iter(files)) in found.why
    assert not (shop.repository.root / "docs/t-001.md").exists()


def test_a_gate_is_the_judges_whatever_the_task_allows(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001", allow=["docs/t-001.md", "gates/"]))
    branch(shop, NAME, {**WORD, "gates/fmt.py": "def check(context):\n    return None\n"})
    (found,) = done(shop)
    assert found.verdict is Verdict.REJECTED_SCOPE
    assert found.why == "gates/fmt.py (added) belongs to the judges: T0"


def test_a_renamed_document_is_not_taken_for_ticks(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001"))
    root = shop.repository.root
    git(root, "checkout", "--quiet", "-b", NAME)
    git(root, "mv", "PRD.md", "docs/t-001.md")
    commit(root, {})
    git(root, "checkout", "--quiet", "main")
    (found,) = done(shop)
    assert found.verdict is Verdict.REJECTED_SCOPE
    assert "PRD.md (renamed)" in found.why


def test_notes_that_the_repository_has_itself_are_like_any_file(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001"), more={"progress.txt": "ours\n"})
    branch(shop, NAME, {**WORD, "progress.txt": "theirs\n"})
    (found,) = done(shop)
    assert found.verdict is Verdict.REJECTED_SCOPE
    assert "progress.txt" in found.why


@pytest.mark.parametrize(
    ("files", "verdict", "why"),
    [
        ({"docs/t-001.md": "nothing of use\n"}, Verdict.REJECTED_EXPECTATION, "matches 'word'"),
        ({"docs/t-001.md": "<<<<<<< a\nword\n>>>>>>> b\n"}, Verdict.CONFLICT_MARKERS, "docs/t-001.md"),
    ],
)
def test_what_is_wrong_has_a_name(tmp_path: Path, files: dict[str, str], verdict: Verdict, why: str) -> None:
    shop = opened(tmp_path, fields("T-001"))
    branch(shop, NAME, files)
    (found,) = done(shop)
    assert found.verdict is verdict
    assert why in found.why


def test_a_branch_without_the_targets_history_is_named_so(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001"))
    root = shop.repository.root
    git(root, "checkout", "--quiet", "--orphan", NAME)
    commit(root, WORD)
    git(root, "checkout", "--quiet", "main")
    (found,) = done(shop)
    assert found.verdict is Verdict.REWROTE_HISTORY
    assert "no history in common" in found.why


@pytest.mark.parametrize(
    ("name", "message", "why"),
    [
        ("ralphy/mixed-t-001-and-t-002", "work", "T-001 or T-002"),
        ("ralphy/agent-1-1700000000000-abc123-both", "T-001, T-002", "T-001 or T-002"),
        ("ralphy/agent-1-1700000000000-abc123-write-what-the-planner-does-first", "work", "T-003 or T-004"),
        ("ralphy/agent-1-1700000000000-abc123-other", "work", "neither its name nor its commits"),
        ("ralphy/t-099-gone", "work", "T-099 is no task of the queue"),
    ],
)
def test_what_is_not_clear_is_said_and_not_guessed(tmp_path: Path, name: str, message: str, why: str) -> None:
    titles = ("Write what the planner does first: its input", "Write what the planner does first: its output")
    more = [fields(f"T-00{number}", title) for number, title in enumerate(titles, 3)]
    shop = opened(tmp_path, fields("T-001"), fields("T-002"), *more)
    branch(shop, name, WORD, message)
    (found,) = done(shop)
    assert (found.task, found.branch, found.verdict) == ("", name, None)
    assert why in found.why
    assert shop.ledger.records() == ()


@pytest.mark.parametrize("path", ["PRD.md", "tasks.yaml"])
def test_a_tick_without_evidence_is_undone(tmp_path: Path, path: str) -> None:
    shop = opened(tmp_path, fields("T-001"), fields("T-002"))
    root = shop.repository.root
    true = (root / path).read_text()
    put(root, {path: ticked(shop, path)})
    git(root, "add", path)
    (found,) = done(shop)
    assert (found.task, found.branch, found.verdict) == ("T-001", "", None)
    assert found.why == f"ticked in {path}, and the ledger has no proof: open again"
    assert (root / path).read_text() == true
    assert state(shop) is State.READY
    assert clean(shop)


def test_ticks_stand_in_nobodys_way_and_true_ones_stay(tmp_path: Path) -> None:
    """As after a real run: every box ticked, one task honestly done, one not."""
    shop = opened(tmp_path, fields("T-001"), fields("T-002"))
    root = shop.repository.root
    branch(shop, NAME, WORD)
    branch(shop, "ralphy/agent-2-1700000000000-abc123-t-002", {"docs/t-002.md": "empty\n"})
    put(root, {"PRD.md": ticked(shop)})
    put(root, {"PRD.md": ticked(shop, name="T-002")})
    found = {(one.task, bool(one.branch)): one for one in done(shop)}
    assert found[("T-001", True)].verdict is Verdict.LANDED
    assert found[("T-002", True)].verdict is Verdict.REJECTED_EXPECTATION
    assert "open again" in found[("T-002", False)].why
    assert len(found) == 3
    text = (root / "PRD.md").read_text()
    assert "- [x] [T-001]" in text
    assert "- [ ] [T-002]" in text
    assert clean(shop)


def test_what_somebody_wrote_into_a_generated_file_is_not_thrown_away(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001"))
    branch(shop, NAME, WORD)
    put(shop.repository.root, {"PRD.md": ticked(shop) + "by hand\n"})
    with pytest.raises(TaskError, match=r"PRD\.md has changes that are not committed"):
        done(shop)
    assert (shop.repository.root / "PRD.md").read_text().endswith("by hand\n")
    assert kinds(shop) == []


def test_the_same_commit_is_judged_once_and_again_when_its_task_is_opened(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001", budget={"minutes": 2, "attempts": 2}))
    branch(shop, NAME, {"docs/t-001.md": "nothing of use\n"})
    assert [one.verdict for one in done(shop)] == [Verdict.REJECTED_EXPECTATION]
    (again,) = done(shop)
    assert (again.verdict, again.why[:13]) == (Verdict.REJECTED_EXPECTATION, "judged before")
    assert kinds(shop).count("claimed") == 1
    shop.ledger.append("T-001", "reopened", {"why": "by hand"})
    done(shop)
    assert kinds(shop).count("claimed") == 2


def test_of_two_branches_the_newer_lands_and_the_other_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = opened(tmp_path, fields("T-001"))
    for number, (word, year) in enumerate([("old word", 2023), ("new word", 2025), ("older word", 2021)]):
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"{year}-01-01T00:00:00Z")
        branch(shop, f"ralphy/agent-{number}-1700000000000-t-001", {"docs/t-001.md": f"{word}\n"})
    monkeypatch.delenv("GIT_COMMITTER_DATE")
    found = done(shop)
    assert [(one.branch[13], one.verdict) for one in found] == [
        ("1", Verdict.LANDED), ("0", None), ("2", None),
    ]  # fmt: skip
    assert found[1].why == "done: proved by its evidence"
    assert (shop.repository.root / "docs/t-001.md").read_text() == "new word\n"


def test_tasks_go_in_the_order_in_which_they_depend(tmp_path: Path) -> None:
    """T-001 waits for T-002, and for T-003, of which nothing is there; T-004 is a person's."""
    shop = opened(
        tmp_path,
        fields("T-001", depends_on=["T-002"]),
        fields("T-002"),
        fields("T-003", depends_on=["T-005"]),
        fields("T-004", owner="human"),
        fields("T-005"),
    )
    for n in (1, 2, 3, 4):
        branch(shop, f"ralphy/agent-{n}-1700000000000-t-00{n}", {f"docs/t-00{n}.md": "word\n"})
    found = {one.task: one for one in done(shop)}
    assert list(found)[:1] == ["T-002"]
    assert found["T-001"].verdict is found["T-002"].verdict is Verdict.LANDED
    assert found["T-003"].why == "waiting: for T-005"
    assert "its owner is a person" in found["T-004"].why
    assert kinds(shop, "T-003") == kinds(shop, "T-004") == []


def test_a_task_that_somebody_holds_or_that_is_blocked_is_left_alone(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001"))
    branch(shop, NAME, WORD)
    with claim(shop.repository, "T-001"):
        (held,) = done(shop)
    assert "another runner works on it" in held.why
    shop.ledger.append("T-001", "blocked", {"why": "too dear"})
    (blocked,) = done(shop)
    assert (blocked.verdict, blocked.why) == (None, "blocked: too dear")


def test_other_branches_count_only_where_they_are_named(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001"))
    branch(shop, "mine/T-001-by-hand", WORD)
    assert done(shop) == []
    (gone,) = done(shop, ["mine/nothing"])
    assert (gone.task, gone.verdict) == ("", None)
    assert [one.verdict for one in done(shop, ["mine/T-001-by-hand"])] == [Verdict.LANDED]


def test_a_runner_that_died_is_gone_on_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed after the work was recorded: the next call judges it, and does not claim again."""
    shop = opened(tmp_path, fields("T-001"))
    branch(shop, NAME, WORD)

    def die(self: object, *more: object) -> Verdict:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Attempt, "after_work", die)
        with pytest.raises(KeyboardInterrupt):
            done(shop)
    assert kinds(shop) == ["claimed", "worked"]
    (found,) = done(shop)
    assert found.verdict is Verdict.LANDED
    assert kinds(shop).count("claimed") == 1
    assert (shop.repository.root / "docs/t-001.md").is_file()


def test_what_is_not_committed_in_a_worktree_is_said(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001"))
    root, place = shop.repository.root, tmp_path / "worktree"
    git(root, "worktree", "add", "--quiet", "-b", NAME, str(place))
    put(place, {**WORD, "PRD.md": "x\n", ".ralphy/progress.txt": "x\n"})
    (found,) = done(shop)
    assert found.verdict is Verdict.NO_CHANGE
    assert found.why.endswith(f"not committed in {place}, and so not judged: docs/t-001.md")


def test_what_passes_waits_for_a_person_where_the_shop_does_not_land(tmp_path: Path) -> None:
    shop = opened(tmp_path, fields("T-001"))
    branch(shop, NAME, WORD)
    (found,) = done(replace(shop, lands=False))
    assert found.verdict is Verdict.PASSED
    assert state(shop) is State.REVIEW
