"""Views: each operation of the algebra shows the elements that NumPy's shows, and a view is never wrong.

A view and a NumPy array go through the same random transposes, slices and broadcasts; after each the
view must name, element for element, the bytes that NumPy's strides name.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volta.dtypes import bfloat16, float32, int32
from volta.plan.layout import View, contiguous_strides

Array = npt.NDArray[Any]
Pair = tuple[View, Array]

OFFSET = 24  # bytes before the first element: views need not begin where their buffer does


def memory_of(array: Array) -> Array:
    """The flat buffer that the array is a view of."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def shown(view: View, memory: Array) -> Array:
    """The elements that a view names in its buffer; NumPy refuses one that leaves the buffer."""
    strides = tuple(stride * view.dtype.itemsize for stride in view.strides)
    if view.numel == 0:
        return np.empty(view.shape, memory.dtype)
    return np.ndarray(view.shape, memory.dtype, memory.data, view.offset, strides)


def assert_shows(view: View, array: Array) -> None:
    assert_shows_in(view, array, memory_of(array))


def assert_shows_in(view: View, expected: Array, memory: Array) -> None:
    assert view.shape == expected.shape
    assert np.array_equal(shown(view, memory), expected)


def whole(shape: tuple[int, ...], dtype: Any = float32) -> Pair:
    count = math.prod(shape)
    memory = np.arange(OFFSET // dtype.itemsize + count).astype(dtype.numpy)
    view = View(0, OFFSET, shape, contiguous_strides(shape), dtype)
    return view, memory[OFFSET // dtype.itemsize :].reshape(shape)


def transposed(draw: st.DrawFn, view: View, array: Array) -> Pair:
    axes = draw(st.permutations(range(array.ndim)))
    return view.transpose(axes), array.transpose(axes)


def sliced(draw: st.DrawFn, view: View, array: Array) -> Pair:
    start, stop, step = [], [], []
    least = draw(st.sampled_from((1, 1, 1, 1, 1, 0)))  # elements per axis: seldom none
    for size in array.shape:
        start.append(draw(st.integers(0, max(size - least, 0))))
        stop.append(draw(st.integers(min(start[-1] + least, size), size)))
        step.append(draw(st.integers(1, 3)))
    parts = tuple(slice(*part) for part in zip(start, stop, step, strict=True))
    return view.slice(start, stop, step), array[(*parts, ...)]


def repeated(draw: st.DrawFn, view: View, array: Array) -> Pair:
    lead = draw(st.lists(st.integers(1, 2), max_size=max(0, 4 - array.ndim)))
    shape = (*lead, *(draw(st.integers(1, 3)) if size == 1 else size for size in array.shape))
    return view.broadcast(shape), np.broadcast_to(array, shape)


def reshaped(draw: st.DrawFn, view: View, array: Array) -> Pair:
    shape = draw(shapes_of(array.size))
    result = view.reshape(shape)
    return (view, array) if result is None else (result, array.reshape(shape))


@st.composite
def shapes_of(draw: st.DrawFn, count: int) -> tuple[int, ...]:
    """A shape of this many elements, ones strewn in."""
    if count == 0:
        return tuple(draw(st.permutations([0, *draw(st.lists(st.integers(0, 3), max_size=2))])))
    sizes, rest = [], count
    for _ in range(draw(st.integers(0, 3))):
        size = draw(st.sampled_from([d for d in range(1, rest + 1) if rest % d == 0]))
        sizes.append(size)
        rest //= size
    return (*sizes, rest) if rest > 1 or draw(st.booleans()) else tuple(sizes)


@st.composite
def views(draw: st.DrawFn) -> Pair:
    """A view and the array that it should show, after up to four operations, each checked."""
    pair = whole(
        tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4, 2, 3, 1, 4, 0)), max_size=4))),
        draw(st.sampled_from((float32, bfloat16, int32))),
    )
    for _ in range(draw(st.integers(0, 4))):
        pair = draw(st.sampled_from((transposed, sliced, repeated, reshaped)))(draw, *pair)
        if pair[1].size > 400:
            break
        assert_shows(*pair)
    return pair


@settings(max_examples=120, deadline=None, derandomize=True)
@given(views())
def test_transpose_slice_broadcast_and_reshape_show_what_numpy_shows(pair: Pair) -> None:
    view, array = pair
    assert_shows(view, array)
    assert view.numel == array.size


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_reshape_is_a_view_exactly_where_numpy_needs_no_copy(data: st.DataObject) -> None:
    view, array = data.draw(views())
    shape = data.draw(shapes_of(array.size))
    result, expected = view.reshape(shape), array.reshape(shape)
    if array.size:
        assert (result is not None) == np.may_share_memory(expected, array)
    if result is not None:
        assert_shows_in(result, expected, memory_of(array))


@settings(max_examples=120, deadline=None, derandomize=True)
@given(views())
def test_rows_are_all_axes_but_the_last_with_unit_stride(pair: Pair) -> None:
    view, array = pair
    width = array.shape[-1] if array.ndim else 1
    height = math.prod(array.shape[:-1])
    rows = view.rows()
    flat = array.reshape(height, width)
    if rows is not None:
        assert rows.strides[1] == 1
        assert_shows_in(rows, flat, memory_of(array))
    elif array.size:
        copied = not np.may_share_memory(flat, array)
        assert copied or (width > 1 and flat.strides[1] != flat.itemsize), (
            "rows() refused a view that would do"
        )


def places(view: View) -> Array:
    """The byte offset of every element, from the definition."""
    index = np.indices(view.shape).reshape(len(view.shape), view.numel)
    return view.offset + view.dtype.itemsize * (np.array(view.strides, np.int64).reshape(-1, 1) * index).sum(
        0
    )


@settings(max_examples=120, deadline=None, derandomize=True)
@given(views())
def test_the_extent_is_from_the_first_byte_of_any_element_to_the_last(pair: Pair) -> None:
    view, _ = pair
    low, high = view.extent()
    if view.numel == 0:
        assert (low, high) == (view.offset, view.offset)
    else:
        assert (low, high) == (places(view).min(), places(view).max() + view.dtype.itemsize)


def test_negative_strides_extend_below_the_offset() -> None:
    view = View(0, 20, (2, 3), (8, -2), float32)
    assert view.extent() == (4, 56)
    assert view.extent() == (places(view).min(), places(view).max() + 4)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(views())
def test_contiguous_is_what_numpy_calls_so(pair: Pair) -> None:
    view, array = pair
    assert view.contiguous == array.flags.c_contiguous


@given(st.lists(st.integers(1, 5), max_size=4).map(tuple))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_contiguous_strides_are_numpys(shape: tuple[int, ...]) -> None:
    assert contiguous_strides(shape) == tuple(stride // 4 for stride in np.empty(shape, np.float32).strides)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(views(), views())
def test_views_in_the_same_place_name_the_same_bytes(one: Pair, other: Pair) -> None:
    """Strides of axes that never step do not matter; everything else does."""
    a, b = one[0], other[0]
    strides = tuple(stride if size != 1 else 99 for size, stride in zip(a.shape, a.strides, strict=True))
    assert a.same_place(View(a.buffer, a.offset, a.shape, strides, a.dtype))
    if a.same_place(b):
        assert a.dtype == b.dtype
        assert np.array_equal(places(a), places(b))


@pytest.mark.parametrize(
    "other",
    [
        View(1, 8, (2, 3), (3, 1), float32),
        View(0, 4, (2, 3), (3, 1), float32),
        View(0, 8, (3, 2), (2, 1), float32),
        View(0, 8, (2, 3), (4, 1), float32),
        View(0, 8, (2, 3), (3, 1), int32),
    ],
)
def test_another_buffer_offset_shape_stride_or_dtype_is_another_place(other: View) -> None:
    assert not View(0, 8, (2, 3), (3, 1), float32).same_place(other)


def test_an_empty_slice_past_the_end_stays_inside_the_buffer() -> None:
    """The start (2, 3) of nothing would be nine elements into a buffer of six."""
    view = View(0, 0, (2, 3), (3, 1), float32).slice((2, 3), (2, 3), (1, 1))
    assert (view.shape, view.extent()) == ((0, 0), (0, 0))


def test_a_transposed_matrix_cannot_be_flattened_without_a_copy() -> None:
    view = View(0, 0, (2, 3), (3, 1), float32)
    assert view.transpose((1, 0)).reshape((6,)) is None
    assert view.transpose((1, 0)).rows() is None
    assert view.broadcast((4, 2, 3)).reshape((8, 3)) is None
    assert view.broadcast((4, 2, 3)).reshape((4, 6)) == View(0, 0, (4, 6), (0, 1), float32)


@st.composite
def siblings(draw: st.DrawFn) -> tuple[View, View]:
    """Two views of one matrix, each of some of its columns or rows."""
    pair = whole((draw(st.integers(1, 4)), draw(st.integers(2, 8))))
    made = []
    for _ in range(2):
        view, array = sliced(draw, *pair)
        made.append(draw(st.sampled_from((transposed, reshaped)))(draw, view, array)[0])
    return made[0], made[1]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(siblings())
def test_views_that_interleave_share_no_byte(pair: tuple[View, View]) -> None:
    a, b = pair
    if a.numel and b.numel and a.interleaves(b):
        assert a.dtype.itemsize == b.dtype.itemsize
        assert not set(places(a).tolist()) & set(places(b).tolist())


def test_the_columns_of_a_matrix_interleave_and_its_neighbours_in_a_row_do_not() -> None:
    """q, k and v are columns of rows [q k v]: their extents meet, their bytes do not."""
    qkv = View(0, 0, (5, 12), (12, 1), float32)
    q, k = (qkv.slice((0, first), (5, first + 4), (1, 1)) for first in (0, 4))
    assert q.interleaves(k)
    assert k.interleaves(q)
    heads = q.reshape((5, 2, 2))
    assert heads is not None
    assert heads.transpose((1, 0, 2)).interleaves(k)
    assert not q.interleaves(qkv.slice((0, 3), (5, 7), (1, 1)))
    assert not q.interleaves(View(0, 0, (5, 12), (12, 1), float32))
    assert not q.interleaves(View(0, 18, (5, 4), (24, 1), bfloat16))
    assert not View(0, 0, (3,), (-12,), float32).interleaves(k)
