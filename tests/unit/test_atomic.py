"""Atomic writes: either the old content or the new one, and no temporary left behind."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from volta.errors import CheckpointError
from volta.storage import atomic

PARTS = (b"first ", memoryview(b""), memoryview(b"second"))


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _failing(code: int) -> Callable[..., int]:
    def call(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    return call


def test_the_parts_become_the_content_and_nothing_else_is_left(tmp_path: Path) -> None:
    atomic.write(tmp_path / "file", PARTS, 12)
    assert (tmp_path / "file").read_bytes() == b"first second"
    assert _names(tmp_path) == ["file"]


def test_a_short_write_is_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:1]))
    atomic.write(tmp_path / "file", PARTS, 12)
    assert (tmp_path / "file").read_bytes() == b"first second"


def test_file_and_directory_are_synced_in_this_order_around_the_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    for name in ("write", "fsync", "replace"):
        real = getattr(os, name)

        def recorded(*a: Any, n: str = name, r: Callable[..., Any] = real, **k: Any) -> Any:
            calls.append(n)
            return r(*a, **k)

        monkeypatch.setattr(os, name, recorded)
    atomic.write(tmp_path / "file", (b"x",), 1)
    assert calls == ["write", "fsync", "replace", "fsync"]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (errno.ENOSPC, "needs 12 bytes: its disk is full"),
        (errno.EDQUOT, "needs 12 bytes: the disk quota is used up"),
        (errno.EFBIG, "needs 12 bytes: the limit on file sizes is smaller"),
        (errno.EIO, "cannot be written: Input/output error"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_refused_write_leaves_the_old_file_and_no_temporary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int, reason: str
) -> None:
    path = tmp_path / "file"
    atomic.write(path, (b"old",), 3)
    monkeypatch.setattr(os, call, _failing(code))
    with pytest.raises(CheckpointError) as caught:
        atomic.write(path, PARTS, 12)
    assert str(caught.value).startswith(f"[checkpoint] {path} {reason}")
    assert "\n" not in str(caught.value)
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["file"]


def test_an_interrupt_while_writing_leaves_the_old_file_and_no_temporary(tmp_path: Path) -> None:
    def interrupted() -> object:
        yield b"new"
        raise KeyboardInterrupt

    path = tmp_path / "file"
    atomic.write(path, (b"old",), 3)
    with pytest.raises(KeyboardInterrupt):
        atomic.write(path, interrupted(), 6)  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["file"]


def test_the_temporaries_of_dead_writers_are_removed_and_those_of_living_ones_kept(tmp_path: Path) -> None:
    dead, alive = tmp_path / ".volta-dead.tmp", tmp_path / ".volta-alive.tmp"
    dead.write_bytes(b"half")
    other = tmp_path / ".other.tmp"
    other.write_bytes(b"not ours")
    with alive.open("wb") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        atomic.write(tmp_path / "file", PARTS, 12)
        assert _names(tmp_path) == [".other.tmp", ".volta-alive.tmp", "file"]


def test_a_writer_whose_temporary_was_taken_before_its_lock_makes_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock
    taken: list[Path] = []

    def cleaner_comes_first(descriptor: int, operation: int) -> None:
        if not taken:
            taken.extend(tmp_path.glob(".volta-*.tmp"))
            taken[0].unlink()
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", cleaner_comes_first)
    atomic.write(tmp_path / "file", PARTS, 12)
    assert len(taken) == 1
    assert _names(tmp_path) == ["file"]


def test_a_file_system_without_locks_is_written_and_its_temporaries_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".volta-someone.tmp").write_bytes(b"")
    monkeypatch.setattr(fcntl, "flock", _failing(errno.ENOLCK))
    atomic.write(tmp_path / "file", PARTS, 12)
    assert _names(tmp_path) == [".volta-someone.tmp", "file"]


def test_a_file_system_that_cannot_sync_directories_is_accepted_and_an_error_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", _failing(errno.EINVAL))
    atomic.sync_directory(tmp_path)
    monkeypatch.setattr(os, "fsync", _failing(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        atomic.sync_directory(tmp_path)


def test_a_full_disk_that_cannot_tell_its_free_space_is_still_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "write", _failing(errno.ENOSPC))
    monkeypatch.setattr(os, "statvfs", _failing(errno.ENOSYS))
    with pytest.raises(CheckpointError, match="its disk is full; nothing was changed"):
        atomic.write(tmp_path / "file", PARTS, 12)


def test_directories_are_made_with_their_parents(tmp_path: Path) -> None:
    atomic.make_directory(tmp_path / "a" / "b")
    atomic.make_directory(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("below", ["file", "file/run"])
def test_a_directory_cannot_be_made_where_a_file_is(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(CheckpointError, match="cannot be created"):
        atomic.make_directory(tmp_path / below)


def test_a_missing_directory_is_an_error_and_not_made(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="No such file or directory"):
        atomic.write(tmp_path / "missing" / "file", PARTS, 12)
