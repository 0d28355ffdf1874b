"""What the key/value cache gains: `python -m volta.bench.generate --position 512`.

One token at a position, by the cache and by recomputing the whole sequence, alternating in one process.
Both must give the same logits in every bit, or nothing is reported.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from volta.errors import VoltaError
from volta.infer.generate import Generator
from volta.infer.sample import Sampling
from volta.model.config import CONFIGS, Config, named
from volta.model.transformer import tinylm
from volta.runtime.policy import runtime
from volta.tensor import asarray
from volta.train.synthetic import synthetic_text
from volta.transform import compile

GREEDY = Sampling(0.0)


def main() -> None:
    given = _arguments()
    try:
        with runtime(threads=given.threads):
            result = compare(
                replace(named(given.config), context=2 * given.position), given.position, given.rounds
            )
    except VoltaError as error:
        sys.exit(f"bench: {error}")
    result |= {"config": given.config, "threads": given.threads}
    sys.stdout.write(json.dumps(result, indent=2) + "\n" if given.json else _line(result))


def compare(config: Config, position: int, rounds: int) -> dict[str, Any]:
    """Seconds per token at `position`: by the cache, and by the forward over position + 1 tokens."""
    model = tinylm(config)
    parameters = model.init(1)
    tokens = np.frombuffer(synthetic_text(position + 1), np.uint8).astype(np.int32)[np.newaxis]
    generator = Generator(model, config, parameters, 1)
    generator.prefill([tokens[0, :position]], GREEDY, 0, [0])
    whole = compile(model).bind(parameters, asarray(tokens))
    one = np.ones(1, np.int32)
    cached, recomputed = [], []
    for round_ in range(rounds + 1):
        generator.cache.truncate(position)
        begin = time.perf_counter()
        _, logits = generator.advance(tokens[:, position:], one, GREEDY, 0, [0])
        middle = time.perf_counter()
        whole.run()
        end = time.perf_counter()
        if logits[0].tobytes() != whole.results[position].tobytes():
            raise VoltaError("the cache and the whole forward give different logits")
        if round_ > 0:  # the first warms up
            cached.append(middle - begin)
            recomputed.append(end - middle)
    ratios = [b / a for a, b in zip(cached, recomputed, strict=True)]
    return {
        "position": position,
        "rounds": rounds,
        "cached_ms": 1e3 * statistics.median(cached),
        "recomputed_ms": 1e3 * statistics.median(recomputed),
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
    }


def _line(result: dict[str, Any]) -> str:
    return (
        f"{result['config']} at position {result['position']}, {result['threads'] or 'all'} threads: "
        f"{result['cached_ms']:.2f} ms with the cache, {result['recomputed_ms']:.2f} ms recomputed, "
        f"{result['ratio']:.1f} times faster (at least {result['least_ratio']:.1f}); logits equal\n"
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m volta.bench.generate", description=__doc__)
    parser.add_argument("--config", default="tiny", choices=list(CONFIGS))
    parser.add_argument("--position", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
