"""The committed hashes: what they are of, and that they are current."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest

from volta.errors import CheckpointError
from volta.train import bits


def test_the_committed_file_is_what_the_reference_kernels_give(tmp_path: Path) -> None:
    """bits.json is generated; this proves that it is current."""
    bits.write(tmp_path / "bits.json")
    made = json.loads((tmp_path / "bits.json").read_text())
    assert made == json.loads(files("volta.train").joinpath("bits.json").read_text())
    assert made["weights_sha256"] == bits.committed()


def test_hashes_of_another_recipe_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bits, "STEPS", bits.STEPS + 1)
    with pytest.raises(CheckpointError, match="other cases"):
        bits.committed()


def test_the_cases_learn() -> None:
    """A hash of weights that never moved would prove nothing."""
    for _, _, loss in bits.measure():
        assert loss < 4.6
