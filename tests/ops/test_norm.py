"""Clause N6: layer norm, RMS norm and their gradients are the same bits on every target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.ops.parity import THREADS, Array, assert_parity, assert_same_bits, isas
from tests.ops.rows import LENGTHS, ROWS, ULP, Floats, awkward, n2, normal, reciprocal_of_count, spaced

from volta.backends.cpu.native import run_kernel
from volta.ir import reference

EPS = np.float32(1e-5)
ONE = np.float32(1)


def layer_norm(x: Floats, w: Floats, b: Floats, eps: np.float32 = EPS) -> list[Floats]:
    """The equations in NumPy's float32, operation by operation: y and stats."""
    with np.errstate(all="ignore"):
        inverse = reciprocal_of_count(x.shape[1])
        mean = (n2(x) * inverse)[:, None]
        var = (n2((x - mean) * (x - mean)) * inverse)[:, None]
        rstd = ONE / np.sqrt(var + eps)
        return [((x - mean) * rstd) * w + b, np.concatenate((mean, rstd), axis=1)]


def layer_norm_grad(x: Floats, stats: Floats, w: Floats, g: Floats) -> list[Floats]:
    with np.errstate(all="ignore"):
        inverse = reciprocal_of_count(x.shape[1])
        mean, rstd = stats[:, :1], stats[:, 1:]
        h = (x - mean) * rstd
        d = g * w
        a = (n2(d) * inverse)[:, None]
        c = (n2(d * h) * inverse)[:, None]
        return [((d - a) - h * c) * rstd, n2((g * h).T), n2(g.T)]


def rms_norm(x: Floats, w: Floats, eps: np.float32 = EPS) -> list[Floats]:
    with np.errstate(all="ignore"):
        rstd = ONE / np.sqrt(n2(x * x) * reciprocal_of_count(x.shape[1]) + eps)[:, None]
        return [(x * rstd) * w, rstd]


def rms_norm_grad(x: Floats, stats: Floats, w: Floats, g: Floats) -> list[Floats]:
    with np.errstate(all="ignore"):
        h = x * stats
        d = g * w
        c = (n2(d * h) * reciprocal_of_count(x.shape[1]))[:, None]
        return [(d - h * c) * stats, n2((g * h).T)]


EQUATIONS: dict[str, Callable[..., list[Floats]]] = {
    "layer_norm": layer_norm,
    "layer_norm_grad": layer_norm_grad,
    "rms_norm": rms_norm,
    "rms_norm_grad": rms_norm_grad,
}
KERNELS = tuple(EQUATIONS)


def inputs_of(kernel: str, rows: int, width: int) -> list[Floats]:
    x, g = awkward(rows, width), awkward(rows, width, seed=1)[::-1].copy()
    w, b = normal(width, seed=2), normal(width, seed=3)
    forward = {"layer_norm": [x, w, b], "rms_norm": [x, w]}
    if kernel in forward:
        return forward[kernel]
    stats = EQUATIONS[kernel.removesuffix("_grad")](*forward[kernel.removesuffix("_grad")])[1]
    return [x, stats, w, g]


def outputs_of(kernel: str, inputs: list[Floats]) -> list[Floats]:
    """Empty arrays of the shapes that the equations give."""
    return [np.empty_like(output) for output in EQUATIONS[kernel](*inputs)]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_target_and_thread_count_gives_the_bits_of_the_equations(kernel: str, rows: int) -> None:
    for width in LENGTHS:
        inputs = inputs_of(kernel, rows, width)
        outputs = outputs_of(kernel, inputs)
        count = len(outputs)

        def call(
            isa: str, threads: int, outputs: list[Array], inputs: list[Floats] = inputs, count: int = count
        ) -> None:
            run_kernel(kernel, [*outputs, *inputs], count, floats=[float(EPS)], isa=isa, threads=threads)

        results = assert_parity(call, outputs, f"{kernel} [{rows}, {width}]")
        for index, expected in enumerate(EQUATIONS[kernel](*inputs)):
            assert_same_bits(results[index], expected, f"{kernel} [{rows}, {width}] output {index} and N6")


@pytest.mark.parametrize("kernel", KERNELS)
def test_strided_rows_and_weights_give_the_same_bits_and_what_lies_between_is_untouched(kernel: str) -> None:
    for width in (1, 17, 33, 96):
        inputs = inputs_of(kernel, 33, width)
        apart = [spaced(x) if x.ndim == 2 else np.repeat(x, 2)[::2] for x in inputs]
        rows_only = [spaced(x) if x.ndim == 2 else x for x in inputs]
        for isa in isas():
            for threads in THREADS:
                for strided in (apart, rows_only):
                    outputs = [spaced(y) if y.ndim == 2 else y for y in outputs_of(kernel, inputs)]
                    operands = [*outputs, *strided]
                    run_kernel(kernel, operands, len(outputs), floats=[float(EPS)], isa=isa, threads=threads)
                    for output, expected in zip(outputs, EQUATIONS[kernel](*inputs), strict=True):
                        assert_same_bits(output, expected, f"{kernel} [33, {width}] {isa} threads={threads}")
                    assert outputs[0].base is not None
                    assert (outputs[0].base[:, width:] == 777).all()


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_weight_of_stride_zero_is_broadcast(kernel: str) -> None:
    inputs = [np.broadcast_to(x[:1], x.shape) if x.ndim == 1 else x for x in inputs_of(kernel, 5, 40)]
    for isa in isas():
        outputs = outputs_of(kernel, inputs)
        run_kernel(kernel, [*outputs, *inputs], len(outputs), floats=[float(EPS)], isa=isa, threads=2)
        for output, expected in zip(outputs, EQUATIONS[kernel](*inputs), strict=True):
            assert_same_bits(output, expected, f"{kernel} {isa}")


@pytest.mark.parametrize("kernel", ["layer_norm_grad", "rms_norm_grad"])
def test_more_threads_than_lanes_give_the_same_bits(kernel: str) -> None:
    inputs = inputs_of(kernel, 70, 40)
    for isa in isas():
        outputs = outputs_of(kernel, inputs)
        run_kernel(kernel, [*outputs, *inputs], len(outputs), isa=isa, threads=37)
        for output, expected in zip(outputs, EQUATIONS[kernel](*inputs), strict=True):
            assert_same_bits(output, expected, f"{kernel} {isa}")


@pytest.mark.parametrize("kernel", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("isa", isas())
def test_a_tail_is_not_part_of_the_row_when_the_mean_overflows_or_eps_is_zero(kernel: str, isa: str) -> None:
    """The elements that fill up the last block would be inf or NaN here, had they been counted."""
    largest = np.finfo(np.float32).max
    for row in (np.full(33, largest, np.float32), np.zeros(33, np.float32), np.full(33, 1e-30, np.float32)):
        weights = [np.ones(33, np.float32), np.zeros(33, np.float32)]
        inputs = [row[None], *(weights if kernel == "layer_norm" else weights[:1])]
        outputs = outputs_of(kernel, inputs)
        run_kernel(kernel, [*outputs, *inputs], 2, floats=[0.0], isa=isa)
        for output, expected in zip(outputs, EQUATIONS[kernel](*inputs, eps=np.float32(0)), strict=True):
            assert_same_bits(output, expected, f"{kernel} {isa}")


@pytest.mark.parametrize("width", [1, 5, 96, 1000])
@pytest.mark.parametrize("isa", isas())
def test_forward_is_within_its_roundings_of_the_true_value(isa: str, width: int) -> None:
    """Relative to max |h| |w| + |b|: n/32 + 5 additions in mean and in variance, 10 more roundings.
    Of a single element h is 0 exactly."""
    x, w, b = normal(64, width) + np.float32(0.5), normal(width, seed=2), normal(width, seed=3)
    y, stats = np.empty_like(x), np.empty((64, 2), np.float32)
    run_kernel("layer_norm", [y, stats, x, w, b], 2, floats=[float(EPS)], isa=isa)
    wide = [v.astype(np.float64) for v in (x, w, b)]
    true, true_stats = reference.layer_norm(*wide, eps=float(EPS))
    h = (wide[0] - true_stats[:, :1]) * true_stats[:, 1:]
    reach = np.abs(wide[0]).max(-1, keepdims=True) * true_stats[:, 1:]
    bound = ULP * (2 * (width / 32 + 5) + 10) * ((np.abs(h) + reach) * np.abs(w) + np.abs(b))
    assert (np.abs(y - true) <= bound).all()

    y, r = np.empty_like(x), np.empty((64, 1), np.float32)
    run_kernel("rms_norm", [y, r, x, w], 2, floats=[float(EPS)], isa=isa)
    true, _ = reference.rms_norm(*wide[:2], eps=float(EPS))
    assert (np.abs(y - true) <= ULP * (width / 32 + 15) * np.abs(true)).all()


@pytest.mark.parametrize("isa", isas())
def test_gradients_are_within_their_roundings_of_the_true_value(isa: str) -> None:
    """Each sum: (terms/32 + 5 + 6 roundings per term) of the sum of the terms' magnitudes."""
    rows, width = 200, 300
    x, g, w = normal(rows, width), normal(rows, width, seed=1), normal(width, seed=2)
    wide_x, wide_g, wide_w = (v.astype(np.float64) for v in (x, g, w))
    for kernel in ("layer_norm_grad", "rms_norm_grad"):
        stats = (layer_norm(x, w, w) if kernel == "layer_norm_grad" else rms_norm(x, w))[1]
        outputs = outputs_of(kernel, [x, stats, w, g])
        run_kernel(kernel, [*outputs, x, stats, w, g], len(outputs), isa=isa, threads=2)
        true = getattr(reference, kernel)(wide_x, stats.astype(np.float64), wide_w, wide_g)
        mean, rstd = (stats[:, :1], stats[:, 1:]) if kernel == "layer_norm_grad" else (0, stats)
        h, d = np.abs((wide_x - mean) * rstd), np.abs(wide_g * wide_w)
        terms = d + d.mean(-1, keepdims=True) + h * (d * h).mean(-1, keepdims=True)
        bounds = [
            (width / 32 + 11) * terms * rstd,
            (rows / 32 + 11) * (np.abs(wide_g) * h).sum(0),
            (rows / 32 + 11) * np.abs(wide_g).sum(0),
        ]
        for output, expected, bound in zip(outputs, true, bounds, strict=False):
            assert (np.abs(output - expected) <= ULP * bound).all(), kernel
