"""The dtype of a configuration: optional in files of before it existed, checked everywhere."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.ops.parity import assert_same_bits

import volta as vt
from volta.cli.loading import load_model
from volta.errors import CheckpointError, UsageError
from volta.infer.weights import Weights
from volta.model.config import ADDED_LATER, CONFIGS, Config, from_dict, named
from volta.model.transformer import tinylm
from volta.train import checkpoint
from volta.train.loop import Settings, Trainer, resume
from volta.train.schedule import Schedule
from volta.train.synthetic import synthetic_text

TINY = Config(vocabulary=128, context=8, depth=1, width=16, heads=2, kv_heads=2)
TEXT = synthetic_text(3000)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two steps of four, at constant rate."""
    directory = tmp_path / "run"
    chosen = Settings(TINY, Schedule("constant", 1e-3, 2, 0), batch=2, evaluate_every=0, save_every=0)
    list(Trainer(chosen, TEXT, directory).steps())
    return directory


def rewritten(run: Path, path: Path, config: dict[str, object]) -> Path:
    """The run's checkpoint with another configuration in it."""
    checkpoint.save(path, replace(checkpoint.load(run), config=config))
    return path


def without_dtype(config: Config) -> dict[str, object]:
    return {name: value for name, value in config.to_dict().items() if name != "dtype"}


@pytest.mark.parametrize("name", CONFIGS)
def test_a_configuration_without_dtype_is_f32(name: str) -> None:
    old = json.loads(json.dumps(without_dtype(CONFIGS[name])))
    assert from_dict(old) == CONFIGS[name]
    assert from_dict(old).dtype == "f32"


@pytest.mark.parametrize("dtype", ["f32", "bf16", "int8"])
def test_a_dtype_survives_json(dtype: str) -> None:
    chosen = named("tiny", dtype=dtype)
    assert from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen


def test_only_what_was_added_later_may_be_missing() -> None:
    values = TINY.to_dict()
    assert set(values) >= ADDED_LATER == {"dtype"}
    for missing in values.keys() - ADDED_LATER:
        with pytest.raises(UsageError, match=rf"fields differ from this version's: .*{missing}"):
            from_dict({name: value for name, value in values.items() if name != missing})
    with pytest.raises(UsageError, match=r"fields differ from this version's: .*future"):
        from_dict({**values, "future": 1})


@pytest.mark.parametrize("dtype", ["f16", "i8", "BF16", "", 1, None, ["bf16"], True])
def test_an_unknown_dtype_is_refused(dtype: object) -> None:
    message = r"^\[config\] dtype is .*: expected one of f32, bf16, int8$"
    with pytest.raises(UsageError, match=message):
        from_dict({**TINY.to_dict(), "dtype": dtype})


def test_a_checkpoint_without_dtype_loads_as_f32(run: Path, tmp_path: Path) -> None:
    """For generating: the same configuration, the same bits."""
    old = rewritten(run, tmp_path / "old", without_dtype(TINY))
    _, config, model, parameters = load_model(old)
    assert config == TINY
    tokens = vt.asarray([[1, 2, 3]])
    _, _, newer, others = load_model(run)
    assert_same_bits(model(parameters, tokens).numpy(), newer(others, tokens).numpy())


def test_a_checkpoint_without_dtype_goes_on_with_the_same_bits(run: Path, tmp_path: Path) -> None:
    old = rewritten(run, tmp_path / "old", without_dtype(TINY))
    hashes = []
    for path in (run, old):
        trainer = resume(path, TEXT, 4, tmp_path / f"{path.name}-on")
        assert trainer.settings.config == TINY
        list(trainer.steps())
        hashes.append(trainer.weights_sha256())
    assert hashes[0] == hashes[1]


def test_a_checkpoint_of_an_unknown_dtype_is_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    wrong = rewritten(run, tmp_path / "new", {**TINY.to_dict(), "dtype": "f8"})
    for load in (lambda: load_model(wrong), lambda: resume(wrong, TEXT, 4)):
        with pytest.raises(
            CheckpointError, match=r"dtype is 'f8': expected one of f32, bf16, int8"
        ) as caught:
            load()
        assert "\n" not in str(caught.value)


def test_whole_numbers_are_not_trained() -> None:
    with pytest.raises(UsageError, match=r"\[train\] dtype is int8: expected f32 or bf16"):
        Settings(replace(TINY, dtype="int8"), Schedule("constant", 1e-3, 2))


def test_an_f32_run_is_not_taken_up_as_bf16(run: Path, tmp_path: Path) -> None:
    """The training graph is another one: going on would give the bits of neither run."""
    other = rewritten(run, tmp_path / "other", {**TINY.to_dict(), "dtype": "bf16"})
    with pytest.raises(CheckpointError, match="another training graph"):
        resume(other, TEXT, 4)


def test_the_dtype_declares_the_same_parameters(run: Path) -> None:
    """Masters are f32 whatever multiplies them, so any dtype takes weights trained under another."""
    for dtype in ("f32", "bf16", "int8"):
        assert dict(tinylm(replace(TINY, dtype=dtype)).parameters) == dict(tinylm(TINY).parameters)
    _, config, model, parameters = load_model(run, Weights("int8", 8, "int8"))
    assert config.dtype == "int8"
    assert model(parameters, vt.asarray([[1, 2, 3]])).shape == (3, 128)


@pytest.mark.parametrize("dtype", ["f16", "float32", "BF16", ""])
def test_a_layer_of_an_unknown_dtype_is_not_computed_in_f32(dtype: str) -> None:
    message = rf"\[model\] dtype of up is '{dtype}': expected one of f32, bf16, int8"
    with pytest.raises(UsageError, match=message):
        vt.ModelBuilder.build(lambda build, x: build.linear("up", x, 4, dtype=dtype), vt.zeros((2, 3)))
