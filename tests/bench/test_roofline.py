"""The measured ceilings, and the least time that they leave to a piece of work."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.bench.conftest import SCHEMA

from volta.bench.roofline import KIB, MIB, Level, Roofline, levels_of, measure
from volta.errors import DeviceError, UsageError
from volta.ir.cost import Work
from volta.runtime import gateway

PEAKS = {"fma": 100e9, "add": 50e9, "divide": 5e9, "sqrt": 5e9, "bf16": 200e9, "i8": 400e9}
ROOF = Roofline(
    2,
    "avx2",
    PEAKS,
    (
        Level("L1", 32 * KIB, 16 * KIB, 4e11, 2e11, 3e11),
        Level("L2", MIB, MIB // 2, 2e11, 1e11, 1e11),
        Level("memory", math.inf, 128 * MIB, 3e10, 2e10, 2e10),
    ),
    1e-6,
)
WORK = st.builds(Work, *[st.integers(0, 10**15)] * 3)


def test_what_is_measured_is_above_zero_and_documented(ceiling: Roofline) -> None:
    assert set(ceiling.peaks) == set(SCHEMA["$defs"]["roofline"]["properties"]["peaks"]["required"])
    assert min(ceiling.peaks["fma"], ceiling.peaks["add"], ceiling.barrier_seconds) > 0
    assert all(min(level.read, level.write, level.copy) > 0 for level in ceiling.levels)
    assert ceiling.isa == gateway.cpu_info().isas[-1]


def test_a_level_is_measured_from_inside_and_the_last_has_no_end(ceiling: Roofline) -> None:
    assert ceiling.levels[-1].upto == math.inf
    assert ceiling.document()["levels"][-1]["upto"] is None
    assert all(level.measured_bytes <= level.upto for level in ceiling.levels)


def test_a_shared_third_level_is_believed_up_to_a_bound() -> None:
    """A virtual machine shows the whole processor's: most of it belongs to others."""
    small, large = levels_of((32 * KIB, MIB, 8 * MIB), 1), levels_of((32 * KIB, MIB, 500 * MIB), 1)
    assert [upto for name, upto, _ in small if name == "L3"] == [4 * MIB]
    assert [upto for name, upto, _ in large if name == "L3"] == [16 * MIB]
    assert [name for name, _, _ in levels_of((32 * KIB, MIB, 0), 1)] == ["L1", "L2", "memory"]


@pytest.mark.parametrize(
    ("nbytes", "level"), [(64 * KIB, "L1"), (64 * KIB + 1, "L2"), (2 * MIB, "L2"), (2 * MIB + 1, "memory")]
)
def test_a_working_set_is_spread_over_the_threads(nbytes: int, level: str) -> None:
    assert ROOF.level(nbytes).name == level


@pytest.mark.parametrize(
    ("work", "dtype", "seconds", "bound"),
    [
        (Work(10**9, 0, 0), "f32", 1e9 / 100e9, "arithmetic"),
        (Work(10**9, 0, 0), "bf16", 1e9 / 200e9, "arithmetic"),
        (Work(10**9, 0, 0), "i8", 1e9 / 400e9, "arithmetic"),
        (Work(0, 10**9, 0), "f32", 1e9 / 50e9, "arithmetic"),
        (Work(0, 0, 10 * MIB), "f32", 10 * MIB / 2e10, "memory"),
        (Work(0, 0, 10 * KIB), "f32", 10 * KIB / 3e11, "memory"),
        (Work(10**9, 10**9, 10 * MIB), "f32", 1e9 / 100e9 + 1e9 / 50e9, "arithmetic"),
    ],
)
def test_the_limit_is_the_slower_of_arithmetic_and_memory(
    work: Work, dtype: str, seconds: float, bound: str
) -> None:
    found = ROOF.limit(work, dtype)
    assert (found.seconds, found.bound) == (pytest.approx(seconds), bound)


@given(WORK, WORK)
def test_more_work_never_takes_less(a: Work, b: Work) -> None:
    both = Work(a.contraction + b.contraction, a.steps + b.steps, a.bytes + b.bytes)
    assert ROOF.limit(both).seconds >= max(ROOF.limit(a).seconds, ROOF.limit(b).seconds) * (1 - 1e-12)


@given(WORK)
def test_a_working_set_that_is_farther_away_never_takes_less(work: Work) -> None:
    times = [ROOF.limit(work, "f32", size).seconds for size in (1.0, float(MIB), float(64 * MIB))]
    assert times == sorted(times)


def test_a_missing_instruction_does_not_make_a_limit_of_zero_speed() -> None:
    """Without bf16 or int8 dot products the f32 peak is what there is."""
    plain = replace(ROOF, peaks={**PEAKS, "bf16": 0.0, "i8": 0.0})
    for dtype in ("bf16", "i8"):
        assert plain.limit(Work(10**9, 0, 0), dtype).seconds == pytest.approx(1e9 / 100e9)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf, 61.0])
def test_a_sample_has_a_length(seconds: float) -> None:
    with pytest.raises(UsageError, match="expected more than 0, up to 60"):
        measure(1, seconds=seconds)


def test_an_unknown_instruction_set_is_an_error() -> None:
    with pytest.raises(UsageError, match="isa is 'neon'"):
        measure(1, "neon", 1e-4)
    with pytest.raises(DeviceError, match="-1 threads"):
        measure(-1, seconds=1e-4)


def test_threads_share_the_third_level_only() -> None:
    one, four = (levels_of((32 * KIB, MIB, 8 * MIB), threads) for threads in (1, 4))
    assert [upto for _, upto, _ in one] == [32 * KIB, MIB, 4 * MIB, float("inf")]
    assert [upto for _, upto, _ in four] == [32 * KIB, MIB, float("inf")]
    assert [upto for _, upto, _ in levels_of((32 * KIB, MIB, 32 * MIB), 4)][2] == 4 * MIB
