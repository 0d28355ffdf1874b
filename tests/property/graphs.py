"""Random valid graphs for property tests: `graphs()` draws one, `arguments(graph, seed)` fits it.

A graph grows step by step; each step picks operands that fit from the values so far and adds one
operation, or nothing where none fit. Every operation that runs on f32 values appears; index operands are
literals, so that indices are in range whatever the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from volta.dtypes import bfloat16, bfloat16_from_float32, float32, int32
from volta.ir.graph import Graph, GraphBuilder, Node
from volta.ir.ops import ELEMENTWISE
from volta.ir.shapes import broadcast

LARGEST = 96  # elements of a value, so that examples stay quick and shrink well
FLOATS = st.sampled_from((0.5, -1.25, 0.0, 0.1, 3.0))
LENGTHS = st.integers(0, 4) | st.integers(1, 3)


@dataclass
class Growth:
    """A graph under construction: what a step reads and adds to."""

    draw: st.DrawFn
    build: GraphBuilder = field(default_factory=GraphBuilder)
    values: list[Node] = field(default_factory=list)

    def add(self, op: str, inputs: Sequence[Node], **attrs: Any) -> None:
        self.values += self.build.results(op, inputs, attrs)

    def pick(self, fits: Callable[[Node], bool] = lambda node: True) -> Node | None:
        """A value of f32 that fits."""
        fitting = [node for node in self.values if node.dtype == float32 and fits(node)]
        return self.draw(st.sampled_from(fitting)) if fitting else None

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def literal(self, shape: Sequence[int], low: int, high: int) -> Node:
        """An i32 literal with elements in low..high."""
        seed = self.integer(0, 999)
        return self.build.constant(np.random.default_rng(seed).integers(low, high + 1, shape, np.int32))

    def numbers(self, *shape: int) -> Node:
        """An f32 literal."""
        seed = self.integer(0, 999)
        return self.build.constant(np.random.default_rng(seed).standard_normal(shape).astype(np.float32))

    def rng(self) -> Node:
        return self.literal((3,), -(2**31), 2**31 - 1)


Step = Callable[[Growth], None]


def _small(node: Node) -> bool:
    return node.type.numel <= LARGEST // 2


def elementwise(grow: Growth) -> None:
    op = grow.draw(st.sampled_from(ELEMENTWISE))
    operands = [
        grow.draw(st.sampled_from([v for v in grow.values if v.dtype == float32])) for _ in op.operands
    ]
    shape = broadcast([operand.shape for operand in operands])
    if shape is None or int(np.prod(shape)) > LARGEST or len(shape) > 4:
        operands = operands[:1] * len(operands)
    grow.add(op.name, operands, **{name: grow.draw(FLOATS) for name in op.attrs})


def reshape(grow: Growth) -> None:
    x = grow.pick()
    if x is not None:
        shape = grow.draw(st.sampled_from(((x.type.numel,), (*x.shape, 1), (1, *x.shape), x.shape[::-1])))
        if len(shape) <= 4:
            grow.add("reshape", (x,), shape=shape)


def transpose(grow: Growth) -> None:
    x = grow.pick()
    if x is not None:
        grow.add("transpose", (x,), axes=tuple(grow.draw(st.permutations(range(len(x.shape))))))


def slice_(grow: Growth) -> None:
    x = grow.pick()
    if x is not None:
        start = [grow.integer(0, length) for length in x.shape]
        stop = [grow.integer(first, length) for first, length in zip(start, x.shape, strict=True)]
        grow.add("slice", (x,), start=start, stop=stop, step=[grow.integer(1, 3) for _ in x.shape])


def broadcast_to(grow: Growth) -> None:
    x = grow.pick(lambda node: node.type.numel <= LARGEST // 4 and len(node.shape) < 4)
    if x is not None:
        shape = [grow.integer(1, 2) if length == 1 else length for length in x.shape]
        grow.add("broadcast_to", (x,), shape=[grow.integer(1, 2), *shape])


def concat(grow: Growth) -> None:
    x = grow.pick(lambda node: _small(node) and len(node.shape) > 0)
    if x is not None:
        y = grow.pick(lambda node: node.shape == x.shape)
        axis = grow.integer(0, len(x.shape) - 1)
        grow.add("concat", [x, *([y] if y is not None else [])], axis=axis)


def split(grow: Growth) -> None:
    x = grow.pick(lambda node: len(node.shape) > 0)
    if x is not None:
        axis = grow.integer(0, len(x.shape) - 1)
        first = grow.integer(0, x.shape[axis])
        grow.add("split", (x,), sizes=(first, x.shape[axis] - first), axis=axis)


def pad(grow: Growth) -> None:
    x = grow.pick(lambda node: node.type.numel <= LARGEST // 8)
    if x is not None:
        grow.add(
            "pad", (x,), low=[grow.integer(0, 1) for _ in x.shape], high=[grow.integer(0, 1) for _ in x.shape]
        )


def cast(grow: Growth) -> None:
    x = grow.pick()
    if x is not None:
        narrow = grow.build.add("cast", (x,), {"dtype": "bf16"})
        grow.add("cast", (narrow,), dtype="f32")


def matmul(grow: Growth) -> None:
    a = grow.pick(lambda node: len(node.shape) >= 2)
    if a is not None:
        b = grow.pick(lambda node: len(node.shape) == 2 and node.shape[0] == a.shape[-1])
        right = b if b is not None else grow.numbers(a.shape[-1], grow.integer(1, 3))
        if a.type.numel * right.shape[1] <= LARGEST * 4:
            grow.add("matmul", (a, right))


def reduction(grow: Growth) -> None:
    x = grow.pick(lambda node: len(node.shape) > 0)
    if x is not None:
        axes = grow.draw(st.sets(st.integers(0, len(x.shape) - 1), min_size=1))
        op = grow.draw(st.sampled_from(("sum", "mean", "max", "sum_squares")))
        grow.add(op, (x,), axes=tuple(sorted(axes)), keepdims=grow.draw(st.booleans()))


def largest(grow: Growth) -> None:
    """argmax, and the elements that it names."""
    x = grow.pick(lambda node: len(node.shape) > 0 and node.shape[-1] > 0)
    if x is not None:
        axis = len(x.shape) - 1
        index = grow.build.add("argmax", (x,), {"axis": axis, "keepdims": True})
        grow.values.append(index)
        grow.add("gather", (x, index), axis=axis)
        grow.add("gather_grad", (grow.values[-1], index), axis=axis, size=x.shape[axis])


def rows(grow: Growth) -> None:
    op = grow.draw(st.sampled_from(("softmax", "log_softmax", "softmax_grad", "log_softmax_grad")))
    x = grow.pick(lambda node: len(node.shape) > 0)
    if x is not None:
        grow.add(op, (x, x) if op.endswith("grad") else (x,))


def loss(grow: Growth) -> None:
    x = grow.pick(lambda node: len(node.shape) == 2 and node.shape[1] > 0)
    if x is not None:
        targets = grow.literal(x.shape[:1], -1, x.shape[1] - 1)
        grow.add("cross_entropy", (x, targets), ignore_index=-1)
        grow.add("cross_entropy_grad", (x, targets, grow.values[-1]), ignore_index=-1)
        grow.add("count_valid", (targets,), ignore_index=-1)


def norm(grow: Growth) -> None:
    x = grow.pick(lambda node: len(node.shape) > 0)
    if x is not None:
        w, b = grow.numbers(x.shape[-1]), grow.numbers(x.shape[-1])
        if grow.draw(st.booleans()):
            grow.add("layer_norm", (x, w, b), eps=1e-5)
            grow.add("layer_norm_grad", (x, grow.values[-1], w, x))
        else:
            grow.add("rms_norm", (x, w), eps=1e-5)
            grow.add("rms_norm_grad", (x, grow.values[-1], w, x))


def embedding(grow: Growth) -> None:
    table = grow.pick(lambda node: len(node.shape) == 2 and node.shape[0] > 0)
    if table is not None:
        indices = grow.literal((grow.integer(0, 3), 2), 0, table.shape[0] - 1)
        grow.add("embedding", (table, indices))
        grow.add("embedding_grad", (grow.values[-1], indices), rows=table.shape[0])


def attention(grow: Growth) -> None:
    """q from two heads, k and v from one, rotated; the gradient too."""
    q = grow.numbers(1, 2, grow.integer(1, 2), 4)
    k, v = grow.numbers(1, 1, 3, 4), grow.numbers(1, 1, 3, 4)
    position, causal = grow.literal((1,), 0, 1), grow.draw(st.booleans())
    grow.add(
        "rotary", (q, grow.numbers(3, 2), grow.numbers(3, 2), position), inverse=grow.draw(st.booleans())
    )
    grow.add("cache_update", (k, grow.numbers(1, 1, 2, 4), position))
    turned, keys = grow.values[-2:]
    o, stats = grow.build.results("attention", (turned, keys, v, position), {"scale": 0.5, "causal": causal})
    grow.values += [o, stats]
    grow.add("attention_grad", (turned, keys, v, o, stats, q, position), scale=0.5, causal=causal)


def random(grow: Growth) -> None:
    x = grow.pick()
    if x is not None:
        grow.add("dropout", (x, grow.rng()), p=0.25, stream=grow.integer(0, 9))
    grow.add("random_uniform", (grow.rng(),), shape=(2, 3), stream=1, low=-1.0, high=1.0)
    grow.add("random_normal", (grow.rng(),), shape=(3,), stream=2, mean=0.0, std=1.0)


def sampling(grow: Growth) -> None:
    logits = grow.numbers(2, 5)
    seen = grow.build.add(
        "mark_seen", (grow.literal((2, 5), 0, 1), grow.literal((2, 3), 0, 4), grow.literal((2,), 0, 3))
    )
    settings = grow.build.constant(np.array([[0.7, 0.9, 1.1, 0.05], [0.0, 1.0, 1.0, 0.0]], np.float32))
    grow.add("sample", (logits, seen, grow.literal((2, 4), 0, 99), settings, grow.literal((2,), 0, 5)))


def checked(grow: Growth) -> None:
    """A check of a literal: it holds."""
    grow.add("check_finite", (grow.numbers(2, 2),), names=("literal",))


def chain(grow: Growth) -> None:
    """A fused body of elementwise operations with two outputs."""
    x = grow.pick()
    if x is not None:
        body = GraphBuilder()
        a, b = (body.input(name, x.shape, float32) for name in "ab")
        total = body.add("add", (a, b))
        graph = body.freeze([total, body.add("scale", (total,), {"factor": grow.draw(FLOATS)})])
        grow.add("fused", (x, x), body=graph)


STEPS: tuple[Step, ...] = (
    elementwise,
    elementwise,
    reshape,
    transpose,
    slice_,
    broadcast_to,
    concat,
    split,
    pad,
    cast,
    matmul,
    reduction,
    largest,
    rows,
    loss,
    norm,
    embedding,
    attention,
    random,
    sampling,
    checked,
)


@st.composite
def graphs(draw: st.DrawFn, max_steps: int = 10, fused: bool = False, donations: bool = False) -> Graph:
    """A valid graph. fused: with fused bodies; donations: state inputs may be donated."""
    grow = Growth(draw)
    for position in range(grow.integer(1, 3)):
        shape = draw(st.lists(LENGTHS, max_size=3))
        role = draw(st.sampled_from(("input", "parameter", "state")))
        grow.values.append(grow.build.input(f"x{position}", shape, float32, role))
    if draw(st.booleans()):
        grow.values.append(grow.build.input("half", (2, 3), bfloat16))
        grow.add("cast", (grow.values[-1],), dtype="f32")
    if draw(st.booleans()):
        grow.values.append(grow.build.input("whole", (2,), int32))
    for _ in range(grow.integer(0, max_steps)):
        draw(st.sampled_from((*STEPS, chain) if fused else STEPS))(grow)
    outputs = draw(st.lists(st.sampled_from(grow.values), min_size=1, max_size=4))
    donated: dict[int, Node] = {}
    for position, output in enumerate(outputs):
        free = [
            node
            for node in grow.build.inputs
            if node.types == output.types and node not in (*donated.values(), *outputs)
        ]
        if donations and free and draw(st.booleans()):
            donated[position] = free[0]
    return grow.build.freeze(outputs, donated)


def arguments(graph: Graph, seed: int = 0) -> list[npt.NDArray[Any]]:
    """An array for each input: normal numbers (bf16 as bit patterns), small integers."""
    rng = np.random.default_rng(seed)
    made: list[npt.NDArray[Any]] = []
    for node in graph.inputs:
        if node.dtype == int32:
            made.append(rng.integers(0, 3, node.shape, np.int32))
            continue
        numbers = rng.standard_normal(node.shape).astype(np.float32)
        made.append(bfloat16_from_float32(numbers).reshape(node.shape) if node.dtype == bfloat16 else numbers)
    return made
