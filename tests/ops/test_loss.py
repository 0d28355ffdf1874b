"""Cross entropy, its gradient and the count of valid targets: the same bits on every target."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import THREADS, Array, Guarded, assert_parity, assert_same_bits, isas
from tests.ops.rows import IGNORE, LENGTHS, ROWS, ULP, Floats, awkward, exp, log, n2, normal, row_max, spaced

from volta.backends.cpu.native import run_kernel
from volta.errors import IndexRangeError
from volta.ir import reference

Indices = npt.NDArray[np.int32]


def targets_of(rows: int, width: int) -> Indices:
    """Every third row ignored; all of them where there is nothing to choose from."""
    targets = np.random.default_rng(rows).integers(0, max(width, 1), rows, dtype=np.int32)
    targets[:: 1 if width == 0 else 3] = IGNORE
    return targets


def cross_entropy(x: Floats, targets: Indices) -> Floats:
    """The equation in NumPy's float32, operation by operation."""
    loss = np.zeros(len(x), np.float32)
    valid = np.flatnonzero(targets != IGNORE)
    with np.errstate(all="ignore"):
        m = row_max(x[valid])
        s = n2(exp(x[valid] - m[:, None]))
        loss[valid] = log(s) - (x[valid, targets[valid]] - m)
    return loss


def cross_entropy_grad(x: Floats, targets: Indices, g: Floats) -> Floats:
    dx = np.zeros_like(x)
    valid = np.flatnonzero(targets != IGNORE)
    with np.errstate(all="ignore"):
        e = exp(x[valid] - row_max(x[valid])[:, None])
        p = e * (np.float32(1) / n2(e))[:, None]
        p[np.arange(len(valid)), targets[valid]] -= np.float32(1)
        dx[valid] = p * g[valid, None]
    return dx


@pytest.mark.parametrize("rows", ROWS)
def test_the_loss_has_the_bits_of_its_equation_on_every_target(rows: int) -> None:
    for width in LENGTHS:
        x, targets = awkward(rows, width), targets_of(rows, width)

        def call(
            isa: str, threads: int, outputs: list[Array], x: Floats = x, targets: Indices = targets
        ) -> None:
            run_kernel("cross_entropy", [*outputs, x, targets], 1, ints=[IGNORE], isa=isa, threads=threads)

        (loss,) = assert_parity(call, [np.empty(rows, np.float32)], f"cross_entropy [{rows}, {width}]")
        assert_same_bits(loss, cross_entropy(x, targets), f"cross_entropy [{rows}, {width}] and N4")


@pytest.mark.parametrize("rows", ROWS)
def test_the_gradient_has_the_bits_of_its_equation_on_every_target(rows: int) -> None:
    for width in LENGTHS:
        x, targets, g = awkward(rows, width), targets_of(rows, width), normal(rows, seed=1)

        def call(
            isa: str, threads: int, outputs: list[Array], inputs: tuple[Array, ...] = (x, targets, g)
        ) -> None:
            run_kernel("cross_entropy_grad", [*outputs, *inputs], 1, ints=[IGNORE], isa=isa, threads=threads)

        context = f"cross_entropy_grad [{rows}, {width}]"
        (dx,) = assert_parity(call, [np.empty((rows, width), np.float32)], context)
        assert_same_bits(dx, cross_entropy_grad(x, targets, g), f"{context} and N4")


def test_rows_apart_give_the_same_bits_and_what_lies_between_is_untouched() -> None:
    x, targets, g = awkward(33, 65), targets_of(33, 65), normal(33, seed=1)
    for isa in isas():
        for threads in THREADS:
            dx = spaced(np.zeros_like(x))
            operands = [dx, spaced(x), targets, spaced(g[:, None])[:, 0]]
            run_kernel("cross_entropy_grad", operands, 1, ints=[IGNORE], isa=isa, threads=threads)
            assert_same_bits(dx, cross_entropy_grad(x, targets, g), f"{isa} threads={threads}")
            assert dx.base is not None
            assert (dx.base[:, 65:] == 777).all()
            loss = np.empty(33, np.float32)
            run_kernel(
                "cross_entropy", [loss, spaced(x), targets], 1, ints=[IGNORE], isa=isa, threads=threads
            )
            assert_same_bits(loss, cross_entropy(x, targets), f"{isa} threads={threads}")


def test_the_gradient_may_overwrite_the_logits() -> None:
    x, targets, g = awkward(40, 96), targets_of(40, 96), normal(40, seed=1)
    for isa in isas():
        dx = x.copy()
        run_kernel("cross_entropy_grad", [dx, dx, targets, g], 1, ints=[IGNORE], isa=isa, threads=2)
        assert_same_bits(dx, cross_entropy_grad(x, targets, g), isa)


@pytest.mark.parametrize("isa", isas())
def test_ignored_rows_give_plus_zero_whatever_they_hold(isa: str) -> None:
    x, g = np.full((4, 40), np.nan, np.float32), np.full(4, np.nan, np.float32)
    targets = np.full(4, 3, np.int32)
    loss, dx = np.ones(4, np.float32), np.ones((4, 40), np.float32)
    run_kernel("cross_entropy", [loss, x, targets], 1, ints=[3], isa=isa)
    run_kernel("cross_entropy_grad", [dx, x, targets, g], 1, ints=[3], isa=isa)
    assert_same_bits(loss, np.zeros(4, np.float32))
    assert_same_bits(dx, np.zeros((4, 40), np.float32))


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("bad", [-1, 40, IGNORE + 1, 2**31 - 1, -(2**31)])
def test_a_target_outside_the_logits_is_an_error_and_nothing_is_written(
    bad: int, isa: str, threads: int
) -> None:
    x, g = normal(9, 40), normal(9)
    targets = np.array([0, IGNORE, 39, 5, bad, 41, 1, 2, 3], np.int32)
    loss, dx = Guarded((9,)), Guarded((9, 40))
    before = loss.memory.copy(), dx.memory.copy()
    with pytest.raises(IndexRangeError, match=f"{bad}.*40"):
        run_kernel("cross_entropy", [loss.array, x, targets], 1, ints=[IGNORE], isa=isa, threads=threads)
    with pytest.raises(IndexRangeError, match=f"{bad}.*40"):
        run_kernel(
            "cross_entropy_grad", [dx.array, x, targets, g], 1, ints=[IGNORE], isa=isa, threads=threads
        )
    assert (loss.memory == before[0]).all()
    assert (dx.memory == before[1]).all()


@pytest.mark.parametrize(
    ("targets", "count"), [([], 1), ([7, 7], 1), ([1], 1), ([1, 7, 2, 0], 3), ([0] * 70, 70)]
)
def test_count_valid_counts_the_targets_that_are_not_ignored_and_at_least_one(
    targets: list[int], count: int
) -> None:
    def call(isa: str, threads: int, outputs: list[Array]) -> None:
        run_kernel(
            "count_valid", [*outputs, np.array(targets, np.int32)], 1, ints=[7], isa=isa, threads=threads
        )

    (out,) = assert_parity(call, [np.empty((), np.float32)], "count_valid")
    assert out == count


@pytest.mark.parametrize("width", [1, 5, 96, 1000])
@pytest.mark.parametrize("isa", isas())
def test_loss_and_gradient_are_within_their_roundings_of_the_true_value(isa: str, width: int) -> None:
    """As log-softmax (absolute) and softmax (relative to g); see test_softmax.py."""
    x, targets, g = normal(64, width, scale=4.0), targets_of(64, width), normal(64, seed=1)
    loss, dx = np.empty(64, np.float32), np.empty_like(x)
    run_kernel("cross_entropy", [loss, x, targets], 1, ints=[IGNORE], isa=isa)
    run_kernel("cross_entropy_grad", [dx, x, targets, g], 1, ints=[IGNORE], isa=isa)
    wide_x, wide_g = x.astype(np.float64), g.astype(np.float64)
    reach = x.max() - x.min()
    bound = ULP * (3 * (reach + 4) + 6 * np.log(width) + width / 32 + 8)
    assert (np.abs(loss - reference.cross_entropy(wide_x, targets, ignore_index=IGNORE)) <= bound).all()
    true = reference.cross_entropy_grad(wide_x, targets, wide_g, ignore_index=IGNORE)
    assert (np.abs(dx - true) <= bound * np.abs(wide_g[:, None])).all()
