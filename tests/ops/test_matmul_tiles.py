"""The table of register tiles: its constraints hold, and no tile, block, copy or prefetch changes a bit.

This is the proof that tuning is safe: whatever the tuner may write into a step gives the bits of the
reference, and what it may not write is refused.
"""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops import matmuls
from tests.ops.matmuls import bf16, int8, multiply, scales
from tests.ops.parity import Array, assert_same_bits, isas

from volta.backends.cpu import native
from volta.errors import UsageError, VerifyError

FAST = isas()[1:]
TILES = [(isa, tile) for isa in FAST for tile in native.tiles() if tile in native.tiles_of(tile.kind, isa)]
every_tile = pytest.mark.parametrize(("isa", "tile"), TILES, ids=lambda x: getattr(x, "name", x))


def operands(kind: str, m: int, n: int, k: int, groups: int = 1) -> tuple[Array, Array, Array | None]:
    """A, B and, for int8, scales."""
    rng = np.random.default_rng([m, n, k])
    if kind == "bf16":
        return bf16(m, k, seed=1), bf16(k, n, seed=2), None
    if kind == "i8":
        return int8(m, k, seed=1), int8(k, n, seed=2), scales(groups, n)
    a, b = (rng.standard_normal(shape, dtype=np.float32) for shape in ((m, k), (k, n)))
    return a, b, None


def test_every_row_keeps_the_constraints_of_the_table() -> None:
    assert len(native.tiles()) >= 20
    for tile in native.tiles():
        assert native.tile_problem(tile.id) is None, tile
    assert native.tile_problem(0) == native.tile_problem(10_000) == "there is no such tile"


def test_every_name_follows_the_grammar() -> None:
    """dtype_matmul_tile_isa, once in what a processor has: WHOLE and HALVES exclude each other."""
    usable = [tile.name for tile in native.tiles() if tile.available]
    assert len(set(usable)) == len(usable)
    for name in (tile.name for tile in native.tiles()):
        assert re.fullmatch(r"(f32|bf16|i8)_matmul_\d+x\d+_(avx2|avx512|amx)(_[a-z0-9]+)?", name)


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("kind", native.KINDS)
def test_every_instruction_set_has_a_tile_for_every_kind(isa: str, kind: str) -> None:
    assert native.tiles_of(kind, isa)


@every_tile
@pytest.mark.parametrize(
    ("m", "n", "k"), [(128, 128, 128), (256, 256, 256), (45, 113, 97), (1, 259, 64), (131, 1, 33)]
)
def test_a_tile_gives_the_bits_of_the_reference(isa: str, tile: native.Tile, m: int, n: int, k: int) -> None:
    """N1, N9, N10: at sizes of whole tiles and at sizes that divide nothing."""
    a, b, scale = operands(tile.kind, m, n, k)
    expected = multiply(a, b, scale=scale)
    for threads in (1, 2, 3):
        found = multiply(a, b, isa, threads, scale, [tile.id])
        assert_same_bits(found, expected, f"{tile.name} {m} {n} {k} threads={threads}")


@every_tile
def test_a_tile_gives_the_bits_of_the_reference_at_512(isa: str, tile: native.Tile) -> None:
    a, b, scale = operands(tile.kind, 512, 512, 512)
    assert_same_bits(multiply(a, b, isa, 2, scale, [tile.id]), multiply(a, b, scale=scale), tile.name)


@every_tile
def test_memory_need_not_be_aligned(isa: str, tile: native.Tile) -> None:
    """Operands that start one element into their memory."""
    a, b, scale = operands(tile.kind, 37, 51, 70)
    expected = multiply(a, b, scale=scale)
    shifted = [np.empty(x.size + 1, x.dtype)[1:].reshape(x.shape) for x in (a, b)]
    for to, x in zip(shifted, (a, b), strict=True):
        to[...] = x
    assert_same_bits(multiply(*shifted, isa, 2, scale, [tile.id]), expected, tile.name)


@every_tile
@pytest.mark.parametrize("layout", matmuls.LAYOUTS)
def test_no_layout_changes_a_bit(isa: str, tile: native.Tile, layout: str) -> None:
    a, b, scale = operands(tile.kind, 29, 67, 96)
    expected = multiply(a, b, scale=scale)
    for left, right in itertools.product((layout, "rows"), (layout, "turned")):
        x, y = matmuls.LAYOUTS[left](a), matmuls.LAYOUTS[right](b)
        assert_same_bits(multiply(x, y, isa, 2, scale, [tile.id]), expected, f"{tile.name} {left} {right}")


@every_tile
def test_a_batch_is_its_matrices_one_by_one(isa: str, tile: native.Tile) -> None:
    """Not the batch: rows that fold, shared B, one B each (int8 has one B for all)."""
    for left, right in (((3, 11, 64), (64, 40)), ((3, 11, 64), (3, 64, 40)), ((2, 3, 5, 64), (2, 1, 64, 40))):
        if tile.kind == "i8" and len(right) > 2:
            continue
        a, _, scale = operands(tile.kind, int(np.prod(left[:-1])), 40, 64)
        _, b, _ = operands(tile.kind, 1, 40, int(np.prod(right[:-1])))
        a, b = a.reshape(left), b.reshape(right)
        expected = multiply(a, b, scale=scale)
        assert_same_bits(multiply(a, b, isa, 3, scale, [tile.id]), expected, f"{tile.name} {left} {right}")


K_BLOCKS, M_BLOCKS, N_BLOCKS = (0, 32, 64, 96, 128, 160, 192, 256), (0, 32, 48, 64, 96, 128), (0, 64, 192)


@given(data=st.data())
@settings(max_examples=1000, deadline=None)
def test_no_point_of_the_tuners_grid_changes_a_bit(data: st.DataObject) -> None:
    """Blocks, prefetch distance, copies and threads are free: they decide when, never what."""
    isa, tile = data.draw(st.sampled_from(TILES))
    m, n, k = (data.draw(st.integers(1, most)) for most in (90, 150, 300))
    groups = data.draw(st.sampled_from([g for g in (1, 2, 4) if k % g == 0])) if tile.kind == "i8" else 1
    a, b, scale = operands(tile.kind, m, n, k, groups)
    chosen = [
        tile.id,
        data.draw(st.sampled_from(K_BLOCKS)),
        data.draw(st.sampled_from(M_BLOCKS)),
        data.draw(st.sampled_from(N_BLOCKS)),
        data.draw(st.integers(0, 33)),
        data.draw(st.sampled_from((0, matmuls.B_NEVER, matmuls.B_ALWAYS)))
        + data.draw(st.sampled_from((0, matmuls.A_NEVER, matmuls.A_ALWAYS))),
        data.draw(st.integers(0, 4)),
    ]
    threads = data.draw(st.integers(1, 4))
    expected = multiply(a, b, scale=scale)
    assert_same_bits(multiply(a, b, isa, threads, scale, chosen), expected, f"{tile.name} {chosen}")


BAD_SETTINGS = {
    "no such tile": [10_000],
    "negative": [-1],
    "a K block that is no multiple of 32": [0, 48],
    "a negative K block": [0, -32],
    "no rows in a block": [0, 0, 1],
    "copies that do not exist": [0, 0, 0, 0, 0, 16],
    "B packed, but it is not": [1, 0, 0, 0, 0, matmuls.B_DONE],
}


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_a_step_with_impossible_blocks_is_refused(name: str) -> None:
    a, b, _ = operands("f32", 20, 30, 40)
    for isa in FAST:
        with pytest.raises(VerifyError, match="matmul"):
            multiply(a, b, isa, 1, None, BAD_SETTINGS[name])


def test_a_tile_of_another_kind_or_instruction_set_is_refused() -> None:
    a, b, _ = operands("f32", 20, 30, 40)
    for isa in FAST:
        usable = set(native.tiles_of("f32", isa))
        for tile in set(native.tiles()) - usable:
            with pytest.raises(VerifyError, match="matmul"):
                multiply(a, b, isa, 1, None, [tile.id])


# --- weights packed once ---------------------------------------------------------------------------


@every_tile
@pytest.mark.parametrize(("m", "n", "k"), [(1, 70, 96), (33, 129, 200), (64, 32, 31)])
def test_packed_weights_give_the_bits_of_plain_ones(
    isa: str, tile: native.Tile, m: int, n: int, k: int
) -> None:
    """Packed once, multiplied by any number of rows, in any blocks."""
    for groups in (1, 2) if tile.kind == "i8" and k % 2 == 0 else (1,):
        a, b, scale = operands(tile.kind, m, n, k, groups)
        for layout in ("rows", "turned"):
            w = matmuls.packed(matmuls.LAYOUTS[layout](b), tile, isa, k // groups if tile.kind == "i8" else 1)
            expected = multiply(a, b, scale=scale)
            for blocks in ([0, 0, 0, 0], [64, 32, 64, 3]):
                out = np.full((m, n), np.nan, np.float32)
                inputs = [a, w] if scale is None else [a, w, scale]
                native.run_kernel(
                    "matmul" if scale is None else "matmul_scaled",
                    [out, *inputs],
                    1,
                    ints=[1, tile.id, *blocks, matmuls.B_DONE],
                    isa=isa,
                    threads=2,
                )
                assert_same_bits(out, expected, f"{tile.name} {layout} {blocks} groups={groups}")


def test_weights_packed_for_other_shapes_or_tiles_are_refused() -> None:
    a, b, _ = operands("f32", 8, 40, 64)
    out = np.empty((8, 40), np.float32)
    for isa in FAST:
        tile = native.tiles_of("f32", isa)[0]
        w = matmuls.packed(b, tile, isa)
        for bad in (w[:-1], np.concatenate([w, w])):
            with pytest.raises(VerifyError, match="matmul"):
                native.run_kernel(
                    "matmul", [out, a, bad], 1, ints=[1, tile.id, 0, 0, 0, 0, matmuls.B_DONE], isa=isa
                )
        with pytest.raises(VerifyError, match="pack_weights"):
            native.run_kernel("pack_weights", [w[:-1], b], 1, ints=[0, tile.id, 1], isa=isa)
        with pytest.raises(UsageError, match="does not exist here"):
            native.packed_bytes(tile.id, "i8", isa, 4, 4)
