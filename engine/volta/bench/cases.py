"""What the benchmarks time: one case is an operation on inputs of given shapes, with the truth in float64.

A case is named by its suite and its parameters alone, so that every worker process can make it again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from volta import functions as F
from volta.dtypes import BY_NAME, DType, bfloat16_from_float32, float32_from_bfloat16
from volta.errors import UsageError
from volta.ir import reference
from volta.tensor import Tensor, from_storage
from volta.trace import apply, apply_all
from volta.transform import grad

Array = npt.NDArray[Any]
DTYPES = ("f32", "bf16", "int8")


class AbsentError(Exception):
    """A side does not have the case, or, `everywhere`, is not installed."""

    def __init__(self, message: str, everywhere: bool = False) -> None:
        super().__init__(message)
        self.everywhere = everywhere


@dataclass(frozen=True, slots=True)
class Input:
    """A random operand. draw: normal, positive, scale (around 1), int8, or below N (whole numbers)."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    draw: str = "normal"
    below: int = 0

    def make(self, generator: np.random.Generator) -> Array:
        """Fresh values, never zeros; bf16 as bit patterns."""
        if self.below:
            return generator.integers(0, self.below, self.shape, np.int32)
        if self.dtype == "i8":
            return generator.integers(-127, 128, self.shape, np.int8)
        values = generator.standard_normal(self.shape, np.float32)
        if self.draw == "positive":
            values = np.abs(values) + np.float32(0.1)
        if self.draw == "scale":
            values = np.float32(1) + np.float32(0.1) * values
        return bfloat16_from_float32(values) if self.dtype == "bf16" else values

    @property
    def stored(self) -> DType:
        return BY_NAME["i32" if self.below else self.dtype]


@dataclass(frozen=True, slots=True)
class Case:
    """volta: on tensors. truth: on float64 arrays (integers as they are), one per output. tolerance: of the
    largest error, relative to the largest true value. rows: the inputs whose first axis is the rows of every
    output, so that a few rows alone can be checked bit by bit; empty: only the whole can. between: float64
    values that the truth keeps beside its inputs and outputs."""

    suite: str
    name: str
    parameters: Mapping[str, Any]
    inputs: tuple[Input, ...]
    volta: Callable[..., Tensor | tuple[Tensor, ...]]
    truth: Callable[..., Sequence[Array]]
    tolerance: float
    dtype: str = "f32"
    rows: tuple[int, ...] = ()
    between: int = 0

    def blank(self) -> list[Tensor]:
        """Tensors of its inputs' types whose memory is never touched: enough to trace it."""
        return self.tensors([np.empty(one.shape, one.stored.numpy) for one in self.inputs])

    def arrays(self, seed: int, copy: int = 0) -> list[Array]:
        """The inputs, the same in every process that asks with the same seed."""
        generator = np.random.default_rng([seed, copy])
        return [one.make(generator) for one in self.inputs]

    def tensors(self, arrays: Sequence[Array]) -> list[Tensor]:
        return [from_storage(array, one.stored) for one, array in zip(self.inputs, arrays, strict=True)]

    def true_outputs(self, arrays: Sequence[Array]) -> list[Array]:
        wide = [
            float32_from_bfloat16(array).astype(np.float64)
            if one.dtype == "bf16"
            else array
            if array.dtype.kind == "i"
            else array.astype(np.float64)
            for one, array in zip(self.inputs, arrays, strict=True)
        ]
        with np.errstate(all="ignore"):
            return [np.asarray(value) for value in self.truth(*wide)]


MOST_ELEMENTS = 1 << 31  # of one tensor


def above_zero(**sizes: int) -> None:
    for name, size in sizes.items():
        if type(size) is not int or size < 1:
            raise UsageError(f"[bench] {name} is {size!r}: expected a whole number above 0")


# --- matrix products ------------------------------------------------------------------------------


def gemm(dtype: str, m: int, n: int, k: int) -> Case:
    """[m, k] by [k, n]; int8: with one scale for each column."""
    if dtype not in DTYPES:
        raise UsageError(f"[bench] dtype is {dtype!r}: expected one of {', '.join(DTYPES)}")
    above_zero(m=m, n=n, k=k)
    if m * n * k > 1 << 40 or max(m * k, k * n, m * n) > MOST_ELEMENTS:
        raise UsageError(
            f"[bench] {m}x{n}x{k} is too large: expected m*n*k up to 2^40 and matrices up to 2^31"
        )
    name = f"{dtype} {m}x{n}x{k}"
    parameters = {"dtype": dtype, "m": m, "n": n, "k": k}
    if dtype == "int8":
        quantized = (Input((m, k), "i8"), Input((k, n), "i8"), Input((1, n), draw="scale"))

        def exact(a: Array, w: Array, scale: Array) -> list[Array]:
            return [np.matmul(a.astype(np.float64), w.astype(np.float64)) * scale]

        return Case("gemm", name, parameters, quantized, F.quantized_matmul, exact, 1e-6, "i8", (0,))
    inputs = (Input((m, k), dtype), Input((k, n), dtype))
    # PyTorch rounds a bf16 product to bf16, 2^-9 relative
    tolerance = 2.0**-24 * k if dtype == "f32" else 2.0**-8 + 2.0**-24 * k
    return Case(
        "gemm", name, parameters, inputs, F.matmul, lambda a, b: [np.matmul(a, b)], tolerance, dtype, (0,)
    )


# --- attention ------------------------------------------------------------------------------------


def attention(batch: int, heads: int, seq: int, width: int, backward: bool) -> Case:
    """Causal attention [B, H, T, D]; backward: the gradients of q, k and v, forward included."""
    above_zero(batch=batch, heads=heads, seq=seq, width=width)
    scores = batch * heads * seq * seq
    if max(batch * heads * seq * width, scores) > MOST_ELEMENTS:
        raise UsageError(
            f"[bench] attention {batch}x{heads}x{seq}x{width} is too large: "
            "expected up to 2^31 values and 2^31 scores"
        )
    shape = (batch, heads, seq, width)
    position = np.zeros(batch, np.int32)
    scale = 1.0 / math.sqrt(width)
    name = f"attention{' gradient' if backward else ''} {batch}x{heads}x{seq}x{width}"
    parameters = {"batch": batch, "heads": heads, "seq": seq, "width": width, "backward": backward}

    def true_forward(q: Array, k: Array, v: Array) -> list[Array]:
        return [reference.attention(q, k, v, position, scale=scale, causal=True)[0]]

    def true_backward(q: Array, k: Array, v: Array, g: Array) -> list[Array]:
        o, stats = reference.attention(q, k, v, position, scale=scale, causal=True)
        return list(reference.attention_grad(q, k, v, o, stats, g, position, scale=scale, causal=True))

    def gradients(q: Tensor, k: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, ...]:
        def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return F.sum(F.multiply(F.attention(q, k, v), g))

        found: tuple[Tensor, ...] = grad(loss, (0, 1, 2))(q, k, v)
        return found

    inputs = (Input(shape),) * (4 if backward else 3)
    volta = gradients if backward else F.attention
    truth = true_backward if backward else true_forward
    return Case("attention", name, parameters, inputs, volta, truth, 2e-5, between=6 * scores)


# --- the operations of a transformer ----------------------------------------------------------------


def _true(op: str, **attrs: Any) -> Callable[..., list[Array]]:
    def truth(*arrays: Array) -> list[Array]:
        found = getattr(reference, op)(*arrays, **attrs)
        return list(found) if isinstance(found, tuple) else [found]

    return truth


def _applied(op: str, **attrs: Any) -> Callable[..., Any]:
    """The operation alone, its results included that no public function gives."""

    def volta(*tensors: Tensor) -> Any:
        results = apply_all(op, *tensors, **attrs)
        return results if len(results) > 1 else results[0]

    return volta


def _adamw(w: Tensor, m: Tensor, v: Tensor, g: Tensor) -> tuple[Tensor, ...]:
    one = F.ones(())
    m = apply("adam_m", m, g, beta1=0.9)
    v = apply("adam_v", v, g, beta2=0.99)
    return apply("adam", w, m, v, F.scale(one, 1e-3), one, one, eps=1e-8, weight_decay=0.1), m, v


def _true_adamw(w: Array, m: Array, v: Array, g: Array) -> list[Array]:
    m, v = m * 0.9 + g * 0.1, v * 0.99 + g * g * 0.01
    return [(w - 1e-3 * 0.1 * w) - 1e-3 * (m / (np.sqrt(v) + 1e-8)), m, v]


IGNORE = -100


def op(kind: str, rows: int, width: int) -> Case:
    """One operation over [rows, width]."""
    above_zero(rows=rows, width=width)
    if rows * width > MOST_ELEMENTS:
        raise UsageError(f"[bench] {rows}x{width} is too large: expected up to 2^31 values")
    if kind not in OPERATIONS:
        raise UsageError(f"[bench] op is {kind!r}: expected one of {', '.join(OPERATIONS)}")
    inputs, volta, truth, by_rows = OPERATIONS[kind](rows, width)
    return Case(
        "ops",
        f"{kind} {rows}x{width}",
        {"kind": kind, "rows": rows, "width": width},
        inputs,
        volta,
        truth,
        1e-4 if "grad" in kind else 2e-5,
        rows=by_rows,
    )


# A case's inputs, volta, truth and rows: none where the operation adds over rows.
Parts = tuple[tuple[Input, ...], Callable[..., Any], Callable[..., list[Array]], tuple[int, ...]]


def _elementwise(name: str, operands: int = 1, **attrs: Any) -> Callable[[int, int], Parts]:
    return lambda rows, width: (
        (Input((rows, width)),) * operands,
        _applied(name, **attrs),
        _true(name, **attrs),
        tuple(range(operands)),
    )


OPERATIONS: dict[str, Callable[[int, int], Parts]] = {
    "gelu_tanh": _elementwise("gelu_tanh"),
    "gelu_erf": _elementwise("gelu_erf"),
    "silu": _elementwise("silu"),
    "exp": _elementwise("exp"),
    "add": _elementwise("add", 2),
    "softmax": _elementwise("softmax"),
    "softmax_grad": _elementwise("softmax_grad", 2),
    "log_softmax": _elementwise("log_softmax"),
    "layer_norm": lambda rows, width: (
        (Input((rows, width)), Input((width,)), Input((width,))),
        _applied("layer_norm", eps=1e-5),
        _true("layer_norm", eps=1e-5),
        (0,),
    ),
    "layer_norm_grad": lambda rows, width: (
        (
            Input((rows, width)),
            Input((rows, 2), draw="positive"),
            Input((width,)),
            Input((rows, width)),
        ),
        _applied("layer_norm_grad"),
        _true("layer_norm_grad"),
        (),
    ),
    "rms_norm": lambda rows, width: (
        (Input((rows, width)), Input((width,))),
        _applied("rms_norm", eps=1e-5),
        _true("rms_norm", eps=1e-5),
        (0,),
    ),
    "rms_norm_grad": lambda rows, width: (
        (
            Input((rows, width)),
            Input((rows, 1), draw="positive"),
            Input((width,)),
            Input((rows, width)),
        ),
        _applied("rms_norm_grad"),
        _true("rms_norm_grad"),
        (),
    ),
    "cross_entropy": lambda rows, width: (
        (Input((rows, width)), Input((rows,), "i32", below=width)),
        _applied("cross_entropy", ignore_index=IGNORE),
        _true("cross_entropy", ignore_index=IGNORE),
        (0, 1),
    ),
    "cross_entropy_grad": lambda rows, width: (
        (Input((rows, width)), Input((rows,), "i32", below=width), Input((rows,))),
        _applied("cross_entropy_grad", ignore_index=IGNORE),
        _true("cross_entropy_grad", ignore_index=IGNORE),
        (0, 1, 2),
    ),
    "embedding": lambda rows, width: (
        (Input((256, width)), Input((rows,), "i32", below=256)),
        _applied("embedding"),
        _true("embedding"),
        (1,),
    ),
    "embedding_grad": lambda rows, width: (
        (Input((rows, width)), Input((rows,), "i32", below=256)),
        _applied("embedding_grad", rows=256),
        _true("embedding_grad", rows=256),
        (),
    ),
    "adamw": lambda rows, width: (
        (
            Input((rows, width)),
            Input((rows, width)),
            Input((rows, width), draw="positive"),
            Input((rows, width)),
        ),
        _adamw,
        _true_adamw,
        (0, 1, 2, 3),
    ),
    "sum_rows": lambda rows, width: (
        (Input((rows, width)),),
        _applied("sum", axes=(0,), keepdims=False),
        _true("sum", axes=(0,), keepdims=False),
        (),
    ),
}

SUITES: dict[str, Callable[..., Case]] = {"gemm": gemm, "attention": attention, "ops": op}


def make(suite: str, parameters: Mapping[str, Any]) -> Case:
    """The case of these parameters."""
    return SUITES[suite](**parameters)
