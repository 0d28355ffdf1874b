"""Random graphs in which memory is contested: few shapes, so that every value could take another's place.

`contested()` draws a graph of values [1, 2, 2, 4] and their reshapes; operations that work in place,
views, concatenations of results, checks, reductions and matmuls meet on them. Outputs may repeat, be
views and be inputs, and any input of an output's type may be donated to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from volta.dtypes import float32, int32
from volta.ir.graph import Graph, GraphBuilder, Node

HEADS = (1, 2, 2, 4)  # B, H, T, D
ROWS = (4, 4)


@dataclass
class Growth:
    draw: st.DrawFn
    build: GraphBuilder = field(default_factory=GraphBuilder)
    values: list[Node] = field(default_factory=list)  # all f32 of 16 elements

    def any(self) -> Node:
        """A recent value more often than an old one."""
        recent = self.values[-4:]
        return self.draw(st.sampled_from(recent) | st.sampled_from(self.values))

    def shaped(self, shape: tuple[int, ...]) -> Node:
        value = self.any()
        return value if value.shape == shape else self.build.add("reshape", (value,), {"shape": shape})

    def position(self) -> Node:
        return self.build.constant(np.array([self.draw(st.integers(0, 1))], np.int32))


def unary(grow: Growth) -> None:
    op = grow.draw(st.sampled_from(("neg", "abs", "sin", "relu")))
    grow.values.append(grow.build.add(op, (grow.any(),)))


def binary(grow: Growth) -> None:
    a = grow.any()
    op = grow.draw(st.sampled_from(("add", "sub", "mul", "maximum")))
    grow.values.append(grow.build.add(op, (a, grow.shaped(a.shape))))


def broadcast(grow: Growth) -> None:
    """A row of one value beside a whole one."""
    a = grow.any()
    row = grow.build.add("max", (a,), {"axes": (len(a.shape) - 1,), "keepdims": True})
    grow.values.append(grow.build.add("sub", (a, row)))


def transpose(grow: Growth) -> None:
    a = grow.any()
    axes = tuple(grow.draw(st.permutations(range(len(a.shape)))))
    grow.values.append(grow.build.add("transpose", (a,), {"axes": axes}))


def reshape(grow: Growth) -> None:
    grow.values.append(grow.shaped(grow.draw(st.sampled_from((HEADS, ROWS, (16,), (1, 16, 1))))))


def check(grow: Growth) -> None:
    grow.values.append(grow.build.add("check_finite", (grow.any(),), {"names": ("x",)}))


def matmul(grow: Growth) -> None:
    grow.values.append(grow.build.add("matmul", (grow.shaped(ROWS), grow.shaped(ROWS))))


def softmax(grow: Growth) -> None:
    grow.values.append(grow.build.add("softmax", (grow.shaped(ROWS),)))


def slices(grow: Growth) -> None:
    """Both halves of a value, put together again, perhaps the other way round."""
    a = grow.shaped(grow.draw(st.sampled_from((ROWS, HEADS))))
    axis = grow.draw(st.sampled_from((0, 1) if a.shape == ROWS else (1, 2, 3)))
    half = a.shape[axis] // 2
    parts = grow.build.results("split", (a,), {"sizes": (half, a.shape[axis] - half), "axis": axis})
    parts = tuple(grow.draw(st.permutations(parts)))
    grow.values.append(grow.build.add("concat", parts, {"axis": axis}))


def heads(grow: Growth) -> Node:
    """Rotary embeddings or attention: their results may be computed where they are joined."""
    if grow.draw(st.booleans()):
        table = grow.build.constant(np.linspace(-1, 1, 6, dtype=np.float32).reshape(3, 2))
        x = grow.shaped(HEADS)
        return grow.build.add("rotary", (x, table, table, grow.position()), {"inverse": False})
    q, k, v = (grow.shaped(HEADS) for _ in range(3))
    attrs = {"scale": 0.5, "causal": False}
    return grow.build.results("attention", (q, k, v, grow.position()), attrs)[0]


def joined(grow: Growth) -> None:
    """Concatenated heads, as rows or as heads; the parts stay values of their own."""
    first, second = heads(grow), heads(grow)
    parts = [first, second]
    grow.values += parts
    if grow.draw(st.booleans()):
        parts = [grow.build.add("transpose", (part,), {"axes": (0, 2, 1, 3)}) for part in parts]
    axis = grow.draw(st.sampled_from((0, 1, 2, 3)))
    both = grow.build.add("concat", parts, {"axis": axis})
    if grow.draw(st.booleans()):
        both = grow.build.add("neg", (both,))
    sizes = (parts[0].shape[axis], parts[1].shape[axis])
    grow.values += grow.build.results("split", (both,), {"sizes": sizes, "axis": axis})


def alone(grow: Growth) -> None:
    """A concatenation of one value that was computed just before."""
    x = heads(grow)
    grow.values += [x, grow.build.add("concat", (x,), {"axis": grow.draw(st.integers(0, 3))})]


def sums(grow: Growth) -> None:
    """Four sums joined to a column of four rows, and that column spread over a value."""
    a = grow.shaped(ROWS)
    attrs = {"axes": (0,), "keepdims": True}
    parts = [grow.build.add(op, (a,), attrs) for op in ("sum", "max", "mean", "sum_squares")]
    rows = grow.build.add("concat", parts, {"axis": 0})
    grow.values += [rows, grow.build.add("mul", (a, parts[grow.draw(st.integers(0, 3))]))]


def cache(grow: Growth) -> None:
    """A cache of two rows takes one, which may be its own."""
    old = grow.shaped(HEADS)
    new = grow.build.add(
        "slice", (grow.shaped(HEADS),), {"start": (0, 0, 1, 0), "stop": HEADS, "step": (1, 1, 1, 1)}
    )
    grow.values.append(grow.build.add("cache_update", (old, new, grow.position())))


STEPS = (
    unary,
    binary,
    broadcast,
    transpose,
    reshape,
    check,
    matmul,
    softmax,
    slices,
    joined,
    alone,
    sums,
    cache,
)


@st.composite
def contested(draw: st.DrawFn, most: int = 9) -> Graph:
    grow = Growth(draw)
    for index in range(draw(st.integers(1, 4))):
        shape = draw(st.sampled_from((HEADS, ROWS)))
        grow.values.append(grow.build.input(f"x{index}", shape, float32, "state"))
    for _ in range(draw(st.integers(0, most))):
        draw(st.sampled_from(STEPS))(grow)
    count = draw(st.integers(1, 4))
    outputs = [grow.any() for _ in range(count)]
    donated: dict[int, Node] = {}
    free = list(draw(st.permutations(grow.build.inputs)))
    for position, output in enumerate(outputs):
        fitting = [node for node in free if node.type == output.type]
        if fitting and draw(st.booleans()):
            donated[position] = fitting[0]
            free.remove(fitting[0])
    for position, output in enumerate(
        outputs
    ):  # an input that another output takes over is a value of its own
        if output in donated.values() and donated.get(position) is not output:
            outputs[position] = grow.build.add("reshape", (output,), {"shape": output.shape})
    return grow.build.freeze(outputs, donated)


def seen(vocabulary: int = 4) -> tuple[Graph, int]:
    """Marks of tokens that are read from the marks themselves: i32 in place."""
    build = GraphBuilder()
    marks = build.input("marks", (2, vocabulary), int32, "state")
    lengths = build.constant(np.array([1, 2], np.int32))
    tokens = build.add("slice", (marks,), {"start": (0, 1), "stop": (2, 3), "step": (1, 1)})
    return build.freeze([build.add("mark_seen", (marks, tokens, lengths))], {0: marks}), vocabulary
