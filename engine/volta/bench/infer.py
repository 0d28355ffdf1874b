"""Inference of TinyLM: prefill, each token's latency, what the key/value cache gains, where the time goes."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from volta import __version__
from volta.bench import profile as profiles
from volta.bench.machine import machine
from volta.bench.report import Measurement, Report
from volta.bench.roofline import Roofline, measure
from volta.bench.statistics import paired_ratio
from volta.bench.suite import Method, timing
from volta.errors import UsageError, VoltaError
from volta.infer.generate import Generator
from volta.infer.sample import Sampling
from volta.infer.weights import Weights, converted
from volta.ir.cost import Work
from volta.model.config import Config
from volta.model.transformer import tinylm
from volta.runtime.policy import runtime
from volta.tensor import asarray
from volta.train.synthetic import synthetic_text
from volta.transform import compile

GREEDY = Sampling(0.0)


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
            if getattr(self, name) < least:
                raise UsageError(f"[bench] {name} is {getattr(self, name)}: expected at least {least}")


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
    watch("measuring the roofline")
    ceiling = measure(threads or 1)
    with runtime(threads=threads):
        generator, tokens, latencies, prefills = timed(config, load, weights, watch)
        watch("profiling one token")
        call = generator.call(1)
        found = profiles.profile(call.executable.plan, call.run_traced, ceiling)
        watch("measuring what the cache gains")
        cached, recomputed = gain(config, generator, tokens, load, weights)
    per_token = [float(value) for value in np.median(latencies, axis=0)]
    signature = call.executable.signature
    return (
        Report(
            suite="infer",
            command="volta " + shlex.join(sys.argv[1:]),
            version=__version__,
            machine=machine(),
            method=Method(load.runs).document() | {"warmup": load.warmup, "weights": str(weights)},
            rooflines=(ceiling.document(),),
            measurements=measurements(
                name,
                load,
                threads,
                weights,
                found,
                ceiling,
                per_token,
                prefills,
                cached,
                recomputed,
                signature,
            ),
        ),
        found,
    )


def timed(
    config: Config, load: Load, weights: Weights, watch: Callable[[str], None]
) -> tuple[Generator, Any, Any, list[float]]:
    """The generator after its last run; all its tokens; seconds of each token [runs, tokens]; of prefills."""
    model = tinylm(config)
    parameters = converted(model.init(1), weights)
    text = np.frombuffer(synthetic_text(load.prompt + load.tokens), np.uint8) % config.vocabulary
    tokens = text.astype(np.int32)[np.newaxis]
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
) -> tuple[list[float], list[float]]:
    """Seconds of the last token by the cache, and by the forward over the whole text, in turn. The logits
    of both must be equal in every bit, or nothing is reported."""
    model, position = tinylm(config), load.prompt + load.tokens - 1
    parameters = converted(model.init(1), weights)
    whole = compile(model).bind(parameters, asarray(tokens), persistent=(0,))
    one, cached, recomputed = np.ones(1, np.int32), [], []
    for round_ in range(max(6, load.runs) + 1):
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
    return cached, recomputed


def measurements(
    name: str,
    load: Load,
    threads: int,
    weights: Weights,
    found: profiles.Profile,
    ceiling: Roofline,
    per_token: list[float],
    prefills: list[float],
    cached: list[float],
    recomputed: list[float],
    signature: str,
) -> tuple[Measurement, ...]:
    total = Work(*(sum(step.work[i] for step in found.steps) for i in range(3)))
    limit = sum(ceiling.limit(step.work, step.dtype).seconds for step in found.steps)
    parameters = {"config": name, "prompt": load.prompt, "tokens": load.tokens, "weights": str(weights)}
    description = f"Volta, {signature}"
    whole = f"at position {load.prompt + load.tokens - 1}"
    equal = "logits equal to those of the whole forward in every bit"
    return (
        Measurement(
            f"{name} {weights}: one token",
            parameters,
            threads,
            total.flops,
            total.bytes,
            {"volta": timing(description, per_token, equal)},
            {},
            limit,
            "each step at its own limit",
            {
                "tokens_per_second": 1.0 / float(np.median(per_token)),
                "p50_seconds": float(np.quantile(per_token, 0.5)),
                "p95_seconds": float(np.quantile(per_token, 0.95)),
                "p99_seconds": float(np.quantile(per_token, 0.99)),
                "kernel_seconds": found.seconds,
            },
        ),
        Measurement(
            f"{name} {weights}: prefill of {load.prompt} tokens",
            parameters,
            threads,
            0,
            0,
            {"volta": timing(description, prefills, "first token of the same text")},
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
                "volta": timing(f"{description}, from the cache", cached, equal),
                "recomputed": timing(f"{description}, over the whole text", recomputed, equal),
            },
            {"recomputed": paired_ratio(cached, recomputed)},
        ),
    )
