"""Clause N8: dropout and random tensors are Philox4x32-10, element by element, on every target."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops import philox
from tests.ops.parity import Array, assert_parity, assert_same_bits, isas
from tests.ops.rows import Floats, normal

from volta.backends.cpu.native import run_kernel

# around one block of four words and one run of 64 blocks
COUNTS = (0, 1, 2, 3, 4, 5, 7, 63, 255, 256, 257, 300, 1030)
GENERATORS = ((0, 0, 0), (1, 2, 3), (-1, -(2**31), 2**31 - 1))
UNIFORM, NORMAL = 0, 1


def draw(
    isa: str, threads: int, out: Array, rng: tuple[int, int, int], stream: int, kind: int, a: float, b: float
) -> None:
    run_kernel(
        "random",
        [out, np.array(rng, np.int32)],
        1,
        ints=[stream, kind],
        floats=[a, b],
        isa=isa,
        threads=threads,
    )


def drop(
    isa: str, threads: int, out: Array, x: Floats, rng: tuple[int, int, int], stream: int, p: float
) -> None:
    run_kernel(
        "dropout", [out, x, np.array(rng, np.int32)], 1, ints=[stream], floats=[p], isa=isa, threads=threads
    )


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_oracle_gives_the_known_answers_of_random123(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: tuple[int, int, int, int]
) -> None:
    assert philox.philox(counter, key) == expected


@pytest.mark.parametrize("rng", GENERATORS)
@pytest.mark.parametrize("stream", [0, 7, 2**32 - 1])
def test_uniform_is_low_plus_u_times_the_range(rng: tuple[int, int, int], stream: int) -> None:
    low, high = np.float32(-0.3), np.float32(1.7)
    for count in COUNTS:
        (expected,) = assert_parity(
            lambda isa, threads, out: draw(isa, threads, out[0], rng, stream, UNIFORM, -0.3, 1.7),
            [np.empty(count, np.float32)],
            f"uniform {count}",
        )
        u = np.array([philox.uniform(word) for word in philox.words(count, rng, stream)], np.float32)
        assert_same_bits(expected, low + u * (high - low), f"uniform {count} and N8")


@pytest.mark.parametrize("rng", GENERATORS)
def test_normal_is_box_and_muller_of_two_words(rng: tuple[int, int, int]) -> None:
    """Against float64; a cosine near zero leaves an absolute error."""
    for count in COUNTS:
        (expected,) = assert_parity(
            lambda isa, threads, out: draw(isa, threads, out[0], rng, 9, NORMAL, 0.5, 2.0),
            [np.empty(count, np.float32)],
            f"normal {count}",
        )
        pairs = np.array(philox.words(-(-count // 2) * 2, rng, 9), np.uint32).reshape(-1, 2) >> 8
        radius = np.sqrt(-2 * np.log((pairs[:, 0] + 1) * 2.0**-24))
        angle = 2 * np.pi * (pairs[:, 1] * 2.0**-24)
        z = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1).reshape(-1)[:count]
        np.testing.assert_allclose(expected, 0.5 + 2.0 * z, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("rng", GENERATORS)
def test_dropout_keeps_where_the_uniform_is_at_least_p(rng: tuple[int, int, int], p: float) -> None:
    """Kept elements are x * (1 / (1 - p)); dropped ones +0, even where x is NaN, infinite or negative."""
    for count in COUNTS:
        x = normal(count, seed=count)
        x[3::17], x[4::19], x[5::23] = np.nan, -np.inf, -0.0
        (expected,) = assert_parity(
            lambda isa, threads, out, x=x: drop(isa, threads, out[0], x, rng, 5, p),
            [np.empty(count, np.float32)],
            f"dropout {count}",
        )
        u = np.array([philox.uniform(word) for word in philox.words(count, rng, 5)], np.float32)
        scale = np.float32(1) / (np.float32(1) - np.float32(p))
        contract = np.where(u >= np.float32(p), x * scale, np.float32(0))
        assert_same_bits(expected, contract, f"dropout {count} and N8")


@pytest.mark.parametrize("isa", isas())
def test_shape_does_not_matter_and_dropout_may_work_in_place(isa: str) -> None:
    x = normal(3, 5, 41)
    flat, shaped = np.empty(x.size, np.float32), x.copy()
    drop(isa, 1, flat, x.reshape(-1), (1, 2, 3), 4, 0.3)
    drop(isa, 2, shaped, shaped, (1, 2, 3), 4, 0.3)
    assert_same_bits(shaped.reshape(-1), flat, isa)


@pytest.mark.parametrize("isa", isas())
def test_every_part_of_the_generator_matters(isa: str) -> None:
    """Seed low, seed high, step and stream each give other numbers, element by element."""
    drawn = []
    for rng, stream in (((1, 2, 3), 4), ((2, 2, 3), 4), ((1, 3, 3), 4), ((1, 2, 4), 4), ((1, 2, 3), 5)):
        out = np.empty(1000, np.float32)
        draw(isa, 1, out, rng, stream, UNIFORM, 0.0, 1.0)
        drawn.append(out)
    for index, one in enumerate(drawn):
        for other in drawn[:index]:
            assert (one == other).mean() < 0.01


def test_moments_are_those_of_the_distributions() -> None:
    """2^18 values: means within 5 standard errors, shares of a normal variable within 0.5%."""
    count = 2**18
    u, z, x = (np.empty(count, np.float32) for _ in range(3))
    best = isas()[-1]
    draw(best, 1, u, (11, 0, 0), 1, UNIFORM, 0.0, 1.0)
    draw(best, 1, z, (11, 0, 0), 2, NORMAL, 0.0, 1.0)
    drop(best, 1, x, np.ones(count, np.float32), (11, 0, 0), 3, 0.25)
    error = 5 / np.sqrt(count)
    assert abs(u.mean(dtype=np.float64) - 0.5) < error * np.sqrt(1 / 12)
    assert abs(z.mean(dtype=np.float64)) < error
    assert abs(z.astype(np.float64).var() - 1) < error * np.sqrt(2)
    assert abs((np.abs(z) < 1).mean() - 0.682689) < 0.005
    assert abs((x == 0).mean() - 0.25) < error * np.sqrt(3 / 16)
