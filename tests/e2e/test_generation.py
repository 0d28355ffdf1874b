"""Generation: prefill = chunked prefill = decode, a row of a batch = the row alone, every bit (N5, N8)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import assert_same_bits

from volta import functions as F
from volta.dtypes import float32
from volta.errors import UsageError
from volta.infer.generate import Generator
from volta.infer.sample import Sampling
from volta.runtime.policy import runtime
from volta.tensor import Tensor, from_storage
from volta.train.loop import Trainer

PROMPTS = [b"def ", b"x", b"class Node:\n    ", b"for i in range(", b"import "]
SAMPLING = Sampling(0.9, top_k=20, top_p=0.95, repetition_penalty=1.1)


def tokens_of(prompt: bytes) -> npt.NDArray[np.int32]:
    return np.frombuffer(prompt, np.uint8).astype(np.int32)


def weights(trainer: Trainer) -> dict[str, Tensor]:
    return {name: from_storage(array, float32) for name, array in trainer.parameters.items()}


def generator(trainer: Trainer, batch: int) -> Generator:
    return Generator(trainer.model, trainer.settings.config, weights(trainer), batch)


def generate(
    trainer: Trainer,
    prompts: list[bytes],
    streams: list[int],
    count: int = 12,
    chunk: int = 0,
    sampling: Sampling = SAMPLING,
) -> npt.NDArray[np.int32]:
    made = generator(trainer, len(prompts)).generate(
        list(map(tokens_of, prompts)), count, sampling, 11, streams, chunk
    )
    return np.stack(list(made), axis=1)


def test_logits_are_the_same_by_prefill_chunks_decode_and_the_training_forward(trained: Trainer) -> None:
    """N5: every way to reach a position gives the same logits in every bit."""
    prompt = tokens_of(b"def merge(left, right):\n    out")
    whole = trained.model(weights(trained), F.asarray(prompt[np.newaxis])).numpy()
    for chunk in (1, 2, 5):
        row = generator(trained, 1)
        logits = []
        for begin in range(0, len(prompt), chunk):
            part = prompt[np.newaxis, begin : begin + chunk]
            _, found = row.advance(part, np.array([part.shape[1]], np.int32), SAMPLING, 0, [0])
            logits.append((begin + part.shape[1] - 1, found[0]))
        for position, found_logits in logits:
            assert_same_bits(found_logits, whole[position])
    for length in (1, 7, len(prompt)):
        _, found = generator(trained, 1).prefill([prompt[:length]], SAMPLING, 0, [0])
        assert_same_bits(found[0], whole[length - 1])


def test_a_row_of_a_batch_is_the_row_alone(trained: Trainer) -> None:
    """N8: prompts of unequal length beside each other change nothing of any row."""
    together = generate(trained, PROMPTS, [0, 1, 2, 3, 4])
    for row, prompt in enumerate(PROMPTS):
        alone = generate(trained, [prompt], [row])
        np.testing.assert_array_equal(together[row], alone[0])


@pytest.mark.parametrize("chunk", [1, 3, 8])
def test_chunked_prefill_generates_the_same_text(trained: Trainer, chunk: int) -> None:
    np.testing.assert_array_equal(
        generate(trained, PROMPTS, [0, 1, 2, 3, 4], chunk=chunk), generate(trained, PROMPTS, [0, 1, 2, 3, 4])
    )


def test_every_isa_and_thread_count_generates_the_same_text(trained: Trainer) -> None:
    expected = generate(trained, PROMPTS, [0, 1, 2, 3, 4])
    for isa, threads in (("ref", 1), ("ref", 3), ("auto", 2), ("auto", 7)):
        with runtime(isa=isa, threads=threads):
            np.testing.assert_array_equal(generate(trained, PROMPTS, [0, 1, 2, 3, 4]), expected)


def test_streams_differ_and_seeds_differ(trained: Trainer) -> None:
    """Equal prompts in one batch draw differently."""
    rows = generate(trained, [b"def "] * 4, [0, 1, 2, 3], count=24, sampling=Sampling(1.5))
    assert len({tuple(row) for row in rows}) > 1


def test_greedy_is_the_argmax_of_the_forward(trained: Trainer) -> None:
    made = generate(trained, [b"import "], [0], count=8, sampling=Sampling(0.0))[0]
    context = list(tokens_of(b"import "))
    for token in made:
        logits = trained.model(weights(trained), F.asarray(np.array([context], np.int32))).numpy()
        assert int(np.argmax(logits[-1])) == token
        context.append(int(token))


def test_top_k_one_is_greedy(trained: Trainer) -> None:
    np.testing.assert_array_equal(
        generate(trained, PROMPTS, [0, 1, 2, 3, 4], sampling=Sampling(1.0, top_k=1)),
        generate(trained, PROMPTS, [0, 1, 2, 3, 4], sampling=Sampling(0.0)),
    )


def test_the_context_can_be_filled_to_the_last_position(trained: Trainer) -> None:
    context = trained.settings.config.context
    made = generate(trained, [b"d"], [0], count=context)
    assert made.shape == (1, context)


def test_truncating_the_cache_replays_the_same_tokens(trained: Trainer) -> None:
    """Truncation moves a pointer: what follows is as if the forgotten tokens never were."""
    row = generator(trained, 1)
    prompt = tokens_of(b"for i in ")
    first, _ = row.prefill([prompt], SAMPLING, 5, [0])
    one = np.ones(1, np.int32)
    once = [row.advance(first[:, np.newaxis], one, Sampling(0.0), 5, [0])[1]]
    row.cache.truncate(len(prompt))
    again = [row.advance(first[:, np.newaxis], one, Sampling(0.0), 5, [0])[1]]
    assert_same_bits(once[0], again[0])
    with pytest.raises(UsageError, match="truncate"):
        row.cache.truncate(1000)


@pytest.mark.parametrize(
    ("prompts", "count", "seed", "streams", "said"),
    [
        ([b""], 4, 0, [0], "empty"),
        ([b"x" * 49], 1, 0, [0], "49 tokens: the context holds 48"),
        ([b"x" * 40], 20, 0, [0], "room for 9"),
        ([b"\xff"], 4, 0, [0], "the vocabulary is 128"),
        ([b"x", b"y"], 4, 0, [0], "2 prompts"),
        ([b"x"], 4, -1, [0], "seed"),
        ([b"x"], 4, 0, [0, 1], "streams"),
    ],
)
def test_requests_that_cannot_be_met_are_refused_before_the_first_token(
    trained: Trainer, prompts: list[bytes], count: int, seed: int, streams: list[int], said: str
) -> None:
    row = generator(trained, 1)
    with pytest.raises(UsageError, match=said):
        next(iter(row.generate(list(map(tokens_of, prompts)), count, SAMPLING, seed, streams)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
    ],
)
def test_sampling_values_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Sampling(**wrong)  # type: ignore[arg-type]
