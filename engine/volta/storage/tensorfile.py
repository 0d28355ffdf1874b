"""Tensors in a safetensors file: written in one canonical form, read with every claim checked first.

    8 bytes   length of the header, little-endian
    header    JSON: {"__metadata__": {string: string}, NAME: {"dtype", "shape", "data_offsets"}, ...}
    payload   the tensors, row-major, little-endian, without gaps

The safetensors package has no NumPy form of BF16 and writes metadata in random order; Volta's files
are a function of their content, so equal states give equal files. Other tools can read them.
A uint16 array holds bfloat16 bit patterns, here as everywhere in Volta.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from volta.dtypes import DType, bfloat16, float32, int8, int32
from volta.errors import CheckpointError, DTypeError, UsageError
from volta.storage import atomic

Tensors: TypeAlias = dict[str, npt.NDArray[Any]]

MAX_HEADER = 16 << 20  # bytes; 100,000 tensors need about 12 MiB
MAX_RANK = 6  # VOLTA_MAX_RANK
_STORED = {"F32": float32, "BF16": bfloat16, "I32": int32, "I8": int8}
_NAMES = {dtype.name: name for name, dtype in _STORED.items()}
_ALIGNMENT = 8  # of the payload in the file; tensors follow by falling item size


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of a header; begin and end count from the start of the payload."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Header:
    """A header whose every claim holds in the file; `payload` is where the payload begins."""

    entries: tuple[Entry, ...]
    metadata: dict[str, str]
    payload: int
    size: int


def dtype_of(name: str, array: npt.NDArray[Any]) -> DType:
    """The Volta dtype that an array carries; DTypeError for any other."""
    for dtype in _STORED.values():
        if array.dtype == dtype.numpy:
            return dtype
    raise DTypeError(
        f"[tensors] {printable(name)} is {array.dtype}: expected float32, int32, int8 or uint16 (bf16)"
    )


def digest(tensors: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 of names, dtypes, shapes and values, the same on every machine.

    Over the tensors in ascending order of names (by code points): the ASCII line
    `["NAME","f32",[2,3]]` + newline as `json.dumps` writes it without spaces, then the values,
    row-major, little-endian.
    """
    total = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name]
        total.update(canonical([name, dtype_of(name, array).name, list(array.shape)]) + b"\n")
        total.update(_payload(array))
    return total.hexdigest()


def canonical(value: object) -> bytes:
    """The one JSON text of a value: ASCII, sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def parse(text: str | bytes) -> dict[str, object]:
    """A JSON object, strictly: UTF-8, no duplicate keys, no NaN, no absurd depth. Raises ValueError."""
    try:
        value = json.loads(
            text.decode("utf-8") if isinstance(text, bytes) else text,
            object_pairs_hook=_without_duplicates,
            parse_constant=_no_constant,
            parse_float=_finite,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("expected a JSON object")
    return value


def printable(name: str) -> str:
    """A name from a file, fit for one line of an error message."""
    return ascii(name if len(name) <= 80 else name[:77] + "...")


def write(path: Path, tensors: Mapping[str, npt.NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write `path` atomically and durably. Raises CheckpointError when the disk refuses."""
    if "__metadata__" in tensors:
        raise UsageError("[checkpoint] a tensor is named __metadata__: the format keeps that name for itself")
    order = sorted(tensors, key=lambda name: (-dtype_of(name, tensors[name]).itemsize, name))
    head: dict[str, object] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name in order:
        array = tensors[name]
        begin, end = end, end + array.nbytes
        kind = _NAMES[dtype_of(name, array).name]
        head[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(head, separators=(",", ":"), allow_nan=False).encode("ascii")
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    if len(text) > MAX_HEADER:
        raise CheckpointError(
            f"[checkpoint] {path} needs a header of {len(text)} bytes: at most {MAX_HEADER}"
        )
    preamble = len(text).to_bytes(8, "little") + text
    atomic.write(path, (preamble, *(_payload(tensors[name]) for name in order)), len(preamble) + end)


def read_header(path: Path) -> Header:
    """The verified header alone. Raises CheckpointError."""
    with _opened(path) as (descriptor, size):
        return _header(path, descriptor, size)


def read(path: Path) -> tuple[Header, Tensors]:
    """The verified header and every tensor, in native byte order. Raises CheckpointError.

    Nothing is allocated before its size is known to be in the file.
    """
    with _opened(path) as (descriptor, size):
        header = _header(path, descriptor, size)
        tensors: Tensors = {}
        for entry in header.entries:
            data = _read_exactly(path, descriptor, entry.end - entry.begin)
            stored = np.dtype(entry.dtype.numpy).newbyteorder("<")
            array = data.view(stored).astype(entry.dtype.numpy, copy=False)
            tensors[entry.name] = array.reshape(entry.shape)
        return header, tensors


def _payload(array: npt.NDArray[Any]) -> memoryview:
    little = np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False)
    return little.reshape(-1).view(np.uint8).data


@contextmanager
def _opened(path: Path) -> Iterator[tuple[int, int]]:
    """Descriptor and size of a regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CheckpointError(f"[checkpoint] {path} is not there: expected a checkpoint file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CheckpointError(f"[checkpoint] {str(path)!r} cannot be read: {reason}") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError(f"[checkpoint] {path} is not a regular file: expected a checkpoint file")
        yield descriptor, status.st_size
    except OSError as error:
        raise CheckpointError(f"[checkpoint] {path} cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)


def _read_exactly(path: Path, descriptor: int, count: int) -> npt.NDArray[np.uint8]:
    data = np.empty(count, np.uint8)
    rest = data.data
    while rest:
        got = os.readv(descriptor, [rest])
        if got == 0:
            raise CheckpointError(f"[checkpoint] {path} shrank while it was read: truncated")
        rest = rest[got:]
    return data


def _header(path: Path, descriptor: int, size: int) -> Header:
    text = _header_text(path, descriptor, size)
    try:
        claims = parse(text)
        metadata = _metadata(claims.pop("__metadata__", {}))
        entries = _adjacent(_entry(name, claim) for name, claim in claims.items())
    except ValueError as error:
        raise CheckpointError(f"[checkpoint] {path} has a damaged header: {error}") from None
    start = 8 + len(text)
    expected = start + (entries[-1].end if entries else 0)
    if size != expected:
        fault = "is truncated" if size < expected else "is too long"
        raise CheckpointError(f"[checkpoint] {path} {fault}: {size} bytes, its header says {expected}")
    return Header(entries, metadata, start, size)


def _header_text(path: Path, descriptor: int, size: int) -> bytes:
    if size < 10:
        raise CheckpointError(f"[checkpoint] {path} has {size} bytes: truncated, or not a checkpoint")
    start = _read_exactly(path, descriptor, 9).tobytes()
    length = int.from_bytes(start[:8], "little")
    if start[8:] != b"{":
        raise CheckpointError(f"[checkpoint] {path} is not a checkpoint: expected a safetensors file")
    if not 2 <= length <= MAX_HEADER:
        raise CheckpointError(f"[checkpoint] {path} claims {length} header bytes: expected 2 .. {MAX_HEADER}")
    if 8 + length > size:
        raise CheckpointError(f"[checkpoint] {path} is truncated: {size} bytes, {8 + length} in its header")
    return start[8:] + _read_exactly(path, descriptor, length - 1).tobytes()


def _adjacent(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The entries in the order of their bytes, which leave no gap and do not overlap."""
    ordered = tuple(sorted(entries, key=lambda entry: (entry.begin, entry.end)))
    end = 0
    for entry in ordered:
        if entry.begin != end:
            raise ValueError(f"tensor {printable(entry.name)} begins at {entry.begin}: expected {end}")
        end = entry.end
    return ordered


def _metadata(value: object) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ValueError("__metadata__ is not an object of strings")
    return value


def _entry(name: str, claim: object) -> Entry:
    label = f"tensor {printable(name)}"
    if not isinstance(claim, dict) or claim.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"{label}: expected dtype, shape and data_offsets")
    kind = claim["dtype"]
    if not isinstance(kind, str) or kind not in _STORED:
        raise ValueError(f"{label} has dtype {printable(str(kind))}: expected one of {', '.join(_STORED)}")
    shape, offsets = _naturals(claim["shape"]), _naturals(claim["data_offsets"])
    if shape is None or len(shape) > MAX_RANK:
        raise ValueError(f"{label}: expected a shape of at most {MAX_RANK} axes")
    if offsets is None or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise ValueError(f"{label}: expected data_offsets of a begin and an end")
    dtype, (begin, end) = _STORED[kind], offsets
    if math.prod(shape) * dtype.itemsize != end - begin:
        raise ValueError(f"{label}: its shape and dtype do not make {end - begin} bytes")
    if math.prod(max(axis, 1) for axis in shape) >= 1 << 60:
        raise ValueError(f"{label}: its shape is too large to address")
    return Entry(name, dtype, shape, begin, end)


def _naturals(value: object) -> tuple[int, ...] | None:
    """The integers of a list in 0 .. 2^60; None for anything else (true is not an integer)."""
    if not isinstance(value, list) or not all(type(item) is int and 0 <= item < 1 << 60 for item in value):
        return None
    return tuple(value)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is more than a number can hold")
    return value


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
