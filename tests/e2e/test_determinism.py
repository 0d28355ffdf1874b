"""The same bits whatever computes them: fresh processes over instruction sets and thread counts."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest
from tests.e2e.conftest import CONFIGS, Volta, settings

from volta.runtime import gateway
from volta.runtime.policy import runtime
from volta.train.loop import Settings, Trainer

ISAS = ("ref", "avx2", "avx512")
THREADS = (1, 2, 3, 7)


@pytest.mark.parametrize(("isa", "threads"), list(itertools.product(ISAS, THREADS)))
def test_every_isa_and_thread_count_gives_the_committed_weights(volta: Volta, isa: str, threads: int) -> None:
    """N0..N9, N11, N12 end to end: training hashes equal those of the plain C reference in bits.json."""
    if isa not in gateway.cpu_info().isas:
        pytest.skip(f"this processor has no {isa}")
    done = volta("doctor", "--bits", "--json", env={"VOLTA_ISA": isa, "VOLTA_NUM_THREADS": str(threads)})
    assert done.returncode == 0, done.stderr or done.stdout
    document = json.loads(done.stdout)
    assert document["equal"]
    assert document["target"].startswith(f"cpu/{isa}/{threads} threads")


def weights_after_steps(text: bytes, chosen: Settings) -> str:
    """Under the current policy."""
    trainer = Trainer(chosen, text)
    list(trainer.steps())
    return trainer.weights_sha256()


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(
    "passes", [(), ("fuse",), ("epilogue",), ("fold", "simplify", "cse", "dce")], ids=str
)
def test_passes_change_no_bit_of_training(
    text: bytes, config: str, passes: tuple[str, ...], dtype: str
) -> None:
    """Fused = unfused, simplified = plain: the weights after some steps are the same."""
    chosen = settings(replace(CONFIGS[config], dtype=dtype), steps=3, shards=2)
    hashes = set()
    for names in (None, passes):
        with runtime(passes=names):
            hashes.add(weights_after_steps(text, chosen))
    assert len(hashes) == 1


@pytest.mark.parametrize("config", CONFIGS)
def test_every_isa_and_thread_count_trains_bf16_to_the_same_weights(text: bytes, config: str) -> None:
    """N9, with tied and untied output matrices, layer and RMS norm, dropout and shards."""
    small = replace(CONFIGS[config], dtype="bf16", dropout=0.1, context=12)
    chosen = settings(small, steps=2, shards=2, batch=2)
    isas = gateway.cpu_info().isas
    hashes = set()
    for isa, threads in [*((isa, 1 + index % 2) for index, isa in enumerate(isas)), (isas[-1], 2)]:
        with runtime(isa=isa, threads=threads):
            hashes.add(weights_after_steps(text, chosen))
    assert len(hashes) == 1


@pytest.mark.parametrize("config", CONFIGS)
def test_bf16_trains_to_other_weights_than_f32(text: bytes, config: str) -> None:
    """The dtype does what it says: equal hashes of a dtype that is ignored would prove nothing."""
    hashes = {
        weights_after_steps(text, settings(replace(CONFIGS[config], dtype=dtype), steps=1))
        for dtype in ("f32", "bf16")
    }
    assert len(hashes) == 2


def test_another_seed_gives_other_weights(text: bytes) -> None:
    """The hash does depend on what it should: a constant would pass every test above."""
    hashes = {weights_after_steps(text, settings(CONFIGS["gpt"], steps=1, seed=seed)) for seed in (1, 2)}
    assert len(hashes) == 2


def test_dropout_is_drawn_the_same_by_every_isa(text: bytes) -> None:
    """N8: masks come from counters, not from the order of execution."""
    chosen = settings(replace(CONFIGS["gpt"], dropout=0.25), steps=3, shards=2)
    hashes = set()
    for isa, threads in (("ref", 1), ("auto", 3)):
        with runtime(isa=isa, threads=threads):
            hashes.add(weights_after_steps(text, chosen))
    assert len(hashes) == 1
