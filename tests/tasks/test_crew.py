"""Many at once, and runners that die: everything lands that deserves it, once, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from tasks.crew import overview, run_queue
from tasks.evidence.ledger import Ledger
from tasks.evidence.state import State
from tasks.verdict import Verdict
from tests.gates.repositories import git
from tests.tasks.workshop import agent, entry, fields, kinds, records, workshop

ROOT = Path(__file__).parents[2]
DYING = """
import os, signal, sys
from pathlib import Path
from tasks.evidence.ledger import Ledger
from tasks.landing import Target

after, before = sys.argv[1].split(":")
real = Ledger.append

def append(self, task, kind, data):
    if kind == before:
        os.kill(os.getpid(), signal.SIGKILL)
    record = real(self, task, kind, data)
    if kind == after:
        os.kill(os.getpid(), signal.SIGKILL)
    return record

Ledger.append = append
from tasks.__main__ import app
app(sys.argv[2:])
"""


def python(root: Path, *arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    command = ["-c", code] if code else ["-m", "tasks"]
    return subprocess.run(
        [sys.executable, *command, *arguments],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def honest(*words: str) -> str:
    return f"command:{' '.join(agent('honest', *words).command)}"


@pytest.mark.parametrize(
    "place",
    ["claimed:", "worked:", "judged:", "landing:", "ended:", ":worked", ":judged", ":landing", ":ended"],
)
def test_a_runner_that_is_killed_between_phases_is_gone_on_from(tmp_path: Path, place: str) -> None:
    shop = workshop(tmp_path, fields("T-001", budget={"minutes": 2, "attempts": 2}))
    root = shop.repository.root
    dead = python(root, place, "run", "T-001", "--agent", honest(), "--no-sandbox", code=DYING)
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    assert git(root, "status", "--porcelain") == ""
    found = python(root, "resume", "--no-sandbox")
    assert found.returncode == 0, found.stderr
    done = [one.data["commit"] for one in records(shop) if one.kind == "ended" and "commit" in one.data]
    assert len(done) == 1, kinds(shop)
    assert git(root, "log", "--format=%s", "main").split("\n").count("Write the text T-001") == 1
    assert (root / "docs/t-001.md").is_file()
    assert python(root, "verify-ledger").returncode == 0
    assert python(root, "write").returncode == 0
    assert "- [x] [T-001]" in (root / "PRD.md").read_text()
    assert git(root, "status", "--porcelain") == ""


def test_work_of_an_agent_whose_runner_died_is_kept(tmp_path: Path) -> None:
    """Killed while the agent was at work: what it had written lies at a ref, and a new attempt begins."""
    shop = workshop(tmp_path, fields("T-001", budget={"minutes": 2, "attempts": 1}))
    root = shop.repository.root
    python(root, ":worked", "run", "T-001", "--agent", honest("first"), "--no-sandbox", code=DYING)
    assert kinds(shop) == ["claimed"]
    assert python(root, "resume", "--agent", honest("second"), "--no-sandbox").returncode == 0
    assert [one.data["verdict"] for one in records(shop) if one.kind == "ended"] == ["INTERRUPTED", "LANDED"]
    assert git(root, "show", "refs/volta/work/T-001/1:docs/t-001.md") == "word first"
    assert (root / "docs/t-001.md").read_text() == "word second\n"


def test_three_agents_do_twelve_tasks_that_conflict(tmp_path: Path) -> None:
    """Each writes a file of its own and a line of one that all share."""
    tasks = [
        fields(f"T-{n:03d}", allow=[f"docs/t-{n:03d}.md", "docs/shared.md"], parallel_group=n // 7)
        for n in range(1, 13)
    ]
    tasks[3]["depends_on"] = ["T-001"]
    said: list[str] = []
    shop = workshop(tmp_path, *tasks, more={"docs/shared.md": "shared\n"}, watch=said.append)
    done = run_queue(shop, lambda one: agent("sharing"), 3)
    assert done == dict.fromkeys((f"T-{n:03d}" for n in range(1, 13)), Verdict.LANDED), said[-40:]
    root = shop.repository.root
    lines = (root / "docs/shared.md").read_text().splitlines()
    assert sorted(lines[1:]) == [f"T-{n:03d}" for n in range(1, 13)], "no line was lost in a merge"
    landed = [
        title[-5:] for title in git(root, "log", "--reverse", "--format=%s").split("\n") if "text" in title
    ]
    assert landed.index("T-001") < landed.index("T-004")
    assert set(landed[:6]) == {f"T-{n:03d}" for n in range(1, 7)}, "the second group waits for the first"
    ends = [one.data["verdict"] for one in shop.ledger.records() if one.kind == "ended"]
    assert set(ends) <= {"LANDED", "CONFLICT"}
    assert {one.state for one in overview(shop)[1].values()} == {State.DONE}
    assert git(root, "status", "--porcelain") == ""


def test_a_failing_task_blocks_those_that_need_it_and_no_other(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"), fields("T-002", depends_on=["T-001"]), fields("T-003"))

    def choose(one: object) -> object:
        bad = one.task.id == "T-001"  # type: ignore[attr-defined]
        return agent("bad", "wrong_result") if bad else agent("honest")

    done = run_queue(shop, choose, 2)  # type: ignore[arg-type]
    assert done == {"T-001": Verdict.REJECTED_EXPECTATION, "T-003": Verdict.LANDED}
    states = {name: one.state for name, one in overview(shop)[1].items()}
    assert states == {"T-001": State.BLOCKED, "T-002": State.WAITING, "T-003": State.DONE}


def test_what_nobody_may_do_is_left_alone(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001", owner="human"))
    assert run_queue(shop, lambda one: None, 3) == {}


def test_stopping_ends_agents_keeps_their_work_and_uses_up_no_attempt(tmp_path: Path) -> None:
    stop = threading.Event()
    shop = workshop(tmp_path, fields("T-001"), stop=stop.is_set)

    def watch(line: str) -> None:
        if "bad: ." in line:
            stop.set()

    done = run_queue(replace(shop, watch=watch), lambda one: agent("bad", "hangs"), 1)
    assert done == {"T-001": Verdict.STOPPED}
    assert git(shop.repository.root, "show", "refs/volta/work/T-001/1:docs/t-001.md") == "word"
    assert overview(shop)[1]["T-001"].attempts == 0
    assert overview(shop)[1]["T-001"].state is State.READY


def test_money_that_is_used_up_begins_nothing_more(tmp_path: Path) -> None:
    shop = workshop(tmp_path, *(fields(f"T-{n:03d}") for n in range(1, 5)))
    done = run_queue(shop, lambda one: agent("paid"), 1, usd=0.05)
    assert len(done) == 2
    assert {one.data["usd"] for one in Ledger(shop.repository).records() if one.kind == "worked"} == {0.03}


def test_two_runners_share_a_queue(tmp_path: Path) -> None:
    shop = workshop(tmp_path, *(fields(f"T-{n:03d}") for n in range(1, 5)))
    root = shop.repository.root
    runners = [
        subprocess.Popen(
            [sys.executable, "-m", "tasks", "agents", "--agent", honest(), "--parallel", "1", "--no-sandbox"],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    said = [runner.communicate(timeout=300)[0] for runner in runners]
    for n in range(1, 5):
        ends = [one.data["verdict"] for one in records(shop, f"T-{n:03d}") if one.kind == "ended"]
        assert ends.count("LANDED") == 1, (ends, said)
    assert entry(shop).task.id == "T-001"
    assert git(root, "status", "--porcelain") == ""
