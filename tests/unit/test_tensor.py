"""The array: conversions both ways, operators, indexing, and clear errors for what it cannot do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.ops.parity import assert_same_bits

import volta as vt
from volta.dtypes import bfloat16, bfloat16_from_float32, float32, float32_from_bfloat16, int32
from volta.errors import DTypeError, ShapeError, UsageError
from volta.tensor import Tensor, as_dtype, from_storage

Array = npt.NDArray[Any]


def numbers(*shape: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# --- into a tensor -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floating_point_becomes_f32(dtype: npt.DTypeLike) -> None:
    values = np.array([[1.5, -0.0], [np.inf, np.nan]], dtype)
    x = vt.asarray(values)
    assert (x.shape, x.dtype, x.ndim, x.size) == ((2, 2), float32, 2, 4)
    assert_same_bits(x.numpy(), values.astype(np.float32))


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int32, np.int64, np.uint64, np.bool_])
def test_integers_and_booleans_become_i32(dtype: npt.DTypeLike) -> None:
    x = vt.asarray(np.array([0, 1, 1], dtype))
    assert x.dtype is int32
    assert x.numpy().tolist() == [0, 1, 1]
    assert x.numpy().dtype == np.int32


def test_python_numbers_lists_and_empty_lists_are_arrays() -> None:
    assert (vt.asarray(2).dtype, vt.asarray(2).shape) == (int32, ())
    assert (vt.asarray(2.5).dtype, vt.asarray(True).dtype) == (float32, int32)
    assert vt.asarray([[1, 2], [3, 4]]).numpy().tolist() == [[1, 2], [3, 4]]
    assert (vt.asarray([]).shape, vt.asarray([]).dtype) == ((0,), float32)


def test_a_dtype_can_be_asked_for_by_object_and_by_name() -> None:
    assert vt.asarray([1, 2], "f32").dtype is float32
    assert vt.asarray([1, 2], vt.float32).numpy().tolist() == [1.0, 2.0]
    assert vt.asarray([1.0], "bf16").dtype is bfloat16
    assert vt.asarray(np.array([1, 2], np.uint8), "i32").dtype is int32
    assert as_dtype("i32") is as_dtype(int32) is int32


def test_values_are_copied_in_row_major_order() -> None:
    values = numbers(3, 4)
    x, turned = vt.asarray(values), vt.asarray(values.T)
    values[:] = 0
    assert x.numpy().any()
    assert turned.storage().flags.c_contiguous
    assert_same_bits(turned.numpy(), np.ascontiguousarray(x.numpy().T))


def test_what_numpy_gives_back_is_a_copy() -> None:
    x = vt.asarray([1.0, 2.0])
    x.numpy()[0] = 9
    assert x.numpy().tolist() == [1.0, 2.0]


def test_a_tensor_is_itself_or_cast() -> None:
    x = vt.asarray([1.0])
    assert vt.asarray(x) is x
    assert vt.asarray(x, "f32") is x
    assert vt.asarray(x, "bf16").dtype is bfloat16


def test_double_precision_beyond_f32_becomes_infinite_without_a_warning() -> None:
    assert vt.asarray([1e300, -1e300]).numpy().tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize(
    ("values", "dtype", "message"),
    [
        (np.array([1j]), None, r"\[asarray\] values are complex128: expected floating point or integers"),
        (["a"], None, r"\[asarray\] values are <U1: expected floating point or integers"),
        ([None], None, r"\[asarray\] values are object"),
        (np.array([], object), None, r"\[asarray\] the values are not an array of numbers"),
        ([2**31], None, r"\[asarray\] integers reach 2147483648: expected values that i32 holds"),
        ([-(2**31) - 1], None, r"\[asarray\] integers reach"),
        (np.array([2**64 - 1], np.uint64), None, r"\[asarray\] integers reach 18446744073709551615"),
        ([1.5], "i32", r"\[asarray\] values are float64, dtype is i32: expected integers"),
        ([1.5], "f64", r"\[dtype\] given 'f64': expected one of f32, bf16, i32"),
    ],
)
def test_what_no_dtype_holds_is_refused(values: Any, dtype: str | None, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        vt.asarray(values, dtype)


# --- bfloat16 ----------------------------------------------------------------------------------------


def test_bf16_keeps_what_it_can_hold_and_rounds_to_even() -> None:
    exact = np.array([1.0, -2.5, 0.0, -0.0, np.inf, -np.inf, 2.0**-133, 256.0], np.float32)
    assert_same_bits(vt.asarray(exact, "bf16").numpy(), exact)
    ties = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, 3.4e38], np.float32)
    rounded = vt.asarray(ties, "bf16").numpy()
    assert rounded.tolist() == [1.0, 1 + 2.0**-6, 1 + 2.0**-7, np.inf]
    assert np.isnan(vt.asarray([np.nan], "bf16").numpy()).all()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(0, 2**16 - 1))
def test_every_bf16_survives_the_way_to_f32_and_back(pattern: int) -> None:
    value = float32_from_bfloat16(np.array([pattern], np.uint16))
    back = bfloat16_from_float32(value)
    assert back[0] == pattern or (np.isnan(value[0]) and np.isnan(float32_from_bfloat16(back)[0]))


def test_casting_in_a_program_rounds_as_casting_on_the_way_in() -> None:
    values = numbers(40)
    half = vt.asarray(values).astype("bf16")
    assert half.dtype is vt.bfloat16
    assert_same_bits(half.storage(), vt.asarray(values, "bf16").storage())
    assert_same_bits(half.astype(vt.float32).numpy(), half.numpy())
    assert half.astype("bf16") is half


def test_bf16_is_for_storage_arithmetic_is_f32() -> None:
    with pytest.raises(DTypeError, match=r"\[add\] a is bf16: expected f32"):
        vt.asarray([1.0], "bf16") + 1


# --- out of a tensor ---------------------------------------------------------------------------------


def test_one_element_becomes_a_python_number() -> None:
    assert (vt.asarray(2.5).item(), vt.asarray([[7]]).item()) == (2.5, 7)
    assert isinstance(vt.asarray([[7]]).item(), int)
    assert (float(vt.asarray(1)), int(vt.asarray(2.9)), bool(vt.asarray(0.0))) == (1.0, 2, False)
    with pytest.raises(UsageError, match=r"\[item\] the tensor has shape \(2,\): expected one element"):
        vt.asarray([1, 2]).item()
    with pytest.raises(UsageError, match=r"\[item\]"):
        bool(vt.asarray([1, 2]))


def test_numpy_reads_a_tensor_as_an_array() -> None:
    x = vt.asarray([[1.0, 2.0]])
    assert np.asarray(x).tolist() == [[1.0, 2.0]]
    assert np.asarray(x, np.float64).dtype == np.float64
    assert np.concatenate([x, x]).shape == (2, 2)  # type: ignore[list-item]


def test_a_tensor_prints_its_values_and_its_type() -> None:
    assert repr(vt.asarray([1.0, 2.5])) == "Tensor([1.  2.5], f32[2])"
    assert "..." in repr(vt.zeros((100,)))
    seen: list[str] = []
    vt.compile(lambda x: (seen.append(repr(x)), x + 1)[1])(vt.asarray([1.0, 2.0]))
    assert seen == ["Tensor(traced, f32[2])"]


def test_len_and_iteration_are_along_the_first_axis() -> None:
    x = vt.asarray(numbers(3, 2))
    assert len(x) == 3
    assert [row.shape for row in x] == [(2,)] * 3
    assert_same_bits(np.stack([row.numpy() for row in x]), x.numpy())
    first, second = vt.asarray([1.0, 2.0])
    assert (first.item(), second.item()) == (1.0, 2.0)
    for call in (len, list):
        with pytest.raises(TypeError, match="0-d tensor"):
            call(vt.asarray(1.0))  # type: ignore[operator]


# --- operators ---------------------------------------------------------------------------------------

OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}


@pytest.mark.parametrize("sign", OPERATORS)
def test_operators_give_the_bits_of_numpys(sign: str) -> None:
    """All four are correctly rounded, so NumPy in float32 is the truth."""
    run = OPERATORS[sign]
    a, b = numbers(3, 4), numbers(4, seed=1)
    x, y = vt.asarray(a), vt.asarray(b)
    assert_same_bits(run(x, y).numpy(), run(a, b))
    assert_same_bits(run(x, 2).numpy(), run(a, np.float32(2)))
    assert_same_bits(run(0.1, x).numpy(), run(np.float32(0.1), a))


@pytest.mark.parametrize("sign", OPERATORS)
def test_numpy_scalars_and_arrays_mix_with_tensors(sign: str) -> None:
    run = OPERATORS[sign]
    a, b = numbers(2, 3), numbers(2, 3, seed=1)
    x = vt.asarray(a)
    for left, right, expected in (
        (x, b, run(a, b)),
        (b, x, run(b, a)),
        (np.float32(3), x, run(np.float32(3), a)),
        (x, np.int64(3), run(a, np.float32(3))),
    ):
        result = run(left, right)
        assert isinstance(result, Tensor)
        assert_same_bits(result.numpy(), expected)


def test_unary_operators_and_powers() -> None:
    a = numbers(5)
    x = vt.asarray(a)
    assert_same_bits((-x).numpy(), -a)
    assert_same_bits(abs(x).numpy(), np.abs(a))
    assert_same_bits((x**3).numpy(), a * a * a)
    assert x**1 is x
    for exponent in (0, -1, 0.5, 65):
        with pytest.raises(UsageError, match=rf"\[power\] exponent is {exponent}: expected a whole number"):
            x**exponent  # type: ignore[operator]


def test_matmul_and_transpose() -> None:
    a, b = vt.asarray([[1.0, 2.0], [3.0, 4.0]]), vt.asarray([[0.0, 1.0], [1.0, 0.0]])
    assert (a @ b).numpy().tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert (a.T @ b).numpy().tolist() == [[3.0, 1.0], [4.0, 2.0]]


@pytest.mark.parametrize("value", [None, "1", 1j, object(), [None]])
def test_what_is_no_number_is_refused_beside_a_tensor(value: Any) -> None:
    x = vt.asarray([1.0])
    with pytest.raises(DTypeError, match=r"\[mul\] given .*: expected Tensors and numbers"):
        x * value
    with pytest.raises(DTypeError, match=r"\[mul\] given"):
        vt.compile(lambda x: x * value)(x)


def test_a_number_beyond_f32_is_infinite_without_a_warning() -> None:
    assert (vt.asarray([1.0]) * 1e300).numpy().tolist() == [np.inf]


def test_methods_are_the_functions() -> None:
    a = numbers(2, 3, 4)
    x = vt.asarray(a)
    assert x.reshape(6, 4).shape == x.reshape((6, 4)).shape == (6, 4)
    assert x.reshape(-1).shape == (24,)
    assert x.transpose().shape == x.T.shape == (4, 3, 2)
    assert x.transpose(0, 2, 1).shape == (2, 4, 3)
    assert x.sum().shape == ()
    assert_same_bits(x.sum(1).numpy(), vt.sum(x, 1).numpy())
    assert_same_bits(x.mean((0, 2), True).numpy(), vt.mean(x, (0, 2), True).numpy())
    assert_same_bits(x.max(axis=-1).numpy(), a.max(-1))
    assert np.array_equal(x.argmax().numpy(), a.argmax(-1))


# --- indexing ----------------------------------------------------------------------------------------


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """What NumPy calls basic indexing, steps forward."""
    count = draw(st.integers(0, len(shape)))
    dots = draw(st.integers(0, count)) if draw(st.booleans()) else None
    where = [*range(count)] if dots is None else [*range(dots), *range(len(shape) - count + dots, len(shape))]
    parts: list[Any] = []
    for axis in where:
        size = shape[axis]
        if draw(st.booleans()):
            parts.append(draw(st.integers(-size, size - 1)))
        else:
            limit = st.none() | st.integers(-size - 2, size + 2)
            parts.append(slice(draw(limit), draw(limit), draw(st.sampled_from((None, 1, 2, 3)))))
    if dots is not None:
        parts.insert(dots, ...)
    return parts[0] if len(parts) == 1 and draw(st.booleans()) else tuple(parts)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data())
def test_indexing_gives_what_numpy_gives(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), max_size=3)))
    values = numbers(*shape)
    index = data.draw(indices(shape))
    assert_same_bits(
        vt.asarray(values)[index].numpy(), np.ascontiguousarray(values[index]).reshape(values[index].shape)
    )


def test_indexing_by_numpy_integers_and_of_other_dtypes() -> None:
    x = vt.asarray(np.arange(12).reshape(3, 4))
    assert x[np.int64(1), np.int32(-1)].item() == 7
    assert vt.asarray([1.0, 2.0, 3.0], "bf16")[1:].numpy().tolist() == [2.0, 3.0]


@pytest.mark.parametrize(
    ("index", "error", "message"),
    [
        (3, ShapeError, r"\[index\] 3 is outside an axis of length 3"),
        (-4, ShapeError, r"\[index\] -4 is outside an axis of length 3"),
        ((0, 0, 0), ShapeError, r"\[index\] 3 indices were given for shape \(3, 4\)"),
        ((..., ...), ShapeError, r"\[index\] 2 indices were given"),
        (slice(None, None, -1), UsageError, r"\[index\] the slice step is -1: expected 1 or more"),
        (None, UsageError, r"\[index\] given None: expected integers, slices or \.\.\."),
        (True, UsageError, r"\[index\] given True"),
        ([0, 1], UsageError, r"\[index\] given \[0, 1\]"),
        (1.0, UsageError, r"\[index\] given 1\.0"),
    ],
)
def test_other_indices_are_refused(index: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        vt.zeros((3, 4))[index]


# --- what has no values ------------------------------------------------------------------------------


def test_a_donated_tensor_says_so() -> None:
    x = vt.asarray([1.0, 2.0])
    vt.compile(lambda x: (x + 1,), donate=(0,))(x)
    assert repr(x) == "Tensor(donated, f32[2])"
    assert (x.shape, x.dtype) == ((2,), float32)
    for use in (x.numpy, x.item, lambda: x + 1, lambda: np.asarray(x), lambda: vt.compile(lambda y: y)(x)):
        with pytest.raises(
            UsageError, match=r"donated to a compiled function: its memory is reused|\[item\]"
        ):
            use()  # type: ignore[operator]


def test_a_traced_tensor_says_so() -> None:
    def asks(x: Tensor) -> Tensor:
        assert x.is_traced
        return x if x.sum() else -x

    def reads(x: Tensor) -> Tensor:
        return x * float(x.sum())

    message = r"\[tensor\] a traced f32\[\] has no values yet: they exist when the function runs"
    for function in (asks, reads):
        with pytest.raises(UsageError, match=message):
            vt.compile(function)(vt.asarray([1.0]))


def test_storage_is_the_array_itself() -> None:
    array = np.array([1.0, 2.0], np.float32)
    x = from_storage(array, float32)
    assert x.storage() is array
    assert not x.is_traced
    assert x.type.nbytes == 8
