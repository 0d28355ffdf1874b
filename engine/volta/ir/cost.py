"""What an operation costs: (floating-point operations, bytes read and written).

For rooflines and reports. A function of the contract counts as the operations of its text, roughly;
bytes are each operand and result once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from volta.ir import attributes
from volta.ir.graph import Attrs, TensorType

Types: TypeAlias = tuple[TensorType, ...]
Rule: TypeAlias = Callable[[Types, Types, Attrs], tuple[int, int]]


def _bytes(types: Types) -> int:
    return sum(value.nbytes for value in types)


def nothing(types_in: Types, types_out: Types, attrs: Attrs) -> tuple[int, int]:
    """Leaves and views: no work."""
    return 0, 0


def moves(types_in: Types, types_out: Types, attrs: Attrs) -> tuple[int, int]:
    return 0, _bytes(types_in + types_out)


def moves_result(types_in: Types, types_out: Types, attrs: Attrs) -> tuple[int, int]:
    """A lookup reads as much of its table as it writes, and the indices."""
    return 0, 2 * _bytes(types_out) + types_in[1].nbytes


def reads(types_in: Types, types_out: Types, attrs: Attrs) -> tuple[int, int]:
    return 0, _bytes(types_in)


def per_element(flops: int) -> Rule:
    """So many operations for each element of the first result."""
    return lambda types_in, types_out, attrs: (flops * types_out[0].numel, _bytes(types_in + types_out))


def per_input(flops: int) -> Rule:
    """So many operations for each element of the first operand."""
    return lambda types_in, types_out, attrs: (flops * types_in[0].numel, _bytes(types_in + types_out))


def matmul(types_in: Types, types_out: Types, attrs: Attrs) -> tuple[int, int]:
    """A multiplication and an addition per element of [.., m, n] and k."""
    return 2 * types_out[0].numel * types_in[0].shape[-1], _bytes(types_in + types_out)


def _attention(contractions: int, types_in: Types, types_out: Types) -> tuple[int, int]:
    """B H T S scores: D multiplications and additions in each contraction, and a softmax."""
    (*queries, width), keys = types_in[0].shape, types_in[1].shape[2]
    return math.prod(queries) * keys * (2 * width * contractions + 14), _bytes(types_in + types_out)


def attention(types_in: Types, types_out: Types, attrs: Attrs) -> tuple[int, int]:
    """q k and p v."""
    return _attention(2, types_in, types_out)


def attention_grad(types_in: Types, types_out: Types, attrs: Attrs) -> tuple[int, int]:
    """q k, g v, ds k, ds q and p g."""
    return _attention(5, types_in, types_out)


def body(types_in: Types, types_out: Types, attrs: Attrs) -> tuple[int, int]:
    """The body's operations; only its operands and results touch memory."""
    from volta.ir.ops import row  # the table imports this module's rules

    flops = 0
    for node in attributes.graph(attrs, "body"):
        operands = tuple(kind for source in node.inputs for kind in source.types)
        flops += row(node.op).cost(operands, node.types, node.attrs)[0]
    return flops, _bytes(types_in + types_out)
