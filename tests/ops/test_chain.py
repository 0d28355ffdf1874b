"""Elementwise chains: every operation, every kind of input layout, in place, around a tile."""

from __future__ import annotations

import ctypes
import itertools
import math
import mmap
import platform
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import assert_parity, assert_same_bits, isas

from volta.backends.cpu.native import chain_ops, library, run_kernel
from volta.dtypes import bfloat16_from_float32, float32_from_bfloat16
from volta.errors import VerifyError

Array = npt.NDArray[Any]
Code = list[tuple[str, int, Sequence[int], Sequence[float]]]
F64 = npt.NDArray[np.float64]

TILE = 1024
SPECIAL = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        np.inf,
        -np.inf,
        np.nan,
        1e-45,
        -1e-45,
        1.1754942e-38,
        3.4028235e38,
        88.8,
        -104.5,
    ],
    np.float32,
)


def sigmoid(x: F64) -> F64:
    y: F64 = 1 / (1 + np.exp(-x))
    return y


def erf(x: F64) -> F64:
    y: F64 = np.vectorize(math.erf, otypes=[np.float64])(x)
    return y


def inner(x: F64) -> F64:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def gelu_tanh_slope(x: F64) -> F64:
    t = np.tanh(inner(x))
    y: F64 = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return y


def gelu_erf_slope(x: F64) -> F64:
    return 0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


# What each operation means, in float64: (inputs..., immediate values) -> output.
MEANING: dict[str, Callable[..., F64]] = {
    "neg": lambda a, x: -a,
    "abs": lambda a, x: np.abs(a),
    "exp": lambda a, x: np.exp(a),
    "log": lambda a, x: np.log(np.abs(a)),
    "sqrt": lambda a, x: np.sqrt(np.abs(a)),
    "rsqrt": lambda a, x: 1 / np.sqrt(np.abs(a)),
    "tanh": lambda a, x: np.tanh(a),
    "sigmoid": lambda a, x: sigmoid(a),
    "erf": lambda a, x: erf(a),
    "sin": lambda a, x: np.sin(a),
    "cos": lambda a, x: np.cos(a),
    "relu": lambda a, x: np.maximum(a, 0),
    "gelu_tanh": lambda a, x: 0.5 * a * (1 + np.tanh(inner(a))),
    "gelu_erf": lambda a, x: 0.5 * a * (1 + erf(a / math.sqrt(2))),
    "silu": lambda a, x: a * sigmoid(a),
    "gelu_tanh_slope": lambda a, x: gelu_tanh_slope(a),
    "gelu_erf_slope": lambda a, x: gelu_erf_slope(a),
    "silu_slope": lambda a, x: sigmoid(a) * (1 + a * (1 - sigmoid(a))),
    "scale": lambda a, x: a * x[0],
    "copy": lambda a, x: a,
    "bf16": lambda a, x: float32_from_bfloat16(bfloat16_from_float32(a.astype(np.float32))),
    "add": lambda a, b, x: a + b,
    "sub": lambda a, b, x: a - b,
    "mul": lambda a, b, x: a * b,
    "div": lambda a, b, x: a / b,
    "maximum": lambda a, b, x: np.maximum(a, b),
    "minimum": lambda a, b, x: np.minimum(a, b),
    "greater_equal": lambda a, b, x: (a >= b).astype(np.float64),
    "relu_grad": lambda a, b, x: np.where(a > 0, b, 0),
    "momentum": lambda a, b, x: a * x[0] + b,
    "sgd": lambda a, b, c, x: a - c * b,
    "adam_m": lambda a, b, x: a * x[0] + b * x[1],
    "adam_v": lambda a, b, x: a * x[0] + b * b * x[1],
    "adam": lambda a, b, c, d, e, f, x: (a - d * x[1] * a) - d * (b * e / (np.sqrt(np.abs(c) * f) + x[0])),
}
POSITIVE = {"log": (0,), "sqrt": (0,), "rsqrt": (0,), "adam": (2, 5)}  # inputs that must be


def inputs_of(op: str) -> int:
    _, lib = library()
    return int(lib.volta_op_inputs(chain_ops()[op]))


def values(shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def chain(
    outputs: int, inputs: Sequence[Array], code: Code, shape: tuple[int, ...] | None = None
) -> list[Array]:
    """Runs the chain on every isa and thread count; the reference's outputs."""
    shape = inputs[0].shape if shape is None else shape
    views = [np.broadcast_to(x, shape) for x in inputs]

    def run(isa: str, threads: int, out: list[Array]) -> None:
        run_kernel("chain", [*out, *views], outputs, code=code, isa=isa, threads=threads)

    return assert_parity(run, [np.zeros(shape, np.float32) for _ in range(outputs)], f"{code}")


def test_every_operation_has_a_meaning_here() -> None:
    assert set(MEANING) == set(chain_ops())


@pytest.mark.parametrize("op", MEANING)
def test_every_operation_is_the_same_on_every_isa_and_close_to_its_meaning(op: str) -> None:
    count = inputs_of(op)
    imm = (0.75, 0.25)
    inputs = [values((3 * TILE + 5,), seed) * np.float32(2) for seed in range(count)]
    for index in POSITIVE.get(op, ()):
        inputs[index] = np.abs(inputs[index])
    code: Code = [(op, 0, range(1, count + 1), imm)]
    actual = chain(1, inputs, code)[0]
    exact = MEANING[op](*(x.astype(np.float64) for x in inputs), imm)
    scale = 1 + sum(np.abs(x.astype(np.float64)) for x in inputs) + np.abs(exact)
    assert (np.abs(actual - exact) <= 4e-6 * scale).all()


@pytest.mark.parametrize("op", MEANING)
def test_every_operation_gives_the_same_bits_for_special_values(op: str) -> None:
    count = inputs_of(op)
    grid = np.array(list(itertools.product(SPECIAL, repeat=min(count, 2))), np.float32)
    inputs = [np.ascontiguousarray(grid[:, i % grid.shape[1]]) for i in range(count)]
    chain(1, inputs, [(op, 0, range(1, count + 1), (0.9, 0.1, 0.0, 0.0))])


def test_maximum_and_minimum_propagate_nan_and_keep_the_first_of_equals() -> None:
    a = np.array([np.nan, 1, 0.0, -0.0, 2], np.float32)
    b = np.array([1, np.nan, -0.0, 0.0, 3], np.float32)
    for op, largest in (("maximum", 3), ("minimum", 2)):
        y = chain(1, [a, b], [(op, 0, (1, 2), ())])[0]
        assert_same_bits(y, np.array([np.nan, np.nan, 0.0, -0.0, largest], np.float32))


@pytest.mark.parametrize("count", [0, 1, 7, 15, 16, 17, TILE - 1, TILE, TILE + 1, 2 * TILE, 7 * TILE + 3])
def test_a_chain_equals_its_operations_one_by_one(count: int) -> None:
    a, b = values((count,), 1), values((count,), 2)
    fused = chain(1, [a, b], [("mul", 3, (1, 2), ()), ("tanh", 4, (3,), ()), ("add", 0, (4, 1), ())])[0]
    product = chain(1, [a, b], [("mul", 0, (1, 2), ())])[0]
    bent = chain(1, [product], [("tanh", 0, (1,), ())])[0]
    assert_same_bits(fused, chain(1, [bent, a], [("add", 0, (1, 2), ())])[0])
    assert_same_bits(product, a * b)
    assert_same_bits(fused, np.asarray(bent + a))


# Shapes of the second input against the first: each kind of source, rows shorter and longer than a tile.
BROADCASTS = [
    ((5, 7), (1, 7)),
    ((5, 7), (5, 1)),
    ((5, 7), (1, 1)),
    ((40, 128), (1, 128)),
    ((40, 100), (1, 100)),
    ((2, 30, 64), (1, 1, 64)),
    ((2, 30, 64), (2, 1, 64)),
    ((2, 30, 64), (1, 30, 64)),
    ((2, 30, 64), (2, 30, 1)),
    ((3, TILE), (1, TILE)),
    ((3, TILE + 1), (1, TILE + 1)),
    ((3, 1536), (1, 1536)),
    ((3, 3000), (1, 3000)),
    ((700, 3), (1, 3)),
    ((2, 1, 4, 5, 1, 6), (1, 1, 4, 1, 1, 6)),
    ((0, 7), (1, 7)),
]


@pytest.mark.parametrize(("shape", "small"), BROADCASTS, ids=str)
def test_broadcast_inputs_equal_their_contiguous_copies(
    shape: tuple[int, ...], small: tuple[int, ...]
) -> None:
    a, b = values(shape, 1), values(small, 2)
    y = chain(1, [a, b], [("sub", 0, (1, 2), ())])[0]
    assert_same_bits(y, a - b)
    both = chain(1, [b, a, b], [("mul", 4, (1, 3), ()), ("add", 0, (2, 4), ())], shape)[0]
    assert_same_bits(both, np.asarray(a + np.broadcast_to(b * b, shape)))


def test_two_rows_of_different_lengths_are_both_right() -> None:
    shape = (6, 10, 24)
    a, b, c = values(shape, 1), values((1, 1, 24), 2), values((1, 10, 24), 3)
    y = chain(1, [a, b, c], [("add", 4, (1, 2), ()), ("mul", 0, (4, 3), ())])[0]
    assert_same_bits(y, (a + b) * c)


def test_strided_transposed_and_backward_inputs_equal_their_contiguous_copies() -> None:
    base = values((64, 90), 1)
    views = [
        base.T,
        np.ascontiguousarray(base.T)[:, ::-1],
        values((90, 128), 2)[:, ::2],
        values((95, 70), 3)[5:, 6:],
        np.broadcast_to(values((64,), 4), (90, 64)),
    ]
    code: Code = [
        ("add", 6, (1, 2), ()),
        ("mul", 6, (6, 3), ()),
        ("sub", 6, (6, 4), ()),
        ("add", 0, (6, 5), ()),
    ]
    expected = (views[0] + views[1]) * views[2] - views[3] + views[4]
    assert_same_bits(chain(1, views, code)[0], np.ascontiguousarray(expected))


def test_several_outputs_and_their_reuse() -> None:
    a, b = values((2 * TILE + 9,), 1), values((2 * TILE + 9,), 2)
    out = chain(2, [a, b], [("add", 0, (2, 3), ()), ("mul", 1, (0, 2), ())])
    assert_same_bits(out[0], a + b)
    assert_same_bits(out[1], (a + b) * a)


def test_an_output_may_be_its_input() -> None:
    for isa, threads in itertools.product(isas(), (1, 3)):
        a, b = values((5 * TILE + 1,), 1), values((5 * TILE + 1,), 2)
        expected = np.exp(np.float32(0)) * (a * b) + a
        run_kernel(
            "chain",
            [a, a, b],
            1,
            code=[("mul", 3, (1, 2), ()), ("add", 0, (3, 1), ())],
            isa=isa,
            threads=threads,
        )
        assert_same_bits(a, expected)


def test_adam_updates_three_arrays_in_place() -> None:
    """N11: moments first, then the parameter from the new moments."""
    size = 3 * TILE + 17
    one = np.float32(1)
    beta1, beta2 = np.float32(0.9), np.float32(0.999)
    rate, correct1, correct2 = (np.array([x], np.float32) for x in (1e-3, 10.0, 1000.0))
    eps, decay = np.float32(1e-8), np.float32(0.1)
    for isa, threads in itertools.product(isas(), (1, 2)):
        p, m, v, g = values((size,), 1), values((size,), 2), np.abs(values((size,), 3)), values((size,), 4)
        new_m = m * beta1 + g * (one - beta1)
        new_v = v * beta2 + (g * g) * (one - beta2)
        new_p = (p - (rate * decay) * p) - rate * ((new_m * correct1) / (np.sqrt(new_v * correct2) + eps))
        scalars = [np.broadcast_to(x, p.shape) for x in (rate, correct1, correct2)]
        code: Code = [
            ("adam_m", 1, (4, 6), (float(beta1), float(one - beta1))),
            ("adam_v", 2, (5, 6), (float(beta2), float(one - beta2))),
            ("adam", 0, (3, 1, 2, 7, 8, 9), (float(eps), float(decay))),
        ]
        run_kernel("chain", [p, m, v, p, m, v, g, *scalars], 3, code=code, isa=isa, threads=threads)
        assert_same_bits(m, new_m)
        assert_same_bits(v, new_v)
        assert_same_bits(p, new_p)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_chain_over_any_layout_is_the_same_everywhere(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    n_inputs = data.draw(st.integers(1, 4))
    inputs = []
    for seed in range(n_inputs):
        kept = [size if data.draw(st.booleans()) else 1 for size in shape]
        x = values(tuple(kept), seed)
        inputs.append(np.ascontiguousarray(x.T).T if data.draw(st.booleans()) else x)
    ops = ["add", "mul", "sub", "maximum", "neg", "tanh", "relu", "sgd"]
    readable = list(range(1, n_inputs + 1))
    code: Code = []
    for temporary in range(n_inputs + 1, n_inputs + 1 + data.draw(st.integers(0, 4))):
        op = data.draw(st.sampled_from(ops))
        code.append((op, temporary, [data.draw(st.sampled_from(readable)) for _ in range(inputs_of(op))], ()))
        readable.append(temporary)
    code.append(("add", 0, (readable[-1], readable[0]), ()))
    chain(1, inputs, code, shape)


# --- what is refused -----------------------------------------------------------------------------------


def test_a_chain_refuses_outputs_that_are_not_contiguous_and_shapes_that_differ() -> None:
    a = values((6, 8))
    for isa in isas():
        with pytest.raises(VerifyError):
            run_kernel("chain", [np.zeros((8, 6), np.float32).T, a], 1, code=[("copy", 0, (1,), ())], isa=isa)
        with pytest.raises(VerifyError):
            run_kernel("chain", [np.zeros((8, 6), np.float32), a], 1, code=[("copy", 0, (1,), ())], isa=isa)


# --- the floating-point environment (N0) -----------------------------------------------------------------


class ControlRegister:
    """This thread's MXCSR, reached by two instructions of machine code."""

    def __init__(self) -> None:
        code = bytes.fromhex("0fae17c3 0fae1fc3")  # ldmxcsr [rdi]; ret; stmxcsr [rdi]; ret
        self.page = mmap.mmap(-1, len(code), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self.page.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        prototype = ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_uint32))
        self.load, self.store = prototype(address), prototype(address + 4)

    def get(self) -> int:
        value = ctypes.c_uint32()
        self.store(ctypes.byref(value))
        return value.value

    def set(self, value: int) -> None:
        self.load(ctypes.byref(ctypes.c_uint32(value)))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="MXCSR is a register of x86")
@pytest.mark.parametrize("mode", [0x8040, 0x6000], ids=["flush subnormals", "round toward zero"])
def test_the_callers_floating_point_modes_change_no_bit_and_come_back(mode: int) -> None:
    register = ControlRegister()
    tiny, third = np.full(2 * TILE, 1e-40, np.float32), np.full(2 * TILE, 3, np.float32)
    code: Code = [("add", 3, (1, 1), ()), ("div", 0, (3, 2), ())]
    expected = chain(1, [tiny, third], code)[0]
    assert (expected > 0).all()
    before = register.get()
    for isa, threads in itertools.product(isas(), (1, 2)):
        y = np.zeros_like(tiny)
        register.set(before | mode)
        try:
            run_kernel("chain", [y, tiny, third], 1, code=code, isa=isa, threads=threads)
            after = register.get()
        finally:
            register.set(before)
        assert after & 0xFFC0 == (before | mode) & 0xFFC0
        assert_same_bits(y, expected)
