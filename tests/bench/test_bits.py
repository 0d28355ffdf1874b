"""volta bench bits: Volta's outputs do not change with the way of computing them, and a change is counted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.bench.conftest import Bench, valid

from volta.bench import bits
from volta.bench.bits import WAYS, Comparison, compare, outputs, table
from volta.runtime import gateway


@pytest.mark.parametrize("what", [what for what, _ in WAYS.values()])
def test_both_sides_of_every_comparison_agree(what: str) -> None:
    """Here in one process; the command starts one for each side."""
    first, second = (outputs("volta", what, side, 2) for side in (0, 1))
    assert first.size == second.size > 0
    assert first.tobytes() == second.tobytes()


def test_inputs_are_random_and_fixed() -> None:
    for one, again in zip(bits.inputs(), bits.inputs(), strict=True):
        assert one.tobytes() == again.tobytes()
        assert np.count_nonzero(one) > 0.99 * one.size


@pytest.mark.parametrize("changed", [0, 3])
def test_every_changed_element_is_counted(changed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the values are equal and the bits are not: the zeros of both signs."""

    def made(library: str, what: str, side: int, environment: dict[str, str]) -> np.ndarray:
        found = np.zeros(10, np.float32)
        found[:changed] *= -1 if side else 1
        return found

    monkeypatch.setattr(bits, "_run", made)
    for cells in compare(["volta"]).ways.values():
        cell = cells["volta"]
        assert cell == "no AVX-512 here" or cell == {"elements": 10, "differ": changed, "share": changed / 10}


def test_a_library_that_is_not_installed_is_skipped_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so in its own process; Volta is compared all the same."""
    (tmp_path / "torch.py").write_text("raise ImportError('No module named torch')\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setattr(bits, "WAYS", {"prefill, decode": ("decode", ({}, {}))})
    found = compare(["volta", "torch"])
    assert found.ways["prefill, decode"] == {"volta": {"elements": 768, "differ": 0, "share": 0.0}}
    assert found.skipped == (
        "torch: not installed (No module named torch): pip install 'volta-runtime[peers]'",
    )
    assert "- skipped: torch" in table(found)
    assert valid(found.document())


def test_the_command_fails_where_volta_differs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for differ, code in ((0, 0), (5, 1)):
        cell = {"elements": 10, "differ": differ, "share": differ / 10}
        found = Comparison({"a, b": {"volta": cell}}, ())
        monkeypatch.setattr(bits, "compare", lambda libraries, watch, found=found: found)
        done = bench("bits")
        assert done.returncode == code
        assert f"{differ * 10:.1f}% of 10 differ" in done.stdout
        assert ("5 of Volta's elements differ" in done.stderr) == (code == 1)


def test_an_older_instruction_set_is_not_pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without AVX-512 the comparison with it says so instead of comparing AVX2 with itself."""
    info = gateway.cpu_info()
    without = type(info)(info.model, ("ref", "avx2"), (), info.cpus, info.cache_bytes)
    monkeypatch.setattr(bits.gateway, "cpu_info", lambda: without)
    monkeypatch.setattr(bits, "_run", lambda *side: np.zeros(4, np.float32))
    monkeypatch.setattr(sys, "argv", ["volta", "bench", "bits"])
    found = compare(["volta"])
    assert found.ways["AVX2, AVX-512"] == {"volta": "no AVX-512 here"}
    assert "no AVX-512 here" in table(found)
    assert valid(found.document())
