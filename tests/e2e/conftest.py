"""One small model, trained once per worker, and the command line as a user starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from volta.model.config import Config
from volta.train.loop import Settings, Trainer
from volta.train.schedule import Schedule
from volta.train.synthetic import synthetic_text

CONFIGS = {
    "gpt": Config(vocabulary=128, context=48, depth=2, width=48, heads=3, kv_heads=3),
    "llama": Config(
        vocabulary=128,
        context=48,
        depth=2,
        width=64,
        heads=4,
        kv_heads=2,
        norm="rms",
        activation="silu",
        positions="rotary",
        tied=False,
        bias=False,
    ),
}
Volta = Callable[..., "subprocess.CompletedProcess[str]"]


def settings(config: Config, steps: int = 24, **changes: object) -> Settings:
    """A short run: everything that matters, nothing that takes long."""
    values: dict[str, object] = {
        "batch": 4,
        "seed": 3,
        "evaluate_every": 0,
        "save_every": 0,
        "validation": 0.1,
    }
    return Settings(config, Schedule("cosine", 3e-3, steps, min(4, steps), 0.1), **{**values, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def text() -> bytes:
    return synthetic_text(30_000)


@pytest.fixture(scope="session", params=CONFIGS)
def trained(request: pytest.FixtureRequest, text: bytes, tmp_path_factory: pytest.TempPathFactory) -> Trainer:
    """A finished run with its directory."""
    directory = tmp_path_factory.mktemp("run") / request.param
    trainer = Trainer(settings(CONFIGS[request.param]), text, directory)
    for _ in trainer.steps():
        pass
    return trainer


@pytest.fixture(scope="session")
def text_file(text: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_bytes(text)
    return path


@pytest.fixture(scope="session")
def volta() -> Volta:
    """Runs `volta ARGUMENTS` in a fresh process; env: further environment variables."""

    def run(*arguments: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "volta", *map(str, arguments)]
        environment = {**os.environ, **(env or {})}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, timeout=300
        )

    return run
