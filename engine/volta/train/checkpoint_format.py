"""Checkpoint format v1: what a checkpoint holds, and how it is laid out in one tensor file.

Tensors are named `parameters/NAME` and `optimizer/NAME`. The metadata are strings:

    format            "volta-checkpoint"
    version           "1"
    writer            "volta-runtime x.y.z"
    step              decimal: optimizer updates done
    config, optimizer, rng, data, state     a JSON object each (see Checkpoint)
    graph             fingerprint of the training graph
    weights_sha256    `tensorfile.digest` of the parameters, by their own names
    optimizer_sha256  the same of the optimizer's tensors
    sha256            SHA-256 of the canonical JSON of all metadata but itself

So `sha256` covers every byte that has a meaning, `weights_sha256` is what two machines compare,
and the metadata can be checked without reading a tensor.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, TypeAlias

from volta.errors import CheckpointError, UsageError
from volta.storage.tensorfile import Tensors, canonical, digest, parse, printable

FORMAT = "volta-checkpoint"
VERSION = "1"
DISTRIBUTION = "volta-runtime"

Settings: TypeAlias = dict[str, Any]  # a JSON object: string keys; tuples come back as lists

_OBJECTS = ("config", "optimizer", "rng", "data", "state")
_HASHES = ("weights_sha256", "optimizer_sha256", "sha256")
_KEYS = {"format", "version", "writer", "step", "graph", *_OBJECTS, *_HASHES}
_STEP = re.compile(r"0|[1-9][0-9]{0,17}", re.ASCII)


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Everything that training needs to go on with the bits of an uninterrupted run."""

    step: int  # optimizer updates done
    config: Settings  # of the model
    parameters: Tensors
    optimizer: Tensors = field(default_factory=dict)  # its state, for example first and second moments
    optimizer_config: Settings = field(default_factory=dict)
    rng: Settings = field(default_factory=dict)  # seed and counters
    data: Settings = field(default_factory=dict)  # position, and the sha256 of the text
    state: Settings = field(default_factory=dict)  # of the loop: early stopping, losses, schedule
    graph: str = ""
    writer: str = ""  # filled in by reading
    path: Path | None = None  # filled in by reading


def weights_sha256(parameters: Tensors) -> str:
    """The hash that machines compare: `tensorfile.digest` of the parameters."""
    return digest(parameters)


def encode(checkpoint: Checkpoint) -> tuple[Tensors, dict[str, str]]:
    """The tensors and metadata of the file. Raises UsageError for what JSON cannot carry."""
    if type(checkpoint.step) is not int or not _STEP.fullmatch(str(checkpoint.step)):
        raise UsageError(f"[checkpoint] step is {checkpoint.step!r}: expected an integer of 0 to 18 digits")
    metadata = {
        "format": FORMAT,
        "version": VERSION,
        "writer": _writer(),
        "step": str(checkpoint.step),
        "graph": checkpoint.graph,
        "weights_sha256": digest(checkpoint.parameters),
        "optimizer_sha256": digest(checkpoint.optimizer),
    }
    for key in _OBJECTS:
        value = getattr(checkpoint, "optimizer_config" if key == "optimizer" else key)
        try:
            metadata[key] = canonical(value).decode("ascii")
        except (TypeError, ValueError) as error:
            raise UsageError(f"[checkpoint] {key} cannot be stored as JSON: {error}") from error
    metadata["sha256"] = _metadata_sha256(metadata)
    tensors = {f"parameters/{name}": array for name, array in checkpoint.parameters.items()}
    tensors |= {f"optimizer/{name}": array for name, array in checkpoint.optimizer.items()}
    return tensors, metadata


def decode(path: Path, tensors: Tensors, metadata: Mapping[str, str]) -> Checkpoint:
    """The checkpoint, its checksums proven. Raises CheckpointError."""
    fields = check_metadata(path, metadata)
    groups: dict[str, Tensors] = {"parameters": {}, "optimizer": {}}
    for name, array in tensors.items():
        group, slash, rest = name.partition("/")
        if not slash or group not in groups:
            raise CheckpointError(
                f"[checkpoint] {path} holds {printable(name)}: expected parameters/ or optimizer/"
            )
        groups[group][rest] = array
    for key, group in (("weights_sha256", "parameters"), ("optimizer_sha256", "optimizer")):
        _match(path, f"its {group} hash", digest(groups[group]), metadata[key])
    return Checkpoint(
        step=fields["step"],
        config=fields["config"],
        parameters=groups["parameters"],
        optimizer=groups["optimizer"],
        optimizer_config=fields["optimizer"],
        rng=fields["rng"],
        data=fields["data"],
        state=fields["state"],
        graph=metadata["graph"],
        writer=metadata["writer"],
        path=path,
    )


def check_metadata(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """The step (an integer) and the JSON objects, their checksum proven. Raises CheckpointError."""
    if metadata.get("format") != FORMAT:
        raise CheckpointError(
            f"[checkpoint] {path} is not a Volta checkpoint: its metadata has no format {FORMAT!r}"
        )
    given = metadata.get("version", "")
    if given != VERSION:
        raise CheckpointError(
            f"[checkpoint] {path} has format version {printable(given)}: supported is {VERSION!r}"
        )
    if metadata.keys() != _KEYS:
        names = ", ".join(printable(name) for name in sorted(metadata.keys() ^ _KEYS)[:3])
        raise CheckpointError(
            f"[checkpoint] {path} misses or adds metadata {names}: not what version 1 holds"
        )
    _match(path, "its metadata hash", _metadata_sha256(metadata), metadata["sha256"])
    if not _STEP.fullmatch(metadata["step"]):
        raise CheckpointError(
            f"[checkpoint] {path} has step {printable(metadata['step'])}: expected an integer"
        )
    return {"step": int(metadata["step"])} | {key: _object(path, key, metadata[key]) for key in _OBJECTS}


def _object(path: Path, key: str, text: str) -> Settings:
    try:
        return parse(text)
    except ValueError as error:
        raise CheckpointError(f"[checkpoint] {path} has damaged metadata {key}: {error}") from None


def _match(path: Path, what: str, found: str, stored: str) -> None:
    if found != stored:
        raise CheckpointError(
            f"[checkpoint] {path} has a bad checksum: {what} is {found[:12]}, "
            f"{printable(stored[:12])} is stored; the file is damaged"
        )


def _metadata_sha256(metadata: Mapping[str, str]) -> str:
    return hashlib.sha256(canonical({k: v for k, v in metadata.items() if k != "sha256"})).hexdigest()


def _writer() -> str:
    try:
        return f"{DISTRIBUTION} {installed_version(DISTRIBUTION)}"
    except PackageNotFoundError:
        return f"{DISTRIBUTION} (not installed)"
