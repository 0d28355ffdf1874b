"""What is generated is current or it is said where not; what is written is whole or not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tasks.documents.drift import FILES, READ, drift, generated, write
from tasks.documents.prd import prd
from tasks.errors import TaskError
from tests.tasks.ralphy_queues import (
    CLOSED,
    ROOT,
    configuration,
    open_boxes,
    sample,
    tick,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "AGENTS.md").write_text("# A\n\n## Rules\n\n1. Be right.\n2. Be\n   quick.\n")
    (tmp_path / "governance").mkdir()
    (tmp_path / "governance" / "tiers.yaml").write_text(
        "tiers:\n"
        "  - {id: T0, title: The law, paths: [gates/, tasks/, '*conftest.py'], gates: [lint], approvals: 2}\n"
        "  - {id: T1, title: The rest, paths: [engine/], gates: [lint], approvals: 1}\n"
    )
    return tmp_path


def test_a_missing_and_an_edited_file_are_found_and_writing_ends_it(root: Path) -> None:
    entries = sample()
    assert [line.partition(": ")[0] for line in drift(root, entries, ())] == list(FILES)
    assert write(root, entries, ()) == [root / path for path in FILES]
    assert drift(root, entries, ()) == []
    assert write(root, entries, ()) == []
    page = root / "PRD.md"
    ticked = tick(page.read_text(), min(open_boxes(page.read_text())))
    page.write_text(ticked)
    (root / "tasks.yaml").unlink()
    found = drift(root, entries, ())
    line = next(number for number, text in enumerate(ticked.split("\n"), 1) if CLOSED.match(text))
    assert [one.partition(": ")[0] for one in found] == [f"PRD.md:{line}", "tasks.yaml"]
    assert all("`python -m tasks write`" in one for one in found)
    assert write(root, entries, ()) == [page, root / "tasks.yaml"]
    assert drift(root, entries, ()) == []


def test_what_is_done_and_what_the_law_says_decide_what_is_current(root: Path) -> None:
    entries = sample()
    write(root, entries, ())
    assert [line.partition(":")[0] for line in drift(root, entries, {"T-001"})] == ["PRD.md", "tasks.yaml"]
    agents = root / "AGENTS.md"
    agents.write_text(agents.read_text().replace("Be right", "Be exact"))
    assert [line.partition(":")[0] for line in drift(root, entries, ())] == [".ralphy/config.yaml"]


def test_the_end_of_a_file_belongs_to_it(root: Path) -> None:
    write(root, {}, ())
    with (root / "tasks.yaml").open("a") as file:
        file.write("\n")
    assert len(drift(root, {}, ())) == 1
    (root / "tasks.yaml").write_bytes(b"\xff\xfe")
    assert drift(root, {}, ())[0].startswith("tasks.yaml:1: ")


def test_the_configuration_is_of_the_law_and_the_rules(root: Path) -> None:
    found = configuration(generated(root, {}, ())[".ralphy/config.yaml"])
    assert found.rules == [READ, "Be right.", "Be quick."]
    assert found.boundaries.never_touch == [
        "gates/",
        "tasks/",
        "*conftest.py",
        "PRD.md",
        "tasks.yaml",
        ".ralphy/",
    ]


def test_this_repository_gives_all_files() -> None:
    texts = generated(ROOT, {}, ())
    assert list(texts) == ["PRD.md", "tasks.yaml", ".ralphy/config.yaml"]
    found = configuration(texts[".ralphy/config.yaml"])
    assert found.boundaries.never_touch is not None
    assert {"gates/", "governance/", "tasks/", "PRD.md"} <= set(found.boundaries.never_touch)


@pytest.mark.parametrize(
    ("path", "content", "said"),
    [
        ("AGENTS.md", None, "AGENTS.md: it is not there"),
        ("AGENTS.md", b"\xff", "AGENTS.md: it is no UTF-8"),
        ("AGENTS.md", b"# A\n", "AGENTS.md: it has no numbered list"),
        ("governance/tiers.yaml", None, "governance/tiers.yaml: it is not there"),
        ("governance/tiers.yaml", b"tiers: 3\n", "governance/tiers.yaml:1: tiers"),
    ],
)
def test_a_source_that_cannot_be_read_is_told(
    root: Path, path: str, content: bytes | None, said: str
) -> None:
    (root / path).unlink()
    if content is not None:
        (root / path).write_bytes(content)
    with pytest.raises(TaskError, match=re.escape(said)):
        write(root, {}, ())
    assert not (root / "PRD.md").exists(), "all is generated before anything is written"


def test_nothing_is_written_through_a_link(root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "PRD.md").write_text("mine")
    (root / "PRD.md").symlink_to(outside / "PRD.md")
    assert drift(root, {}, ())[0].startswith("PRD.md: it is not there as a plain file")
    write(root, {}, ())
    assert (outside / "PRD.md").read_text() == "mine"
    assert (root / "PRD.md").read_text() == prd({}, ())
    (root / ".ralphy" / "config.yaml").unlink()
    (root / ".ralphy").rmdir()
    (root / ".ralphy").symlink_to(outside)
    with pytest.raises(TaskError, match=r"\.ralphy.*a link or a directory"):
        write(root, {}, ())
    (root / "PRD.md").unlink()
    (root / "PRD.md").mkdir()
    with pytest.raises(TaskError, match=r"PRD\.md.*a link or a directory"):
        write(root, {}, ())
    assert not (outside / "config.yaml").exists()


def test_a_crash_leaves_the_old_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, {}, ())
    before = (root / "PRD.md").read_bytes()

    def full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space"):
        write(root, sample(), ())
    assert (root / "PRD.md").read_bytes() == before
    monkeypatch.undo()
    write(root, sample(), ())
    assert {path.name for path in root.iterdir()} == {
        "AGENTS.md",
        "governance",
        "PRD.md",
        "tasks.yaml",
        ".ralphy",
    }
