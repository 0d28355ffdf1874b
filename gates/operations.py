"""Random calls of every operation: operands and attributes from a seed, the same in every process.

Sizes stand at, below and above what kernels use as tiles, lanes and groups; in a third of the calls special
values (NaN, infinities, signed zeros, subnormals) are strewn among the operands.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
EDGES = (
    1,
    2,
    3,
    5,
    7,
    8,
    9,
    15,
    16,
    17,
    31,
    32,
    33,
    47,
    48,
    49,
    63,
    64,
    65,
    95,
    96,
    97,
    127,
    128,
    129,
    200,
    257,
)
LONG = (200, 257, 511, 512, 513, 768, 1000)
SPECIAL = np.array(
    [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 3.4e38, -3.4e38, 88.8, -103.9, 1.0, -1.0], np.float32
)


@dataclass(slots=True)
class Call:
    """op on operands. bf16: those that are rounded to it first. turned: those given as transposed views."""

    op: str
    operands: list[Array]
    attrs: dict[str, Any] = field(default_factory=dict)
    bf16: tuple[int, ...] = ()
    turned: tuple[int, ...] = ()


class Draw:
    """A generator with the shapes and numbers that calls are made of."""

    def __init__(self, op: str, index: int, seed: int) -> None:
        self.generator = np.random.default_rng([seed, index, zlib.crc32(op.encode())])
        self.special = self.generator.random() < 1 / 3

    def size(self, most: int = 129) -> int:
        return int(self.generator.choice([edge for edge in EDGES if edge <= most]))

    def long(self) -> int:
        """Of a reduced axis: now and then longer than a vector kernel keeps at once."""
        return int(self.generator.choice(LONG)) if self.generator.random() < 0.2 else self.size()

    def one_of(self, *values: Any) -> Any:
        return values[int(self.generator.integers(len(values)))]

    def floats(self, *shape: int, scale: float = 1.0) -> Array:
        values = self.generator.standard_normal(shape, np.float32) * np.float32(scale)
        if self.special and values.size:
            chosen = self.generator.random(shape) < 0.02
            values = np.where(chosen, self.generator.choice(SPECIAL, shape), values).astype(np.float32)
        return np.ascontiguousarray(values)

    def positive(self, *shape: int) -> Array:
        return np.abs(self.generator.standard_normal(shape, np.float32)) + np.float32(0.01)

    def integers(self, low: int, high: int, *shape: int) -> Array:
        """In low..high - 1."""
        return self.generator.integers(low, high, shape, np.int32)

    def bytes(self, *shape: int) -> Array:
        return self.generator.integers(-127, 128, shape, np.int8)


Maker = Callable[[Draw, str], Call]


def elementwise(operands: int, attrs: dict[str, tuple[float, ...]] | None = None) -> Maker:
    def make(draw: Draw, op: str) -> Call:
        shape = (draw.size(33), draw.long())
        given = [draw.floats(*shape, scale=draw.one_of(1.0, 4.0, 50.0)) for _ in range(operands)]
        if operands > 1 and draw.generator.random() < 0.3:  # broadcast a row
            given[1] = draw.floats(shape[1])
        return Call(op, given, {name: draw.one_of(*values) for name, values in (attrs or {}).items()})

    return make


def update(scalars: int, operands: int, attrs: dict[str, tuple[float, ...]]) -> Maker:
    """An optimizer's formula: matrices, then positive numbers such as the rate."""

    def make(draw: Draw, op: str) -> Call:
        shape = (draw.size(33), draw.long())
        given = [draw.floats(*shape) for _ in range(operands)]
        if op in ("adam", "adam_v"):
            given[2 if op == "adam" else 0] = draw.positive(*shape)
        given += [draw.positive() for _ in range(scalars)]
        return Call(op, given, {name: draw.one_of(*values) for name, values in attrs.items()})

    return make


def rows(operands: int) -> Maker:
    return lambda draw, op: Call(
        op, [draw.floats(*shape) for shape in [(draw.size(70), draw.long())] * operands]
    )


def matmul(draw: Draw, op: str) -> Call:
    m, n, k = (draw.one_of(draw.size(), draw.size(17)) for _ in range(3))
    k = draw.one_of(k, draw.long())
    batch = draw.one_of((), (), (2,), (2, 3))
    bf16 = draw.one_of((), (), (1,), (0, 1))
    if batch:
        m, n, k = min(m, 65), min(n, 65), min(k, 65)
    turned = tuple(i for i in (0, 1) if draw.generator.random() < 0.3)
    shapes = [(*batch, m, k), draw.one_of((*batch, k, n), (k, n))]
    given = []
    for index, shape in enumerate(shapes):
        stored = (*shape[:-2], shape[-1], shape[-2]) if index in turned else shape
        given.append(draw.floats(*stored))
    return Call(op, given, {}, bf16, turned)


def quantized(draw: Draw, op: str) -> Call:
    m, n = draw.size(), draw.size()
    groups = draw.one_of(1, 1, 2, 4)
    k = groups * draw.one_of(32, 64, 96, 40)
    a = draw.bytes(m, k) if draw.generator.random() < 0.5 else draw.floats(m, k)
    return Call(op, [a, draw.bytes(k, n), draw.positive(groups, n)])


def quantize(draw: Draw, op: str) -> Call:
    groups = draw.one_of(1, 2, 4)
    return Call(op, [draw.floats(draw.size(65), groups * draw.size(129))], {"groups": groups})


def reduction(draw: Draw, op: str) -> Call:
    shape = draw.one_of((draw.long(),), (draw.size(65), draw.long()), (3, draw.size(33), draw.size(97)))
    count = int(draw.generator.integers(1, len(shape) + 1))
    axes = tuple(sorted(int(axis) for axis in draw.generator.choice(len(shape), count, replace=False)))
    return Call(op, [draw.floats(*shape)], {"axes": axes, "keepdims": draw.one_of(True, False)})


def argmax(draw: Draw, op: str) -> Call:
    shape = (draw.size(65), draw.long())
    return Call(op, [draw.floats(*shape)], {"axis": draw.one_of(0, 1), "keepdims": draw.one_of(True, False)})


def cross_entropy(draw: Draw, op: str) -> Call:
    r, v = draw.size(70), draw.long()
    targets = np.where(draw.generator.random(r) < 0.1, -1, draw.integers(0, v, r)).astype(np.int32)
    more = [draw.floats(r)] if op.endswith("grad") else []
    return Call(op, [draw.floats(r, v, scale=5.0), targets, *more], {"ignore_index": -1})


def norm(draw: Draw, op: str) -> Call:
    r, c = draw.size(70), draw.long()
    x, w = draw.floats(r, c), draw.floats(c)
    if op.endswith("grad"):
        stats = draw.positive(r, 2 if op.startswith("layer") else 1)
        return Call(op, [x, stats, w, draw.floats(r, c)])
    return Call(op, [x, w, draw.floats(c)] if op.startswith("layer") else [x, w], {"eps": 1e-5})


def embedding(draw: Draw, op: str) -> Call:
    v, r, c = draw.one_of(draw.size(), 1100), draw.size(), draw.one_of(draw.size(), draw.long())
    if op.endswith("grad"):
        return Call(op, [draw.floats(r, c), draw.integers(0, v, r)], {"rows": v})
    return Call(op, [draw.floats(v, c), draw.integers(0, v, r)])


def gather(draw: Draw, op: str) -> Call:
    shape = [draw.size(33), draw.size(33), draw.size(33)]
    axis = int(draw.generator.integers(3))
    size, count = shape[axis], draw.size(33)
    index_shape = [*shape]
    index_shape[axis] = count
    index = draw.integers(0, size, *index_shape)
    if op.endswith("grad"):
        return Call(op, [draw.floats(*index_shape), index], {"axis": axis, "size": size})
    return Call(op, [draw.floats(*shape), index], {"axis": axis})


def rotary(draw: Draw, op: str) -> Call:
    b, h, t, d = draw.one_of(1, 2), draw.one_of(1, 3, 4), draw.size(33), 2 * draw.size(33)
    context = t + 7
    angles = draw.generator.uniform(-3, 3, (context, d // 2)).astype(np.float32)
    position = draw.integers(0, 8, b)
    return Call(
        op,
        [draw.floats(b, h, t, d), np.cos(angles), np.sin(angles), position],
        {"inverse": draw.one_of(True, False)},
    )


def attention(draw: Draw, op: str) -> Call:
    b, g, d = draw.one_of(1, 2), draw.one_of(1, 2), draw.one_of(8, 16, 32, 64, 33)
    h, t = g * draw.one_of(1, 2), draw.size(129)
    position = draw.integers(0, 40, b)
    s = t + int(position.max()) + draw.one_of(0, 0, 5)
    attrs = {"scale": float(np.float32(1 / np.sqrt(d))), "causal": draw.one_of(True, True, False)}
    q, k, v = draw.floats(b, h, t, d), draw.floats(b, g, s, d), draw.floats(b, g, s, d)
    if op == "attention":
        return Call(op, [q, k, v, position], attrs)
    o, stats, gradient = draw.floats(b, h, t, d), draw.positive(b, h, t, 2), draw.floats(b, h, t, d)
    return Call(op, [q, k, v, o, stats, gradient, position], attrs)


def cache_update(draw: Draw, op: str) -> Call:
    b, g, s, d, t = draw.one_of(1, 2), draw.one_of(1, 2), 40, draw.size(65), draw.one_of(1, 3, 8)
    return Call(op, [draw.floats(b, g, s, d), draw.floats(b, g, t, d), draw.integers(0, s - t + 1, b)])


def random(draw: Draw, op: str) -> Call:
    rng = draw.integers(-(2**31), 2**31 - 1, 3)
    shape = (draw.size(33), draw.long())
    if op == "dropout":
        return Call(op, [draw.floats(*shape), rng], {"p": draw.one_of(0.0, 0.1, 0.5), "stream": 3})
    ends = {"low": -1.0, "high": 2.0} if op == "random_uniform" else {"mean": 0.5, "std": 2.0}
    return Call(op, [rng], {"shape": shape, "stream": 5, **ends})


def copies(draw: Draw, op: str) -> Call:
    shape = (draw.size(33), draw.size(33), draw.size(65))
    x = draw.floats(*shape)
    if op == "concat":
        return Call(op, [x, draw.floats(*shape)], {"axis": int(draw.generator.integers(3))})
    if op == "pad":
        low, high = (tuple(int(n) for n in draw.generator.integers(0, 3, 3)) for _ in range(2))
        return Call(op, [x], {"low": low, "high": high})
    return Call(op, [x], {"dtype": draw.one_of("bf16", "f32")})


def views(draw: Draw, op: str) -> Call:
    shape = (draw.size(17), draw.size(17), draw.size(33))
    x = draw.floats(*shape)
    if op == "reshape":
        return Call(op, [x], {"shape": (shape[0] * shape[1], shape[2])})
    if op == "transpose":
        return Call(op, [x], {"axes": tuple(int(axis) for axis in draw.generator.permutation(3))})
    if op == "slice":
        start = tuple(int(draw.generator.integers(0, length + 1)) for length in shape)
        return Call(
            op, [x], {"start": start, "stop": shape, "step": tuple(draw.one_of(1, 2, 3) for _ in shape)}
        )
    if op == "broadcast_to":
        return Call(op, [draw.floats(shape[2])], {"shape": shape})
    return Call(op, [x], {"sizes": (shape[2] // 2, shape[2] - shape[2] // 2), "axis": 2})


def sample(draw: Draw, op: str) -> Call:
    b, v = draw.one_of(1, 3), draw.size()
    # temperature, top_p, repetition penalty, min_p
    chosen = (draw.one_of(0.0, 0.7, 1.3), draw.one_of(1.0, 0.9), 1.1, draw.one_of(0.0, 0.05))
    settings = np.tile(np.array(chosen, np.float32), (b, 1))
    draw.special = False  # logits of a model are numbers
    logits, seen, rng = draw.floats(b, v), draw.integers(0, 2, b, v), draw.integers(0, 1 << 30, b, 4)
    return Call(op, [logits, seen, rng, settings, np.full(b, draw.one_of(0, 5), np.int32)])


def mark_seen(draw: Draw, op: str) -> Call:
    b, v, t = draw.one_of(1, 3), draw.size(), draw.one_of(1, 8)
    return Call(op, [draw.integers(0, 2, b, v), draw.integers(0, v, b, t), draw.integers(0, t + 1, b)])


def count_valid(draw: Draw, op: str) -> Call:
    return Call(op, [draw.integers(-1, 5, draw.long())], {"ignore_index": -1})


def check_finite(draw: Draw, op: str) -> Call:
    draw.special = False
    return Call(op, [draw.floats(draw.size(), draw.size(33))], {"names": ("x",)})


# fmt: off
UNARY = (
    "neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos", "relu", "gelu_tanh",
    "gelu_erf", "silu", "gelu_tanh_slope", "gelu_erf_slope", "silu_slope",
)
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "greater_equal", "relu_grad")
# fmt: on

MAKERS: dict[str, Maker] = {
    **dict.fromkeys(UNARY, elementwise(1)),
    **dict.fromkeys(BINARY, elementwise(2)),
    "scale": elementwise(1, {"factor": (0.5, -1.25, 0.1)}),
    "momentum": update(0, 2, {"mu": (0.9, 0.5)}),
    "sgd": update(1, 2, {}),
    "adam_m": update(0, 2, {"beta1": (0.9,)}),
    "adam_v": update(0, 2, {"beta2": (0.999, 0.95)}),
    "adam": update(3, 3, {"eps": (1e-8,), "weight_decay": (0.0, 0.1)}),
    **dict.fromkeys(("reshape", "transpose", "slice", "broadcast_to", "split"), views),
    **dict.fromkeys(("concat", "pad", "cast"), copies),
    "matmul": matmul,
    "quantized_matmul": quantized,
    "quantize": quantize,
    **dict.fromkeys(("sum", "mean", "max", "sum_squares"), reduction),
    "argmax": argmax,
    **dict.fromkeys(("softmax", "log_softmax"), rows(1)),
    **dict.fromkeys(("softmax_grad", "log_softmax_grad"), rows(2)),
    **dict.fromkeys(("cross_entropy", "cross_entropy_grad"), cross_entropy),
    "count_valid": count_valid,
    **dict.fromkeys(("layer_norm", "layer_norm_grad", "rms_norm", "rms_norm_grad"), norm),
    **dict.fromkeys(("embedding", "embedding_grad"), embedding),
    **dict.fromkeys(("gather", "gather_grad"), gather),
    "rotary": rotary,
    **dict.fromkeys(("attention", "attention_grad"), attention),
    "cache_update": cache_update,
    **dict.fromkeys(("dropout", "random_uniform", "random_normal"), random),
    "sample": sample,
    "mark_seen": mark_seen,
    "check_finite": check_finite,
}
WITHOUT = {"input", "constant", "result", "fused"}  # leaves and structure: nothing is computed


def call(op: str, index: int, seed: int) -> Call:
    """The index-th call of an operation; heavier ones are drawn like the rest, so runs differ in time."""
    return MAKERS[op](Draw(op, index, seed), op)
