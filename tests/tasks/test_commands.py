"""The command: what it shows, what it refuses, in one line and with an exit code that says which."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from tasks.files import QUEUE, read_directory
from tests.gates.repositories import commit, git, repository
from tests.tasks.workshop import LAW, agent, fields, files

ROOT = Path(__file__).parents[2]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tasks = (fields("T-001"), fields("T-002", depends_on=["T-001"], owner="human"), fields("T-003"))
    return repository(tmp_path / "it", {**LAW, **files(*tasks)})


def tasks(root: Path, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tasks", *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        input=stdin,
        timeout=300,
    )


def honest() -> str:
    return f"command:{' '.join(agent('honest').command)}"


def test_what_is_there_is_shown_as_text_and_as_json(root: Path) -> None:
    found = {one["id"]: one for one in json.loads(tasks(root, "list", "--json").stdout)}
    assert {name: one["state"] for name, one in found.items()} == {
        "T-001": "ready", "T-002": "waiting", "T-003": "ready",
    }  # fmt: skip
    assert "2 ready" in tasks(root, "list").stdout
    assert tasks(root, "next").stdout == "T-001: Write the text T-001\n"
    assert json.loads(tasks(root, "next", "--json").stdout)["id"] == "T-001"
    shown = tasks(root, "show", "T-002").stdout
    assert "waiting: for T-001" in shown
    assert "command look" in shown
    assert "T-001" in tasks(root, "graph").stdout
    assert '"T-001" -> "T-002";' in tasks(root, "graph", "--dot").stdout


def test_the_schema_judges_the_real_queue() -> None:
    schema = json.loads(tasks(ROOT, "schema").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    for entry in read_directory(ROOT).values():
        jsonschema.validate(entry.task.model_dump(exclude_none=True), schema)


def test_a_task_is_run_shown_replayed_and_its_ledger_verified(root: Path, tmp_path: Path) -> None:
    done = tasks(root, "run", "T-001", "--agent", honest(), "--no-sandbox")
    assert (done.returncode, done.stdout) == (0, "T-001: LANDED: landed\n"), done.stderr
    records = json.loads(tasks(root, "show", "T-001", "--json").stdout)["records"]
    assert [one["kind"] for one in records] == ["claimed", "worked", "judged", "landing", "ended"]
    reviewed = tasks(root, "review", "T-001").stdout
    assert "+word" in reviewed
    assert "accepted when: It has a word" in reviewed
    assert "+word" in json.loads(tasks(root, "review", "T-001", "--json").stdout)["diff"]
    assert tasks(root, "replay", "T-001").stdout == "T-001: the same verdicts again\n"
    assert tasks(root, "verify-ledger").returncode == 0
    copy = root / "tasks/ledger.jsonl"
    assert tasks(tmp_path, "verify-ledger", str(copy)).returncode == 0, "a copy needs no repository"
    head = tasks(root, "verify-ledger").stdout.split()[-1]
    other = tmp_path / "other.jsonl"
    other.write_text("".join(copy.read_text().splitlines(keepends=True)[:-1]))
    assert tasks(tmp_path, "verify-ledger", str(other)).returncode == 0, "a beginning is a chain as well"
    assert tasks(tmp_path, "verify-ledger", str(other), "--head", head).returncode == 1
    assert tasks(root, "drift").returncode == 0
    assert tasks(root, "report", "--html", str(tmp_path / "r.html")).returncode == 0
    assert "T-001" in (tmp_path / "r.html").read_text()
    assert tasks(root, "watch").stdout == "nobody works on a task\n"
    assert tasks(root, "reconcile").returncode == 0
    copy.write_text(copy.read_text().replace("honest", "someone"))
    assert tasks(root, "drift").returncode == 1
    found = tasks(root, "verify-ledger")
    assert found.returncode == 1
    assert "was edited" in found.stdout


def test_a_new_task_is_a_file_that_reads_back(root: Path) -> None:
    done = tasks(root, "new", stdin="Say what nobody says\nBecause\nhuman\ndocs/ README.md\n")
    assert done.returncode == 0, done.stderr
    entry = read_directory(root)["T-004"]
    assert (entry.path, entry.task.allow) == (
        f"{QUEUE}/T-004-say-what-nobody-says.yaml",
        ["docs/", "README.md"],
    )
    assert (
        tasks(root, "new", "--title", "short", "--why", "x", "--owner", "human", "--allow", "a").returncode
        == 2
    )
    assert sorted(read_directory(root)) == ["T-001", "T-002", "T-003", "T-004"]


def test_what_cannot_be_done_is_one_line_and_exit_code_2(root: Path, tmp_path: Path) -> None:
    (tmp_path / "no").mkdir()
    for arguments, where, said in (
        (("list",), tmp_path / "no", "is not in a git repository"),
        (("show", "T-009"), root, "'T-009' is no task: expected one of T-001"),
        (("run", "T-001", "--agent", "vibes"), root, "'vibes': expected claude, codex"),
        (("run", "T-001", "--agent", "patch:gone.diff"), root, "gone.diff is not there"),
        (("run", "T-001"), root, "'writer': expected claude"),
        (("run", "T-002"), root, "its owner is a person"),
        (("run", "T-001", "--onto", "nowhere"), root, "'nowhere' is no branch"),
        (("agents", "--budget", "much"), root, "expected an amount such as 5usd"),
        (("land", "T-001"), root, "nothing waits to land"),
        (("land", "T-009"), root, "'T-009' is no task"),
        (("prove", "T-009"), root, "'T-009' is no task"),
        (("pr", "T-009"), root, "'T-009' is no task"),
        (("review", "T-009"), root, "'T-009' is no task"),
        (("retry", "T-009"), root, "'T-009' is no task"),
        (("sync",), root, "expected --github"),
        (("replay", "T-001"), root, "it was never judged"),
        (("verify-ledger", "gone.jsonl"), root, "gone.jsonl is not there"),
    ):
        done = tasks(where, *arguments)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert said in done.stderr.splitlines()[-1], (arguments, done.stderr)


def test_a_queue_with_faults_names_each_in_a_line(root: Path) -> None:
    (root / QUEUE / "T-007-x.yaml").write_text("id: T-007\n")
    (root / QUEUE / "T-008-x.yaml").write_text("id: [\n")
    done = tasks(root, "list")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2
    assert "T-007-x.yaml:1: title: Field required" in done.stderr


def test_a_task_that_is_not_committed_is_not_run(root: Path) -> None:
    for path, text in files(fields("T-004")).items():
        (root / path).write_text(text)
    done = tasks(root, "run", "T-004", "--agent", honest())
    assert done.returncode == 2
    assert "commit it first" in done.stderr


def test_a_patch_is_an_agent(root: Path, tmp_path: Path) -> None:
    (root / "docs/t-001.md").write_text("a word\n")
    git(root, "add", "-A")
    patch = tmp_path / "it.diff"
    patch.write_text(git(root, "diff", "--cached") + "\n")
    git(root, "reset", "-q", "--hard")
    done = tasks(root, "run", "T-001", "--agent", f"patch:{patch}", "--no-sandbox")
    assert done.returncode == 0, done.stderr
    assert (root / "docs/t-001.md").read_text() == "a word\n"


def test_a_blocked_task_is_opened_again(root: Path) -> None:
    bad = f"command:{' '.join(agent('bad', 'wrong_result').command)}"
    assert tasks(root, "run", "T-001", "--agent", bad, "--no-sandbox").returncode == 1
    assert "blocked" in tasks(root, "show", "T-001").stdout
    assert tasks(root, "retry", "T-001").returncode == 0
    assert tasks(root, "next").stdout.startswith("T-001")
    assert tasks(root, "run", "T-001", "--agent", honest(), "--no-sandbox").returncode == 0


def test_nobody_to_stop_and_nothing_to_resume_is_said(root: Path) -> None:
    assert tasks(root, "stop").stdout == "nobody works on a task\n"
    assert tasks(root, "resume").stdout == "no runner died in the middle of a task\n"


def test_files_that_follow_are_written_once(root: Path) -> None:
    commit(root, {})
    assert tasks(root, "write").stdout.startswith("committed ")
    assert (root / "PRD.md").is_file()
    assert (root / ".ralphy/config.yaml").is_file()
    assert tasks(root, "write").stdout == "everything is as it should be\n"
    assert git(root, "status", "--porcelain") == ""
