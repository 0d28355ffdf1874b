"""Generation with weights in bf16 and int8, every kind as exact as f32: prefill = chunks = decode, a row of a
batch = the row alone, on every instruction set and number of threads (N5, N9, N10)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.e2e.conftest import CONFIGS, Volta, settings
from tests.ops.parity import assert_same_bits, isas

from volta.cli import main
from volta.cli.loading import load_model
from volta.infer.generate import Generator
from volta.infer.sample import Sampling
from volta.infer.weights import Weights, converted
from volta.model.builder import Model
from volta.model.config import Config
from volta.model.transformer import tinylm
from volta.runtime.policy import runtime
from volta.tensor import Tensor, asarray
from volta.train import checkpoint
from volta.train.loop import Trainer

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]

PROMPTS = [
    b"def ",
    b"x",
    b"class Node:\n    ",
    b"for i in range(",
    b"import ",
    b"(",
    b"    return x",
    b"=",
    b"in",
]
SAMPLING = Sampling(0.9, top_k=20, top_p=0.95, repetition_penalty=1.1)
GREEDY = Sampling(0.0)
# The model's own dtype, and the weights it is given.
KINDS: dict[str, tuple[str, Weights]] = {
    "bf16 weights": ("f32", Weights("bf16")),
    "int8 weights": ("f32", Weights("int8")),
    "int8 weights in groups": ("f32", Weights("int8", 16)),
    "int8 products": ("f32", Weights("int8", 16, "int8")),
    "bf16 model": ("bf16", Weights()),
}


def tokens_of(prompt: bytes) -> Tokens:
    return np.frombuffer(prompt, np.uint8).astype(np.int32)


class Made:
    """A trained model with its weights in one of the kinds."""

    def __init__(self, trainer: Trainer, dtype: str, weights: Weights) -> None:
        self.config: Config = weights.config(replace(trainer.settings.config, dtype=dtype))
        self.model: Model = tinylm(self.config)
        parameters = {name: asarray(array) for name, array in trainer.parameters.items()}
        self.parameters: dict[str, Tensor] = converted(parameters, weights)

    def generator(self, batch: int) -> Generator:
        return Generator(self.model, self.config, self.parameters, batch)

    def forward(self, tokens: Tokens) -> Logits:
        """Logits of every position at once, without a cache [T, V]."""
        logits: Tensor = self.model(self.parameters, asarray(tokens[np.newaxis]))
        return logits.numpy()

    def generate(
        self, prompts: Sequence[bytes], streams: Sequence[int], count: int = 10, chunk: int = 0
    ) -> Tokens:
        steps = self.generator(len(prompts)).generate(
            list(map(tokens_of, prompts)), count, SAMPLING, 11, streams, chunk
        )
        return np.stack(list(steps), axis=1)


@pytest.fixture(params=KINDS)
def made(request: pytest.FixtureRequest, trained: Trainer) -> Made:
    return _made(trained, request.param)


@lru_cache(maxsize=32)
def _made(trained: Trainer, kind: str) -> Made:
    return Made(trained, *KINDS[kind])


def test_prefill_chunks_and_decode_give_the_same_logits(made: Made) -> None:
    """Every way to reach a position, and the forward without a cache, agree in every bit."""
    prompt = tokens_of(b"def merge(left, right):\n    out")
    whole = made.forward(prompt)
    for chunk in (1, 2, 7):
        row = made.generator(1)
        for begin in range(0, len(prompt), chunk):
            part = prompt[np.newaxis, begin : begin + chunk]
            _, found = row.advance(part, np.array([part.shape[1]], np.int32), GREEDY, 0, [0])
            assert_same_bits(found[0], whole[begin + part.shape[1] - 1], f"chunks of {chunk}")
    for length in (1, 5, len(prompt)):
        _, found = made.generator(1).prefill([prompt[:length]], GREEDY, 0, [0])
        assert_same_bits(found[0], whole[length - 1], f"prefill of {length}")


def test_a_row_of_a_batch_is_the_row_alone(made: Made) -> None:
    """Prompts of unequal length beside each other, more rows than a kernel for few takes."""
    together = made.generate(PROMPTS, range(len(PROMPTS)))
    for row in (0, 2, 3, 8):
        np.testing.assert_array_equal(together[row], made.generate([PROMPTS[row]], [row])[0])
    np.testing.assert_array_equal(made.generate(PROMPTS, range(len(PROMPTS)), chunk=3), together)


def test_every_isa_and_thread_count_gives_the_same_tokens_and_logits(made: Made) -> None:
    """Both of every step: the prefill, then decoding, whose weights are packed."""
    prompts = list(map(tokens_of, PROMPTS[:3]))
    ones = np.ones(3, np.int32)
    expected: list[Logits | Tokens] = []
    for isa, threads in [*((isa, 1 + index % 2) for index, isa in enumerate(isas())), (isas()[-1], 2)]:
        with runtime(isa=isa, threads=threads):
            rows = made.generator(3)
            tokens, logits = rows.prefill(prompts, SAMPLING, 3, range(3))
            found: list[Logits | Tokens] = [tokens, logits]
            for _ in range(4):
                tokens, logits = rows.advance(tokens[:, np.newaxis], ones, SAMPLING, 3, range(3))
                found += [tokens, logits]
        expected = expected or found
        for got, wanted in zip(found, expected, strict=True):
            assert_same_bits(got, wanted, f"{isa} threads={threads}")


def test_the_kind_of_weights_matters_a_little(trained: Trainer, made: Made) -> None:
    """The options are not ignored, and what they cost is small: the likeliest token mostly stays."""
    prompt = tokens_of(b"for index in range(len(values)):\n  ")
    parameters = {name: asarray(array) for name, array in trained.parameters.items()}
    exact = trained.model(parameters, asarray(prompt[np.newaxis])).numpy()
    found = made.forward(prompt)
    error = np.abs(found - exact).max()
    assert 0 < error < 0.05 * np.abs(exact).max()
    assert (found.argmax(-1) == exact.argmax(-1)).mean() > 0.9


def test_kinds_differ_from_each_other(trained: Trainer) -> None:
    """A group, or int8 activations, that changed nothing would pass every test above."""
    prompt = tokens_of(b"def merge(left, right):\n")
    kinds = [*KINDS.values(), ("f32", Weights("int8", 0, "int8"))]
    found = [Made(trained, *kind).forward(prompt).tobytes() for kind in kinds]
    assert len(set(found)) == len(kinds)


def test_a_bf16_model_with_int8_weights_rounds_the_output_matrix_alone(trained: Trainer) -> None:
    """Where that is the embedding's, it is no linear layer's weight and stays a product of bf16."""
    prompt = tokens_of(b"import ")
    found, plain = (Made(trained, dtype, Weights("int8", 16)).forward(prompt) for dtype in ("bf16", "f32"))
    assert (found.tobytes() == plain.tobytes()) == (not trained.settings.config.tied)


# --- the command ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(text: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One step of a model whose output matrix is a linear layer too."""
    directory = tmp_path_factory.mktemp("quantized") / "run"
    list(Trainer(settings(CONFIGS["llama"], steps=1), text, directory).steps())
    return directory


OPTIONS: dict[str, tuple[tuple[object, ...], Weights]] = {
    "f32": ((), Weights()),
    "bf16": (("--weights", "bf16"), Weights("bf16")),
    "int8": (("--weights", "int8", "--group", 16), Weights("int8", 16)),
    "int8 products": (("--weights", "int8", "--activations", "int8"), Weights("int8", 0, "int8")),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_command_generates_what_the_engine_does(volta: Volta, run: Path, name: str) -> None:
    """In a fresh process, with the plain C kernels on one thread: the tokens of this process's best ones."""
    options, weights = OPTIONS[name]
    environment = {"VOLTA_ISA": "ref", "VOLTA_NUM_THREADS": "1"}
    request = ("--prompt", "def ", "--tokens", 12, "--seed", 5, "--temperature", 1.0, "--json")
    done = volta("generate", run, *request, *options, env=environment)
    assert done.returncode == 0, done.stderr
    _, config, model, parameters = load_model(run, weights)
    with runtime(threads=2):
        generator = Generator(model, config, parameters, 1)
        steps = list(generator.generate([tokens_of(b"def ")], 12, Sampling(1.0), 5))
    assert json.loads(done.stdout)["tokens"] == np.stack(steps, axis=1).tolist()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--weights", "int4"), r"[weights] dtype is 'int4': expected one of f32, bf16, int8"),
        (("--weights", "int8", "--group", -1), "[weights] group is -1: expected 0 (all)"),
        (("--weights", "int8", "--group", 13), "[weights] group is 13: block0.attention.out.weight has "),
        (
            ("--weights", "int8", "--group", 100000),
            "[weights] group is 100000: block0.attention.out.weight has ",
        ),
        (
            ("--weights", "int8", "--activations", "bf16"),
            "[weights] activations are 'bf16': expected f32 or int8",
        ),
        (("--group", 16), "[weights] dtype is f32: groups and int8 activations go with int8"),
        (
            ("--weights", "bf16", "--activations", "int8"),
            "[weights] dtype is bf16: groups and int8 activations",
        ),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else "",
)
def test_weights_that_cannot_be_made_are_one_clear_line(
    run: Path, capfd: pytest.CaptureFixture[str], options: tuple[object, ...], said: str
) -> None:
    """Exit code 2, nothing on standard output."""
    with pytest.raises(SystemExit) as ended:
        main(["generate", str(run), "--tokens", "1", *map(str, options)])
    captured = capfd.readouterr()
    assert ended.value.code == 2
    assert captured.out == ""
    assert captured.err.startswith(f"volta: {said}")
    assert captured.err.count("\n") == 1


def test_a_model_trained_in_bf16_generates_with_any_weights(trained: Trainer, tmp_path: Path) -> None:
    """Loading keeps the run's dtype; weights in bf16 already are what it rounds them to (N9)."""
    config = replace(trained.settings.config, dtype="bf16")
    checkpoint.save(tmp_path / "run", replace(trained.snapshot(), config=config.to_dict()))
    found = []
    for weights in (Weights(), Weights("bf16")):
        _, loaded, model, parameters = load_model(tmp_path / "run", weights)
        assert loaded == config
        found.append(model(parameters, asarray([[1, 2, 3, 4]])).numpy())
    assert_same_bits(found[0], found[1])
