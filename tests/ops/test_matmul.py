"""Clause N1: every product is `acc = +0; for k ascending: acc = fma(a[k], b[k], acc)`, in every bit,
whatever the instruction set, blocking, packing, strides, batch or threads. The epilogue is separate
operations after it."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import THREADS, Array, Guarded, assert_parity, assert_same_bits, isas

from volta.backends.cpu.native import Instruction, NativeProgram, Operand, Step, run_kernel, workspace_bytes
from volta.dtypes import float32
from volta.errors import VerifyError

Floats = npt.NDArray[np.float32]
Code = Sequence[tuple[str, int, Sequence[int], Sequence[float]]]


# --- the clause in NumPy ---------------------------------------------------------------------------


def fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c rounded once: the exact product plus c in float64, rounded to odd, then to float32.

    Round to odd keeps what float64 lost as a sticky bit, so the second rounding is the only one
    (Boldo and Melquiond, Emulation of FMA and correctly rounded sums, 2008).
    """
    with np.errstate(all="ignore"):
        product, addend = a.astype(np.float64) * b, c.astype(np.float64)
        total = product + addend
        virtual = total - product
        lost = (product - (total - virtual)) + (addend - virtual)
        pattern = total.view(np.int64)
        inexact = np.isfinite(total) & (lost != 0) & (pattern & 1 == 0)
        away = np.where((lost > 0) == (total > 0), 1, -1)
        return (pattern + np.where(inexact, away, 0)).view(np.float64).astype(np.float32)


def contract(a: Floats, b: Floats) -> Floats:
    """N1 over arrays [.., m, k] and [.., k, n]."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    acc = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        left, right = np.broadcast_arrays(a[..., :, k, None], b[..., k, None, :])
        acc = fma(left, right, np.broadcast_to(acc, left.shape))
    return acc


# --- operands --------------------------------------------------------------------------------------


def normal(*shape: int, seed: int = 0) -> Floats:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def special(*shape: int, seed: int = 0) -> Floats:
    """Normal numbers with NaN, infinities, both zeros, subnormals and the largest numbers among them."""
    x = normal(*shape, seed=seed)
    rng = np.random.default_rng([seed, 1, *shape])
    values = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-40, 3e38, -3e38, 1e-30], np.float32)
    chosen = rng.random(shape) < 0.08
    x[chosen] = rng.choice(values, int(chosen.sum()))
    return x


def spread(x: Floats, row: int = 1, column: int = 1) -> Floats:
    """The values of x in memory with `row` - 1 rows and `column` - 1 columns of gap."""
    memory = np.full((*x.shape[:-2], x.shape[-2] * row, x.shape[-1] * column), np.nan, np.float32)
    view = memory[..., ::row, ::column]
    view[...] = x
    return view


def turned(x: Floats) -> Floats:
    """The same values, stored by columns."""
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def reversed_rows(x: Floats) -> Floats:
    """The same values at a negative row stride."""
    return np.ascontiguousarray(x[..., ::-1, :])[..., ::-1, :]


def shape_of(a: Floats, b: Floats) -> tuple[int, ...]:
    return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])


def widened(x: Floats, shape: tuple[int, ...]) -> Floats:
    """x with the batch axes of `shape`: broadcast ones get stride 0."""
    return np.broadcast_to(x, (*shape[:-2], *x.shape[-2:]))


def multiply(
    out: Array, a: Floats, b: Floats, isa: str, threads: int, extras: Sequence[Floats] = (), code: Code = ()
) -> None:
    shape = out.shape
    spreads = [np.broadcast_to(extra, shape) for extra in extras]
    operands = [out, widened(a, shape), widened(b, shape), *spreads]
    run_kernel("matmul", operands, 1, ints=[1], code=code, isa=isa, threads=threads)


def product(a: Floats, b: Floats, isa: str = "ref", threads: int = 1) -> Floats:
    out = np.full(shape_of(a, b), np.nan, np.float32)
    multiply(out, a, b, isa, threads)
    return out


def assert_equal_everywhere(a: Floats, b: Floats, context: str) -> Floats:
    def run(isa: str, threads: int, outputs: list[Array]) -> None:
        outputs[0].view(np.uint32)[...] = 0x7FC0DEAD
        multiply(outputs[0], a, b, isa, threads)

    return assert_parity(run, [np.empty(shape_of(a, b), np.float32)], context)[0]


# --- the product -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "n", "k"), [(1, 1, 1), (3, 5, 7), (15, 17, 33), (7, 40, 100), (30, 33, 2)])
def test_the_reference_is_n1_also_for_special_values(m: int, n: int, k: int) -> None:
    """N1: the C reference gives the bits of the clause evaluated with exactly rounded fma."""
    for make in (normal, special):
        a, b = make(m, k, seed=1), make(k, n, seed=2)
        assert_same_bits(product(a, b), contract(a, b), f"{make.__name__} {m} {n} {k}")


def test_n1_starts_at_plus_zero() -> None:
    """N1: acc = +0, so a sum of negative zeros is +0 and an empty sum is +0."""
    for k in (0, 1, 9):
        out = assert_equal_everywhere(
            np.full((5, k), -0.0, np.float32), np.ones((k, 19), np.float32), f"k={k}"
        )
        assert_same_bits(out, np.zeros((5, 19), np.float32), f"k={k}")


TILE_SIZES = [
    (1, 7, 9), (2, 31, 8), (3, 100, 21), (4, 48, 17), (5, 16, 1), (6, 17, 15), (7, 15, 31), (8, 33, 12),
    (9, 2, 30), (10, 1, 70), (11, 47, 5), (12, 65, 3), (13, 32, 100), (14, 31, 40), (15, 96, 7),
    (27, 64, 19), (28, 18, 33), (29, 34, 16), (43, 129, 10), (1, 2100, 11), (4, 1025, 13), (64, 9, 2),
]  # fmt: skip


@pytest.mark.parametrize(("m", "n", "k"), TILE_SIZES)
def test_sizes_below_at_and_above_every_tile(m: int, n: int, k: int) -> None:
    """N1: m, n and k around the register tiles 6 x 16 and 14 x 32 do not change a bit."""
    assert_equal_everywhere(special(m, k, seed=3), special(k, n, seed=4), f"{m} {n} {k}")


BLOCK_SIZES = {
    "several K blocks": (20, 37, 1100),
    "few rows, several K steps": (3, 70, 1030),
    "several blocks of columns": (21, 4200, 9),
    "several chunks of rows": (700, 35, 20),
    "rows of B collide in cache": (340, 512, 130),
    "rows of A collide in cache": (30, 260, 1024),
    "B leaves L2": (340, 640, 640),
    "seven rows, B from memory": (7, 650, 620),
}


@pytest.mark.parametrize("name", BLOCK_SIZES)
def test_cache_blocks_do_not_change_a_bit(name: str) -> None:
    """N1: a blocked kernel continues from C."""
    m, n, k = BLOCK_SIZES[name]
    a, b = normal(m, k, seed=5), normal(k, n, seed=6)
    expected = product(a, b)
    for isa in isas()[1:]:
        for threads in (1, 2, 7):
            assert_same_bits(product(a, b, isa, threads), expected, f"{name} {isa} threads={threads}")


LAYOUTS: dict[str, Callable[[Floats], Floats]] = {
    "rows": lambda x: x,
    "turned": turned,
    "row gaps": lambda x: spread(x, row=2),
    "column gaps": lambda x: spread(x, column=3),
    "gaps": lambda x: spread(x, row=2, column=2),
    "turned gaps": lambda x: spread(x.swapaxes(-1, -2), 3, 2).swapaxes(-1, -2),
    "reversed": reversed_rows,
    "turned reversed": lambda x: reversed_rows(x.swapaxes(-1, -2)).swapaxes(-1, -2),
}


@pytest.mark.parametrize("left", LAYOUTS)
@pytest.mark.parametrize("right", LAYOUTS)
def test_strides_do_not_change_a_bit(left: str, right: str) -> None:
    """N1: not strides."""
    for m, n, k in ((37, 70, 45), (3, 20, 530)):
        a, b = normal(m, k, seed=7), normal(k, n, seed=8)
        expected = product(a, b)
        for isa in isas():
            for threads in (1, 3):
                out = product(LAYOUTS[left](a), LAYOUTS[right](b), isa, threads)
                assert_same_bits(out, expected, f"{left} {right} {isa} {threads}")


BATCHES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "one each": ((5, 20, 9), (5, 9, 33)),
    "shared B folds into rows": ((3, 4, 7, 9), (9, 33)),
    "shared A": ((20, 9), (5, 9, 33)),
    "shared B in the last batch axis": ((2, 3, 5, 9), (2, 1, 9, 33)),
    "shared B in the first batch axis": ((2, 3, 5, 9), (1, 3, 9, 33)),
    "outer product of batches": ((4, 1, 16, 9), (1, 3, 9, 18)),
    "one row each": ((6, 1, 40), (40, 33)),
    "attention": ((3, 4, 16, 8), (3, 4, 8, 16)),
    "more batches than rows": ((50, 2, 3), (50, 3, 2)),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_is_its_matrices_one_by_one(name: str) -> None:
    """N1: not the batch: broadcasting, folding and sharing give the bits of single products."""
    left, right = BATCHES[name]
    a, b = normal(*left, seed=9), normal(*right, seed=10)
    shape = shape_of(a, b)
    wide_a, wide_b = widened(a, shape), widened(b, shape)
    expected = np.empty(shape, np.float32)
    for index in np.ndindex(*shape[:-2]):
        expected[index] = product(wide_a[index], wide_b[index])
    assert_same_bits(assert_equal_everywhere(a, b, name), expected, name)
    for view in (turned, lambda x: spread(x, row=2)):
        assert_same_bits(assert_equal_everywhere(view(a), view(b), name), expected, f"{name} as a view")


def test_a_row_alone_is_the_row_in_a_batch() -> None:
    """N1: not M: streaming few rows and tiling many give the same bits."""
    a, b = normal(70, 300, seed=11), normal(300, 150, seed=12)
    for isa in isas():
        together = product(a, b, isa, 2)
        for height in (1, 2, 3, 4, 5, 8):
            assert_same_bits(product(a[:height], b, isa, 2), together[:height], f"{isa} {height} rows")
            assert_same_bits(
                product(a[:height], turned(b), isa), together[:height], f"{isa} {height} rows, turned"
            )


@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)])
def test_empty_axes(m: int, n: int, k: int) -> None:
    """N1: no element, or the empty sum, which is +0."""
    for batch in ((), (2,), (0,)):
        a, b = normal(*batch, m, k), normal(*batch, k, n)
        out = assert_equal_everywhere(a, b, f"{batch} {m} {n} {k}")
        assert_same_bits(out, np.zeros((*batch, m, n), np.float32))


def test_accuracy_is_that_of_one_rounding_per_step() -> None:
    """N1: |error| <= k u sum |a||b| / (1 - k u), u = 2^-24 (Higham, Accuracy and Stability, 3.5)."""
    k = 700
    a, b = normal(40, k, seed=13), normal(k, 50, seed=14)
    exact, scale = a.astype(np.float64) @ b, np.abs(a).astype(np.float64) @ np.abs(b)
    bound = k * 2.0**-24 / (1 - k * 2.0**-24) * scale
    for isa in isas():
        assert (np.abs(product(a, b, isa, 2) - exact) <= bound).all()


# --- what it touches -------------------------------------------------------------------------------


def test_nothing_between_or_beyond_the_rows_of_the_output_is_written() -> None:
    """N1: an output with gaps between its rows and batches keeps what lies in them."""
    for m, n, k in ((4, 7, 9), (15, 33, 40), (29, 31, 600)):
        a, b = normal(2, m, k, seed=15), normal(2, k, n, seed=16)
        for isa in isas():
            for threads in THREADS:
                outer = Guarded((2, m + 1, n + 5))
                outer.array[...] = 7.0
                multiply(outer.array[:, :m, :n], a, b, isa, threads)
                outer.check()
                assert_same_bits(outer.array[:, :m, :n].copy(), product(a, b))
                assert (outer.array[:, m:] == 7.0).all()
                assert (outer.array[:, :, n:] == 7.0).all()


@pytest.fixture
def fenced() -> list[mmap.mmap]:
    """Keeps the memory behind a test's arrays."""
    return []


def between_fences(memories: list[mmap.mmap], x: Floats, at_end: bool, pitch: int = 0) -> Floats:
    """A copy of x that ends (or starts) where a page that cannot be read begins (or ends); its rows lie
    `pitch` elements apart, and nothing comes after the last one's last element."""
    rows, columns = x.shape
    pitch = pitch or columns
    size = (rows - 1) * pitch + columns
    libc = ctypes.CDLL(None, use_errno=True)
    page = mmap.PAGESIZE
    inside = max(page, -(-size * 4 // page) * page)
    memory = mmap.mmap(-1, inside + 2 * page)
    memories.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for fence in (start, start + page + inside):
        assert libc.mprotect(ctypes.c_void_p(fence), ctypes.c_size_t(page), 0) == 0
    offset = page + (inside - size * 4 if at_end else 0)
    flat: Floats = np.frombuffer(memory, np.float32, size, offset)
    view = np.lib.stride_tricks.as_strided(flat, x.shape, (pitch * 4, 4))
    view[...] = x
    return view


@pytest.mark.parametrize("at_end", [True, False])
def test_no_byte_outside_the_operands_is_read_or_written(fenced: list[mmap.mmap], at_end: bool) -> None:
    """N1: operands that touch unreadable pages: a load or store outside would end the process."""
    for m, n, k in ((1, 5, 3), (3, 37, 11), (5, 9, 18), (15, 33, 17), (30, 47, 16), (90, 31, 33), (2, 1, 1)):
        a, b = normal(m, k, seed=17), normal(k, n, seed=18)
        expected = product(a, b)
        left = between_fences(fenced, a, at_end)
        left_turned = between_fences(fenced, np.ascontiguousarray(a.T), at_end).T
        right = between_fences(fenced, b, at_end)
        right_turned = between_fences(fenced, np.ascontiguousarray(b.T), at_end).T
        out = between_fences(fenced, expected, at_end)
        for isa in isas():
            for x in (left, left_turned):
                for y in (right, right_turned):
                    out[...] = np.nan
                    multiply(out, x, y, isa, 2)
                    assert_same_bits(out, expected, f"{isa} {m} {n} {k}")


@pytest.mark.parametrize("pitch", [513, 1024])
def test_no_byte_outside_rows_far_apart_is_read(fenced: list[mmap.mmap], pitch: int) -> None:
    """N1: copies of A and B (rows that collide in cache, or split its lines) stay within their rows."""
    for m, n, k in ((15, 300, 21), (700, 290, 135), (30, 261, 40)):
        a, b = normal(m, k, seed=24), normal(k, n, seed=25)
        expected = product(a, b)
        left, right = (between_fences(fenced, x, True, pitch) for x in (a, b))
        for isa in isas()[1:]:
            assert_same_bits(product(left, right, isa, 2), expected, f"{isa} {m} {n} {k}")


@pytest.mark.parametrize("threads", THREADS)
def test_the_workspace_is_what_was_asked_for(threads: int) -> None:
    """The arena beyond the planned workspace keeps its bytes (packed B, copies of A, epilogue tiles)."""
    margin = 4096
    for m, n, k in ((90, 70, 40), (700, 33, 600), (20, 2100, 9), (5, 40, 3)):
        a, b, bias = turned(normal(m, k)), turned(normal(k, n)), normal(m, 1)
        arrays = [np.empty((m, n), np.float32), a, b, np.broadcast_to(bias, (m, n))]
        operands = tuple(
            Operand(i, float32, 0, x.shape, tuple(stride // 4 for stride in x.strides))
            for i, x in enumerate(arrays, start=1)
        )
        code = (Instruction("add", 4, (0, 3)), Instruction("mul", 0, (4, 4)))
        step = Step("matmul", operands, 1, (1,), code=code)
        for isa in isas():
            needed = workspace_bytes(step, isa, threads)
            assert needed % 64 == 0
            program = NativeProgram(
                [step], n_buffers=5, arena_bytes=needed + margin, isa=isa, threads=threads
            )
            program.arena()[needed:] = 0xA5
            program.run_addresses([x.ctypes.data for x in arrays])
            assert (program.arena()[needed:] == 0xA5).all(), f"{isa} {m} {n} {k}"
            assert_same_bits(arrays[0], np.square(product(a, b) + bias), f"{isa} {m} {n} {k}")


# --- the epilogue ----------------------------------------------------------------------------------


def chained(inputs: Sequence[Floats], code: Code) -> Floats:
    """The same instructions as a step of their own, on the product in register 1 instead of 0 and the
    extras from 3 on, as in the matmul."""
    out = inputs[0].copy()
    registers = [np.ascontiguousarray(np.broadcast_to(x, out.shape)) for x in inputs[1:]]
    run_kernel("chain", [out, inputs[0], out.copy(), *registers], 1, code=[("copy", 0, (1,), ()), *code])
    return out


EPILOGUE: Code = [
    ("add", 6, (0, 3), ()),  # bias
    ("gelu_tanh", 7, (6,), ()),
    ("add", 6, (7, 4), ()),  # residual
    ("mul", 7, (6, 5), ()),
    ("scale", 0, (7,), (0.5,)),
]

EXTRAS: dict[str, Callable[[int, int], tuple[Floats, ...]]] = {
    "bias, residual, scalar": lambda m, n: (normal(n), normal(2, m, n), normal(1, 1)),
    "column, turned, gathered": lambda m, n: (
        normal(m, 1),
        turned(normal(2, m, n)),
        normal(2, m, 3 * n)[..., ::3],
    ),
    "batch, row gaps, reversed": lambda m, n: (
        normal(2, 1, 1),
        spread(normal(2, m, n), row=2),
        reversed_rows(normal(2, m, n)),
    ),
}


@pytest.mark.parametrize("name", EXTRAS)
@pytest.mark.parametrize(
    ("m", "n", "k"), [(3, 33, 20), (17, 1, 5), (31, 1100, 12), (20, 300, 530), (6, 9, 0)]
)
def test_an_epilogue_is_the_same_operations_one_after_the_other(name: str, m: int, n: int, k: int) -> None:
    """N1: bias, residual, scale and activation are separately rounded operations, fused or not."""
    a, b = normal(2, m, k, seed=19), normal(2, k, n, seed=20)
    extras = EXTRAS[name](m, n)
    expected = chained([product(a, b), *extras], EPILOGUE)

    def run(isa: str, threads: int, outputs: list[Array]) -> None:
        multiply(outputs[0], a, b, isa, threads, extras, EPILOGUE)

    (out,) = assert_parity(run, [np.empty(expected.shape, np.float32)], name)
    assert_same_bits(out, expected, name)


def test_an_epilogue_writes_a_second_output() -> None:
    """N1: the product and its activation leave one step, as training needs both."""
    for batch, m, n, k in (((), 29, 70, 31), ((3,), 2, 40, 520), ((2,), 15, 1500, 8)):
        a, b, bias = normal(*batch, m, k, seed=21), normal(*batch, k, n, seed=22), normal(n, seed=23)
        shape = shape_of(a, b)

        inputs = [widened(a, shape), widened(b, shape), np.broadcast_to(bias, shape)]

        def run(isa: str, threads: int, outputs: list[Array], inputs: list[Floats] = inputs) -> None:
            code: Code = [("add", 0, (0, 4), ()), ("gelu_erf", 1, (0,), ())]
            run_kernel("matmul", [*outputs, *inputs], 2, ints=[2], code=code, isa=isa, threads=threads)

        before, after = assert_parity(run, [np.empty(shape, np.float32), np.empty(shape, np.float32)])
        assert_same_bits(before, product(a, b) + bias)
        expected = np.empty_like(after)
        run_kernel("chain", [expected, before], 1, code=[("gelu_erf", 0, (1,), ())])
        assert_same_bits(after, expected)


def test_inner_dimensions_that_differ_are_refused() -> None:
    out = np.empty((3, 4), np.float32)
    for isa in isas():
        with pytest.raises(VerifyError):
            run_kernel("matmul", [out, normal(3, 5), normal(6, 4)], 1, ints=[1], isa=isa)


# --- any shape -------------------------------------------------------------------------------------


@st.composite
def products(draw: st.DrawFn) -> tuple[Floats, Floats, int]:
    m, n, k = (draw(st.integers(0, 50)) for _ in range(3))
    batch = draw(st.lists(st.integers(1, 3), max_size=2))
    factors = []
    for shape in ((m, k), (k, n)):
        own = [size if draw(st.booleans()) else 1 for size in batch]
        x = special(*own, *shape, seed=draw(st.integers(0, 9)))
        factors.append(LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](x))
    return factors[0], factors[1], draw(st.integers(1, 8))


@settings(max_examples=60, deadline=None)
@given(products())
def test_any_shape_and_stride(case: tuple[Floats, Floats, int]) -> None:
    """N1: "Nothing else: not M, N, strides, blocking, packing, tile, thread or device may change it." """
    a, b, threads = case
    expected = contract(a, b)
    for isa in isas():
        assert_same_bits(product(a, b, isa, threads), expected, f"{isa} threads={threads}")
