"""Proof that a machine computes Volta's bits: a few training steps on a synthetic text, hashed.

`bits.json` holds what the plain C reference gives; every instruction set, thread count and machine must
give the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import Any

from volta.errors import CheckpointError
from volta.model.config import Config
from volta.runtime.policy import runtime
from volta.train.loop import Settings, Trainer
from volta.train.optim import Optimizer
from volta.train.schedule import Schedule
from volta.train.synthetic import synthetic_text

STEPS = 6
TEXT_BYTES = 20_000
# Between them the configurations use every kernel of training.
CASES = {
    "gpt": Config(vocabulary=128, context=40, depth=2, width=48, heads=3, kv_heads=3, dropout=0.1),
    "llama": Config(
        vocabulary=128,
        context=33,
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
    "gpt-bf16": Config(vocabulary=128, context=36, depth=1, width=80, heads=2, kv_heads=2, dtype="bf16"),
}


def measure() -> Iterator[tuple[str, str, float]]:
    """(case, sha256 of the weights after STEPS steps, last loss) under the current policy."""
    for name, config in CASES.items():
        settings = Settings(
            config,
            Schedule("cosine", 1e-3, STEPS, 2, 0.1),
            Optimizer(),
            batch=3,
            shards=3,
            seed=7,
            validation=0.0,
            evaluate_every=0,
            save_every=0,
        )
        trainer = Trainer(settings, synthetic_text(TEXT_BYTES))
        loss = 0.0
        for report in trainer.steps():
            loss = report.loss
        yield name, trainer.weights_sha256(), loss


def committed() -> dict[str, str]:
    """Case -> the hash every machine must give. Raises CheckpointError where the cases have changed since."""
    document: dict[str, Any] = json.loads(files("volta.train").joinpath("bits.json").read_text())
    if document["cases"] != described():
        raise CheckpointError("[bits] bits.json is of other cases: run `python -m volta.train.bits`")
    hashes: dict[str, str] = document["weights_sha256"]
    return hashes


def described() -> dict[str, Any]:
    """What is trained, so that a hash is never compared with another recipe's."""
    return {
        "steps": STEPS,
        "text_bytes": TEXT_BYTES,
        "configs": {name: asdict(c) for name, c in CASES.items()},
    }


def write(path: Path) -> None:
    """Writes bits.json from the reference kernels; the file is committed and reviewed."""
    with runtime(isa="ref", threads=1):
        hashes = {name: digest for name, digest, _ in measure()}
    path.write_text(json.dumps({"cases": described(), "weights_sha256": hashes}, indent=2) + "\n")


if __name__ == "__main__":
    write(Path(__file__).with_name("bits.json"))
