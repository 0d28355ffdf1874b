"""The ledger: a chain that shows what was edited, dropped or moved, and loses nothing when processes die."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gates.trees.repository import Repository
from hypothesis import given
from hypothesis import strategies as st
from tasks.errors import TaskError
from tasks.evidence.ledger import COPY, FIRST, REF, Ledger, compare, following, verify
from tests.gates.repositories import git, repository

ROOT = Path(__file__).parents[2]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def chain(*data: object) -> list[str]:
    records = []
    for number, one in enumerate(data):
        last = records[-1] if records else None
        records.append(
            following(last, f"T-{number:03d}", "judged", {"it": one}, "2026-01-01T00:00:00.000+00:00")
        )
    return [record.line() for record in records]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "it", {"a.txt": "a\n"})


@given(st.lists(JSON, max_size=6))
def test_a_chain_of_any_data_verifies_and_reads_back(data: list[object]) -> None:
    records, wrong = verify(chain(*data))
    assert wrong == []
    assert [record.data["it"] for record in records] == data


@given(st.lists(st.integers(), min_size=2, max_size=6), st.data())
def test_what_was_edited_dropped_moved_or_added_is_found(values: list[int], draw: st.DataObject) -> None:
    lines = chain(*values)
    head = verify(lines)[0][-1].digest
    at = draw.draw(st.integers(0, len(lines) - 1))
    edited = json.loads(lines[at])
    field = draw.draw(st.sampled_from(["task", "kind", "time", "previous"]))
    edited[field] += "x"
    swapped = lines.copy()
    other = (at + 1) % len(lines)
    swapped[at], swapped[other] = swapped[other], swapped[at]
    for tampered in (
        [*lines[:at], json.dumps(edited), *lines[at + 1 :]],
        [*lines[:at], *lines[at + 1 :]],
        [*lines[: at + 1], *lines[at:]],
        [*lines[:at], "{", *lines[at + 1 :]],
        [*lines[:at], json.dumps({**json.loads(lines[at]), "more": 1}), *lines[at + 1 :]],
        swapped,
    ):
        assert verify(tampered, head)[1], tampered


def test_a_chain_made_anew_after_an_edit_has_another_head() -> None:
    head = verify(chain(1, 2, 3))[0][-1].digest
    assert verify(chain(1, 9, 3))[1] == []
    assert verify(chain(1, 9, 3), head)[1]
    assert verify([], FIRST) == ([], [])


def test_records_are_there_for_whoever_reads_next(root: Path) -> None:
    ledger = Ledger(Repository(root))
    assert ledger.records() == ()
    ledger.append("T-001", "claimed", {"attempt": 1, "text": "ä\n\x00" * 3})
    ledger.append("T-001", "judged", {"verdict": "PASS"})
    again = Ledger(Repository(root)).records()
    assert [one.kind for one in again] == ["claimed", "judged"]
    assert again[0].data["text"] == "ä\n\x00" * 3
    assert git(root, "log", "--format=%an", REF).split("\n")[0] == "volta tasks"
    assert git(root, "status", "--porcelain") == ""


def test_a_large_record_is_kept_whole(root: Path) -> None:
    Ledger(Repository(root)).append("T-001", "judged", {"samples": list(range(200_000))})
    assert Ledger(Repository(root)).records()[0].data["samples"][-1] == 199_999


def write_many(root: str, name: str, count: int) -> None:
    ledger = Ledger(Repository(Path(root)))
    for number in range(count):
        ledger.append(name, "n", {"n": number})


def test_writers_at_the_same_time_lose_nothing(root: Path) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(str(root), f"T-{n}", 8)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    records = Ledger(Repository(root)).records()
    for n in range(3):
        assert [one.data["n"] for one in records if one.task == f"T-{n}"] == list(range(8))


def test_a_writer_that_is_killed_leaves_whole_records(root: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from gates.trees.repository import Repository;"
        "from tasks.evidence.ledger import Ledger;"
        "ledger = Ledger(Repository(Path(sys.argv[1])));\n"
        "while True: print(ledger.append('T-1', 'n', {'x': 'y' * 5000}).sequence, flush=True)"
    )
    for _ in range(4):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        writer = subprocess.Popen(
            [sys.executable, "-c", code, str(root)], env=environment, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(3)]
        time.sleep(0.013)
        writer.send_signal(signal.SIGKILL)
        said += writer.communicate()[0].splitlines()
        told = int([one for one in said if one.strip().isdigit()][-1])
        records = Ledger(Repository(root)).records()
        assert len(records) > told


def test_a_clone_adopts_the_copy_and_finds_one_that_was_changed(root: Path, tmp_path: Path) -> None:
    ledger = Ledger(Repository(root))
    for number in range(3):
        ledger.append("T-001", "n", {"n": number})
    copy = root / COPY
    copy.parent.mkdir()
    copy.write_text(ledger.text())
    git(root, "add", "-A")
    git(root, "commit", "-qm", "the copy")
    git(tmp_path, "clone", "-q", str(root), "clone")
    cloned = Repository(tmp_path / "clone")
    assert [one.digest for one in Ledger(cloned).records()] == [one.digest for one in ledger.records()]
    assert git(cloned.root, "rev-parse", REF) == git(root, "rev-parse", REF), "equal records, equal commits"
    assert compare(cloned.root / COPY, Ledger(cloned).records()) == []
    lines = copy.read_text().splitlines(keepends=True)
    copy.write_text("".join(lines[:2]))
    assert compare(copy, ledger.records()) == []
    copy.write_text("".join([lines[0], lines[2]]))
    assert compare(copy, ledger.records())
    copy.write_text("".join(f"{line}\n" for line in chain(7)))
    assert "made anew" in compare(copy, ledger.records())[0]


def test_a_ref_that_was_tampered_with_is_an_error_not_a_guess(root: Path) -> None:
    ledger = Ledger(Repository(root))
    ledger.append("T-001", "n", {})
    git(root, "update-ref", REF, git(root, "rev-parse", "HEAD"))
    with pytest.raises(TaskError, match="is no JSON"):
        Ledger(Repository(root)).records()
