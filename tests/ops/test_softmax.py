"""Clause N4: softmax, log-softmax and their gradients are the same bits on every target."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.parity import THREADS, Array, assert_parity, assert_same_bits, isas
from tests.ops.rows import LENGTHS, ROWS, ULP, Floats, awkward, exp, log, n2, normal, row_max, spaced

from volta.backends.cpu.native import run_kernel
from volta.ir import reference

FORWARD = ("softmax", "log_softmax")
BACKWARD = ("softmax_grad", "log_softmax_grad")
KERNELS = (*FORWARD, *BACKWARD)


def contract(kernel: str, *inputs: Floats) -> Floats:
    """The kernel's equation in NumPy's float32, operation by operation."""
    with np.errstate(all="ignore"):
        if kernel == "softmax_grad":
            y, g = inputs
            return y * (g - n2(g * y)[:, None])
        if kernel == "log_softmax_grad":
            y, g = inputs
            return g - exp(y) * n2(g)[:, None]
        (x,) = inputs
        shifted = x - row_max(x)[:, None]
        e = exp(shifted)
        if kernel == "log_softmax":
            return shifted - log(n2(e))[:, None]
        return e * (np.float32(1) / n2(e))[:, None]


def inputs_of(kernel: str, rows: int, width: int) -> list[Floats]:
    return [awkward(rows, width, seed) for seed in range(1 if kernel in FORWARD else 2)]


def run(kernel: str, inputs: list[Floats], isa: str, threads: int) -> Floats:
    out = np.empty_like(inputs[0])
    run_kernel(kernel, [out, *inputs], 1, isa=isa, threads=threads)
    return out


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_target_and_thread_count_gives_the_bits_of_the_equation(kernel: str, rows: int) -> None:
    for width in LENGTHS:
        inputs = inputs_of(kernel, rows, width)

        def call(isa: str, threads: int, outputs: list[Array], inputs: list[Floats] = inputs) -> None:
            run_kernel(kernel, [*outputs, *inputs], 1, isa=isa, threads=threads)

        (expected,) = assert_parity(
            call, [np.empty((rows, width), np.float32)], f"{kernel} [{rows}, {width}]"
        )
        assert_same_bits(expected, contract(kernel, *inputs), f"{kernel} [{rows}, {width}] and N4")


@pytest.mark.parametrize("kernel", KERNELS)
def test_rows_apart_give_the_same_bits_and_what_lies_between_is_untouched(kernel: str) -> None:
    for width in (1, 17, 33, 96):
        inputs = inputs_of(kernel, 33, width)
        expected = run(kernel, inputs, "ref", 1)
        for isa in isas():
            for threads in THREADS:
                out = spaced(np.zeros((33, width), np.float32))
                run_kernel(kernel, [out, *map(spaced, inputs)], 1, isa=isa, threads=threads)
                assert_same_bits(out, expected, f"{kernel} {isa} threads={threads}")
                assert out.base is not None
                assert (out.base[:, width:] == 777).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_output_may_overwrite_its_first_input(kernel: str) -> None:
    for width in (31, 96):
        inputs = inputs_of(kernel, 40, width)
        expected = run(kernel, inputs, "ref", 1)
        for isa in isas():
            out = inputs[0].copy()
            run_kernel(kernel, [out, out, *inputs[1:]], 1, isa=isa, threads=2)
            assert_same_bits(out, expected, f"{kernel} {isa} in place")


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_row_alone_gives_the_bits_it_has_among_others(kernel: str) -> None:
    inputs = inputs_of(kernel, 33, 257)
    for isa in isas():
        together = run(kernel, inputs, isa, 2)
        for row in (0, 2, 5, 31, 32):
            alone = run(kernel, [x[row : row + 1] for x in inputs], isa, 1)
            assert_same_bits(alone[0], together[row], f"{kernel} {isa} row {row}")


@pytest.mark.parametrize("isa", isas())
def test_a_row_with_nan_or_of_minus_infinity_gives_nan_everywhere(isa: str) -> None:
    x = normal(3, 40)
    x[0, 7] = np.nan
    x[1] = -np.inf
    for kernel in FORWARD:
        y = run(kernel, [x], isa, 1)
        assert np.isnan(y[:2]).all()
        assert np.isfinite(y[2]).all()


@pytest.mark.parametrize("isa", isas())
def test_the_order_of_zeros_does_not_change_log_softmax(isa: str) -> None:
    """m is +0 for a row of zeros, so +0 - m is +0 and -0 - m is -0 in either order."""
    x = np.array([[0.0, -0.0], [-0.0, 0.0]], np.float32)
    y = run("log_softmax", [x], isa, 1)
    assert_same_bits(y[0], y[1, ::-1])
    single = run("log_softmax", [np.array([[-0.0], [0.0]], np.float32)], isa, 1)
    assert_same_bits(single, np.array([[-0.0], [0.0]], np.float32))


@pytest.mark.parametrize("width", [1, 5, 96, 1000])
@pytest.mark.parametrize("isa", isas())
def test_softmax_is_within_its_roundings_of_the_true_value(isa: str, width: int) -> None:
    """Relative: 2 (|x - m| + 4) for exp in numerator and sum, n/32 + 5 additions, 3 more roundings."""
    x = normal(64, width, scale=4.0)
    true = reference.softmax(x.astype(np.float64))
    reach = x.max() - x.min()
    bound = ULP * (2 * (reach + 4) + width / 32 + 8)
    assert (np.abs(run("softmax", [x], isa, 1) / true - 1) <= bound).all()


@pytest.mark.parametrize("width", [1, 5, 96, 1000])
@pytest.mark.parametrize("isa", isas())
def test_log_softmax_is_within_its_roundings_of_the_true_value(isa: str, width: int) -> None:
    """Absolute: |x - m| and the result once each, the sum's relative error, 2 ulp of its logarithm."""
    x = normal(64, width, scale=4.0)
    true = reference.log_softmax(x.astype(np.float64))
    reach = x.max() - x.min()
    bound = ULP * (3 * (reach + 4) + 6 * np.log(width) + width / 32 + 8)
    assert (np.abs(run("log_softmax", [x], isa, 1) - true) <= bound).all()


@pytest.mark.parametrize("kernel", BACKWARD)
@pytest.mark.parametrize("isa", isas())
def test_gradients_are_within_their_roundings_of_the_true_value(isa: str, kernel: str) -> None:
    """Absolute: n/32 + 12 roundings of the largest sum of magnitudes."""
    g = normal(64, 300, seed=1)
    y = run(kernel.removesuffix("_grad"), [normal(64, 300, scale=2.0)], isa, 1)
    wide_y, wide_g = y.astype(np.float64), g.astype(np.float64)
    true = getattr(reference, kernel)(wide_y, wide_g)
    terms = np.abs(wide_g * wide_y) if kernel == "softmax_grad" else np.abs(wide_g)
    weight = np.abs(wide_y) if kernel == "softmax_grad" else np.exp(wide_y)
    scale = np.abs(wide_g) + terms.sum(-1, keepdims=True)
    bound = ULP * (300 / 32 + 12) * (weight * scale + (0 if kernel == "softmax_grad" else np.abs(wide_g)))
    assert (np.abs(run(kernel, [y, g], isa, 1) - true) <= bound).all()
