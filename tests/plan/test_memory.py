"""The arena's layout: no two buffers that live together share a byte, and its size is exact."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from volta.plan.memory import align, lay_out
from volta.plan.steps import ALIGNMENT, Buffer, Memory

Made = tuple[Memory, int, int, int]  # memory, bytes, first, last


def made(kinds: list[Made]) -> list[Buffer]:
    return [
        Buffer(index, f"b{index}", memory, nbytes, first=first, last=last)
        for index, (memory, nbytes, first, last) in enumerate(kinds)
    ]


@st.composite
def populations(draw: st.DrawFn) -> list[Made]:
    kinds: list[Made] = []
    for _ in range(draw(st.integers(0, 14))):
        first = draw(st.integers(-1, 8))
        last = first + draw(st.integers(0, 5)) if first >= 0 else -1
        memory = draw(st.sampled_from((Memory.TEMPORARY, Memory.TEMPORARY, Memory.WORKSPACE, Memory.INPUT)))
        kinds.append((memory, draw(st.sampled_from((0, 4, 60, 64, 68, 200, 1000))), first, last))
    return kinds


@settings(max_examples=300, deadline=None, derandomize=True)
@given(populations())
def test_what_lives_together_lies_apart_and_the_size_is_the_highest_end(kinds: list[Made]) -> None:
    buffers = made(kinds)
    size = lay_out(buffers)
    placed = [b for b in buffers if b.in_arena and b.first >= 0]
    assert size == max((b.offset + b.nbytes for b in placed if b.nbytes), default=0)
    for buffer in placed:
        assert buffer.offset % ALIGNMENT == 0
        for other in placed:
            together = buffer.first <= other.last and other.first <= buffer.last
            if buffer.index < other.index and together:
                ends = (buffer.offset + buffer.nbytes, other.offset + other.nbytes)
                assert (
                    ends[0] <= other.offset or ends[1] <= buffer.offset or 0 in (buffer.nbytes, other.nbytes)
                )


@settings(max_examples=150, deadline=None, derandomize=True)
@given(populations())
def test_the_size_lies_between_what_is_live_at_once_and_the_sum(kinds: list[Made]) -> None:
    buffers = made(kinds)
    size = lay_out(buffers)
    placed = [b for b in buffers if b.in_arena and b.first >= 0]
    live = max((sum(b.nbytes for b in placed if b.first <= t <= b.last) for t in range(15)), default=0)
    assert live <= size <= sum(align(b.nbytes) for b in placed)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(populations(), st.randoms(use_true_random=False))
def test_offsets_do_not_depend_on_the_order_in_which_buffers_come(
    kinds: list[Made], order: random.Random
) -> None:
    buffers, others = made(kinds), made(kinds)
    order.shuffle(others)
    assert lay_out(buffers) == lay_out(others)
    assert [b.offset for b in buffers] == [b.offset for b in sorted(others, key=lambda b: b.index)]


def test_buffers_that_never_meet_share_their_bytes() -> None:
    t = Memory.TEMPORARY
    buffers = made([(t, 128, 0, 1), (t, 128, 2, 3), (t, 64, 1, 2)])
    assert lay_out(buffers) == 192
    assert [b.offset for b in buffers] == [0, 0, 128]


def test_a_gap_that_fits_is_used() -> None:
    """The small buffer goes between the two that surround it, not behind them."""
    t = Memory.TEMPORARY
    buffers = made([(t, 256, 0, 0), (t, 192, 0, 2), (t, 128, 1, 1), (t, 64, 2, 2), (t, 64, 0, 2)])
    assert lay_out(buffers) == 512
    assert [b.offset for b in buffers] == [0, 256, 0, 0, 448]


def test_the_last_buffer_counts_its_own_bytes_and_not_its_padding() -> None:
    assert lay_out(made([(Memory.TEMPORARY, 68, 0, 0)])) == 68
    assert lay_out(made([(Memory.TEMPORARY, 68, 0, 0), (Memory.TEMPORARY, 4, 0, 0)])) == 132
    assert [align(n) for n in (0, 1, 63, 64, 65)] == [0, 64, 64, 64, 128]


def test_what_no_step_uses_takes_no_room() -> None:
    assert lay_out(made([(Memory.TEMPORARY, 640, -1, -1), (Memory.OUTPUT, 640, 0, 3)])) == 0
