"""No crash and no full disk loses a checkpoint that `save` has returned from."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from volta.train import checkpoint as ck

WRITER = Path(__file__).with_name("checkpoint_writer.py")
KILLS = 200


def _load_writer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("checkpoint_writer", WRITER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


writer: Any = _load_writer()


class _Server:
    """The writer program: one fork per command, so that a kill costs milliseconds."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._commands, self._lines = process.stdin, process.stdout

    def start(self, *command: object) -> int:
        """Give a command; the process that carries it out."""
        self._commands.write(" ".join(map(str, command)) + "\n")
        self._commands.flush()
        word, pid = self.read()
        while word != "pid":
            word, pid = self.read()
        return pid

    def read(self) -> tuple[str, int]:
        word, number = self._lines.readline().split()
        return word, int(number)


@contextmanager
def _serving(run: Path) -> Iterator[_Server]:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, str(WRITER), "serve", str(run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as process:
        yield _Server(process)
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait() == 0


def _temporaries(run: Path) -> list[Path]:
    return list(run.glob(".volta-*.tmp"))


def test_killed_200_times_at_random_points_never_loses_a_checkpoint(tmp_path: Path) -> None:
    """After each kill: every file is complete, and the newest is the last acknowledged or the one after."""
    run = tmp_path / "run"
    ck.save(run, writer.content(0))
    delays = random.Random(20240229)
    acknowledged, interrupted = 0, 0
    with _serving(run) as server:
        for _ in range(KILLS):
            pid = server.start("loop", acknowledged + 1)
            time.sleep(delays.uniform(0.0, 0.025))
            os.kill(pid, signal.SIGKILL)
            word, number = server.read()
            while word == "saved":
                acknowledged = number
                word, number = server.read()
            assert (word, number) == ("dead", signal.SIGKILL)
            interrupted += bool(_temporaries(run))
            steps = [step for step, _ in ck.steps(run)]
            assert steps[-1] in (acknowledged, acknowledged + 1)
            for step, path in ck.steps(run):
                assert writer.same(ck.load(path), writer.content(step))
            acknowledged = steps[-1]
    assert interrupted >= 5  # some kills fell into a write: the test means something
    ck.save(run, writer.content(acknowledged + 1))
    assert _temporaries(run) == []


@pytest.mark.parametrize("when", ["before", "in", "after"])
def test_a_crash_at_any_system_call_leaves_the_old_checkpoint_or_the_new_one(
    tmp_path: Path, when: str
) -> None:
    """Enumerated: call 0, 1, 2, ... of a save, until a save gets through."""
    run = tmp_path / "run"
    with _serving(run) as server:
        outcomes: list[int] = []
        for call in range(1000):
            shutil.rmtree(run, ignore_errors=True)
            ck.save(run, writer.content(7, 16))
            server.start("crash", 8, call, when)
            word, status = server.read()
            assert word == "dead"
            loaded = ck.load(run)
            assert loaded.step in (7, 8)
            assert writer.same(loaded, writer.content(loaded.step, 16))
            for _, path in ck.steps(run):
                ck.load(path)
            if status == 0:
                break
            assert status == signal.SIGKILL
            outcomes.append(loaded.step)
            ck.save(run, writer.content(9, 16))
            assert _temporaries(run) == []
    assert loaded.step == 8
    assert [step for step, _ in ck.steps(run)] == [8]
    assert outcomes == sorted(outcomes)  # before the rename the old one, from then on the new one
    assert outcomes.count(7) >= 7
    assert outcomes.count(8) >= 3


@pytest.mark.parametrize("call", range(3))
def test_a_crash_while_the_run_directory_is_made_leaves_nothing_to_repair(tmp_path: Path, call: int) -> None:
    run = tmp_path / "a" / "run"
    with _serving(run) as server:
        server.start("crash", 1, call, "after")
        assert server.read() == ("dead", signal.SIGKILL)
    ck.save(run, writer.content(1, 16))
    assert ck.load(run).step == 1


def _assert_refused(report: dict[str, Any], run: Path, reason: str) -> None:
    step = report["step"]
    assert step > 1
    name = f"step-{step:08d}.safetensors"
    assert report["error"].startswith(f"[checkpoint] {run / name} needs ")
    assert reason in report["error"]
    assert report["left"] == [f"step-{step - 1:08d}.safetensors"]
    assert report["intact"]
    assert report["again"]


def test_a_limit_on_file_sizes_refuses_a_checkpoint_and_keeps_the_one_before(tmp_path: Path) -> None:
    command = [sys.executable, str(WRITER), "fill", str(tmp_path), str(1 << 20)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    _assert_refused(json.loads(done.stdout), tmp_path, "the limit on file sizes is smaller")


def test_a_full_disk_refuses_a_checkpoint_and_keeps_the_one_before(tmp_path: Path) -> None:
    """On a file system of one MiB, mounted in a name space of its own."""
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs the program unshare")
    inside = [unshare, "--mount", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    mount = 'mount -t tmpfs -o size=1m tmpfs "$0"'
    if subprocess.run([*inside, mount, str(tmp_path)], capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a file system of its own")
    command = [sys.executable, str(WRITER), "fill", str(tmp_path), "0"]
    done = subprocess.run(
        [*inside, f'{mount} && exec "$@"', str(tmp_path), *command],
        capture_output=True,
        text=True,
        check=True,
    )
    _assert_refused(json.loads(done.stdout), tmp_path, "its disk is full (")
