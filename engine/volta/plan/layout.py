"""Views: how the elements of a value lie in a buffer. Strides count elements; offsets count bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from volta.dtypes import DType
from volta.ir.graph import Shape


@dataclass(frozen=True, slots=True)
class View:
    """Element (i0, i1, ...) lies `offset + itemsize * sum(i * stride)` bytes into buffer `buffer`."""

    buffer: int
    offset: int
    shape: Shape
    strides: Shape
    dtype: DType

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        return self.numel == 0 or _squeeze(self.shape, self.strides) == _squeeze(
            self.shape, contiguous_strides(self.shape)
        )

    def extent(self) -> tuple[int, int]:
        """The bytes [low, high) that hold any element; (offset, offset) where there is none."""
        if self.numel == 0:
            return self.offset, self.offset
        low = high = 0
        for size, stride in zip(self.shape, self.strides, strict=True):
            step = (size - 1) * stride
            low, high = low + min(step, 0), high + max(step, 0)
        return self.offset + low * self.dtype.itemsize, self.offset + (high + 1) * self.dtype.itemsize

    def interleaves(self, other: View) -> bool:
        """Whether two views of one buffer surely share no byte although their extents meet: both repeat with
        one period, and within it their bytes are apart (the columns of q, k and v in rows of qkv)."""
        size = self.dtype.itemsize
        return size == other.dtype.itemsize and any(
            _apart(_window(self, period), _window(other, period))
            for period in {*self.strides, *other.strides}
            if period > 1
        )

    def same_place(self, other: View) -> bool:
        """Whether every element of `other` lies where the same element of this view lies."""
        return (self.buffer, self.offset, self.dtype) == (
            other.buffer,
            other.offset,
            other.dtype,
        ) and _squeeze(self.shape, self.strides) == _squeeze(other.shape, other.strides)

    def transpose(self, axes: Sequence[int]) -> View:
        return self._with(tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes))

    def broadcast(self, shape: Shape) -> View:
        """NumPy's rules: aligned at the last axis, axes of length one repeat with stride 0."""
        lead = len(shape) - len(self.shape)
        strides = tuple(
            0 if axis < lead or (self.shape[axis - lead] == 1 and size != 1) else self.strides[axis - lead]
            for axis, size in enumerate(shape)
        )
        return self._with(shape, strides)

    def slice(self, start: Sequence[int], stop: Sequence[int], step: Sequence[int]) -> View:
        """Elements start, start + step, ... below stop; where there are none the offset stays (start may be
        past the end)."""
        shape = tuple(max(0, -(-(e - b) // s)) for b, e, s in zip(start, stop, step, strict=True))
        shift = 0 if 0 in shape else sum(b * stride for b, stride in zip(start, self.strides, strict=True))
        strides = tuple(stride * s for stride, s in zip(self.strides, step, strict=True))
        return View(self.buffer, self.offset + shift * self.dtype.itemsize, shape, strides, self.dtype)

    def reshape(self, shape: Shape) -> View | None:
        """The same elements in the same order under another shape, or None where that needs a copy."""
        if self.numel == 0 or self.contiguous:
            return self._with(shape, contiguous_strides(shape))
        strides: list[int] = []
        groups = _groups(self.shape, shape)
        if groups is None:
            return None
        for old, new in groups:
            sizes = [(self.shape[a], self.strides[a]) for a in old if self.shape[a] != 1]
            for (_, outer), (size, inner) in pairwise(sizes):
                if outer != size * inner:
                    return None
            running = sizes[-1][1] if sizes else 1
            block: list[int] = []
            for axis in reversed(new):
                block.append(running)
                running *= shape[axis]
            strides.extend(reversed(block))
        return self._with(shape, tuple(strides))

    def rows(self) -> View | None:
        """All axes but the last as one: [R, D] with last stride 1; None where that needs a copy."""
        width = self.shape[-1] if self.shape else 1
        view = self.reshape((self.numel // width if width else math.prod(self.shape[:-1]), width))
        if view is None or (view.strides[1] != 1 and view.shape[1] > 1):
            return None
        return view._with(view.shape, (view.strides[0], 1))

    def _with(self, shape: Shape, strides: Shape) -> View:
        return View(self.buffer, self.offset, shape, strides, self.dtype)


def contiguous_strides(shape: Shape) -> Shape:
    """Row-major: (6, 2, 1) for (4, 3, 2)."""
    strides: list[int] = []
    running = 1
    for size in reversed(shape):
        strides.append(running)
        running *= size
    return tuple(reversed(strides))


def _squeeze(shape: Shape, strides: Shape) -> list[tuple[int, int]]:
    return [(size, stride) for size, stride in zip(shape, strides, strict=True) if size != 1]


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]] | None:
    """Splits both shapes into runs of axes with equal products, in order."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        left, right = [], []
        a = b = 1
        if i < len(old):
            left.append(i)
            a, i = a * old[i], i + 1
        if j < len(new):
            right.append(j)
            b, j = b * new[j], j + 1
        while a != b:
            if a < b and i < len(old):
                left.append(i)
                a, i = a * old[i], i + 1
            elif b < a and j < len(new):
                right.append(j)
                b, j = b * new[j], j + 1
            else:
                return None
        groups.append((left, right))
    return groups


def _window(view: View, period: int) -> tuple[int, int] | None:
    """The bytes [low, high) of a period of `period` elements that a view touches in any period; None where
    it runs over the period's end or does not repeat with it."""
    size = view.dtype.itemsize
    inner = 0
    for length, stride in _squeeze(view.shape, view.strides):
        if stride < 0:
            return None
        if stride % period:
            inner += (length - 1) * stride
    low = view.offset % (period * size)
    high = low + (inner + 1) * size
    return (low, high) if high <= period * size else None


def _apart(a: tuple[int, int] | None, b: tuple[int, int] | None) -> bool:
    return a is not None and b is not None and (a[1] <= b[0] or b[1] <= a[0])
