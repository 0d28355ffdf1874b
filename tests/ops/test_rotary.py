"""Rotary embedding and the cache: the same bits on every target, rows at each batch row's own position."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.parity import THREADS, Array, assert_parity, assert_same_bits, isas
from tests.ops.rows import Floats, normal

from volta.backends.cpu.native import run_kernel
from volta.errors import IndexRangeError

WIDTHS = (0, 2, 8, 14, 16, 18, 32, 34, 64, 80)


def contract(x: Floats, cos: Floats, sin: Floats, position: Array, inverse: bool) -> Floats:
    """out1 = x1 cos - x2 sin, out2 = x2 cos + x1 sin, each operation rounded to float32."""
    half = x.shape[3] // 2
    rows = position[:, None] + np.arange(x.shape[2])
    c, s = cos[rows][:, None], sin[rows][:, None]
    s = -s if inverse else s
    x1, x2 = x[..., :half], x[..., half:]
    return np.concatenate((x1 * c - x2 * s, x2 * c + x1 * s), axis=-1)


def rotate(
    isa: str, threads: int, out: Array, x: Floats, cos: Floats, sin: Floats, position: Array, inverse: bool
) -> None:
    run_kernel("rotary", [out, x, cos, sin, position], 1, ints=[int(inverse)], isa=isa, threads=threads)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_every_target_and_thread_count_gives_the_bits_of_the_equation(width: int, inverse: bool) -> None:
    for queries in (0, 1, 2, 7):
        x = normal(3, 2, queries, width)
        cos, sin = normal(20, width // 2, seed=1), normal(20, width // 2, seed=2)
        position = np.array([0, 20 - queries, 5], np.int32)

        def call(isa: str, threads: int, out: list[Array], x: Floats = x) -> None:
            rotate(isa, threads, out[0], x, cos, sin, position, inverse)  # noqa: B023

        (expected,) = assert_parity(call, [np.empty_like(x)], f"rotary {x.shape}")
        assert_same_bits(
            expected, contract(x, cos, sin, position, inverse), f"rotary {x.shape} and its equation"
        )


@pytest.mark.parametrize("isa", isas())
def test_views_and_padded_tables_give_the_bits_of_contiguous_operands(isa: str) -> None:
    """x and out as views of [B, T, H, D]; tables with space between their rows."""
    x = normal(2, 5, 3, 18)
    tables = normal(9, 30)
    cos, sin = tables[:, :9], tables[:, 15:24]
    position = np.array([4, 1], np.int32)
    memory = np.zeros_like(x)
    view = x.transpose(0, 2, 1, 3)
    rotate(isa, 2, memory.transpose(0, 2, 1, 3), view, cos, sin, position, False)
    assert_same_bits(memory.transpose(0, 2, 1, 3), contract(view, cos, sin, position, False), isa)


@pytest.mark.parametrize("isa", isas())
def test_output_may_be_the_input(isa: str) -> None:
    x, cos, sin = normal(1, 2, 3, 22), normal(3, 11, seed=1), normal(3, 11, seed=2)
    position = np.zeros(1, np.int32)
    expected = contract(x, cos, sin, position, False)
    rotate(isa, 1, x, x, cos, sin, position, False)
    assert_same_bits(x, expected, isa)


def test_inverse_undoes_a_rotation() -> None:
    x, angle = normal(1, 2, 6, 16), normal(6, 8, seed=1, scale=3.0)
    cos, sin = np.cos(angle), np.sin(angle)
    position, turned, back = np.zeros(1, np.int32), np.empty_like(x), np.empty_like(x)
    rotate("ref", 1, turned, x, cos, sin, position, False)
    rotate("ref", 1, back, turned, cos, sin, position, True)
    np.testing.assert_allclose(back, x, rtol=0, atol=2e-6)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("position", [-1, 7])
def test_a_position_outside_the_table_is_an_index_error(isa: str, position: int) -> None:
    """4 queries and 10 rows: positions 0 to 6."""
    x, table = normal(1, 1, 4, 8), normal(10, 4)
    with pytest.raises(IndexRangeError, match=f"index is {position}: expected 0 <= index < 7"):
        rotate(isa, 2, np.empty_like(x), x, table, table, np.array([position], np.int32), False)


# --- the cache --------------------------------------------------------------------------------------
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("queries", [0, 1, 5])
def test_cache_update_replaces_each_batch_row_at_its_position_and_nothing_else(
    isa: str, queries: int
) -> None:
    new = normal(3, 2, queries, 20)
    position = np.array([0, 4, 12 - queries], np.int32)
    expected = normal(3, 2, 12, 20, seed=1)
    before = expected.copy()
    for b, start in enumerate(position):
        expected[b, :, start : start + queries] = new[b]
    for threads in THREADS:
        for source in (new, np.ascontiguousarray(new.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)):
            cache = before.copy()
            run_kernel("cache_update", [cache, source, position], 1, isa=isa, threads=threads)
            assert_same_bits(cache, expected, f"{isa} threads={threads}")


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("position", [-1, 9])
def test_cache_update_outside_the_cache_is_an_index_error_and_writes_nothing(isa: str, position: int) -> None:
    """4 new rows and 12 places: positions 0 to 8."""
    cache = normal(2, 1, 12, 8)
    before = cache.copy()
    with pytest.raises(IndexRangeError, match=f"index is {position}: expected 0 <= index < 9"):
        run_kernel(
            "cache_update",
            [cache, normal(2, 1, 4, 8), np.array([0, position], np.int32)],
            1,
            isa=isa,
            threads=2,
        )
    assert_same_bits(cache, before)
