"""Clause N5: attention and its gradient are the same bits on every target, in every split of the work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.ops.heads import (
    Problem,
    backward,
    contract_backward,
    contract_forward,
    exact_forward,
    forward,
    gradients_of,
    outputs_of,
    packed_views,
    random_problem,
    run_backward,
    run_forward,
)
from tests.ops.parity import CANARY, Array, assert_parity, assert_same_bits, isas
from tests.ops.rows import Floats

from volta.backends.cpu.native import NativeProgram, Step, _view, workspace_bytes
from volta.errors import IndexRangeError

# one, two, every remainder of the rows of both tiles (6, 8), more than a block of rows (60, 64)
QUERIES = (1, 2, 11, 12, 13, 14, 15, 16, 17, 33, 64, 70)
WIDTHS = (8, 16, 20, 32, 64, 80)  # a masked, a whole and several vectors, with and without a tail
GROUPS = ((2, 2), (4, 2), (4, 1))  # query heads, key heads


def assert_all_targets_agree(problem: Problem) -> tuple[list[Array], list[Array]]:
    """Forward and backward of every target and thread count; what the reference wrote."""
    outputs = assert_parity(
        lambda isa, threads, out: run_forward(problem, isa, threads, out),
        outputs_of(problem),
        f"o of {problem}",
    )
    o, stats = outputs
    gradients = assert_parity(
        lambda isa, threads, out: run_backward(problem, o, stats, isa, threads, out),
        gradients_of(problem),
        f"gradients of {problem}",
    )
    return outputs, gradients


@pytest.mark.parametrize("heads", GROUPS)
@pytest.mark.parametrize("queries", QUERIES)
def test_every_target_and_thread_count_gives_the_same_bits(queries: int, heads: tuple[int, int]) -> None:
    for width in WIDTHS:
        assert_all_targets_agree(random_problem(1, *heads, queries, queries, width, seed=width))


@pytest.mark.parametrize(
    "problem",
    [
        random_problem(3, 4, 2, 5, 40, 16, position=(0, 7, 35)),
        random_problem(2, 2, 1, 33, 150, 24, position=(117, 3)),
        random_problem(2, 4, 2, 9, 70, 32, causal=False),
        random_problem(1, 1, 1, 200, 300, 20, position=(99,)),
        random_problem(1, 2, 1, 130, 1100, 8, position=(970,)),
        random_problem(1, 1, 1, 17, 2000, 16, position=(1500,)),
        random_problem(1, 8, 1, 1, 513, 32, position=(512,)),
        random_problem(1, 3, 3, 1, 129, 128, position=(100,)),
        random_problem(1, 12, 2, 11, 11, 7),
        random_problem(1, 3, 1, 4, 6, 1, position=(2,)),
    ],
    ids=str,
)
def test_positions_capacities_and_blocks_of_keys_give_the_same_bits(problem: Problem) -> None:
    assert_all_targets_agree(problem)


@pytest.mark.parametrize("queries", [7, 64, 70])
def test_views_of_one_projection_give_the_bits_of_contiguous_operands(queries: int) -> None:
    problem = random_problem(2, 3, 3, queries, queries, 20)
    contiguous, views = assert_all_targets_agree(problem), assert_all_targets_agree(packed_views(problem))
    for expected, actual in zip((*contiguous[0], *contiguous[1]), (*views[0], *views[1]), strict=True):
        assert_same_bits(actual, expected, str(problem))


@pytest.mark.parametrize("isa", isas())
def test_strided_outputs_are_written_in_their_rows_only(isa: str) -> None:
    """o and the gradients as parts of larger tensors: the floats between the rows stay as they are."""
    problem = random_problem(2, 4, 2, 17, 19, 20, position=(1, 2))
    expected = [*forward(problem, isa), *backward(problem, isa)]
    memories = [np.full((*x.shape[:3], x.shape[3] + 3), 777, np.float32) for x in expected]
    o, stats, *gradients = (memory[..., :-3] for memory in memories)
    run_forward(problem, isa, 3, [o, stats])
    run_backward(problem, o, stats, isa, 3, gradients)
    for memory, values in zip(memories, expected, strict=True):
        assert_same_bits(memory[..., :-3], values, f"{isa} strided")
        assert (memory[..., -3:] == 777).all()


@pytest.mark.parametrize(
    "problem",
    [
        random_problem(1, 2, 1, 3, 5, 4, position=(2,)),
        random_problem(2, 4, 2, 5, 40, 6, position=(30, 1)),
        random_problem(1, 2, 2, 4, 7, 40, causal=False),
    ],
    ids=str,
)
def test_the_reference_is_the_contract(problem: Problem) -> None:
    """N1, N2, N4 and N5 in NumPy with a software fma give the reference's bits."""
    o, stats = forward(problem)
    for actual, expected in zip((o, stats), contract_forward(problem), strict=True):
        assert_same_bits(actual, expected, f"forward of {problem}")
    for actual, expected in zip(backward(problem), contract_backward(problem, o, stats), strict=True):
        assert_same_bits(actual, expected, f"gradient of {problem}")


# --- special values ---------------------------------------------------------------------------------
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-42, 3e38])
def test_special_values_give_the_same_bits(special: float) -> None:
    """Zeros of both signs, subnormals, infinities and NaN among the operands."""
    problem = random_problem(1, 4, 2, 19, 23, 20, position=(3,))
    random = np.random.default_rng(1)
    for x in (problem.q, problem.k, problem.v, problem.g):
        x[random.random(x.shape) < 0.01] = special
    problem.v[:, :, 5] = special
    problem.k[:, :, 7] = -0.0
    assert_all_targets_agree(problem)


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_invisible_keys_have_no_effect(isa: str, poison: float) -> None:
    """Rows of k and v behind position + t + 1 may hold anything: no bit of row t depends on them."""
    problem = random_problem(2, 4, 2, 20, 50, 20, position=(0, 13))
    o, stats = forward(problem, isa)
    dq, _, _ = backward(problem, isa)
    for first in (1, 8, 9, 19, 20):
        k, v = problem.k.copy(), problem.v.copy()
        for b, position in enumerate(problem.position):
            k[b, :, position + first :] = poison
            v[b, :, position + first :] = poison
        poisoned = replace(problem, k=k, v=v)
        for actual, expected in zip(
            (*forward(poisoned, isa), backward(poisoned, isa)[0]), (o, stats, dq), strict=True
        ):
            assert_same_bits(actual[:, :, :first], expected[:, :, :first], f"{isa} from key {first}")


@pytest.mark.parametrize("isa", isas())
def test_invisible_queries_have_no_effect_on_keys(isa: str) -> None:
    """dk and dv of key j do not depend on the gradient of any query before j."""
    problem = random_problem(1, 4, 2, 33, 40, 20, position=(2,))
    _, dk, dv = backward(problem, isa)
    for last in (1, 7, 8, 32):
        g = problem.g.copy()
        g[:, :, :last] = np.nan
        _, dk_poisoned, dv_poisoned = backward(replace(problem, g=g), isa)
        assert_same_bits(dk_poisoned[:, :, last + 2 :], dk[:, :, last + 2 :], f"{isa} dk until query {last}")
        assert_same_bits(dv_poisoned[:, :, last + 2 :], dv[:, :, last + 2 :], f"{isa} dv until query {last}")


@pytest.mark.parametrize("isa", isas())
def test_keys_that_no_query_sees_get_positive_zero(isa: str) -> None:
    problem = random_problem(2, 2, 1, 5, 100, 20, position=(0, 60))
    for threads in (1, 3, 7):
        _, dk, dv = backward(problem, isa, threads)
        for gradient in (dk, dv):
            for b, position in enumerate(problem.position):
                unseen = gradient[b, :, position + 5 :]
                assert_same_bits(unseen, np.zeros_like(unseen), isa)


# --- one answer, however the work comes ---------------------------------------------------------------
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("chunks", [(70,), (13, 1, 16, 40), (1,) * 70])
def test_prefill_in_chunks_and_decode_give_the_bits_of_one_prefill(isa: str, chunks: tuple[int, ...]) -> None:
    """The cache has room for 200 keys; the rest of it is NaN."""
    whole = random_problem(1, 4, 2, 70, 70, 20)
    expected = forward(whole, isa)
    k, v = (np.full((1, 2, 200, 20), np.nan, np.float32) for _ in range(2))
    start = 0
    for size in chunks:
        stop = start + size
        k[:, :, start:stop], v[:, :, start:stop] = whole.k[:, :, start:stop], whole.v[:, :, start:stop]
        q, position = whole.q[:, :, start:stop], np.array([start], np.int32)
        part = forward(Problem(q, k, v, q, position), isa, threads=2)
        for actual, values in zip(part, expected, strict=True):
            assert_same_bits(actual, values[:, :, start:stop], f"{isa} queries {start} to {stop}")
        start = stop


@pytest.mark.parametrize("isa", isas())
def test_a_row_alone_gives_the_bits_it_gives_in_a_batch(isa: str) -> None:
    problem = random_problem(5, 4, 2, 9, 60, 32, position=(0, 51, 20, 7, 33))
    together = [*forward(problem, isa, 3), *backward(problem, isa, 3)]
    for b in range(5):
        rows = (x[b : b + 1] for x in (problem.q, problem.k, problem.v, problem.g, problem.position))
        alone = Problem(*rows)
        for actual, expected in zip((*forward(alone, isa), *backward(alone, isa)), together, strict=True):
            assert_same_bits(actual, expected[b : b + 1], f"{isa} row {b}")


# --- accuracy -------------------------------------------------------------------------------------------
def doubles(*arrays: Floats) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    return [x.astype(np.float64) for x in arrays]


@pytest.mark.parametrize("causal", [True, False])
def test_forward_is_close_to_float64(causal: bool) -> None:
    """Each of up to 100 weighted sums loses a few roundings of 2^-24."""
    problem = random_problem(2, 4, 2, 50, 100, 64, causal=causal, position=(0, 50))
    o, _ = forward(problem)
    expected = exact_forward(*doubles(problem.q, problem.k, problem.v), problem)
    assert np.abs(o - expected).max() < 64 * 2.0**-24


@pytest.mark.parametrize("causal", [True, False])
def test_gradients_are_the_slopes_of_the_float64_forward(causal: bool) -> None:
    """Central differences of sum(g * o) in every element of q, k and v."""
    problem = random_problem(2, 4, 2, 3, 6, 5, causal=causal, position=(3, 1))
    arguments = doubles(problem.q, problem.k, problem.v)
    step = 1e-6
    for gradient, argument in zip(backward(problem), arguments, strict=True):
        slope = np.empty_like(argument)
        for at in np.ndindex(argument.shape):
            value = argument[at]
            ends = []
            for end in (value + step, value - step):
                argument[at] = end
                ends.append((problem.g * exact_forward(*arguments, problem)).sum())
            argument[at] = value
            slope[at] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(gradient, slope, rtol=2e-5, atol=2e-6)


# --- edges ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize(("position", "limit"), [(-1, 8), (8, 8), (2**31 - 1, 8)])
def test_a_position_outside_the_keys_is_an_index_error(isa: str, position: int, limit: int) -> None:
    """3 queries and 10 keys: positions 0 to 7."""
    problem = random_problem(2, 1, 1, 3, 10, 8, position=(7, position))
    o, stats = outputs_of(problem)
    for threads in (1, 3):
        with pytest.raises(IndexRangeError, match=f"index is {position}: expected 0 <= index < {limit}"):
            run_forward(problem, isa, threads, [o, stats])
        with pytest.raises(IndexRangeError, match=f"index is {position}: expected 0 <= index < {limit}"):
            run_backward(problem, o, stats, isa, threads, gradients_of(problem))


@pytest.mark.parametrize(
    "problem",
    [
        random_problem(0, 2, 1, 3, 4, 8),
        random_problem(2, 2, 1, 0, 4, 8),
        random_problem(2, 2, 1, 3, 0, 8, causal=False),
        random_problem(2, 2, 1, 3, 4, 0),
        random_problem(2, 0, 1, 3, 4, 8),
    ],
    ids=str,
)
def test_zero_sizes_work(problem: Problem) -> None:
    """No keys: o is +0 and stats are (-inf, inf). No queries: dk and dv are +0."""
    (o, stats), (_, dk, dv) = assert_all_targets_agree(problem)
    if problem.k.shape[2] == 0:
        assert_same_bits(o, np.zeros_like(o))
        assert (stats == np.array([-np.inf, np.inf], np.float32)).all()
    if problem.q.size == 0:
        assert_same_bits(dk, np.zeros_like(dk))
        assert_same_bits(dv, np.zeros_like(dv))


@pytest.mark.parametrize("isa", isas())
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    "problem",
    [
        random_problem(1, 4, 2, 70, 90, 20),
        random_problem(1, 1, 1, 64, 64, 32),
        random_problem(2, 4, 1, 1, 513, 33, position=(512, 0)),
        random_problem(1, 1, 1, 130, 1100, 7, position=(970,)),
    ],
    ids=str,
)
def test_the_workspace_is_large_enough_and_its_contents_do_not_matter(
    problem: Problem, threads: int, isa: str
) -> None:
    """Whole lines per thread; filled with NaN before, it changes nothing, and the canary behind it lives."""
    inputs = [problem.q, problem.k, problem.v]
    expected = [*forward(problem), *backward(problem)]
    written = [*outputs_of(problem), *gradients_of(problem)]
    for kernel, outputs, operands in (
        ("attention", written[:2], [*inputs, problem.position]),
        ("attention_grad", written[2:], [*inputs, *expected[:2], problem.g, problem.position]),
    ):
        views = [
            _view(np.ascontiguousarray(array), index) for index, array in enumerate([*outputs, *operands], 1)
        ]
        step = Step(kernel, tuple(view for view, _ in views), len(outputs), (1,), (problem.scale,))
        size = workspace_bytes(step, isa, threads)
        assert size % (64 * threads) == 0
        program = NativeProgram(
            [step], n_buffers=len(views) + 1, arena_bytes=size + 4096, isa=isa, threads=threads
        )
        program.arena()[:size] = 0xFF
        program.arena()[size:] = CANARY
        program.run_addresses([address for _, address in views])
        assert (program.arena()[size:] == CANARY).all()
    for actual, values in zip(written, expected, strict=True):
        assert_same_bits(actual, values, f"{isa} {problem}")
