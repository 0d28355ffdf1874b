"""The command line in this process and in a fresh one; sides without processes; one measured roofline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

import volta.bench
from volta.bench import roofline, sides, suite, train
from volta.bench.cases import AbsentError
from volta.bench.roofline import Roofline
from volta.bench.worker import SERVERS
from volta.cli import main

Bench = Callable[..., "SimpleNamespace"]
Volta = Callable[..., "subprocess.CompletedProcess[str]"]
SCHEMA = json.loads((Path(volta.bench.__file__).parent / "schema.json").read_text())


def valid(document: Any) -> bool:
    """Whether the published schema accepts it, once written and read as JSON."""
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    return jsonschema.Draft202012Validator(SCHEMA).is_valid(json.loads(json.dumps(document)))


class LocalSide:
    """volta.bench.sides.Side without its process: the worker's server, asked directly."""

    def __init__(self, name: str, threads: int, kind: str) -> None:
        self.name = name
        self.server = SERVERS[kind](name, threads)
        self.asked: list[str] = []

    def ask(self, action: str, **request: Any) -> dict[str, Any]:
        self.asked.append(action)
        try:
            answer: dict[str, Any] = getattr(self.server, action)(**request)
        except ImportError as error:
            raise AbsentError(f"not installed ({error})", True) from error
        return answer

    def close(self, patience: float = 0.0) -> None:
        self.server = None


class LocalSides(sides.Sides):
    """Workers without processes, so that a test can seed a defect into them."""

    def get(self, name: str, threads: int) -> Any:
        if (name, threads) not in self._open:
            self._open[name, threads] = LocalSide(name, threads, self._kind)  # type: ignore[assignment]
        return self._open[name, threads]


@pytest.fixture(scope="session")
def ceiling() -> Roofline:
    """Measured once, with short samples: no test judges its figures."""
    return roofline.measure(1, seconds=1e-4)


@pytest.fixture
def quick_roofline(ceiling: Roofline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measured ceiling stands for that of every number of threads and instruction set."""
    monkeypatch.setattr(roofline, "measure", lambda threads, isa="avx2", seconds=0.01: ceiling)


@pytest.fixture
def local(quick_roofline: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalSides]:
    """suite.run and train.run with sides in this process; gives those of suite.run."""
    with LocalSides() as found:
        monkeypatch.setattr(suite, "Sides", lambda: found)
        monkeypatch.setattr(train, "Sides", LocalSides)
        monkeypatch.setattr(train, "measure", roofline.measure)
        yield found


@pytest.fixture
def bench(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """`volta bench ARGUMENTS` in this process: its exit code and what it printed."""

    def run(*arguments: object) -> SimpleNamespace:
        words = ["bench", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", ["volta", *words])
        with pytest.raises(SystemExit) as end:
            main(words)
        said = capsys.readouterr()
        return SimpleNamespace(returncode=end.value.code, stdout=said.out, stderr=said.err)

    return run


@pytest.fixture(scope="session")
def volta_bench() -> Volta:
    """The same in a fresh process; env: further environment variables."""

    def run(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "volta", "bench", *map(str, arguments)]
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **(env or {})},
            timeout=300,
        )

    return run
