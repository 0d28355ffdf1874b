"""One fresh process that runs pinned cases on one engine: against a stopwatch, or between two marks.

    python -m gates.timing.worker time  ENGINE CPU        answers requests, see gates.timing.sampling
    python -m gates.timing.worker count ENGINE CPU RUNS   runs every case for a counter, see gates.bench_smoke

ENGINE is the directory that holds the package `volta`. The engine is not trusted: it is put on the path when
everything else is imported, the clock is taken before it, and every run gets inputs that no run had before.
What it can still do, from inside of this process, the one who asks must notice: it has a clock of its own,
and the outputs of another engine on the same inputs.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import json
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Named = Mapping[str, Array]
WARM = 3  # runs before the first that counts: they find the caches cold
BELOW = 256  # tokens: the vocabulary of `micro`
SEEN = 32  # tokens in the cache before a decode step
BATCH = 4  # sequences of a training step
FACTS = 4  # letters of a seed's parts below
MARK = "lcong48"  # of libc: a function that nobody calls, so that a counter can be cut where we call it


# --- inputs ------------------------------------------------------------------------------------------------


def normal(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return generator.standard_normal(shape, np.float32)


def small(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Like a weight: sums of products of them stay near 1."""
    return np.float32(0.05) * normal(generator, shape)


def positive(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.square(normal(generator, shape)) + np.float32(0.01)


def share(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Between 0 and 1, and near neither: a power of beta, a learning rate."""
    return generator.uniform(0.1, 0.9, shape).astype(np.float32)


Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def drawn(like: Array, draw: Draw, seed: Sequence[int], name: str) -> Array:
    """Fresh values for an array of the engine's. Each name has its own stream, so that two engines that
    order their inputs differently get the same; integers are tokens, 16 bits the upper half of a float."""
    generator = np.random.default_rng([*seed, zlib.crc32(name.encode())])
    if like.dtype.kind == "i":
        return generator.integers(0, BELOW, like.shape).astype(like.dtype)
    values = np.asarray(draw(generator, like.shape), np.float32)
    if like.dtype.itemsize == 2:
        return (values.view(np.uint32) >> 16).astype(np.uint16)
    return values


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Array]]:
    """The arrays of nested dicts, lists and tuples, each with the way to it: `0/block1.mlp.up.weight`."""
    if isinstance(tree, np.ndarray):
        yield name, tree
        return
    pairs = sorted(tree.items()) if isinstance(tree, dict) else enumerate(tree)
    for key, part in pairs:
        yield from leaves(part, f"{name}/{key}" if name else str(key))


# --- cases -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A case on this engine. inputs: arrays to write into. run: the call that is measured. results: what it
    gave. executable: the engine's own description of it, where it has one."""

    inputs: Named
    run: Callable[[], object]
    results: Callable[[], Named]
    executable: Any


@dataclass(frozen=True)
class Case:
    """make: the program. draws: how an input is drawn, by the start of its name; others are normal.
    runs: that are timed in one process, so many that they take some hundredths of a second."""

    name: str
    runs: int
    make: Callable[[Any], Program]
    draws: Mapping[str, Draw]

    def draw(self, program: Program, *seed: int) -> dict[str, Array]:
        return {
            name: drawn(array, self.kind(name), seed, name) for name, array in program.inputs.items()
        }

    def kind(self, name: str) -> Draw:
        return next((draw for start, draw in self.draws.items() if name.startswith(start)), normal)


def bound(call: Any) -> Program:
    inputs, results = dict(leaves(call.arguments)), dict(leaves(call.results))
    return Program(inputs, call.run, lambda: results, call.executable)


def function(
    choose: Callable[[Any], Callable[..., Any]], *shapes: tuple[int, ...], dtype: str = "float32"
) -> Callable[[Any], Program]:
    """A function of the public API over tensors of these shapes. choose: takes it from `volta`."""

    def make(vt: Any) -> Program:
        tensors = [vt.asarray(np.zeros(shape, np.float32), getattr(vt, dtype)) for shape in shapes]
        return bound(vt.compile(choose(vt)).bind(*tensors))

    return make


def layer_norm_gradient(vt: Any) -> Callable[..., Any]:
    def loss(x: Any, weight: Any, bias: Any, g: Any) -> Any:
        return vt.sum(vt.multiply(vt.layer_norm(x, weight, bias), g))

    found: Callable[..., Any] = vt.grad(loss, (0, 1, 2))
    return found


def adamw(vt: Any) -> Program:
    """(w, state, g, rate) -> (w, state) over one matrix of 256 x 384."""
    optimizer = importlib.import_module("volta.train.optim").Optimizer("adamw")
    weights, grads = ({"w": vt.zeros((256, 384))} for _ in range(2))

    def update(weights: Any, state: Any, grads: Any, rate: Any) -> Any:
        return optimizer.update(weights, state, grads, rate)

    return bound(vt.compile(update, donate=(0, 1)).bind(weights, optimizer.init(weights), grads, vt.zeros(())))


def model_of(vt: Any) -> tuple[Any, Any, Any]:
    """(configuration, model, weights) of `micro`; the weights drawn here, as the engine may draw others."""
    config = importlib.import_module("volta.model.config").named("micro")
    model = importlib.import_module("volta.model.transformer").tinylm(config)
    weights = {
        name: vt.asarray(drawn(np.zeros(tensor.shape, np.float32), small, (0,), name))
        for name, tensor in model.init(1).items()
    }
    return config, model, weights


def training_step(vt: Any) -> Program:
    """(weights, state, tokens, targets, rate, key) -> (weights, state, loss, norm) of `micro`."""
    config, model, weights = model_of(vt)
    optimizer = importlib.import_module("volta.train.optim").Optimizer("adamw")
    step = importlib.import_module("volta.train.step").training_step(model, optimizer)
    tokens, targets = (vt.zeros((1, BATCH, config.context), "i32") for _ in range(2))
    state = optimizer.init(weights)
    return bound(step.bind(weights, state, tokens, targets, vt.zeros(()), vt.random_key(1)))


def decode_step(vt: Any) -> Program:
    """One token of `micro` after SEEN others, through the interface that generates text."""
    config, model, weights = model_of(vt)
    generator = importlib.import_module("volta.infer.generate").Generator(model, config, weights, 1)
    greedy = importlib.import_module("volta.infer.sample").Sampling(0.0)
    token, one, cache = np.zeros((1, 1), np.int32), np.ones(1, np.int32), generator.cache
    cache.lengths[...] = SEEN
    found: dict[str, Array] = {}

    def run() -> None:
        cache.lengths[...] = SEEN
        found["token"], found["logits"] = generator.advance(token, one, greedy, 0, [0])

    run()
    inputs = {"token": token, **dict(leaves({"keys": cache.keys, "values": cache.values}))}
    return Program(inputs, run, lambda: found, generator.call(1).executable)


ROWS = (256, 384)
HEADS = (1, 6, 128, 64)  # batch, heads, time, head width
OPTIMIZER: Mapping[str, Draw] = {"1/v": positive, "1/power": share, "1/": small, "2/": small, "3": share}
TRAINING: Mapping[str, Draw] = {"0/": small, "1/v": positive, "1/power": share, "1/": small, "4": share}
CASES = {
    case.name: case
    for case in (
        Case("matmul f32", 200, function(lambda vt: vt.matmul, (192, 192), (192, 192)), {}),
        Case("matmul bf16", 200, function(lambda vt: vt.matmul, (192, 192), (192, 192), dtype="bfloat16"), {}),
        Case("layer norm", 200, function(lambda vt: vt.layer_norm, ROWS, (384,), (384,)), {}),
        Case("layer norm gradient", 100, function(layer_norm_gradient, ROWS, (384,), (384,), ROWS), {}),
        Case("softmax", 200, function(lambda vt: vt.softmax, ROWS), {}),
        Case("attention", 60, function(lambda vt: vt.attention, HEADS, HEADS, HEADS), {}),
        Case("adamw", 60, adamw, OPTIMIZER),
        Case("training step", 12, training_step, TRAINING),
        Case("decode step", 200, decode_step, {}),
    )
}
