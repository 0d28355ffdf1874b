"""Training with linear layers in bf16 (N9): f32 masters, resuming to the bit, losses near those of f32."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.e2e.conftest import CONFIGS, Volta, settings
from tests.ops.parity import Array, assert_same_bits, isas

from volta.dtypes import bfloat16_from_float32, float32_from_bfloat16
from volta.infer.weights import LINEAR
from volta.model.config import Config, named
from volta.runtime.policy import runtime
from volta.train import checkpoint
from volta.train.loop import Settings, Trainer, resume, settings_of
from volta.train.optim import Optimizer
from volta.train.schedule import Schedule
from volta.train.text import load_text


def bf16(name: str, **changes: object) -> Config:
    return replace(CONFIGS[name], dtype="bf16", **changes)  # type: ignore[arg-type]


def losses(chosen: Settings, text: bytes) -> list[float]:
    return [report.loss for report in Trainer(chosen, text).steps()]


# --- the loss --------------------------------------------------------------------------------------


def assert_within_a_percent(found: list[float], expected: list[float], last: int) -> None:
    """Over the whole curve and at its end, where it fell far enough to mean something."""
    assert expected[0] - np.mean(expected[-last:]) > 1.0
    for part in (slice(None), slice(-last, None)):
        assert np.mean(found[part]) == pytest.approx(np.mean(expected[part]), rel=0.01)
    assert found != expected


@pytest.mark.parametrize("config", CONFIGS)
def test_losses_stay_within_a_percent_of_f32(text: bytes, config: str) -> None:
    found, expected = (
        losses(settings(replace(CONFIGS[config], dtype=dtype), steps=60), text) for dtype in ("bf16", "f32")
    )
    assert_within_a_percent(found, expected, 15)


@pytest.mark.slow
def test_losses_of_the_quickstart_stay_within_a_percent_of_f32() -> None:
    """Its model and its text, for as many steps as `volta quickstart --short`."""
    text = load_text(None)
    found, expected = (
        losses(
            Settings(
                named("tiny", dtype=dtype),
                Schedule("cosine", 3e-3, 60, 15, 0.1),
                evaluate_every=0,
                save_every=0,
            ),
            text,
        )
        for dtype in ("bf16", "f32")
    )
    assert_within_a_percent(found, expected, 15)


# --- masters ---------------------------------------------------------------------------------------


def is_bf16(values: Array) -> npt.NDArray[np.bool_]:
    """Which of the numbers a bf16 holds."""
    return np.asarray(float32_from_bfloat16(bfloat16_from_float32(values)) == values)


@pytest.mark.parametrize("config", CONFIGS)
def test_a_checkpoint_holds_f32_masters_and_state(text: bytes, tmp_path: Path, config: str) -> None:
    """Not only in dtype: their lower halves are used, so nothing was rounded on the way."""
    trainer = Trainer(settings(bf16(config), steps=3), text, tmp_path)
    list(trainer.steps())
    saved = checkpoint.load(tmp_path)
    assert saved.config["dtype"] == "bf16"
    for name, array in (*saved.parameters.items(), *saved.optimizer.items()):
        assert array.dtype == np.float32, name
    for name, array in saved.parameters.items():
        assert_same_bits(array, trainer.parameters[name], name)
        if f".{name}".endswith(LINEAR):
            for values in (array, saved.optimizer[f"m/{name}"], saved.optimizer[f"v/{name}"]):
                assert is_bf16(values).mean() < 0.05, name


def test_updates_below_a_bf16s_last_place_are_not_lost(text: bytes) -> None:
    """Each moves the masters, although no bf16 factor changes at first; together they reach it."""
    rate = 2e-7
    chosen = replace(
        settings(bf16("gpt"), steps=120, batch=1),
        schedule=Schedule("constant", rate, 120),
        optimizer=Optimizer("adam", clip=0.0),
    )
    trainer = Trainer(chosen, text)
    name = "block0.mlp.up.weight"
    start = trainer.parameters[name].copy()
    steps = trainer.steps()
    next(steps)
    moved = np.abs(trainer.parameters[name] - start)
    large = np.abs(start) > 0.01  # their last place in bf16 is 2^-14 or more
    assert (moved[large] > 0).mean() > 0.9
    first = bfloat16_from_float32(start) != bfloat16_from_float32(trainer.parameters[name])
    assert first[large].mean() < 0.02
    list(itertools.islice(steps, 119))
    later = bfloat16_from_float32(start) != bfloat16_from_float32(trainer.parameters[name])
    assert later[large].mean() > 3 * first[large].mean()


def test_linear_layers_alone_are_products_of_bf16(text: bytes) -> None:
    """Forward and gradients: every matmul of the step; attention, norms and losses take f32."""
    steps = Trainer(settings(bf16("llama"), steps=1), text).plan.steps
    kinds = {"matmul": "bf16", "attention": "f32", "attention_grad": "f32", "cross_entropy": "f32"}
    for kernel, dtype in kinds.items():
        found = [step for step in steps if step.kernel == kernel]
        assert found, kernel
        for step in found:
            factors = step.reads()[:2] if kernel == "matmul" else step.reads()[:1]
            assert {view.dtype.name for view in factors} == {dtype}, kernel


# --- resuming --------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", CONFIGS)
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(
    text: bytes, tmp_path: Path, config: str
) -> None:
    """Also where it goes on under another instruction set and number of threads."""
    chosen = settings(bf16(config, dropout=0.1), steps=8, shards=2, evaluate_every=4)
    whole = Trainer(chosen, text, tmp_path / "whole")
    reports = list(whole.steps())
    first = Trainer(chosen, text, tmp_path / "parts")
    list(itertools.islice(first.steps(), 3))
    first.save()
    with runtime(isa=isas()[:2][-1], threads=1):
        second = resume(tmp_path / "parts", text)
        assert settings_of(checkpoint.load(tmp_path / "parts")) == second.settings == chosen
        rest = list(second.steps())
    assert second.weights_sha256() == whole.weights_sha256()
    assert [r.loss for r in rest] == [r.loss for r in reports[3:]]
    assert [r.validation for r in rest] == [r.validation for r in reports[3:]]
    a, b = checkpoint.load(tmp_path / "whole"), checkpoint.load(tmp_path / "parts")
    for name in a.optimizer:
        assert_same_bits(a.optimizer[name], b.optimizer[name], name)


SMALL = ("--config", "micro", "--batch", 2, "--warmup", 0, "--evaluate-every", 0, "--schedule", "constant")


def test_the_command_trains_resumes_and_reports_bf16(volta: Volta, text_file: Path, tmp_path: Path) -> None:
    """Fresh processes, different instruction sets and threads: one hash; f32 has another."""
    plain = {"VOLTA_ISA": isas()[:2][-1], "VOLTA_NUM_THREADS": "1"}
    common = ("train", "--text", text_file, *SMALL, "--json")
    done = [
        volta(*common, "--dtype", "bf16", "--steps", 3, "--out", tmp_path / "a", env=plain),
        volta(*common, "--dtype", "bf16", "--steps", 2, "--out", tmp_path / "b"),
        volta("train", "--resume", tmp_path / "b", "--steps", 3, "--json", env={"VOLTA_NUM_THREADS": "2"}),
        volta(*common, "--steps", 3, "--out", tmp_path / "c"),
    ]
    assert [one.returncode for one in done] == [0, 0, 0, 0], [one.stderr for one in done]
    whole, _, rest, single = (json.loads(one.stdout)["weights_sha256"] for one in done)
    assert whole == rest != single
    described = json.loads(volta("info", tmp_path / "b", "--json").stdout)
    assert described["config"]["dtype"] == "bf16"
    refused = volta("train", "--resume", tmp_path / "b", "--dtype", "f32", "--steps", 9)
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "leave out --dtype" in refused.stderr


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("int8", "[train] dtype is int8: expected f32 or bf16"),
        ("f16", "[config] dtype is 'f16': expected one of f32, bf16, int8"),
        ("", "[config] dtype is '': expected one of"),
    ],
)
def test_a_dtype_that_cannot_be_trained_is_one_clear_line(
    volta: Volta, text_file: Path, tmp_path: Path, dtype: str, said: str
) -> None:
    done = volta("train", "--text", text_file, "--out", tmp_path / "x", "--dtype", dtype)
    assert done.returncode == 2
    assert done.stderr.startswith(f"volta: {said}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
