"""What an operation costs, for rooflines and reports.

Operations of the contract's text are counted, so that a limit can be computed: those of a contraction
apart (a fused multiply-add is two), since processors do them at another rate; every other addition,
multiplication, fma, comparison, selection or integer operation is one, a division or root `DIVISION`.
Bytes are each operand and result once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from volta.ir import attributes
from volta.ir.graph import Attrs, TensorType


class Work(NamedTuple):
    """contraction: multiplications and additions of matrix products; steps: all other operations."""

    contraction: int
    steps: int
    bytes: int

    @property
    def flops(self) -> int:
        return self.contraction + self.steps


Types: TypeAlias = tuple[TensorType, ...]
Rule: TypeAlias = Callable[[Types, Types, Attrs], Work]

# Operations of the texts of vmath.h, as vector instructions of the compiled loops.
DIVISION = 5  # a vector division takes the place of about so many other instructions
EXP, LOG, TANH, SIGMOID, ERF = 21, 30, 26, 28, 32
GELU_TANH, GELU_ERF, SILU = 48, 74, 35
GELU_TANH_SLOPE, GELU_ERF_SLOPE, SILU_SLOPE = 35, 79, 44
SIN, COS = 30, 30
PHILOX, NORMAL = 20, 60  # per element: a quarter of ten rounds; Box and Muller's functions on top


def _bytes(types: Types) -> int:
    return sum(value.nbytes for value in types)


def nothing(types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    """Leaves and views: no work."""
    return Work(0, 0, 0)


def moves(types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    return Work(0, 0, _bytes(types_in + types_out))


def moves_result(types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    """A lookup reads as much of its table as it writes, and the indices."""
    return Work(0, 0, 2 * _bytes(types_out) + types_in[1].nbytes)


def reads(types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    return Work(0, 0, _bytes(types_in))


def per_element(steps: int) -> Rule:
    """So many operations for each element of the first result."""
    return lambda types_in, types_out, attrs: Work(
        0, steps * types_out[0].numel, _bytes(types_in + types_out)
    )


def per_input(steps: int) -> Rule:
    """So many operations for each element of the first operand."""
    return lambda types_in, types_out, attrs: Work(0, steps * types_in[0].numel, _bytes(types_in + types_out))


def matmul(types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    """A multiplication and an addition per element of [.., m, n] and k; scales, where there are some, are
    multiplied and added once per group."""
    groups = types_in[2].shape[0] if len(types_in) > 2 else 0
    return Work(
        2 * types_out[0].numel * types_in[0].shape[-1],
        2 * types_out[0].numel * groups,
        _bytes(types_in + types_out),
    )


def _attention(contractions: int, steps: int, types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    """B H T S scores, of which causal queries, the last T of S, see all but those above the diagonal."""
    (*heads, queries, width), keys = types_in[0].shape, types_in[1].shape[2]
    pairs = queries * keys
    if attributes.flag(attrs, "causal") and queries <= keys:
        pairs -= queries * (queries - 1) // 2
    pairs *= math.prod(heads)
    return Work(2 * width * contractions * pairs, steps * pairs, _bytes(types_in + types_out))


def attention(types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    """q k and p v; scale, maximum, difference, exponential, sum, product."""
    return _attention(2, EXP + 5, types_in, types_out, attrs)


def attention_grad(types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    """q k, g v, ds k, ds q and p g; scale, difference, exponential and four more."""
    return _attention(5, EXP + 6, types_in, types_out, attrs)


def body(types_in: Types, types_out: Types, attrs: Attrs) -> Work:
    """The body's operations; only its operands and results touch memory."""
    from volta.ir.ops import row  # the table imports this module's rules

    contraction = steps = 0
    for node in attributes.graph(attrs, "body"):
        operands = tuple(kind for source in node.inputs for kind in source.types)
        work = row(node.op).cost(operands, node.types, node.attrs)
        contraction, steps = contraction + work.contraction, steps + work.steps
    return Work(contraction, steps, _bytes(types_in + types_out))
