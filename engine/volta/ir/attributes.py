"""Attributes of nodes: the kinds there are, their canonical form, and typed access to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from volta.errors import UsageError
from volta.ir.graph import Attr, Attrs, Graph

T = TypeVar("T")


def _tuple_of(kind: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, tuple) and all(type(item) is kind for item in value)


def _private(value: object) -> bool:
    """An array that nobody else can write to: read-only and owner of its memory."""
    return isinstance(value, np.ndarray) and value.base is None and not value.flags.writeable


# kind -> (how an error calls it, whether a value is one)
KINDS: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    "int": ("an int", lambda value: type(value) is int),
    "float": ("a float", lambda value: type(value) is float),
    "bool": ("a bool", lambda value: type(value) is bool),
    "str": ("a str", lambda value: type(value) is str),
    "ints": ("a tuple of ints", _tuple_of(int)),
    "strs": ("a tuple of strs", _tuple_of(str)),
    "array": ("a private, read-only array", _private),
    "graph": ("a Graph", lambda value: isinstance(value, Graph)),
}


def _python(value: object) -> object:
    """A NumPy scalar as the Python number it holds."""
    return value.item() if isinstance(value, np.generic) else value


def _copied(value: Any) -> npt.NDArray[np.generic]:
    array: npt.NDArray[np.generic] = np.array(value, copy=True, order="C")
    array.setflags(write=False)
    return array


def canonical(kinds: Mapping[str, str], attrs: Mapping[str, Any]) -> dict[str, Attr]:
    """The attributes as a node keeps them: Python scalars, tuples, private read-only arrays.

    An int given for a float becomes one. What fits no kind is left for `check` to refuse.
    """
    return {name: _canonical(kinds.get(name, ""), value) for name, value in attrs.items()}


def _canonical(kind: str, value: Any) -> Any:
    if kind == "array":
        return value if _private(value) else _copied(value)
    value = _python(value)
    if kind in ("ints", "strs") and isinstance(value, list | tuple):
        return tuple(_python(item) for item in value)
    if kind == "float" and type(value) is int:
        return float(value)
    return value


def check(op: str, kinds: Mapping[str, str], attrs: Attrs) -> None:
    """Exactly the attributes of the row, each of its kind."""
    if set(attrs) != set(kinds):
        given, expected = (", ".join(sorted(names)) or "none" for names in (attrs, kinds))
        raise UsageError(f"[{op}] attributes given: {given}: expected {expected}")
    for name, kind in kinds.items():
        described, accepts = KINDS[kind]
        if not accepts(attrs[name]):
            raise UsageError(f"[{op}] {name} is {attrs[name]!r}: expected {described}")


def _getter(kind: type[T]) -> Callable[[Attrs, str], T]:
    return lambda attrs, name: cast(kind, attrs[name])  # type: ignore[valid-type]


integer: Callable[[Attrs, str], int] = _getter(int)
real: Callable[[Attrs, str], float] = _getter(float)
flag: Callable[[Attrs, str], bool] = _getter(bool)
string: Callable[[Attrs, str], str] = _getter(str)
integers: Callable[[Attrs, str], tuple[int, ...]] = _getter(tuple)
strings: Callable[[Attrs, str], tuple[str, ...]] = _getter(tuple)
array: Callable[[Attrs, str], npt.NDArray[np.generic]] = _getter(np.ndarray)
graph: Callable[[Attrs, str], Graph] = _getter(Graph)
