"""Tensors on disk: safetensors files, written atomically, read with every claim checked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path

from volta.errors import UsageError
from volta.storage import tensorfile
from volta.tensor import Tensor, from_storage


def save(path: str | PathLike[str], tensors: Mapping[str, Tensor]) -> None:
    """Writes named tensors (bf16 stays bf16); a crash leaves the old file or the new one.

    Raises CheckpointError where the disk refuses.
    """
    given: Iterable[tuple[object, object]] = tensors.items()
    for name, tensor in given:
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise UsageError(f"[save] {name!r} is {type(tensor).__name__}: expected names and Tensors")
    tensorfile.write(Path(path), {name: tensor.storage() for name, tensor in tensors.items()}, {})


def load(path: str | PathLike[str]) -> dict[str, Tensor]:
    """Reads what `save` wrote, or any safetensors file of f32, bf16, i32 and i8.

    Raises CheckpointError: missing, truncated, not such a file.
    """
    _, tensors = tensorfile.read(Path(path))
    return {name: from_storage(array, tensorfile.dtype_of(name, array)) for name, array in tensors.items()}
