"""A cache directory for each test, and a ceiling that nobody measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from volta.backends.cpu import tuned
from volta.bench.roofline import Level, Roofline
from volta.runtime import gateway


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """VOLTA_CACHE, empty, and nothing ships; nothing of it is known when the test ends."""
    directory = tmp_path / "cache"
    monkeypatch.setenv("VOLTA_CACHE", str(directory))
    monkeypatch.setattr(tuned, "SHIPPED", tmp_path / "shipped")
    tuned.forget()
    gateway.clear_caches()
    yield directory
    tuned.forget()
    gateway.clear_caches()


@pytest.fixture
def ceiling() -> Roofline:
    """Some machine: what a search is told of it may only change what is tried first."""
    peaks = {"fma": 1e11, "add": 5e10, "divide": 1e10, "sqrt": 1e10, "bf16": 0.0, "i8": 2e11}
    levels = (
        Level("L1", 32768.0, 16384, 2e11, 1e11, 1e11),
        Level("L2", 1048576.0, 524288, 1e11, 5e10, 5e10),
        Level("memory", float("inf"), 1 << 27, 1e10, 1e10, 1e10),
    )
    return Roofline(2, "avx2", peaks, levels, 2e-6)
