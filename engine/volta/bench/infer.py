"""Inference of TinyLM: prefill, each token's latency, what the key/value cache gains, where the time goes."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from volta import __version__
from volta.bench import profile as profiles
from volta.bench.machine import machine
from volta.bench.report import Measurement, Report, counted
from volta.bench.roofline import Roofline, measure
from volta.bench.statistics import LEAST_PAIRS, paired_ratio
from volta.bench.suite import MOST_ROUNDS, timing
from volta.errors import UsageError, VoltaError
from volta.infer.generate import Generator
from volta.infer.sample import Sampling
from volta.infer.weights import Weights, converted
from volta.ir.cost import Work
from volta.model.config import LARGEST, Config
from volta.model.transformer import tinylm
from volta.runtime import gateway
from volta.runtime.policy import runtime
from volta.tensor import asarray
from volta.train.synthetic import synthetic_text
from volta.transform import BoundCall, compile

GREEDY = Sampling(0.0)
SEED = 1  # of the weights


@dataclass(frozen=True, slots=True)
class Load:
    """prompt: tokens read before the first is generated; tokens: generated after them; runs of the whole
    after `warmup` that do not count."""

    prompt: int
    tokens: int
    runs: int
    warmup: int

    def __post_init__(self) -> None:
        for name, least in (("prompt", 1), ("tokens", 1), ("runs", 1), ("warmup", 0)):
            most = MOST_ROUNDS if name in ("runs", "warmup") else LARGEST["context"]
            if not least <= getattr(self, name) <= most:
                raise UsageError(f"[bench] {name} is {getattr(self, name)}: expected {least} to {most}")


def run(
    name: str,
    config: Config,
    load: Load,
    threads: int,
    weights: Weights,
    watch: Callable[[str], None] = lambda line: None,
) -> tuple[Report, profiles.Profile]:
    """The report, and the profile of one step of generation in the middle of the text."""
    config = weights.config(replace(config, context=max(config.context, load.prompt + load.tokens)))
    with runtime(threads=threads or None) as policy:
        gateway.resolve(policy)
        generator, tokens, latencies, prefills = timed(config, load, weights, watch)
        call = generator.call(1)
        chosen = threads_of(call.executable.signature)
        watch(f"measuring the roofline of {counted(chosen, 'thread')}")
        ceiling = measure(chosen)
        watch("profiling one token")
        found = profiles.profile(
            call.executable.plan, call.run_traced, ceiling, keys=load.prompt + load.tokens
        )
        watch("measuring what the cache gains")
        cached, recomputed, whole = gain(config, generator, tokens, load, weights)
        signatures = [one.executable.signature for one in (call, generator.call(load.prompt), whole)]
    return (
        Report(
            suite="infer",
            command="volta " + shlex.join(sys.argv[1:]),
            version=__version__,
            machine=machine(),
            method={"rounds": load.runs, "warmup": load.warmup, "seed": SEED},
            rooflines=(ceiling.document(),),
            measurements=measurements(
                name, load, weights, found, ceiling, latencies, prefills, cached, recomputed, signatures
            ),
        ),
        found,
    )


def threads_of(signature: str) -> int:
    """How many threads run a program: left to itself, Volta gives a small one a single thread."""
    return int(signature.split("/")[2].split()[0])


def timed(
    config: Config, load: Load, weights: Weights, watch: Callable[[str], None]
) -> tuple[Generator, Any, Any, list[float]]:
    """The generator after its last run; all its tokens; seconds of each token [runs, tokens]; of prefills."""
    model = tinylm(config)
    parameters = converted(model.init(SEED), weights)
    text = np.frombuffer(synthetic_text(load.prompt + load.tokens), np.uint8).astype(np.int32)
    tokens = (text % config.vocabulary)[np.newaxis]
    generator = Generator(model, config, parameters, 1)
    latencies, prefills = [], []
    one = np.ones(1, np.int32)
    for run_ in range(load.warmup + load.runs):
        watch(f"run {run_ + 1} of {load.warmup + load.runs}")
        begin = time.perf_counter()
        generator.prefill([tokens[0, : load.prompt]], GREEDY, 0, [0])
        prefill, stamps = time.perf_counter() - begin, [time.perf_counter()]
        for index in range(load.tokens):
            at = load.prompt + index
            generator.advance(tokens[:, at : at + 1], one, GREEDY, 0, [0])
            stamps.append(time.perf_counter())
        if run_ >= load.warmup:
            prefills.append(prefill)
            latencies.append(np.diff(stamps))
    return generator, tokens, np.array(latencies), prefills


def gain(
    config: Config, generator: Generator, tokens: Any, load: Load, weights: Weights
) -> tuple[list[float], list[float], BoundCall]:
    """Seconds of the last token by the cache, and by the forward over the whole text, in turn; and that
    forward. The logits of both must be equal in every bit, or nothing is reported."""
    model, position = tinylm(config), load.prompt + load.tokens - 1
    parameters = converted(model.init(SEED), weights)
    whole = compile(model).bind(parameters, asarray(tokens), persistent=(0,))
    one, cached, recomputed = np.ones(1, np.int32), [], []
    for round_ in range(max(LEAST_PAIRS, load.runs) + 1):
        generator.cache.truncate(position)
        begin = time.perf_counter()
        _, logits = generator.advance(tokens[:, position:], one, GREEDY, 0, [0])
        middle = time.perf_counter()
        whole.run()
        end = time.perf_counter()
        if logits[0].tobytes() != whole.results[position].tobytes():
            raise VoltaError("[bench] the cache and the whole forward give different logits")
        if round_ > 0:
            cached.append(middle - begin)
            recomputed.append(end - middle)
    return cached, recomputed, whole


def measurements(
    name: str,
    load: Load,
    weights: Weights,
    found: profiles.Profile,
    ceiling: Roofline,
    latencies: Any,
    prefills: list[float],
    cached: list[float],
    recomputed: list[float],
    signatures: Sequence[str],
) -> tuple[Measurement, ...]:
    per_token = [float(value) for value in np.median(latencies, axis=0)]
    p50, p95, p99 = (float(value) for value in np.quantile(latencies, (0.5, 0.95, 0.99)))
    total = Work(*(sum(step.work[i] for step in found.steps) for i in range(3)))
    limit = sum(ceiling.limit(step.work, step.dtype).seconds for step in found.steps)
    parameters = {"config": name, "prompt": load.prompt, "tokens": load.tokens, "weights": str(weights)}
    token, prefill, forward = (f"Volta, {signature}" for signature in signatures)
    threads = threads_of(signatures[0])
    whole = f"at position {load.prompt + load.tokens - 1}"
    equal = "logits of the last token equal to those of the whole forward in every bit"
    # the latency of a token depends on how many stand before it, so both lengths are part of each case
    return (
        Measurement(
            f"{name} {weights}: one token",
            parameters,
            threads,
            total.flops,
            total.bytes,
            {"volta": timing(token, per_token, equal)},
            {},
            limit,
            "each step at its own limit",
            {
                "tokens_per_second": latencies.size / float(latencies.sum()),
                "p50_seconds": p50,
                "p95_seconds": p95,
                "p99_seconds": p99,
                "kernel_seconds": found.seconds,
            },
        ),
        Measurement(
            f"{name} {weights}: prefill of {counted(load.prompt, 'token')}",
            parameters,
            threads_of(signatures[1]),
            0,
            0,
            {"volta": timing(prefill, prefills, f"its cache serves the last token: {equal}")},
            {},
            figures={"tokens_per_second": load.prompt / float(np.median(prefills))},
        ),
        Measurement(
            f"{name} {weights}: one token {whole}, cached and recomputed",
            parameters,
            threads,
            0,
            0,
            {
                "volta": timing(f"{token}, from the cache", cached, equal),
                "recomputed": timing(f"{forward}, over the whole text", recomputed, equal),
            },
            {"recomputed": paired_ratio(cached, recomputed)},
        ),
    )
