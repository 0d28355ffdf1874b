"""What a command must do is read from what it did: exit code, patterns, figures in JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from gates.law.tiers import Tiers
from gates.trees.repository import SUBMODULE, SYMLINK, Change
from hypothesis import given
from hypothesis import strategies as st
from tasks.errors import TaskError
from tasks.judging import differences, figure, last_json, surroundings, words
from tasks.loop import run_task
from tasks.model import Expectation, Task
from tasks.proving import land_reviewed, prove_task, replay_task
from tasks.verdict import Verdict
from tasks.work import lease
from tasks.work.lease import claim, holder
from tasks.work.scope import breaches
from tests.gates.repositories import git
from tests.tasks.workshop import agent, entry, fields, kinds, last, records, workshop


@pytest.mark.parametrize(
    ("expected", "code", "output", "wrong"),
    [
        ({}, 0, "", []),
        ({}, 1, "a\nlast words\n", ["exit code 1, expected 0: last words"]),
        ({"exit": 2}, 2, "", []),
        ({"exit": 2}, 0, "", ["exit code 0, expected 2: nothing printed"]),
        ({"output": ["^ok$", "x+"]}, 0, "a\nok\nxx", []),
        ({"output": ["^ok$"]}, 0, "not ok", ["it printed nothing that matches '^ok$'"]),
        ({"metrics": {"r": {"min": 1.0}}}, 0, '{"r": 1}', []),
        ({"metrics": {"r": {"min": 1.0}}}, 0, '{"r": 0.5}', ["r is 0.5, expected min 1"]),
        ({"metrics": {"r": {"min": 1.0}}}, 0, '{"r": NaN}', ["r: no number of that name"]),
        ({"metrics": {"r": {"min": 1.0}}}, 0, '{"r": true}', ["r: no number of that name"]),
        ({"metrics": {"r": {"min": 1.0}}}, 0, '{"r": "9"}', ["r: no number of that name"]),
        ({"metrics": {"r": {"min": 1.0}}}, 0, "no JSON", ["r: no number of that name"]),
        ({"metrics": {"a.1.b": {"max": 3}}}, 0, 'log\n{"a": [0, {"b": 3}]}\nbye', []),
        ({"metrics": {"a.2.b": {"max": 3}}}, 0, '{"a": [0, {"b": 3}]}', ["a.2.b: no number"]),
        ({"metrics": {"r": {"max": 1}}}, 0, '{"r": 0}\n{\n  "r": 2\n}\n', ["r is 2, expected max 1"]),
    ],
)
def test_what_differs_from_what_is_expected_is_said(
    expected: dict[str, object], code: int, output: str, wrong: list[str]
) -> None:
    found, _ = differences(Expectation.model_validate({"command": "c", **expected}), code, output)
    assert len(found) == len(wrong), found
    assert all(one.startswith(start) for one, start in zip(found, wrong, strict=True)), found


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.lists(JSON.filter(lambda one: isinstance(one, dict | list)), min_size=1, max_size=3), st.booleans())
def test_the_last_document_is_the_last(documents: list[object], indented: bool) -> None:
    text = "\n".join(f"words\n{json.dumps(one, indent=2 if indented else None)}" for one in documents)
    assert last_json(text + "\nmore words") == documents[-1]


def test_a_figure_is_found_by_its_path_or_not_at_all() -> None:
    document = {"a": [{"b": 2}], "": 1, "nan": float("nan")}
    assert figure(document, "a.0.b") == 2.0
    for path in ("a", "a.b", "a.9.b", "a.-1.b", "a.0.b.c", "nan", "x"):
        assert figure(document, path) is None


def test_a_command_runs_by_the_interpreter_that_judges_with_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    assert words("python -c 'print(1)'") == [sys.executable, "-c", "print(1)"]
    assert "secret" not in str(surroundings(Path("/x")))


# --- what a change may touch -------------------------------------------------------------------------

LAW = Tiers.model_validate(
    {
        "tiers": [
            {"id": "T0", "title": "law", "paths": ["gates/", "docs/law.md"], "gates": ["fmt"], "approvals": 1}
        ]
    }
)


def change(path: str, before: str = "", old: str = "100644", new: str = "100644") -> Change:
    return Change("modified", path, before or path, old, new, "", "")


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (change("docs/a.md"), ""),
        (change("docs/deep/a.md"), ""),
        (change("src/a.py"), "src/a.py (modified) is not in allow"),
        (change("docs/a.md", before="src/a.md"), "src/a.md (modified) is not in allow"),
        (change("src/a.md", before="docs/a.md"), "src/a.md (modified) is not in allow"),
        (change("docs/law.md"), "belongs to the judges: T0"),
        (change("docs/a.md", new=SYMLINK), "is a link"),
        (change("docs/a.md", old="000000", new=SUBMODULE), "is a submodule"),
        (change("docs/a.md", new="100755"), "changed its mode from 100644 to 100755"),
        (change("docs/a.md", old="000000", new="100755"), ""),
        (change("docs/a.md", new="000000"), ""),
        (change("tasks/queue/T-001-a.yaml"), "is not in allow"),
    ],
)
def test_a_breach_is_named_by_its_path(one: Change, said: str) -> None:
    task = Task.model_validate(fields("T-001", allow=["docs/"]))
    found = breaches(task, LAW, [one])
    assert bool(found) == bool(said)
    assert not said or said in found[0]


def test_an_agent_never_reaches_the_runner_or_the_law_whoever_owns_the_task_and_a_person_may() -> None:
    wide = ["*"]
    for by_agent, count in ((True, 1), (False, 0)):
        task = Task.model_validate(fields("T-001", allow=wide, owner="human"))
        for path in (
            "tasks/queue/T-001-a.yaml",
            "tasks/ledger.jsonl",
            "PRD.md",
            "gates/fmt.py",
            "docs/law.md",
        ):
            assert len(breaches(task, LAW, [change(path)], by_agent)) == count, path


# --- without an agent ----------------------------------------------------------------------------------


def test_what_is_there_already_is_proved_by_its_commands(tmp_path: Path) -> None:
    there = fields("T-001", commands={"look": "git --version"}, expect=[])
    shop = workshop(tmp_path, there, fields("T-002"))
    assert prove_task(shop, entry(shop)) is Verdict.PROVED
    assert kinds(shop) == ["claimed", "judged", "ended"]
    assert "- [x] [T-001]" in (shop.repository.root / "PRD.md").read_text()
    assert prove_task(shop, entry(shop, "T-002")) is Verdict.REJECTED_EXPECTATION
    assert "- [ ] [T-002]" in (shop.repository.root / "PRD.md").read_text()


def test_what_passed_waits_for_a_person_and_then_lands(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"), lands=False)
    before = git(shop.repository.root, "rev-parse", "main")
    with pytest.raises(TaskError, match="nothing waits to land"):
        land_reviewed(shop, entry(shop))
    assert run_task(shop, entry(shop), agent("honest")) is Verdict.PASSED
    assert git(shop.repository.root, "rev-parse", "main") == before
    assert land_reviewed(shop, entry(shop)) is Verdict.LANDED
    assert (shop.repository.root / "docs/t-001.md").is_file()


def test_a_replay_gives_the_recorded_verdicts_or_names_what_differs(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    run_task(shop, entry(shop), agent("honest"))
    assert replay_task(shop, entry(shop)) == []
    task = entry(shop).task
    stricter = task.model_copy(update={"commands": {"look": "false"}})
    changed = type(entry(shop))(stricter, entry(shop).path, "other")
    assert [one.split(":")[0] for one in replay_task(shop, changed)] == ["command look"] * 2


# --- leases ------------------------------------------------------------------------------------------------


def test_a_lease_says_who_has_it_and_is_free_again_after(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    assert holder(shop.repository, "T-001") is None
    with claim(shop.repository, "T-001") as mine:
        mine.beat("thinking")
        found = holder(shop.repository, "T-001")
        assert found is not None
        assert found.phase == "thinking"
    assert holder(shop.repository, "T-001") is None
    lease.path_of(shop.repository, "T-001").write_text("{")
    assert holder(shop.repository, "T-001") is None


def test_a_working_tree_with_changes_of_its_own_is_not_overwritten(tmp_path: Path) -> None:
    shop = workshop(
        tmp_path, fields("T-001", allow=["docs/a.md"], commands={"look": "git --version"}, expect=[])
    )
    mine = shop.repository.root / "docs/a.md"
    mine.write_text("mine\n")
    with pytest.raises(TaskError, match="could not move"):
        run_task(shop, entry(shop), agent("honest"))
    assert mine.read_text() == "mine\n"
    mine.write_text("a\n")
    assert run_task(shop, entry(shop), agent("honest")) is Verdict.LANDED, (last(shop), records(shop))
