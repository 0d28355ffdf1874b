"""A fresh process that loads a run and answers with its logits and some text, as JSON.

`python -m volta.cli.reload RUN --tokens N --seed S`: quickstart compares the hash with the trainer's own.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.cli.loading import load_model
from volta.cli.output import print_json
from volta.infer.generate import Generator
from volta.infer.sample import Sampling
from volta.model.builder import Model
from volta.model.config import Config
from volta.tensor import Tensor, asarray
from volta.train.checkpoint import weights_sha256
from volta.train.tokenizer import ByteTokenizer
from volta.transform import compile


def logits_sha256(model: Model, config: Config, parameters: Mapping[str, Tensor], text: bytes) -> str:
    """sha256 of the float32 logits [T, V] for the first T bytes of the text, T the context."""
    tokens = np.frombuffer(text[: config.context], np.uint8).astype(np.int32)[np.newaxis]
    logits: npt.NDArray[Any] = compile(model)(dict(parameters), asarray(tokens)).numpy()
    return hashlib.sha256(np.ascontiguousarray(logits, "<f4").tobytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m volta.cli.reload", description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--text", type=Path, required=True, help="a file whose first bytes are scored")
    parser.add_argument("--prompt", default="def ")
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    checkpoint, config, model, parameters = load_model(given.run)
    generator = Generator(model, config, parameters, 1)
    tokenizer = ByteTokenizer()
    prompt = tokenizer.encode(given.prompt)
    made: list[int] = []
    seconds = []
    begin = time.perf_counter()
    for step in generator.generate([prompt], given.tokens, Sampling(0.8, top_k=40, top_p=0.95), given.seed):
        made.append(int(step[0]))
        seconds.append(time.perf_counter() - begin)
        begin = time.perf_counter()
    print_json(
        {
            "logits_sha256": logits_sha256(model, config, parameters, given.text.read_bytes()),
            "weights_sha256": weights_sha256(checkpoint.parameters),
            "text": given.prompt + tokenizer.decode(np.array(made, np.int32)),
            "tokens_per_second": len(seconds[2:]) / sum(seconds[2:]) if len(seconds) > 2 else None,
        }
    )


if __name__ == "__main__":
    main()
