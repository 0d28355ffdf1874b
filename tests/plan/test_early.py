"""What depends on persistent inputs and literals alone is made once, when memory is bound."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.parity import assert_same_bits, isas

import volta as vt
from volta import functions as F
from volta.errors import UsageError
from volta.plan.steps import Memory, Plan
from volta.runtime.policy import runtime


def weights(k: int, n: int, seed: int = 0) -> vt.Tensor:
    return vt.asarray(np.random.default_rng(seed).standard_normal((k, n), dtype=np.float32))


def kernels(plan: Plan) -> tuple[list[str], list[str]]:
    """Of the early steps, and of the others."""
    names = [step.kernel for step in plan.steps]
    return names[: plan.early], names[plan.early :]


def linear(x: vt.Tensor, w: vt.Tensor) -> vt.Tensor:
    return vt.gelu(vt.matmul(x, w))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_packed_weights_give_the_bits_of_plain_ones(isa: str, rows: int) -> None:
    """f32 and bf16, by rows and turned: whatever is packed, and whatever is streamed as it is."""
    x, w = weights(rows, 70, 1), weights(70, 90, 2)
    products = {
        "rows": lambda x, w: linear(x, w),
        "turned": lambda x, w: linear(x, vt.transpose(vt.reshape(w, (90, 70)))),
        "bf16": lambda x, w: linear(vt.astype(x, "bf16"), vt.astype(w, "bf16")),
        "weights alone": lambda x, w: linear(x, vt.astype(w, "bf16")),
    }
    for name, product in products.items():
        with runtime(isa=isa, threads=2):
            compiled = vt.compile(product)
            plain = compiled(x, w).numpy()
            call = compiled.bind(x, w, persistent=(1,))
            for _ in range(2):
                call.results[...] = np.nan
                call.run()
                assert_same_bits(call.results, plain, f"{name} {isa}")


def test_weights_that_are_rounded_or_packed_are_so_once() -> None:
    call = vt.compile(lambda x, w: linear(vt.astype(x, "bf16"), vt.astype(w, "bf16"))).bind(
        weights(8, 64), weights(64, 32), persistent=(1,)
    )
    plan = call.executable.plan
    early, late = kernels(plan)
    assert early[0] == "copy"
    assert late == ["copy", "matmul"]
    if isas()[-1] != "ref":
        assert early == ["copy", "pack_weights"]
    kept = [buffer for buffer in plan.buffers if buffer.memory is Memory.PERSISTENT]
    assert plan.bytes_by_memory()["persistent"] == sum(buffer.nbytes for buffer in kept) > 0


def test_refresh_sees_what_was_written() -> None:
    x, w = weights(5, 64, 1), weights(64, 33, 2)
    call = vt.compile(lambda x, w: vt.matmul(x, vt.scale(w, 2.0))).bind(x, w, persistent=(1,))
    call.run()
    assert_same_bits(call.results, vt.matmul(x, vt.scale(w, 2.0)).numpy())
    call.arguments[1][...] = 1.0
    call.refresh()
    call.run()
    ones = vt.ones((64, 33))
    assert_same_bits(call.results, vt.matmul(x, vt.scale(ones, 2.0)).numpy())


def test_what_a_function_closes_over_is_used_once_without_being_asked() -> None:
    """Tensors from outside never change, so what is made of them alone is made when memory is bound."""
    outside, x = weights(8, 40, 1), weights(8, 40, 2)

    product = vt.compile(lambda x: vt.matmul(x, vt.transpose(outside)))
    call = product.bind(x)
    if isas()[-1] != "ref":
        assert kernels(call.executable.plan)[0] == ["pack_weights"]
    call.run()
    assert_same_bits(call.results, vt.matmul(x, vt.transpose(outside)).numpy())


def test_outputs_and_checks_belong_to_every_run() -> None:
    """A result that depends on literals alone is written again by every run; a check stops every run."""
    call = vt.compile(lambda x: (F.exp(F.linear_range(8)), x + 1.0)).bind(vt.ones((8,)), persistent=(0,))
    for _ in range(2):
        for result in call.results:
            result[...] = np.nan
        call.run()
        assert_same_bits(call.results[0], F.exp(F.linear_range(8)).numpy())
        assert_same_bits(call.results[1], np.full(8, 2, np.float32))
    checked = vt.compile(lambda x: vt.softmax(vt.check_finite(x, ("x",)))).bind(
        vt.ones((8,)), persistent=(0,)
    )
    checked.arguments[0][3] = np.nan
    with pytest.raises(vt.NotFiniteError, match="NaN"):
        checked.run()


@pytest.mark.parametrize("persistent", [(2,), (-1,), (0,)])
def test_persistent_must_be_arguments_that_are_kept(persistent: tuple[int, ...]) -> None:
    step = vt.compile(lambda state, x: (state + x, x), donate=(0,))
    with pytest.raises(
        UsageError, match=r"persistent has .*: expected a position of 2 arguments that is not"
    ):
        step.bind(vt.ones((4,)), vt.ones((4,)), persistent=persistent)


def test_plans_that_differ_in_what_persists_have_their_own_fingerprints() -> None:
    compiled = vt.compile(linear)
    x, w = weights(8, 16), weights(16, 8)
    prints = {
        compiled.bind(x, w, persistent=positions).executable.plan.fingerprint
        for positions in ((), (0,), (1,), (0, 1))
    }
    assert len(prints) == 4
