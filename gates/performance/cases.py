"""What is measured: pinned cases, their inputs, and how each is made ready on an engine."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Named = Mapping[str, Array]
BELOW = 256  # tokens: no more than the vocabulary of any configuration
SEEN = 32  # tokens in the cache before a decode step; the shortest context is 64
SPARE = 4096  # values of a pool beyond what one run takes: so many different inputs it holds


# --- inputs ------------------------------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, int], Array]


def normal(generator: np.random.Generator, count: int) -> Array:
    return generator.standard_normal(count, np.float32)


def small(generator: np.random.Generator, count: int) -> Array:
    """Like weights: a sum of products with them stays near 1."""
    return np.float32(0.05) * normal(generator, count)


def positive(generator: np.random.Generator, count: int) -> Array:
    return np.square(normal(generator, count)) + np.float32(0.01)


def share(generator: np.random.Generator, count: int) -> Array:
    """Between 0 and 1, near neither: a power of beta, a learning rate."""
    return generator.uniform(0.1, 0.9, count).astype(np.float32)


class Pool:
    """Random values for one input of a case; a run takes them from a place of its own, so every run has other
    inputs and nothing is drawn between the runs. Each name has its own stream: two engines that order their
    inputs differently get the same values. Integers are tokens, 16 bits the upper half of a float."""

    def __init__(self, like: Array, draw: Draw, seed: int, name: str) -> None:
        generator = np.random.default_rng([seed, zlib.crc32(name.encode())])
        count = like.size + SPARE
        if like.dtype.kind == "i":
            self._values = generator.integers(0, BELOW, count).astype(like.dtype)
        else:
            self._values = draw(generator, count)
            if like.dtype.itemsize == 2:
                self._values = (self._values.view(np.uint32) >> 16).astype(np.uint16)
        self._like = like
        self._places = generator.permutation(SPARE)

    def load(self, run: int) -> None:
        place = self._places[run]
        np.copyto(self._like, self._values[place : place + self._like.size].reshape(self._like.shape))


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Array]]:
    """The arrays of nested dicts, lists and tuples, each with the way to it: `0/block1.mlp.up.weight`.
    Refuses what only behaves like an array: reading it could be where the work is done."""
    if type(tree) is np.ndarray:
        yield name, tree
        return
    if isinstance(tree, np.ndarray) or not isinstance(tree, dict | list | tuple):
        raise TypeError(f"{name or 'the result'} is {type(tree).__name__}: expected plain arrays")
    for key, part in sorted(tree.items()) if isinstance(tree, dict) else enumerate(tree):
        yield from leaves(part, f"{name}/{key}" if name else str(key))


# --- cases -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """A case on this engine. inputs: arrays to write into. run: the call that is measured. results: the
    arrays that it wrote, always the same ones. executable: the engine's description of what it runs."""

    inputs: Named
    run: Callable[[], object]
    results: Named
    executable: Any


@dataclass(frozen=True)
class Case:
    """runs: of a block, for some milliseconds. make: the program, from `volta`. draws: how an input is drawn,
    by the start of its name; any other is normal."""

    name: str
    runs: int
    make: Callable[[Any], Program]
    draws: Mapping[str, Draw]

    def pools(self, program: Program, seed: int) -> list[Pool]:
        return [Pool(array, self._draw(name), seed, name) for name, array in program.inputs.items()]

    def _draw(self, name: str) -> Draw:
        return next((draw for start, draw in self.draws.items() if name.startswith(start)), normal)


def bound(call: Any) -> Program:
    return Program(dict(leaves(call.arguments)), call.run, dict(leaves(call.results)), call.executable)


def function(
    choose: Callable[[Any], Callable[..., Any]], *shapes: tuple[int, ...], dtype: str = "float32"
) -> Callable[[Any], Program]:
    """A function of the public API over tensors of these shapes. choose: takes it from `volta`."""

    def make(vt: Any) -> Program:
        tensors = [vt.asarray(np.zeros(shape, np.float32), getattr(vt, dtype)) for shape in shapes]
        return bound(vt.compile(choose(vt)).bind(*tensors))

    return make


def gradient(name: str, count: int) -> Callable[[Any], Any]:
    """Of a function of the public API, by all of its `count` inputs, given its result's: one input more."""

    def choose(vt: Any) -> Any:
        def loss(*given: Any) -> Any:
            *inputs, g = given
            return vt.sum(vt.multiply(getattr(vt, name)(*inputs), g))

        return vt.grad(loss, tuple(range(count)))

    return choose


def adamw(shape: tuple[int, ...]) -> Callable[[Any], Program]:
    """(weights, state, gradients, rate) -> (weights, state) of one matrix."""

    def make(vt: Any) -> Program:
        optimizer = importlib.import_module("volta.train.optim").Optimizer("adamw")
        weights, grads = ({"w": vt.zeros(shape)} for _ in range(2))

        def update(weights: Any, state: Any, grads: Any, rate: Any) -> Any:
            return optimizer.update(weights, state, grads, rate)

        call = vt.compile(update, donate=(0, 1))
        return bound(call.bind(weights, optimizer.init(weights), grads, vt.zeros(())))

    return make


def tinylm(vt: Any, name: str) -> tuple[Any, Any, Any]:
    """(configuration, model, weights); the weights are drawn here, as two engines may draw them otherwise."""
    config = importlib.import_module("volta.model.config").named(name)
    model = importlib.import_module("volta.model.transformer").tinylm(config)
    weights = {}
    for parameter, tensor in model.init(1).items():
        array = np.empty(tensor.shape, np.float32)
        Pool(array, small, 0, parameter).load(0)
        weights[parameter] = vt.asarray(array)
    return config, model, weights


def training_step(name: str, batch: int) -> Callable[[Any], Program]:
    """(weights, state, tokens, targets, rate, key) -> (weights, state, loss, norm)."""

    def make(vt: Any) -> Program:
        config, model, weights = tinylm(vt, name)
        optimizer = importlib.import_module("volta.train.optim").Optimizer("adamw")
        step = importlib.import_module("volta.train.step").training_step(model, optimizer)
        tokens, targets = (vt.zeros((1, batch, config.context), "i32") for _ in range(2))
        key = vt.random_key(1)
        return bound(step.bind(weights, optimizer.init(weights), tokens, targets, vt.zeros(()), key))

    return make


def generation_step(name: str, count: int = 1, seen: int = SEEN) -> Callable[[Any], Program]:
    """`count` tokens after `seen` others, by the class that generates text."""

    def make(vt: Any) -> Program:
        config, model, weights = tinylm(vt, name)
        generator = importlib.import_module("volta.infer.generate").Generator(model, config, weights, 1)
        greedy = importlib.import_module("volta.infer.sample").Sampling(0.0)
        tokens, given, cache = np.zeros((1, count), np.int32), np.full(1, count, np.int32), generator.cache
        next_token, logits = np.zeros(1, np.int32), np.zeros((1, config.vocabulary), np.float32)

        def run() -> None:
            cache.lengths[...] = seen
            next_token[...], logits[...] = generator.advance(tokens, given, greedy, 0, [0])

        inputs = {"token": tokens, **dict(leaves({"keys": cache.keys, "values": cache.values}))}
        results = {"token": next_token, "logits": logits}
        return Program(inputs, run, results, generator.call(count).executable)

    return make


UPDATE: Mapping[str, Draw] = {"1/v": positive, "1/power": share, "1/": small, "2/": small, "3": share}
TRAINING: Mapping[str, Draw] = {"0/": small, "1/v": positive, "1/power": share, "1/": small, "4": share}


def table(*cases: Case) -> dict[str, Case]:
    return {case.name: case for case in cases}


ROWS, ROW = (256, 384), (384,)
HALF = (128, 384)  # four of them fit where two of ROWS do
SQUARE = (192, 192)
HEADS = (1, 6, 128, 64)  # batch, heads, time, head width
NORM_GRADIENT = gradient("layer_norm", 3)
SMOKE = table(  # what fits in a core's own caches, on one thread
    Case("matmul f32", 30, function(lambda vt: vt.matmul, SQUARE, SQUARE), {}),
    Case("matmul bf16", 40, function(lambda vt: vt.matmul, SQUARE, SQUARE, dtype="bfloat16"), {}),
    Case("layer norm", 40, function(lambda vt: vt.layer_norm, ROWS, ROW, ROW), {}),
    Case("layer norm gradient", 24, function(NORM_GRADIENT, ROWS, ROW, ROW, ROWS), {}),
    Case("softmax", 40, function(lambda vt: vt.softmax, ROWS), {}),
    Case("attention", 24, function(lambda vt: vt.attention, HEADS, HEADS, HEADS), {}),
    Case("adamw", 40, adamw(HALF), UPDATE),
    Case("training step", 6, training_step("micro", 1), TRAINING),
    Case("decode step", 50, generation_step("micro"), {}),
)

LARGE, LONG, WIDE = (1024, 1024), (4096, 768), (768,)
SEQUENCES = (4, 6, 256, 64)
FULL = table(  # what does not
    Case("matmul f32 512", 8, function(lambda vt: vt.matmul, (512, 512), (512, 512)), {}),
    Case("matmul f32 1024", 2, function(lambda vt: vt.matmul, LARGE, LARGE), {}),
    Case("matmul bf16 1024", 2, function(lambda vt: vt.matmul, LARGE, LARGE, dtype="bfloat16"), {}),
    Case("matrix times vector", 20, function(lambda vt: vt.matmul, (1, 1024), LARGE), {}),
    Case("layer norm 4096x768", 4, function(lambda vt: vt.layer_norm, LONG, WIDE, WIDE), {}),
    Case("layer norm gradient 4096x768", 2, function(NORM_GRADIENT, LONG, WIDE, WIDE, LONG), {}),
    Case("softmax 4096x768", 4, function(lambda vt: vt.softmax, LONG), {}),
    Case("gelu 4096x768", 4, function(lambda vt: vt.gelu, LONG), {}),
    Case("attention 4x6x256x64", 3, function(lambda vt: vt.attention, SEQUENCES, SEQUENCES, SEQUENCES), {}),
    Case("attention gradient 4x6x256x64", 2, function(gradient("attention", 3), *[SEQUENCES] * 4), {}),
    Case("adamw 1024x1024", 4, adamw(LARGE), UPDATE),
    Case("training step of tiny", 2, training_step("tiny", 2), TRAINING),
    Case("prefill of tiny", 3, generation_step("tiny", 128, 0), {}),
    Case("decode step of tiny", 20, generation_step("tiny"), {}),
)
