"""Checkpoints of a run: save, find, load, describe, compare with a model.

    run/
      step-00000400.safetensors     one file per checkpoint, complete from the moment it has this name
      step-00000600.safetensors
      .volta-0123456789abcdef.tmp   only while one is being written, or after a crash

The newest is the one with the highest step: there is no pointer that could disagree. A newest file
that is damaged is an error that names the one before it, never a silent step back.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy.typing as npt

from volta.dtypes import DType
from volta.errors import CheckpointError, UsageError
from volta.storage import atomic, tensorfile
from volta.storage.tensorfile import dtype_of, printable
from volta.train.checkpoint_format import Checkpoint, check_metadata, decode, encode, weights_sha256

__all__ = [
    "Checkpoint",
    "dtype_of",
    "expect",
    "info",
    "load",
    "newest",
    "prepare",
    "save",
    "steps",
    "weights_sha256",
    "write",
]

KEEP = 3
_NAME = re.compile(r"step-([0-9]{8,18})\.safetensors", re.ASCII)


def prepare(directory: Path, step: int) -> None:
    """Check, before any work is done, that a run at `step` may save into `directory`; create it.

    Raises CheckpointError when it cannot be written or already holds a later step: saving below
    that one would leave a run whose newest checkpoint is not its own.
    """
    atomic.make_directory(directory)
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise CheckpointError(f"[checkpoint] {directory} cannot be written: no permission")
    present = steps(directory)
    if present and present[-1][0] > step:
        raise CheckpointError(
            f"[checkpoint] {directory} already holds step {present[-1][0]}, later than step {step}: "
            "resume from it, or give another directory"
        )


def save(directory: Path, checkpoint: Checkpoint, *, keep: int = KEEP, kept: Collection[int] = ()) -> Path:
    """Write `checkpoint` into the run, durable on return; then remove all but the newest `keep` and those
    of the steps `kept` (the best one, say).

    Raises CheckpointError (disk full, permission, a later step present); nothing is lost then.
    """
    if keep < 1:
        raise UsageError(f"[checkpoint] keep is {keep}: expected at least 1")
    prepare(directory, checkpoint.step)
    path = directory / f"step-{checkpoint.step:08d}.safetensors"
    write(path, checkpoint)
    for step, old in steps(directory)[:-keep]:
        if step in kept:
            continue
        try:
            old.unlink(missing_ok=True)
        except OSError as error:
            raise CheckpointError(f"[checkpoint] {old} cannot be removed: {error.strerror}") from error
    return path


def write(path: Path, checkpoint: Checkpoint) -> None:
    """Write one checkpoint to `path`, atomically and durably, outside the bookkeeping of a run."""
    tensors, metadata = encode(checkpoint)
    tensorfile.write(path, tensors, metadata)


def load(path: Path) -> Checkpoint:
    """The checkpoint at `path`, or the newest of the run directory `path`, every claim proven.

    Raises CheckpointError: missing, truncated, damaged, of an unknown version.
    """
    file, older = _resolve(path)
    try:
        header, tensors = tensorfile.read(file)
        checkpoint = decode(file, tensors, header.metadata)
        _same_step(file, checkpoint.step)
    except CheckpointError as error:
        raise _pointing_at(older, error) from None
    return checkpoint


def info(path: Path) -> dict[str, Any]:
    """What the checkpoint (or the newest of a run) says of itself; reads its header only.

    Metadata are proven against their checksum, tensors are not read.
    """
    file, older = _resolve(path)
    try:
        header = tensorfile.read_header(file)
        fields = check_metadata(file, header.metadata)
        _same_step(file, fields["step"])
    except CheckpointError as error:
        raise _pointing_at(older, error) from None
    mine = [entry for entry in header.entries if entry.name.startswith("parameters/")]
    return {
        "path": str(file),
        "bytes": header.size,
        "version": header.metadata["version"],
        "writer": header.metadata["writer"],
        **fields,
        "graph": header.metadata["graph"],
        "tensors": len(header.entries),
        "parameters": sum((entry.end - entry.begin) // entry.dtype.itemsize for entry in mine),
        "dtypes": sorted({entry.dtype.name for entry in mine}),
        "weights_sha256": header.metadata["weights_sha256"],
        "sha256": header.metadata["sha256"],
    }


def steps(directory: Path) -> list[tuple[int, Path]]:
    """(step, file) of the run's checkpoints, oldest first. Raises CheckpointError."""
    try:
        files = list(directory.iterdir())
    except OSError as error:
        raise CheckpointError(f"[checkpoint] {directory} cannot be read: {error.strerror}") from error
    return sorted((int(match[1]), file) for file in files if (match := _NAME.fullmatch(file.name)))


def newest(directory: Path) -> Path | None:
    """The run's checkpoint of the highest step."""
    found = steps(directory)
    return found[-1][1] if found else None


def expect(
    checkpoint: Checkpoint,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    dtypes: Mapping[str, DType] | None = None,
    optimizer: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Prove that the parameters (and optimizer tensors, when given) are exactly those of a model.

    Raises CheckpointError that names what is missing, extra, or of another shape or dtype.
    """
    where = checkpoint.path or f"step {checkpoint.step}"
    _expect(where, "parameter", checkpoint.parameters, shapes)
    if optimizer is not None:
        _expect(where, "optimizer tensor", checkpoint.optimizer, optimizer)
    for name, dtype in (dtypes or {}).items():
        found = dtype_of(name, checkpoint.parameters[name])
        if found != dtype:
            raise CheckpointError(
                f"[checkpoint] {where}: parameter {printable(name)} is {found}: expected {dtype}"
            )


def _expect(
    where: Path | str,
    kind: str,
    found: Mapping[str, npt.NDArray[Any]],
    expected: Mapping[str, tuple[int, ...]],
) -> None:
    for label, names in (
        ("misses", expected.keys() - found.keys()),
        ("has an extra", found.keys() - expected.keys()),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise CheckpointError(
                f"[checkpoint] {where} {label} {kind} {printable(min(names))}{more}: it is of another model"
            )
    for name, shape in expected.items():
        given = found[name].shape
        if given != tuple(shape):
            raise CheckpointError(
                f"[checkpoint] {where}: {kind} {printable(name)} is {given}: expected {tuple(shape)}"
            )


def _resolve(path: Path) -> tuple[Path, Path | None]:
    """The file to read and, when it is the newest of a run, the checkpoint before it."""
    try:
        if not path.is_dir():
            return path, None
    except (OSError, ValueError):  # reading it will say why
        return path, None
    found = steps(path)
    if not found:
        raise CheckpointError(
            f"[checkpoint] {path} holds no checkpoint: expected a file step-NNNNNNNN.safetensors"
        )
    return found[-1][1], found[-2][1] if len(found) > 1 else None


def _pointing_at(older: Path | None, error: CheckpointError) -> CheckpointError:
    return error if older is None else CheckpointError(f"{error}; the checkpoint before it is {older}")


def _same_step(path: Path, step: int) -> None:
    match = _NAME.fullmatch(path.name)
    if match and int(match[1]) != step:
        raise CheckpointError(f"[checkpoint] {path} holds step {step}: its name says {int(match[1])}")
