"""One gate that measures has the host for itself; the others share it; nobody waits for ever."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from gates.host import HELD, host

from gates import host as module

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def own_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks of this test's own: the gate that runs the tests holds the real ones."""
    monkeypatch.setattr(module.tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.delenv(HELD, raising=False)


class Holder:
    """A gate in a thread: came in, may leave, has waited."""

    def __init__(self, exclusive: bool) -> None:
        self.inside, self.leave, self.waits = threading.Event(), threading.Event(), threading.Event()
        self.thread = threading.Thread(target=self.run, args=(exclusive,), daemon=True)
        self.thread.start()

    def run(self, exclusive: bool) -> None:
        with host(exclusive, lambda line: self.waits.set()):
            self.inside.set()
            self.leave.wait(WAIT_S)

    def end(self) -> None:
        self.leave.set()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()


def test_gates_that_do_not_measure_run_side_by_side() -> None:
    one, other = Holder(False), Holder(False)
    assert one.inside.wait(WAIT_S)
    assert other.inside.wait(WAIT_S)
    one.end()
    other.end()


@pytest.mark.parametrize("first", [False, True])
def test_one_that_measures_waits_for_others_and_others_for_it(first: bool) -> None:
    one = Holder(first)
    assert one.inside.wait(WAIT_S)
    other = Holder(not first)
    assert other.waits.wait(WAIT_S)
    assert not other.inside.is_set()
    one.end()
    assert other.inside.wait(WAIT_S)
    other.end()


def test_a_stream_of_others_does_not_pass_one_that_waits_to_measure() -> None:
    one = Holder(False)
    assert one.inside.wait(WAIT_S)
    measuring = Holder(True)
    assert measuring.waits.wait(WAIT_S)
    late = Holder(False)
    assert late.waits.wait(WAIT_S)
    one.end()
    assert measuring.inside.wait(WAIT_S)
    assert not late.inside.is_set()
    measuring.end()
    assert late.inside.wait(WAIT_S)
    late.end()


def test_a_gate_inside_a_gate_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Holder(True)
    assert one.inside.wait(WAIT_S)
    monkeypatch.setenv(HELD, "1")
    with host(True):
        pass
    one.end()


def test_a_lock_file_is_never_a_link(tmp_path: Path) -> None:
    for name in ("door", "host"):
        module.lock(name).close()
    (file,) = tmp_path.glob("*.door")
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"), host(False):
        pass
