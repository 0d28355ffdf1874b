"""Embedding, gather and clause N7, the scatter-add in ascending order that is their gradient."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import THREADS, Array, Guarded, assert_parity, assert_same_bits, isas
from tests.ops.rows import LENGTHS, ROWS, Floats, awkward, spaced

from volta.backends.cpu.native import run_kernel
from volta.errors import IndexRangeError

VOCABULARY = 9
Indices = npt.NDArray[np.int32]


def indices_of(rows: int, limit: int = VOCABULARY) -> Indices:
    """Some rows often, some never."""
    return (np.random.default_rng(rows).integers(0, limit, rows) ** 2 // limit).astype(np.int32)


def scatter_add(g: Floats, indices: Indices, limit: int) -> Floats:
    out = np.zeros((limit, g.shape[1]), np.float32)
    with np.errstate(all="ignore"):
        for row, index in enumerate(indices):
            out[index] += g[row]
    return out


@pytest.mark.parametrize("rows", ROWS)
def test_embedding_copies_table_rows_bit_by_bit(rows: int) -> None:
    indices = indices_of(rows)
    for width in LENGTHS:
        table = awkward(VOCABULARY, width)

        def call(isa: str, threads: int, outputs: list[Array], table: Floats = table) -> None:
            run_kernel("embedding", [*outputs, table, indices], 1, isa=isa, threads=threads)

        (out,) = assert_parity(call, [np.empty((rows, width), np.float32)], f"embedding [{rows}, {width}]")
        assert_same_bits(out, table[indices])


@pytest.mark.parametrize("rows", ROWS)
def test_embedding_grad_adds_in_ascending_order_of_tokens(rows: int) -> None:
    indices = indices_of(rows)
    for width in LENGTHS:
        g = awkward(rows, width)

        def call(isa: str, threads: int, outputs: list[Array], g: Floats = g) -> None:
            run_kernel("embedding_grad", [*outputs, g, indices], 1, isa=isa, threads=threads)

        context = f"embedding_grad [{rows}, {width}]"
        (out,) = assert_parity(call, [np.empty((VOCABULARY, width), np.float32)], context)
        assert_same_bits(out, scatter_add(g, indices, VOCABULARY), context)


@pytest.mark.parametrize("table", [1, 2, 3, 1023, 1024, 1025, 5000])
@pytest.mark.parametrize("drawn", ["evenly", "one row", "the first rows", "the last rows"])
def test_embedding_grad_reaches_every_row_however_tokens_are_spread(table: int, drawn: str) -> None:
    """Threads divide the table by where the tokens are; more rows than are counted one by one."""
    tokens, few = 2100, max(1, table // 50)
    generator = np.random.default_rng(table)
    indices = {
        "evenly": generator.integers(0, table, tokens),
        "one row": np.full(tokens, table // 2),
        "the first rows": generator.integers(0, few, tokens),
        "the last rows": table - 1 - generator.integers(0, few, tokens),
    }[drawn].astype(np.int32)
    g = awkward(tokens, 33)
    expected = scatter_add(g, indices, table)
    for isa in isas():
        for threads in THREADS:
            out = Guarded((table, 33))
            run_kernel("embedding_grad", [out.array, g, indices], 1, isa=isa, threads=threads)
            out.check()
            assert_same_bits(out.array, expected, f"{isa}, {threads} threads")


def test_the_order_of_the_additions_is_visible() -> None:
    """1 + 2^-24 rounds to 1, twice; 2^-24 + 2^-24 + 1 is above 1."""
    g = np.array([[1.0], [2.0**-24], [2.0**-24]], np.float32)
    forward, backward = np.empty((1, 1), np.float32), np.empty((1, 1), np.float32)
    for isa in isas():
        run_kernel("embedding_grad", [forward, g, np.zeros(3, np.int32)], 1, isa=isa)
        run_kernel("embedding_grad", [backward, g[::-1].copy(), np.zeros(3, np.int32)], 1, isa=isa)
        assert forward[0, 0] == 1
        assert backward[0, 0] > 1


@pytest.mark.parametrize("isa", isas())
def test_a_negative_zero_added_to_nothing_is_plus_zero(isa: str) -> None:
    out = np.empty((2, 40), np.float32)
    run_kernel("embedding_grad", [out, np.full((1, 40), -0.0, np.float32), np.zeros(1, np.int32)], 1, isa=isa)
    assert_same_bits(out, np.zeros((2, 40), np.float32))


def test_rows_apart_give_the_same_bits_and_what_lies_between_is_untouched() -> None:
    table, g, indices = awkward(VOCABULARY, 65), awkward(33, 65, seed=1), indices_of(33)
    strided = np.repeat(indices, 2)[::2]
    for isa in isas():
        for threads in THREADS:
            out, grad = spaced(np.zeros((33, 65), np.float32)), spaced(np.zeros((VOCABULARY, 65), np.float32))
            run_kernel("embedding", [out, spaced(table), strided], 1, isa=isa, threads=threads)
            run_kernel("embedding_grad", [grad, spaced(g), strided], 1, isa=isa, threads=threads)
            assert_same_bits(out, table[indices], isa)
            assert_same_bits(grad, scatter_add(g, indices, VOCABULARY), isa)
            for written in (out, grad):
                assert written.base is not None
                assert (written.base[:, 65:] == 777).all()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("bad", [-1, VOCABULARY, 2**31 - 1, -(2**31)])
def test_an_index_outside_the_table_is_an_error_and_nothing_is_written(
    bad: int, isa: str, threads: int
) -> None:
    """The first bad index in order is the one reported, whichever thread sees it."""
    indices = np.array([0, 8, 1, bad, 3, -7, 5], np.int32)
    out, grad = Guarded((7, 40)), Guarded((VOCABULARY, 40))
    before = out.memory.copy(), grad.memory.copy()
    table, g = awkward(VOCABULARY, 40), awkward(7, 40)
    with pytest.raises(IndexRangeError, match=f"{bad}.*{VOCABULARY}"):
        run_kernel("embedding", [out.array, table, indices], 1, isa=isa, threads=threads)
    with pytest.raises(IndexRangeError, match=f"{bad}.*{VOCABULARY}"):
        run_kernel("embedding_grad", [grad.array, g, indices], 1, isa=isa, threads=threads)
    assert (out.memory == before[0]).all()
    assert (grad.memory == before[1]).all()


def test_any_index_into_an_empty_table_is_an_error() -> None:
    for isa in isas():
        operands = [np.empty((1, 4), np.float32), np.empty((0, 4), np.float32), np.zeros(1, np.int32)]
        with pytest.raises(IndexRangeError):
            run_kernel("embedding", operands, 1, isa=isa)


# (shape of x, axis, length of the index's axis)
GATHERS = [
    ((5,), 0, 7),
    ((3, 4), 0, 6),
    ((3, 4), 1, 2),
    ((2, 3, 5), 1, 4),
    ((2, 3, 5), 2, 1),
    ((1, 33, 1, 2), 1, 70),
    ((0, 3), 1, 2),
    ((3, 4), 1, 0),
]


def gather_index(shape: tuple[int, ...], axis: int, count: int) -> Indices:
    full = (*shape[:axis], count, *shape[axis + 1 :])
    return np.random.default_rng(count).integers(-shape[axis], shape[axis], full, dtype=np.int32)


@pytest.mark.parametrize(("shape", "axis", "count"), GATHERS)
def test_gather_is_take_along_axis(shape: tuple[int, ...], axis: int, count: int) -> None:
    x = awkward(1, int(np.prod(shape))).reshape(shape)
    index = gather_index(shape, axis, count)

    def call(isa: str, threads: int, outputs: list[Array]) -> None:
        run_kernel("gather", [*outputs, x, index], 1, ints=[axis], isa=isa, threads=threads)

    (out,) = assert_parity(call, [np.empty(index.shape, np.float32)], f"gather {shape} axis {axis}")
    assert_same_bits(out, np.take_along_axis(x, index, axis))


@pytest.mark.parametrize(("shape", "axis", "count"), GATHERS)
def test_gather_grad_adds_in_ascending_flat_order(shape: tuple[int, ...], axis: int, count: int) -> None:
    index = gather_index(shape, axis, count)
    g = awkward(3, index.size)[0].reshape(index.shape) if index.size else np.empty(index.shape, np.float32)

    def call(isa: str, threads: int, outputs: list[Array]) -> None:
        run_kernel("gather_grad", [*outputs, g, index], 1, ints=[axis], isa=isa, threads=threads)

    (out,) = assert_parity(call, [np.empty(shape, np.float32)], f"gather_grad {shape} axis {axis}")
    expected = np.zeros(shape, np.float32)
    for at in np.ndindex(index.shape):
        expected[(*at[:axis], index[at], *at[axis + 1 :])] += g[at]
    assert_same_bits(out, expected)


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("bad", [3, -4])
def test_a_gather_index_outside_the_axis_is_an_error_and_nothing_is_written(bad: int, threads: int) -> None:
    index = np.array([[0, 2], [-3, bad]], np.int32)
    out, grad = Guarded((2, 2)), Guarded((2, 3))
    before = out.memory.copy(), grad.memory.copy()
    for isa in isas():
        with pytest.raises(IndexRangeError, match=f"{bad}.*3"):
            run_kernel("gather", [out.array, awkward(2, 3), index], 1, ints=[1], isa=isa, threads=threads)
        with pytest.raises(IndexRangeError, match=f"{bad}.*3"):
            run_kernel(
                "gather_grad", [grad.array, awkward(2, 2), index], 1, ints=[1], isa=isa, threads=threads
            )
    assert (out.memory == before[0]).all()
    assert (grad.memory == before[1]).all()
