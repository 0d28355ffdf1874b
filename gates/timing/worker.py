"""One fresh process that runs pinned cases on one engine: against a stopwatch, or for a counter.

    python -m gates.timing.worker time ENGINE CPU     answers requests: see gates.timing.sampling
    python -m gates.timing.worker plan ENGINE         what every case's plan holds
    python -m gates.timing.worker count ENGINE        the same under callgrind, with every case's runs marked

ENGINE is the directory that holds the package `volta`. The engine is not trusted: it goes onto the path after
everything else was imported, the clock is taken before it, and every run has inputs that no run had before.
What it can still do from inside this process, the asking one must notice, by its own clock and by another
engine's outputs for the same inputs.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import importlib
import json
import mmap
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
WARM = 3  # runs before the first that counts
BLOCKS = 5  # so many times the runs of a case are timed together
COUNTED = 2  # runs that a counter sees
BELOW = 256  # tokens: the vocabulary of the configuration `micro`
SEEN = 32  # tokens in the cache before a decode step; the context of `micro` is 64
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


def layer_norm_gradient(vt: Any) -> Any:
    def loss(x: Any, weight: Any, bias: Any, g: Any) -> Any:
        return vt.sum(vt.multiply(vt.layer_norm(x, weight, bias), g))

    return vt.grad(loss, (0, 1, 2))


def adamw(vt: Any) -> Program:
    """(weights, state, gradients, rate) -> (weights, state) of one matrix."""
    optimizer = importlib.import_module("volta.train.optim").Optimizer("adamw")
    weights, grads = ({"w": vt.zeros(HALF)} for _ in range(2))

    def update(weights: Any, state: Any, grads: Any, rate: Any) -> Any:
        return optimizer.update(weights, state, grads, rate)

    call = vt.compile(update, donate=(0, 1))
    return bound(call.bind(weights, optimizer.init(weights), grads, vt.zeros(())))


def micro(vt: Any) -> tuple[Any, Any, Any]:
    """(configuration, model, weights); the weights are drawn here, as two engines may draw them otherwise."""
    config = importlib.import_module("volta.model.config").named("micro")
    model = importlib.import_module("volta.model.transformer").tinylm(config)
    weights = {}
    for name, tensor in model.init(1).items():
        array = np.empty(tensor.shape, np.float32)
        Pool(array, small, 0, name).load(0)
        weights[name] = vt.asarray(array)
    return config, model, weights


def training_step(vt: Any) -> Program:
    """(weights, state, tokens, targets, rate, key) -> (weights, state, loss, norm)."""
    config, model, weights = micro(vt)
    optimizer = importlib.import_module("volta.train.optim").Optimizer("adamw")
    step = importlib.import_module("volta.train.step").training_step(model, optimizer)
    tokens, targets = (vt.zeros((1, 1, config.context), "i32") for _ in range(2))
    return bound(step.bind(weights, optimizer.init(weights), tokens, targets, vt.zeros(()), vt.random_key(1)))


def decode_step(vt: Any) -> Program:
    """One token after SEEN others, by the class that generates text."""
    config, model, weights = micro(vt)
    generator = importlib.import_module("volta.infer.generate").Generator(model, config, weights, 1)
    greedy = importlib.import_module("volta.infer.sample").Sampling(0.0)
    token, one, cache = np.zeros((1, 1), np.int32), np.ones(1, np.int32), generator.cache
    next_token, logits = np.zeros(1, np.int32), np.zeros((1, config.vocabulary), np.float32)

    def run() -> None:
        cache.lengths[...] = SEEN
        next_token[...], logits[...] = generator.advance(token, one, greedy, 0, [0])

    inputs = {"token": token, **dict(leaves({"keys": cache.keys, "values": cache.values}))}
    return Program(inputs, run, {"token": next_token, "logits": logits}, generator.call(1).executable)


ROWS = (256, 384)
ROW = (384,)
HALF = (128, 384)  # four of them fit where two of ROWS do
SQUARE = (192, 192)
HEADS = (1, 6, 128, 64)  # batch, heads, time, head width
UPDATE: Mapping[str, Draw] = {"1/v": positive, "1/power": share, "1/": small, "2/": small, "3": share}
TRAINING: Mapping[str, Draw] = {"0/": small, "1/v": positive, "1/power": share, "1/": small, "4": share}
CASES = {
    case.name: case
    for case in (
        Case("matmul f32", 30, function(lambda vt: vt.matmul, SQUARE, SQUARE), {}),
        Case("matmul bf16", 40, function(lambda vt: vt.matmul, SQUARE, SQUARE, dtype="bfloat16"), {}),
        Case("layer norm", 40, function(lambda vt: vt.layer_norm, ROWS, ROW, ROW), {}),
        Case("layer norm gradient", 24, function(layer_norm_gradient, ROWS, ROW, ROW, ROWS), {}),
        Case("softmax", 40, function(lambda vt: vt.softmax, ROWS), {}),
        Case("attention", 24, function(lambda vt: vt.attention, HEADS, HEADS, HEADS), {}),
        Case("adamw", 40, adamw, UPDATE),
        Case("training step", 6, training_step, TRAINING),
        Case("decode step", 50, decode_step, {}),
    )
}


# --- against the stopwatch ---------------------------------------------------------------------------------


class Bench:
    """A case made ready: inputs drawn, memory for every run's results touched, the caches warm."""

    def __init__(self, vt: Any, case: Case, seed: int, runs: int, warm: int = WARM) -> None:
        self.program = case.make(vt)
        self._pools = case.pools(self.program, seed)
        self._kept = [
            [np.ones_like(array) for array in self.program.results.values()] for _ in range(runs + warm)
        ]
        self._loaded = 0
        for _ in range(warm):
            self.load()
            self.program.run()
            self.keep()

    def load(self) -> None:
        for pool in self._pools:
            pool.load(self._loaded)

    def keep(self) -> None:
        for array, kept in zip(self.program.results.values(), self._kept[self._loaded], strict=True):
            np.copyto(kept, array)
        self._loaded += 1

    def timed(self, runs: int, clock: Callable[[], int] = perf_counter_ns) -> dict[str, Any]:
        """Nanoseconds of each run, and of the whole with the copies between the runs."""
        took = []
        begin = clock()
        for _ in range(runs):
            self.load()
            start = clock()
            self.program.run()
            took.append(clock() - start)
            self.keep()
        return {"took": took, "whole": clock() - begin}

    def outputs(self) -> list[str]:
        """sha256 of each run's results, warming ones included."""
        found = []
        for kept in self._kept[: self._loaded]:
            content = hashlib.sha256()
            for array in kept:
                content.update(np.ascontiguousarray(array).data)
            found.append(content.hexdigest())
        return found


def answer(vt: Any, requests: TextIO, answers: TextIO) -> None:
    """Every request names a case and a seed. Each block of runs begins with a line of the asking one's and
    ends with one of ours, so that it can time them too."""

    def say(what: Mapping[str, Any]) -> None:
        answers.write(json.dumps(what) + "\n")
        answers.flush()

    for line in requests:
        request = json.loads(line)
        case = CASES[request["case"]]
        gc.enable()
        gc.collect()
        gc.disable()  # a collection would count for whatever runs just then
        try:
            bench = Bench(vt, case, request["seed"], case.runs * BLOCKS)
            say({"ready": BLOCKS})
            for _ in range(BLOCKS):
                requests.readline()
                say(bench.timed(case.runs))
            say({"outputs": bench.outputs()})
        except Exception as error:  # noqa: BLE001 - whatever an engine raises is the answer
            say({"failed": " ".join(f"{type(error).__name__}: {error}".split())})


# --- for a counter -----------------------------------------------------------------------------------------


class Callgrind:
    """Callgrind's client requests (valgrind/callgrind.h, valgrind.h). A request is a sequence of rotations
    that together do nothing, which valgrind recognises; outside of valgrind it does nothing."""

    DUMP_AT, START, STOP = 3, 4, 5  # after DUMP_STATS, ZERO_STATS, TOGGLE_COLLECT
    TOOL = ord("C") << 24 | ord("T") << 16
    CODE = bytes.fromhex(
        "4889f8"  # mov rax, rdi: the request's words
        "31d2"  # xor edx, edx: the answer outside of valgrind
        "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi by 3, 13, 61, 51: 128 in all
        "4887db"  # xchg rbx, rbx
        "4889d0 c3"  # mov rax, rdx; ret
    )

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._page.write(self.CODE)
        kind = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)
        self._call = kind(ctypes.addressof(ctypes.c_char.from_buffer(self._page)))
        self._start, self._stop = self._words(self.START), self._words(self.STOP)

    def _words(self, request: int, text: bytes | None = None) -> Any:
        address = ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value if text is not None else 0
        return (ctypes.c_uint64 * 6)(self.TOOL + request, address or 0)

    def count(self, run: Callable[[], object]) -> None:
        self._call(self._start)
        run()
        self._call(self._stop)

    def dump(self, name: str) -> None:
        """Writes what was counted since the last dump, under this name."""
        text = name.encode()
        self._call(self._words(self.DUMP_AT, text))


def counted(vt: Any, marks: Callgrind | None) -> dict[str, dict[str, Any]]:
    """What each case's plan holds; with marks, after one run that does not count, COUNTED that do."""
    found: dict[str, dict[str, Any]] = {}
    gc.disable()
    for name, case in CASES.items():
        try:
            bench = Bench(vt, case, 0, COUNTED, warm=1)
            if marks is not None:
                for _ in range(COUNTED):
                    bench.load()
                    marks.count(bench.program.run)
                    bench.keep()
                marks.dump(name)
            plan = bench.program.executable.plan
            found[name] = {
                "planned_bytes": int(plan.peak_bytes),
                "steps": len(plan.steps),
                "outputs": bench.outputs(),
            }
        except Exception as error:  # noqa: BLE001 - as above
            found[name] = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
    return found


# --- this process ------------------------------------------------------------------------------------------


def engine(path: Path) -> Any:
    """Imports `volta` from this directory and from nowhere else."""
    sys.path.insert(0, str(path))
    volta = importlib.import_module("volta")
    if not Path(str(volta.__file__)).resolve().is_relative_to(path.resolve()):
        raise ImportError(f"volta is {volta.__file__}: expected it below {path}")
    return volta


def main(arguments: Sequence[str]) -> None:
    mode, path, *rest = arguments
    # what an engine prints must not look like an answer
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if rest:
        os.sched_setaffinity(0, {int(rest[0])})
    volta = engine(Path(path))
    if mode == "time":
        answer(volta, sys.stdin, answers)
    else:
        json.dump(counted(volta, Callgrind() if mode == "count" else None), answers)
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
