"""Gradients of products of bf16: f32 in dtype, products of bf16 themselves (N9), and those of the f32
computation over the rounded factors but for the rounding of the gradient that comes in."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import assert_same_bits, isas

import volta as vt
from volta.backends.interp import evaluate
from volta.dtypes import bfloat16, float32
from volta.errors import GradientError
from volta.ir.grad import gradient
from volta.ir.graph import GraphBuilder
from volta.ir.verify import verify
from volta.runtime.policy import runtime
from volta.tensor import Tensor

Floats = npt.NDArray[np.float32]
EPSILON = 2.0**-8  # the largest relative error of rounding to bf16


def normal(*shape: int, seed: int) -> Tensor:
    return vt.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape))


def half(x: Tensor) -> Tensor:
    return vt.astype(x, "bf16")


def rounded(x: Tensor) -> Tensor:
    return vt.astype(half(x), "f32")


def gradients(product: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, g: Tensor) -> list[Floats]:
    """Of sum(product(a, b) * g), for both: g is what arrives at the product."""
    found = vt.grad(lambda a, b: vt.sum(product(a, b) * g), argnums=(0, 1))(a, b)
    assert [x.dtype for x in found] == [float32, float32]
    assert [x.shape for x in found] == [a.shape, b.shape]
    return [x.numpy() for x in found]


SHAPES = [(1, 1, 1), (5, 7, 33), (17, 40, 64), (33, 20, 95)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_gradients_are_products_of_bf16(m: int, n: int, k: int) -> None:
    """dA = bf16(g) B^T and dB = A^T bf16(g) by N9, in f32."""
    a, b, g = normal(m, k, seed=1), normal(k, n, seed=2), normal(m, n, seed=3)
    da, db = gradients(lambda a, b: half(a) @ half(b), a, b, g)
    assert_same_bits(da, (half(g) @ half(b).T).numpy(), "dA")
    assert_same_bits(db, (half(a).T @ half(g)).numpy(), "dB")


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_gradients_are_those_of_f32_over_the_rounded_factors(m: int, n: int, k: int) -> None:
    """|error| of each element is at most that of rounding g, and of as many f32 additions."""
    a, b, g = normal(m, k, seed=4), normal(k, n, seed=5), normal(m, n, seed=6)
    found = gradients(lambda a, b: half(a) @ half(b), a, b, g)
    expected = gradients(lambda a, b: rounded(a) @ rounded(b), a, b, g)
    wide_a, wide_b, wide_g = (np.abs(x.numpy()).astype(np.float64) for x in (rounded(a), rounded(b), g))
    for got, wanted, size in zip(found, expected, (wide_g @ wide_b.T, wide_a.T @ wide_g), strict=True):
        assert (np.abs(got - wanted) <= (EPSILON + 1e-5) * size).all()


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_with_bf16_weights_alone_gradients_are_n1(m: int, n: int, k: int) -> None:
    """An f32 times bf16 weights, which are widened: not a bit differs from f32 over the same numbers."""
    a, b, g = normal(m, k, seed=7), normal(k, n, seed=8), normal(m, n, seed=9)
    found = gradients(lambda a, b: a @ half(b), a, b, g)
    expected = gradients(lambda a, b: a @ rounded(b), a, b, g)
    for got, wanted in zip(found, expected, strict=True):
        assert_same_bits(got, wanted)


BATCHES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "a weight of all batches": ((2, 3, 5, 9), (9, 7)),
    "one each": ((3, 5, 9), (3, 9, 7)),
    "b broadcast": ((3, 5, 9), (1, 9, 7)),
    "a broadcast": ((5, 9), (3, 9, 7)),
    "both broadcast": ((3, 1, 5, 9), (2, 9, 7)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_gradients_of_batches_have_their_operands_shapes(name: str) -> None:
    a, b = (normal(*shape, seed=10) for shape in BATCHES[name])
    g = normal(*(half(a) @ half(b)).shape, seed=11)
    found = gradients(lambda a, b: half(a) @ half(b), a, b, g)
    expected = gradients(lambda a, b: rounded(a) @ rounded(b), a, b, rounded(g))
    for got, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


def test_a_weight_of_all_batches_has_its_gradient_in_one_contraction() -> None:
    """N9 over the rows of all batches, not a sum of one product each."""
    a, b, g = normal(3, 20, 9, seed=12), normal(9, 7, seed=13), normal(3, 20, 7, seed=14)
    _, db = gradients(lambda a, b: half(a) @ half(b), a, b, g)
    assert_same_bits(db, (half(a.reshape(60, 9)).T @ half(g.reshape(60, 7))).numpy())


def test_every_isa_and_thread_count_gives_the_same_gradients() -> None:
    a, w, v, g = (
        normal(40, 70, seed=15),
        normal(70, 33, seed=16),
        normal(33, 50, seed=17),
        normal(40, 50, seed=18),
    )

    def loss(w: Tensor, v: Tensor) -> Tensor:
        hidden = vt.gelu(half(a) @ half(w), "tanh")
        return vt.sum((half(hidden) @ half(v)) * g)

    expected: list[Any] = []
    for isa, threads, passes in itertools.product(isas(), (1, 2), (None, ())):
        with runtime(isa=isa, threads=threads, passes=passes):
            found = [x.numpy() for x in vt.compile(vt.grad(loss, argnums=(0, 1)))(w, v)]
        expected = expected or found
        for got, wanted in zip(found, expected, strict=True):
            assert_same_bits(got, wanted, f"{isa} {threads} {passes}")


def test_the_gradient_graph_means_what_the_cpu_computes() -> None:
    """The float64 references of the same graph: casts of gradients included."""
    build = GraphBuilder()
    a, b = build.input("a", (6, 40), float32), build.input("b", (40, 5), float32)
    factors = [build.add("cast", (x,), {"dtype": "bf16"}) for x in (a, b)]
    product = build.add("matmul", factors)
    loss = build.add("sum_squares", (product,), {"axes": (0, 1), "keepdims": False})
    graph = gradient(build.freeze([loss]), 0, [a, b])
    verify(graph)
    assert [node.dtype for node in graph.outputs] == [float32, float32, float32]
    left, right = normal(6, 40, seed=19), normal(40, 5, seed=20)
    meant = evaluate(graph, [left.numpy(), right.numpy()])
    value, found = vt.value_and_grad(lambda a, b: vt.sum_squares(half(a) @ half(b)), argnums=(0, 1))(
        left, right
    )
    for got, wanted in zip((value, *found), meant, strict=True):
        np.testing.assert_allclose(got.numpy(), wanted, rtol=2e-2, atol=2e-2 * np.abs(wanted).max())


def test_a_bf16_tensor_itself_is_no_master_to_differentiate() -> None:
    with pytest.raises(GradientError, match="is bf16: expected f32"):
        vt.grad(lambda w: vt.sum(half(vt.ones((2, 3))) @ w))(half(vt.ones((3, 4))))
    assert half(vt.ones((1,))).dtype is bfloat16
