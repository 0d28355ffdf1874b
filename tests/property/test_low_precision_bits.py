"""Random programs over f32, bf16 and int8 values: passes, instruction sets, threads, packed weights and
donated memory change no bit of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import assert_same_bits, isas

import volta as vt
from volta.runtime.policy import runtime
from volta.tensor import Tensor

Instruction = tuple[str, int, int]
Program = list[Instruction]
Values = dict[str, list[Tensor]]

# name -> (dtypes of its two operands, dtype of its result, what it does); square matrices throughout
OPS: dict[str, tuple[tuple[str, ...], str, Callable[..., Tensor]]] = {
    "narrow": (("f32",), "bf16", lambda x: vt.astype(x, "bf16")),
    "widen": (("bf16",), "f32", lambda x: vt.astype(x, "f32")),
    "add": (("f32", "f32"), "f32", vt.add),
    "multiply": (("f32", "f32"), "f32", vt.multiply),
    "bend": (("f32",), "f32", vt.tanh),
    "row": (("f32", "f32"), "f32", lambda x, y: x + y[:1]),
    "column": (("f32", "bf16"), "f32", lambda x, y: x * vt.astype(y[:, 2:3], "f32")),
    "product": (("f32", "f32"), "f32", vt.matmul),
    "product of bf16": (("bf16", "bf16"), "f32", vt.matmul),
    "product by bf16": (("f32", "bf16"), "f32", vt.matmul),
    "turned": (("bf16", "bf16"), "f32", lambda x, y: x.T @ y.T),
    "turn": (("bf16",), "bf16", vt.transpose),
    "swap halves": (("bf16",), "bf16", lambda x: vt.concatenate([x[2:], x[:2]])),
    "pad": (("bf16",), "bf16", lambda x: vt.pad(x[1:, 2:], ((1, 0), (0, 2)))),
    "norm": (("f32",), "f32", vt.softmax),
    "round": (("f32",), "i8", lambda x: vt.quantize(x)[0]),
    "whole": (("i8",), "f32", lambda q: vt.astype(q, "f32")),
    "whole product": (("f32", "i8"), "f32", lambda x, q: vt.quantized_matmul(x, q, x[:1] * x[:1])),
    "whole by whole": (
        ("i8", "i8"),
        "f32",
        lambda q, r: vt.quantized_matmul(q, r.T, vt.ones((1, q.shape[0]))),
    ),
    "turn whole": (("i8",), "i8", lambda q: vt.concatenate([q.T[3:], q.T[:3]])),
}


@st.composite
def programs(draw: st.DrawFn) -> Program:
    return [
        (draw(st.sampled_from(list(OPS))), draw(st.integers(0, 9)), draw(st.integers(0, 9)))
        for _ in range(draw(st.integers(1, 9)))
    ]


def run(program: Program, values: Values) -> list[Tensor]:
    """The last two results of each dtype."""
    values = {dtype: list(some) for dtype, some in values.items()}
    for name, *places in program:
        kinds, result, function = OPS[name]
        given_ = [
            values[kind][-1 - place % len(values[kind])] for kind, place in zip(kinds, places, strict=False)
        ]
        values[result].append(function(*given_))
    return [value for dtype in ("f32", "bf16", "i8") for value in values[dtype][-2:]]


def inputs(n: int) -> Values:
    rng = np.random.default_rng(n)

    def square() -> npt.NDArray[Any]:
        return rng.standard_normal((n, n))

    return {
        "f32": [vt.asarray(square()), vt.asarray(square())],
        "bf16": [vt.asarray(square(), "bf16"), vt.asarray(square(), "bf16")],
        "i8": [vt.asarray(rng.integers(-128, 128, (n, n)), "i8")],
    }


POLICIES = [
    {"isa": isa, "threads": threads, "passes": passes}
    for isa, threads, passes in itertools.product(isas(), (1, 2), (None, ()))
]


@given(program=programs(), n=st.sampled_from([4, 17, 40]), seed=st.integers(0, 100))
@settings(max_examples=40, deadline=None)
def test_no_policy_changes_a_bit(program: Program, n: int, seed: int) -> None:
    """Each operation alone, by the reference, against the whole program under any policy; weights that stay
    as they are, and memory that is given away."""
    values = inputs(n)
    with runtime(isa="ref", threads=1, passes=()):
        expected = [value.storage() for value in run(program, values)]
    flat = [value for some in values.values() for value in some]

    def whole(*given_: Tensor) -> list[Tensor]:
        return run(program, {"f32": list(given_[:2]), "bf16": list(given_[2:4]), "i8": list(given_[4:])})

    def giving(*given_: Tensor) -> tuple[Any, ...]:
        """Its first and third argument are taken over by new values of their dtypes."""
        found = whole(*given_)
        return found[0], given_[1] + 1.0, found[2], found

    chosen = POLICIES[seed % len(POLICIES)]
    with runtime(**chosen):  # type: ignore[arg-type]
        plain = [value.storage() for value in vt.compile(whole)(*flat)]
        call = vt.compile(whole).bind(*flat, persistent=(1, 3, 4))
        call.run()
        call.run()
        packed = call.results
        donated = [vt.asarray(value.numpy(), value.dtype) for value in flat]
        *_, given_away = vt.compile(giving, donate=(0, 2))(*donated)
    for index, wanted in enumerate(expected):
        assert_same_bits(plain[index], wanted, f"{chosen} output {index}")
        assert_same_bits(packed[index], wanted, f"{chosen} packed, output {index}")
        assert_same_bits(given_away[index].storage(), wanted, f"{chosen} donated, output {index}")
