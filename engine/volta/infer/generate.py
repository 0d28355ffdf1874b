"""Batched generation: prompts of unequal length, one program call per token.

A row's bits depend on nothing but its own prompt, seed and stream: not on the rows beside it, the
padding, or how the prompt was cut into chunks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from volta import functions as F
from volta.dtypes import float32, int32
from volta.errors import UsageError
from volta.infer.kvcache import KVCache
from volta.infer.sample import Sampling
from volta.model.builder import Model
from volta.model.config import Config
from volta.model.transformer import Cache
from volta.tensor import Tensor, from_storage
from volta.transform import BoundCall, Compiled, compile

Tokens = npt.NDArray[np.int32]


class Generator:
    """A model with its weights, ready to generate for `batch` sequences at once."""

    def __init__(self, model: Model, config: Config, parameters: Mapping[str, Tensor], batch: int) -> None:
        if batch < 1:
            raise UsageError(f"[generate] batch is {batch}: expected at least 1")
        self.config = config
        self.cache = KVCache(config, batch)
        self.batch = batch
        self._parameters = dict(parameters)
        self._seen: npt.NDArray[np.int32] = np.zeros((batch, config.vocabulary), np.int32)
        self._step = _generation_step(model)
        self._calls: dict[int, BoundCall] = {}

    def call(self, time: int) -> BoundCall:
        """The program that takes `time` tokens of every sequence at once."""
        if time not in self._calls:
            shape = (self.batch, time)
            keys = [from_storage(array, float32) for array in self.cache.keys]
            values = [from_storage(array, float32) for array in self.cache.values]
            self._calls[time] = self._step.bind(
                keys,
                values,
                from_storage(self._seen, int32),
                self._parameters,
                F.zeros(shape, "i32"),
                F.zeros(shape, "i32"),
                F.zeros((self.batch,), "i32"),
                F.zeros((self.batch,), "i32"),
                F.zeros((self.batch, 4), "i32"),
                F.zeros((self.batch, 4)),
                F.zeros((self.batch,), "i32"),
                shared=(3,),
                persistent=(3,) if time == 1 else (),  # packed for the step that runs most
            )
        return self._calls[time]

    def advance(
        self, tokens: Tokens, counts: Tokens, sampling: Sampling, seed: int, streams: Sequence[int]
    ) -> tuple[Tokens, npt.NDArray[np.float32]]:
        """Feeds row b its first counts[b] of tokens [B, T]; gives each row's next token [B] and the logits
        [B, V] it was drawn from. A row with count 0 is left as it is and its result means nothing."""
        batch, time = tokens.shape
        call = self.call(time)
        _, _, _, _, fed, positions, last, lengths, rng, settings, top_k = call.arguments
        if int(self.cache.lengths.max()) + time > self.cache.capacity:
            raise UsageError(f"[generate] {time} more tokens do not fit the context of {self.cache.capacity}")
        fed[...] = tokens
        positions[...] = self.cache.lengths[:, np.newaxis] + np.arange(time, dtype=np.int32)
        last[...] = np.arange(batch) * time + np.maximum(counts, 1) - 1
        lengths[...] = counts
        words = np.array([seed & 0xFFFFFFFF, seed >> 32], np.uint32).view(np.int32)
        rng[:, 0], rng[:, 1] = words
        rng[:, 2] = np.asarray(streams, np.uint32).view(np.int32)
        rng[:, 3] = self.cache.lengths + counts
        settings[...], top_k[...] = sampling.arrays(batch)
        call.run()
        self.cache.lengths += counts
        return call.results[3].copy(), call.results[4].copy()

    def prefill(
        self, prompts: Sequence[Tokens], sampling: Sampling, seed: int, streams: Sequence[int], chunk: int = 0
    ) -> tuple[Tokens, npt.NDArray[np.float32]]:
        """Forgets everything, reads the prompts (`chunk` tokens at a time; 0: all at once), and gives each
        row's first token and its logits."""
        check_prompts(prompts, self.config, self.batch)
        self.cache.truncate(0)
        self._seen[...] = 0
        longest = max(len(prompt) for prompt in prompts)
        lengths = np.array([len(prompt) for prompt in prompts], np.int32)
        padded = np.zeros((self.batch, longest), np.int32)
        for row, prompt in zip(padded, prompts, strict=True):
            row[: len(prompt)] = prompt
        tokens = np.zeros(self.batch, np.int32)
        logits = np.zeros((self.batch, self.config.vocabulary), np.float32)
        for begin in range(0, longest, chunk or longest):
            end = min(begin + (chunk or longest), longest)
            counts = np.clip(lengths - begin, 0, end - begin).astype(np.int32)
            found, scores = self.advance(padded[:, begin:end], counts, sampling, seed, streams)
            ends_here = (counts > 0) & (lengths <= end)
            tokens[ends_here], logits[ends_here] = found[ends_here], scores[ends_here]
        return tokens, logits

    def generate(
        self,
        prompts: Sequence[Tokens],
        count: int,
        sampling: Sampling,
        seed: int = 0,
        streams: Sequence[int] | None = None,
        chunk: int = 0,
    ) -> Iterator[Tokens]:
        """Yields `count` tokens [B] one by one. streams: of each row's draws (0, 1, ... by default)."""
        rows = list(range(self.batch)) if streams is None else list(streams)
        check_request(prompts, count, self.config, self.batch, seed, rows)
        if count == 0:
            return
        tokens, _ = self.prefill(prompts, sampling, seed, rows, chunk)
        yield tokens
        ones = np.ones(self.batch, np.int32)
        for _ in range(count - 1):
            tokens, _ = self.advance(tokens[:, np.newaxis], ones, sampling, seed, rows)
            yield tokens


def check_prompts(prompts: Sequence[Tokens], config: Config, batch: int) -> None:
    """One prompt per row, each of at least one token of the vocabulary and within the context."""
    if len(prompts) != batch:
        raise UsageError(f"[generate] {len(prompts)} prompts were given: expected {batch}")
    for prompt in prompts:
        if len(prompt) == 0:
            raise UsageError("[generate] a prompt is empty: expected at least one token")
        if len(prompt) > config.context:
            raise UsageError(
                f"[generate] a prompt has {len(prompt)} tokens: the context holds {config.context}"
            )
        if np.asarray(prompt).dtype.kind not in "iu":
            raise UsageError(f"[generate] a prompt is {np.asarray(prompt).dtype}: expected whole numbers")
        if int(np.min(prompt)) < 0 or int(np.max(prompt)) >= config.vocabulary:
            raise UsageError(
                f"[generate] a prompt has tokens {int(np.min(prompt))} to {int(np.max(prompt))}: "
                f"the vocabulary is {config.vocabulary}"
            )


def check_request(
    prompts: Sequence[Tokens], count: int, config: Config, batch: int, seed: int, streams: Sequence[int]
) -> None:
    """Everything that must hold before the first token."""
    check_prompts(prompts, config, batch)
    longest = max(len(prompt) for prompt in prompts)
    if count < 0 or longest + count - 1 > config.context:
        raise UsageError(
            f"[generate] {count} tokens after a prompt of {longest}: the context of {config.context} "
            f"has room for {config.context - longest + 1}"
        )
    if not 0 <= seed < 2**64:
        raise UsageError(f"[generate] seed is {seed}: expected 64 unsigned bits")
    if len(streams) != batch or any(not 0 <= stream < 2**32 for stream in streams):
        raise UsageError(
            f"[generate] streams are {list(streams)}: expected {batch} numbers of 32 unsigned bits"
        )


def _generation_step(model: Model) -> Compiled:
    def step(
        keys: list[Tensor],
        values: list[Tensor],
        seen: Tensor,
        parameters: dict[str, Tensor],
        tokens: Tensor,
        positions: Tensor,
        last: Tensor,
        lengths: Tensor,
        rng: Tensor,
        settings: Tensor,
        top_k: Tensor,
    ) -> tuple[Any, ...]:
        logits, new_keys, new_values = model(parameters, tokens, cache=Cache(keys, values, positions, last))
        marked = F.mark_seen(seen, tokens, lengths)
        return new_keys, new_values, marked, F.sample(logits, marked, rng, settings, top_k), logits

    roles = ("state", "state", "state", "parameter") + ("input",) * 7
    compiled: Compiled = compile(step, donate=(0, 1, 2), roles=roles)
    return compiled
