"""Training: the loss falls, resumed = uninterrupted, failures stop cleanly, memory stays."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.e2e.conftest import CONFIGS, settings
from tests.ops.parity import assert_same_bits

from volta import functions as F
from volta.errors import CheckpointError, DataError, NotFiniteError, UsageError
from volta.train import checkpoint
from volta.train.loop import Settings, Trainer, resume, settings_of
from volta.train.optim import Optimizer
from volta.train.schedule import Schedule
from volta.train.step import tree_sum


def test_the_loss_falls_on_both_architectures(trained: Trainer, text: bytes) -> None:
    assert trained.first_loss is not None
    assert trained.first_loss == pytest.approx(np.log(128), rel=0.05)
    assert trained.evaluate() < trained.first_loss - 1.0


@pytest.mark.parametrize(
    "optimizer",
    [
        Optimizer("sgd", weight_decay=0.01),
        Optimizer("adam"),
        Optimizer("adamw"),
        Optimizer("adamw", clip=0.0),
    ],
    ids=lambda o: f"{o.kind}-{o.clip}",
)
@pytest.mark.parametrize("schedule", ["cosine", "linear", "constant"])
def test_every_optimizer_and_schedule_learns(text: bytes, optimizer: Optimizer, schedule: str) -> None:
    rate = 0.1 if optimizer.kind == "sgd" else 3e-3
    chosen = replace(settings(CONFIGS["gpt"]), optimizer=optimizer, schedule=Schedule(schedule, rate, 16, 2))  # type: ignore[arg-type]
    losses = [report.loss for report in Trainer(chosen, text).steps()]
    assert losses[-1] < losses[0] - 0.3


@pytest.mark.parametrize("stop", [1, 5, 11])
def test_a_resumed_run_ends_with_the_bits_of_an_uninterrupted_one(
    text: bytes, tmp_path: Path, stop: int
) -> None:
    """Weights, optimizer state and reports: all equal, also with dropout and shards."""
    config = replace(CONFIGS["gpt"], dropout=0.1)
    chosen = settings(config, steps=12, shards=2, evaluate_every=4)
    whole = Trainer(chosen, text, tmp_path / "whole")
    reports = list(whole.steps())
    first = Trainer(chosen, text, tmp_path / "parts")
    list(itertools.islice(first.steps(), stop))
    first.save()
    second = resume(tmp_path / "parts", text)
    rest = list(second.steps())
    assert second.weights_sha256() == whole.weights_sha256()
    a, b = checkpoint.load(tmp_path / "whole"), checkpoint.load(tmp_path / "parts")
    assert a.optimizer.keys() == b.optimizer.keys()
    for name in a.optimizer:
        assert_same_bits(a.optimizer[name], b.optimizer[name])
    assert a.state["early_stop"] == b.state["early_stop"]
    assert [r.loss for r in rest] == [r.loss for r in reports[stop:]]
    assert [r.validation for r in rest] == [r.validation for r in reports[stop:]]


def test_resuming_on_another_text_is_refused(trained: Trainer, text: bytes) -> None:
    assert trained.directory is not None
    with pytest.raises(DataError, match="sha256"):
        resume(trained.directory, text + b"x")


def test_resuming_another_training_graph_is_refused(text: bytes, tmp_path: Path) -> None:
    trainer = Trainer(settings(CONFIGS["gpt"], steps=2), text, tmp_path)
    list(trainer.steps())
    saved = checkpoint.load(tmp_path)
    checkpoint.save(tmp_path, replace(saved, step=3, graph="0" * 64))
    with pytest.raises(CheckpointError, match="another training graph"):
        resume(tmp_path, text)


def test_a_checkpoint_of_another_model_is_refused(trained: Trainer, text: bytes, tmp_path: Path) -> None:
    saved = trained.snapshot()
    narrower = replace(trained.settings.config, hidden=64)
    checkpoint.save(tmp_path, replace(saved, config=narrower.to_dict()))
    with pytest.raises(CheckpointError, match=r"mlp\.(up|down)\.weight"):
        resume(tmp_path, text)


def test_settings_survive_a_checkpoint(trained: Trainer) -> None:
    assert trained.directory is not None
    assert settings_of(checkpoint.load(trained.directory)) == trained.settings


def test_settings_of_another_version_are_refused(trained: Trainer) -> None:
    with pytest.raises(CheckpointError, match="no settings"):
        settings_of(replace(trained.snapshot(), data={}))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_number_that_is_not_finite_stops_before_the_update(
    text: bytes, tmp_path: Path, value: float
) -> None:
    """Step, tensor and last good checkpoint are named; the weights are as before the step."""
    trainer = Trainer(settings(CONFIGS["gpt"]), text, tmp_path)
    list(itertools.islice(trainer.steps(), 2))
    saved = trainer.save()
    trainer.parameters["block1.mlp.up.bias"][3] = value
    before = {name: array.copy() for name, array in trainer.parameters.items()}
    with pytest.raises(
        NotFiniteError, match=r"(the loss|the gradient of \S+) is NaN or infinite at step 3"
    ) as caught:
        trainer.advance()
    assert str(saved) in str(caught.value)
    for name, array in trainer.parameters.items():
        assert_same_bits(array, before[name])
    assert trainer.step == 2


def test_early_stop_ends_a_run_that_no_longer_learns(text: bytes, tmp_path: Path) -> None:
    chosen = replace(
        settings(CONFIGS["gpt"], steps=40, evaluate_every=2, patience=2),
        schedule=Schedule("constant", 1e-12, 40),
    )
    trainer = Trainer(chosen, text, tmp_path)
    trainer.early_stop = replace(trainer.early_stop, best=0.0)
    reports = list(trainer.steps())
    assert len(reports) == 4
    assert reports[-1].saved is not None


def test_the_gradient_of_shards_is_a_fixed_tree() -> None:
    """N12: ((0 + 1) + (2 + 3)) + 4, an odd one carried up."""
    terms = [1e8, 1.0, -1e8, 1.0, 0.25]
    found = tree_sum(lambda shard: {"g": F.asarray(np.float32(terms[shard]))}, 5)["g"].item()
    f = np.float32
    assert found == (f(1e8) + f(1.0)) + (f(-1e8) + f(1.0)) + f(0.25)


def test_accumulating_over_shards_is_close_to_one_large_batch(text: bytes) -> None:
    one = list(Trainer(settings(CONFIGS["gpt"], steps=4, batch=8, shards=1), text).steps())
    two = list(Trainer(settings(CONFIGS["gpt"], steps=4, batch=4, shards=2), text).steps())
    assert [r.loss for r in one] == pytest.approx([r.loss for r in two], rel=1e-4)


def test_the_arena_is_used_to_its_last_planned_byte(trained: Trainer) -> None:
    """Measured peak equals planned peak exactly."""
    assert trained.measured_arena_bytes == trained.plan.arena_bytes > 0


def test_a_thousand_steps_take_no_more_memory(text: bytes) -> None:
    """Nothing is allocated per step: resident memory after 1,000 steps is what it was after 50."""
    config = replace(CONFIGS["gpt"], depth=1, width=16, heads=1, kv_heads=1, context=8)
    trainer = Trainer(settings(config, steps=1050, batch=1), text)
    steps = trainer.steps()
    deque(itertools.islice(steps, 50), maxlen=0)
    before = _resident_pages()
    deque(steps, maxlen=0)  # run them all, keep no report
    assert trainer.step == 1050
    grown = _resident_pages() - before
    assert grown <= 128, "half a KiB a step is the allocator's noise; any array that stays is more"


def _resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"batch": 0}, "batch"),
        ({"shards": 0}, "shards"),
        ({"seed": -1}, "seed"),
        ({"patience": -1}, "patience"),
    ],
)
def test_settings_that_mean_nothing_are_refused(change: dict[str, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Settings(CONFIGS["gpt"], Schedule("cosine", 1e-3, 10), **change)  # type: ignore[arg-type]


def test_text_that_does_not_fit_is_refused(text: bytes) -> None:
    with pytest.raises(DataError, match="expected"):
        Trainer(settings(CONFIGS["gpt"]), b"short")
    with pytest.raises(DataError, match="vocabulary"):
        Trainer(settings(CONFIGS["gpt"]), text + b"\xff")


def test_a_run_without_validation_text_says_nan(text: bytes) -> None:
    trainer = Trainer(settings(CONFIGS["gpt"], validation=0.0), text)
    assert np.isnan(trainer.evaluate())


def test_a_run_without_a_directory_cannot_be_saved(text: bytes) -> None:
    with pytest.raises(UsageError, match="no directory"):
        Trainer(settings(CONFIGS["gpt"]), text).save()


@pytest.mark.parametrize(
    "wrong", [{"kind": "lion"}, {"beta1": 1.0}, {"clip": -1.0}, {"eps": 0.0}, {"weight_decay": float("inf")}]
)
def test_optimizer_values_that_mean_nothing_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=str(next(iter(wrong)))):
        Optimizer(**wrong)  # type: ignore[arg-type]


def test_an_interrupt_inside_a_step_is_never_saved(
    text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C between the update and its count: the weights would be those of another step."""
    trainer = Trainer(settings(CONFIGS["gpt"]), text, tmp_path)
    call = trainer._call

    class Interrupted:
        arguments, results, executable, graph = call.arguments, call.results, call.executable, call.graph

        def run(self) -> None:
            call.run()
            raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "_call", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        trainer.advance()
    with pytest.raises(UsageError, match="interrupted"):
        trainer.save()


def test_stop_ends_a_run_between_steps(text: bytes) -> None:
    trainer = Trainer(settings(CONFIGS["gpt"]), text)
    for _ in trainer.steps():
        trainer.stop()
    assert trainer.step == 1


def test_the_best_checkpoint_outlives_the_worse_ones_after_it(text: bytes, tmp_path: Path) -> None:
    chosen = settings(CONFIGS["gpt"], steps=40, evaluate_every=2, save_every=1, patience=6)
    trainer = Trainer(chosen, text, tmp_path)
    steps = trainer.steps()
    list(itertools.islice(steps, 4))
    trainer.early_stop = replace(trainer.early_stop, best=0.0)
    best = trainer.early_stop.best_step
    list(itertools.islice(steps, 8))
    assert best is not None
    assert best in [step for step, _ in checkpoint.steps(tmp_path)]


def test_patience_without_text_to_validate_on_is_refused(text: bytes) -> None:
    with pytest.raises(UsageError, match="patience"):
        Trainer(settings(CONFIGS["gpt"], validation=0.0, evaluate_every=2, patience=2), text)
    with pytest.raises(UsageError, match="patience"):
        Trainer(settings(CONFIGS["gpt"], patience=2), text)
