"""The training step and generation: compared in the same run, or nothing is reported."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from tests.bench.conftest import LocalSides, valid

from volta.bench import infer, train
from volta.bench.infer import Load
from volta.bench.peers import training
from volta.bench.report import Report
from volta.bench.roofline import Roofline
from volta.bench.suite import Method
from volta.errors import UsageError, VoltaError
from volta.infer.weights import Weights
from volta.model.config import Config, named
from volta.transform import BoundCall

MICRO = named("micro")


class Like:
    """A peer whose loss is Volta's, off by a factor from some step on."""

    def __init__(self, config: Config, batch: int, text: bytes, threads: int) -> None:
        self.volta = training.VoltaPeer(config, batch, text, threads)
        self.description = "like Volta"
        self.steps = 0

    off, since = 1.0, 0

    def step(self) -> float:
        self.steps += 1
        return self.volta.step() * (self.off if self.steps > self.since else 1.0)


@pytest.fixture
def like(monkeypatch: pytest.MonkeyPatch) -> type[Like]:
    """Under the name of a peer."""
    honest = training.training_peer

    def peer(name: str, config: Config, batch: int, text: bytes, threads: int) -> Any:
        make = Like if name == "torch" else lambda *given: honest(name, *given)
        return make(config, batch, text, threads)

    monkeypatch.setattr("volta.bench.worker.training_peer", peer)
    monkeypatch.setattr(Like, "off", 1.0)
    monkeypatch.setattr(Like, "since", 0)
    return Like


def trained(*peers: str, rounds: int = 2, config: str = "micro", steps: int = 2) -> Report:
    return train.run(config, named(config), 2, 1, peers, Method(rounds), steps)


# --- training --------------------------------------------------------------------------------------


def test_a_training_result_is_valid_and_has_a_sample_for_every_round(
    local: LocalSides, like: type[Like]
) -> None:
    found = trained("torch", rounds=3)
    assert valid(found.document())
    (one,) = found.measurements
    assert {side: len(timing.seconds) for side, timing in one.sides.items()} == {"volta": 3, "torch": 3}
    assert one.ratios["torch"].pairs == 3
    assert one.sides["volta"].check == "losses agree with those of torch"
    assert "losses of the first 8 steps differ by 0.0e+00" in one.sides["torch"].check


@pytest.mark.parametrize("since", [0, 1, 3], ids=["from the start", "while warming up", "later"])
def test_a_peer_that_trains_something_else_is_found(
    since: int, local: LocalSides, like: type[Like], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within the first steps, whether it shows at once or only after some updates."""
    monkeypatch.setattr(like, "off", 1.01)
    monkeypatch.setattr(like, "since", since)
    with pytest.raises(VoltaError, match=r"losses of volta and torch differ by 9\.9e-03"):
        trained("torch")


def test_a_loss_that_is_no_number_is_found(
    local: LocalSides, like: type[Like], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(like, "off", float("nan"))
    with pytest.raises(VoltaError, match="differ by nan"):
        trained("torch")


def test_without_a_peer_no_comparison_is_claimed(local: LocalSides) -> None:
    (one,) = trained().measurements
    assert one.sides["volta"].check == "no peer to compare losses with"


def test_a_configuration_that_a_peer_lacks_is_skipped_by_name(
    local: LocalSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rotary positions: the peer says so, whether or not it is installed is another matter."""
    monkeypatch.setitem(sys.modules, "torch", object())
    found = trained("torch", config="tiny", steps=1, rounds=1)
    assert list(found.measurements[0].sides) == ["volta"]
    assert found.skipped == (
        "torch: this peer has layer norm, learned positions, tied embeddings and no dropout (1 case)",
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batch": 0}, "batch is 0"),
        ({"batch": -1}, "batch is -1"),
        ({"steps": 0}, "steps is 0: expected 1 to 10000"),
        ({"threads": 1000}, "threads is 1000"),
        ({"config": named("micro", dtype="int8")}, "dtype is int8|dtype is 'int8'"),
    ],
)
def test_a_training_that_cannot_be_is_refused_first(
    changes: dict[str, Any], said: str, local: LocalSides
) -> None:
    given: dict[str, Any] = {
        "name": "micro",
        "config": MICRO,
        "batch": 2,
        "threads": 1,
        "peers": (),
        "method": Method(1),
        "steps": 1,
    }
    watched: list[str] = []
    with pytest.raises(UsageError, match=said):
        train.run(**{**given, **changes}, watch=watched.append)
    assert watched == []


# --- generation ------------------------------------------------------------------------------------


@pytest.fixture
def generated(ceiling: Roofline, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(infer, "measure", lambda threads: ceiling)

    def run(load: Load, weights: Weights, config: str = "micro") -> Report:
        return infer.run(config, named(config), load, 1, weights)[0]

    return run


@pytest.mark.parametrize(
    "weights",
    [Weights(), Weights("bf16"), Weights("int8"), Weights("int8", 16), Weights("int8", 0, "int8")],
    ids=str,
)
def test_a_generation_result_is_valid_for_all_weights(weights: Weights, generated: Any) -> None:
    found = generated(Load(3, 4, 2, 0), weights)
    assert valid(found.document())
    token, prefill, last = found.measurements
    assert len(token.sides["volta"].seconds) == 4  # each position of the text
    assert len(prefill.sides["volta"].seconds) == 2  # each run
    assert last.ratios["recomputed"].pairs >= 6
    assert token.parameters["weights"] == str(weights)


@pytest.mark.parametrize("config", ["tiny", "nanogpt-cpu"])
def test_every_vocabulary_has_tokens(config: str, generated: Any) -> None:
    """256 tokens and fewer than a byte's values."""
    assert generated(Load(2, 1, 1, 0), Weights(), config).measurements


def test_percentiles_are_of_all_tokens_of_all_runs(generated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One slow token in one run of three is the slowest, not averaged away."""
    honest = infer.timed
    latencies = np.full((3, 10), 1.0)
    latencies[1, 5] = 500.0

    def slow(*given: Any) -> Any:
        generator, tokens, _, prefills = honest(*given)
        return generator, tokens, latencies, prefills

    monkeypatch.setattr(infer, "timed", slow)
    token = generated(Load(1, 1, 1, 0), Weights()).measurements[0]
    assert token.sides["volta"].median == 1.0
    assert token.figures["p50_seconds"] == 1.0
    assert token.figures["p99_seconds"] > 100
    assert token.figures["tokens_per_second"] == pytest.approx(30 / 529)


def test_a_cache_that_gives_other_logits_is_found(generated: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bit of the whole forward's result is enough."""
    honest = BoundCall.run

    def changed(self: BoundCall) -> None:
        honest(self)
        if not isinstance(self.results, tuple):  # the forward has one result, a generation step several
            self.results.reshape(-1).view(np.uint32)[:] ^= 1

    monkeypatch.setattr(BoundCall, "run", changed)
    with pytest.raises(VoltaError, match="the cache and the whole forward give different logits"):
        generated(Load(3, 2, 1, 0), Weights())


@pytest.mark.parametrize(
    ("load", "said"),
    [
        ((0, 1, 1, 0), "prompt is 0"),
        ((1, 0, 1, 0), "tokens is 0"),
        ((1, 1, 0, 0), "runs is 0: expected 1 to 1000"),
        ((1, 1, 1, -1), "warmup is -1: expected 0 to 1000"),
        ((1 << 40, 1, 1, 0), "prompt is 1099511627776"),
    ],
)
def test_a_load_that_cannot_be_is_refused(load: tuple[int, int, int, int], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Load(*load)
