"""The array: immutable, NumPy-like; either concrete (it holds bytes) or traced (it is a graph value)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from volta import dtypes
from volta.dtypes import DType
from volta.errors import DTypeError, UsageError
from volta.ir.graph import Node, Shape, TensorType

if TYPE_CHECKING:
    from volta.trace import Trace

Array = npt.NDArray[Any]
Scalar = int | float
ArrayLike = Any


class Tensor:
    """A value of a shape and a dtype (f32, bf16, i32, i8).

    `numpy()` gives a concrete tensor's array (bf16 widened to float32). Operators follow NumPy:
    + - * / @ ** indexing with integers, slices and `...`. Nothing changes a tensor in place.
    """

    __slots__ = ("__weakref__", "_array", "_node", "_trace", "_type")
    __array_priority__ = 1000  # NumPy leaves mixed expressions to us

    def __init__(
        self,
        kind: TensorType,
        array: npt.NDArray[Any] | None = None,
        trace: Trace | None = None,
        node: Node | None = None,
    ) -> None:
        self._type = kind
        self._array = array
        self._trace = trace
        self._node = node

    @property
    def shape(self) -> Shape:
        return self._type.shape

    @property
    def dtype(self) -> DType:
        return self._type.dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return self._type.numel

    @property
    def type(self) -> TensorType:
        return self._type

    @property
    def is_traced(self) -> bool:
        return self._trace is not None

    @property
    def T(self) -> Tensor:  # noqa: N802 (NumPy's name)
        """The matrix transposed; axes reversed for more than two."""
        return functions.transpose(self)

    def numpy(self) -> npt.NDArray[Any]:
        """A copy as float32, int32 or int8."""
        array = self.storage()
        if self.dtype is dtypes.bfloat16:
            return np.asarray(dtypes.float32_from_bfloat16(array))  # of rank 0 too
        return array.copy()

    def storage(self) -> npt.NDArray[Any]:
        """The array itself, not to be written: bf16 as uint16 bit patterns."""
        if self._trace is not None:
            raise UsageError(
                f"[tensor] a traced {self._type} has no values yet: they exist when the function runs"
            )
        if self._array is None:
            raise UsageError(
                f"[tensor] this {self._type} was donated to a compiled function: its memory is reused"
            )
        return self._array

    def donate(self) -> npt.NDArray[Any]:
        """Gives the memory away: this tensor can't be used again."""
        array = self.storage()
        self._array = None
        return array

    def item(self) -> float | int:
        """The only element as a Python number."""
        if self.size != 1:
            raise UsageError(f"[item] the tensor has shape {self.shape}: expected one element")
        value: float | int = self.numpy().reshape(-1)[0].item()
        return value

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        return np.asarray(self.numpy(), dtype)

    def __repr__(self) -> str:
        if self._trace is not None:
            return f"Tensor(traced, {self._type})"
        if self._array is None:
            return f"Tensor(donated, {self._type})"
        return f"Tensor({np.array2string(self.numpy(), threshold=20, precision=6)}, {self._type})"

    def __eq__(self, other: object) -> bool:
        """Refused: neither identity nor an elementwise comparison would be what everyone expects."""
        raise UsageError("[tensor] == is not defined: compare .numpy() arrays, or use `is`")

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        return bool(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        """The parts along the first axis."""
        return (self[index] for index in range(len(self)))

    def __add__(self, other: Tensor | Scalar) -> Tensor:
        return functions.add(self, other)

    def __radd__(self, other: Tensor | Scalar) -> Tensor:
        return functions.add(other, self)

    def __sub__(self, other: Tensor | Scalar) -> Tensor:
        return functions.subtract(self, other)

    def __rsub__(self, other: Tensor | Scalar) -> Tensor:
        return functions.subtract(other, self)

    def __mul__(self, other: Tensor | Scalar) -> Tensor:
        return functions.multiply(self, other)

    def __rmul__(self, other: Tensor | Scalar) -> Tensor:
        return functions.multiply(other, self)

    def __truediv__(self, other: Tensor | Scalar) -> Tensor:
        return functions.divide(self, other)

    def __rtruediv__(self, other: Tensor | Scalar) -> Tensor:
        return functions.divide(other, self)

    def __matmul__(self, other: Tensor) -> Tensor:
        return functions.matmul(self, other)

    def __neg__(self) -> Tensor:
        return functions.negative(self)

    def __abs__(self) -> Tensor:
        return functions.abs(self)

    def __pow__(self, exponent: int) -> Tensor:
        """Whole powers from 1 to 64 by repeated multiplication, left to right."""
        if type(exponent) is not int or not 1 <= exponent <= 64:
            raise UsageError(f"[power] exponent is {exponent!r}: expected a whole number from 1 to 64")
        result = self
        for _ in range(exponent - 1):
            result = result * self
        return result

    def __getitem__(
        self, index: int | slice | EllipsisType | tuple[int | slice | EllipsisType, ...]
    ) -> Tensor:
        """Basic indexing: integers drop their axis, slices with positive steps keep it."""
        return functions.basic_index(self, index)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        return functions.reshape(self, shape[0] if len(shape) == 1 else shape)  # type: ignore[arg-type]

    def transpose(self, *axes: int) -> Tensor:
        return functions.transpose(self, axes or None)

    def astype(self, dtype: DType | str) -> Tensor:
        return functions.astype(self, dtype)

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return functions.sum(self, axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return functions.mean(self, axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        return functions.max(self, axis, keepdims)

    def argmax(self, axis: int = -1, keepdims: bool = False) -> Tensor:
        return functions.argmax(self, axis, keepdims)


def asarray(values: ArrayLike, dtype: DType | str | None = None) -> Tensor:
    """A concrete tensor with a copy of the values: floating point becomes f32, integers i32 (or i8 where
    that is asked for).

    Raises DTypeError for other kinds, and for integers that do not fit.
    """
    if isinstance(values, Tensor):
        return values if dtype is None or as_dtype(dtype) is values.dtype else values.astype(dtype)
    array = np.asarray(values)
    wanted = as_dtype(dtype) if dtype is not None else None
    if array.dtype.kind == "f" or (array.dtype.kind in "iub" and wanted in (dtypes.float32, dtypes.bfloat16)):
        with np.errstate(over="ignore"):
            floats = dtypes.aligned_copy(array, np.float32)
        if wanted is not None and wanted.integer:
            raise DTypeError(f"[asarray] values are {array.dtype}, dtype is {wanted}: expected integers")
        if wanted is dtypes.bfloat16:
            return from_storage(dtypes.bfloat16_from_float32(floats), dtypes.bfloat16)
        return from_storage(floats, dtypes.float32)
    if array.dtype.kind in "iub":
        kind = dtypes.int8 if wanted is dtypes.int8 else dtypes.int32
        held = np.iinfo(kind.numpy)
        for reached in (array.max(), array.min()) if array.size else ():
            if not held.min <= int(reached) <= held.max:
                raise DTypeError(f"[asarray] integers reach {reached}: expected values that {kind} holds")
        return from_storage(dtypes.aligned_copy(array, kind.numpy), kind)
    if array.size == 0 and array.dtype.kind == "O":
        raise DTypeError("[asarray] the values are not an array of numbers")
    raise DTypeError(f"[asarray] values are {array.dtype}: expected floating point or integers")


def from_storage(array: npt.NDArray[Any], dtype: DType) -> Tensor:
    """A tensor over this very array (C order, the dtype's carrier type); the caller gives it away."""
    return Tensor(TensorType(array.shape, dtype), array)


def as_dtype(dtype: DType | str) -> DType:
    if isinstance(dtype, DType):
        return dtype
    if dtype not in dtypes.BY_NAME:
        raise DTypeError(f"[dtype] given {dtype!r}: expected one of {', '.join(dtypes.BY_NAME)}")
    return dtypes.BY_NAME[dtype]


# The operators above are the functions of volta.functions, which needs Tensor to exist first.
from volta import functions  # noqa: E402
