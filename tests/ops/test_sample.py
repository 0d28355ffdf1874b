"""Sampling: the definition rewritten in Python gives the same tokens, ties, edges and errors included."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops import philox
from tests.ops.parity import THREADS, Array, assert_same_bits, isas
from tests.ops.rows import Floats, exp, n2, normal

from volta.backends.cpu.native import run_kernel
from volta.errors import IndexRangeError, NotFiniteError

SAMP = 0x53414D50
F = np.float32


def definition(logits: Floats, seen: Array, rng: Array, settings: Floats, top_k: int) -> int:
    """One row: penalty, greedy or temperature, order, top-k, softmax, top-p and min-p, one uniform."""
    temperature, top_p, penalty, min_p = settings
    with np.errstate(divide="ignore"):
        x = np.where(seen != 0, np.where(logits > 0, logits / penalty, logits * penalty), logits)
    if temperature == 0:
        return int(np.flatnonzero(x == x.max())[0])
    x = x * (F(1) / temperature)
    order = sorted(range(len(x)), key=lambda token: (-x[token], token))
    order = order[:top_k] if top_k else order
    ranked = x[order]
    e = exp(ranked - ranked[0])
    p = e * (F(1) / n2(e))
    prefix = len(p)
    if top_p < 1:
        sums = np.add.accumulate(p, dtype=F)
        reached = np.flatnonzero(sums >= top_p)
        prefix = int(reached[0]) + 1 if len(reached) else len(p)
    kept = [rank for rank in range(prefix) if rank == 0 or p[rank] >= min_p * p[0]]
    low, high, stream, counter = (int(word) % philox.WORD for word in rng)
    u = philox.uniform(philox.philox((counter, 0, stream, SAMP), (low, high))[0])
    sums = np.add.accumulate(p[kept], dtype=F)
    after = np.flatnonzero(sums > u * sums[-1])
    return order[kept[int(after[0])] if len(after) else kept[-1]]


def sample(
    logits: Floats,
    seen: Array,
    rng: Array,
    settings: Floats,
    top_k: Array,
    isa: str = "ref",
    threads: int = 1,
) -> Array:
    token = np.full(len(logits), -7, np.int32)
    run_kernel("sample", [token, logits, seen, rng, settings, top_k], 1, isa=isa, threads=threads)
    return token


def rows_of(count: int, vocabulary: int, seed: int) -> tuple[Floats, Array, Array, Floats, Array]:
    """Rows with every mixture of the settings; every third row has few different logits, so many ties."""
    random = np.random.default_rng(seed)
    logits = (random.standard_normal((count, vocabulary)) * 3).astype(np.float32)
    logits[::3] = np.round(logits[::3])
    logits[1::5, random.random(vocabulary) < 0.3] = -np.inf
    logits[:, 0] = 0.0
    seen = (random.random((count, vocabulary)) < 0.3).astype(np.int32)
    rng = random.integers(-(2**31), 2**31, (count, 4)).astype(np.int32)
    settings = np.stack(
        [
            random.choice(choice, count)
            for choice in ((0, 0.3, 1, 2.5), (0, 0.1, 0.9, 1), (0.7, 1, 1.3), (0, 0.05, 1))
        ],
        axis=-1,
    ).astype(np.float32)
    top_k = random.choice((0, 1, 2, 7, vocabulary - 1, vocabulary, vocabulary + 5), count).astype(np.int32)
    return logits, seen, rng, settings, np.maximum(top_k, 0)


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 31, 33, 100])
def test_tokens_are_those_of_the_definition(vocabulary: int) -> None:
    rows = rows_of(150, vocabulary, vocabulary)
    expected = np.array([definition(*(x[b] for x in rows)) for b in range(150)], np.int32)
    for isa in isas():
        for threads in THREADS:
            assert_same_bits(sample(*rows, isa=isa, threads=threads), expected, f"{isa} threads={threads}")


@pytest.mark.parametrize("top_k", [0, 1, 1000, 1024, 1025, 2000, 2999, 3000])
def test_a_heap_and_a_full_sort_give_one_order(top_k: int) -> None:
    """Vocabulary 3000 with many ties: top_k up to 1024 is taken by a heap, more by a radix sort."""
    logits = np.round(normal(8, 3000, scale=2.0), 1)
    logits[4:] *= -1
    logits[5, ::2] = -0.0
    seen, settings = np.zeros((8, 3000), np.int32), np.tile(np.array([[3, 1, 1, 0]], np.float32), (8, 1))
    rng = np.arange(32, dtype=np.int32).reshape(8, 4)
    k = np.full(8, top_k, np.int32)
    expected = [definition(logits[b], seen[b], rng[b], settings[b], top_k) for b in range(8)]
    assert sample(logits, seen, rng, settings, k).tolist() == expected


def test_a_row_does_not_depend_on_the_batch_around_it() -> None:
    rows = rows_of(40, 50, 3)
    together = sample(*rows, threads=3)
    for b in range(40):
        assert sample(*(x[b : b + 1] for x in rows)) == together[b : b + 1]


def test_strided_operands_give_the_tokens_of_contiguous_ones() -> None:
    rows = rows_of(20, 33, 4)
    padded = [np.repeat(x, 2, axis=0)[::2] for x in rows]
    assert_same_bits(sample(*padded), sample(*rows))


def test_frequencies_are_the_probabilities() -> None:
    """20000 counters of one stream: each share within 5 standard errors of softmax."""
    count = 20000
    logits = np.tile(np.array([[0.0, 1.0, 2.0, -1.0, 0.5]], np.float32), (count, 1))
    rng = np.zeros((count, 4), np.int32)
    rng[:, 3] = np.arange(count)
    settings = np.tile(np.array([[1, 1, 1, 0]], np.float32), (count, 1))
    tokens = sample(logits, np.zeros((count, 5), np.int32), rng, settings, np.zeros(count, np.int32))
    p = np.exp(logits[0].astype(np.float64))
    p /= p.sum()
    share = np.bincount(tokens, minlength=5) / count
    assert (np.abs(share - p) < 5 * np.sqrt(p * (1 - p) / count)).all()


@pytest.mark.parametrize(("counter", "token"), [(20800, 830), (30016, 885)])
def test_a_uniform_at_the_end_of_a_rank_gives_the_next_rank(counter: int, token: int) -> None:
    """1024 equal logits: every running sum is exact, and these counters draw u = token / 1024 exactly."""
    assert philox.uniform(philox.philox((counter, 0, 0, SAMP), (0, 0))[0]) == token / 1024
    rng, settings = np.array([[0, 0, 0, counter]], np.int32), np.array([[1, 1, 1, 0]], np.float32)
    drawn = sample(
        np.zeros((1, 1024), np.float32), np.zeros((1, 1024), np.int32), rng, settings, np.zeros(1, np.int32)
    )
    assert drawn.tolist() == [token]


def one_row(
    logits: list[float],
    temperature: float = 1.0,
    top_p: float = 1.0,
    penalty: float = 1.0,
    min_p: float = 0.0,
    top_k: int = 0,
    seen: tuple[int, ...] = (),
) -> set[int]:
    """The tokens that 200 counters give."""
    count, vocabulary = 200, len(logits)
    marks = np.zeros((count, vocabulary), np.int32)
    marks[:, list(seen)] = 1
    rng = np.zeros((count, 4), np.int32)
    rng[:, 3] = np.arange(count)
    settings = np.tile(np.array([[temperature, top_p, penalty, min_p]], np.float32), (count, 1))
    rows = np.tile(np.array([logits], np.float32), (count, 1))
    return set(sample(rows, marks, rng, settings, np.full(count, top_k, np.int32)).tolist())


def test_each_setting_keeps_what_its_name_says() -> None:
    flat = [1.0, 1.0, 1.0, 1.0]
    assert one_row(flat) == {0, 1, 2, 3}
    assert one_row(flat, temperature=0) == {0}
    assert one_row(flat, top_k=2) == {0, 1}
    assert one_row(flat, top_p=0.5) == {0, 1}
    assert one_row(flat, top_p=0.51) == {0, 1, 2}
    assert one_row(flat, top_p=0.0) == {0}
    assert one_row([0.0, 3.0, 0.0, 3.0], min_p=0.5) == {1, 3}
    assert one_row([2.0, 1.9, -1.0], temperature=0, penalty=1.5, seen=(0,)) == {1}
    assert one_row([-1.0, -1.1], temperature=0, penalty=1.5, seen=(0,)) == {1}
    assert one_row([-np.inf, 0.0, -np.inf]) == {1}


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_nan_logit_is_an_error_that_says_where(isa: str, temperature: float) -> None:
    rows = rows_of(4, 10, 5)
    rows[3][:, 0] = temperature
    rows[0][2, 6] = np.nan
    with pytest.raises(NotFiniteError, match="element 26 is NaN or infinite"):
        sample(*rows, isa=isa)


@pytest.mark.parametrize("logits", [[0.0, np.inf], [-np.inf, -np.inf]])
def test_a_draw_without_a_finite_largest_logit_is_an_error(logits: list[float]) -> None:
    with pytest.raises(NotFiniteError):
        one_row(logits)


def test_no_rows_give_no_tokens() -> None:
    assert sample(*(x[:0] for x in rows_of(4, 10, 6))).size == 0


# --- seen tokens --------------------------------------------------------------------------------------
@pytest.mark.parametrize("isa", isas())
def test_mark_seen_marks_the_first_tokens_of_each_row(isa: str) -> None:
    tokens = np.array([[1, 2, 2], [0, 4, 9], [3, -5, 99]], np.int32)
    lengths = np.array([3, 0, 1], np.int32)
    for threads in THREADS:
        seen = np.zeros((3, 10), np.int32)
        seen[1, 7] = 1
        run_kernel("mark_seen", [seen, tokens, lengths], 1, isa=isa, threads=threads)
        assert [np.flatnonzero(row).tolist() for row in seen] == [[1, 2], [7], [3]]


@pytest.mark.parametrize(
    ("token", "length", "message"),
    [
        (10, 2, "index is 10: expected 0 <= index < 10"),
        (-1, 2, "index is -1"),
        (0, 4, "index is 4: expected 0 <= index < 4"),
        (0, -1, "index is -1"),
    ],
)
def test_mark_seen_outside_its_rows_is_an_index_error_and_marks_nothing(
    token: int, length: int, message: str
) -> None:
    seen = np.zeros((2, 10), np.int32)
    tokens, lengths = np.array([[1, 2, 3], [1, token, 1]], np.int32), np.array([3, length], np.int32)
    with pytest.raises(IndexRangeError, match=message):
        run_kernel("mark_seen", [seen, tokens, lengths], 1, threads=2)
    assert not seen.any()
