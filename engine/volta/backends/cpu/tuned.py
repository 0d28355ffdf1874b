"""Blocks that a search found for this processor: where they are kept, how they are read, which step they fit.

A table belongs to one processor and one version of the kernels. It can only change how a matmul is cut up,
never a bit: every setting passes the kernel's own checks again. A table that is damaged or of another
processor is reported and ignored. Writers hold a lock, read the table again and replace it atomically, so
several processes and threads may tune at once.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import platformdirs

from volta.backends.cpu import native
from volta.errors import VoltaError
from volta.plan.layout import View
from volta.plan.steps import Step
from volta.storage import atomic

SCHEMA = "volta-tuned/1"
MATMULS = ("matmul", "matmul_scaled")
LARGEST_BLOCK = 1 << 20


class TunedWarning(UserWarning):
    """A table that is not used, and why."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """ints 1 to 7 of a matmul step (csrc/cpu/matmul_problem.h); 0 leaves the choice to the kernel's table.
    ahead: rows fetched ahead, plus 1. gain: how many times faster than the default, when it was measured."""

    tile: str = ""
    kc: int = 0
    mc: int = 0
    nc: int = 0
    ahead: int = 0
    copies: int = 0
    threads: int = 0
    gain: float = 1.0

    def ints(self) -> tuple[int, ...]:
        """() where this processor lacks the tile."""
        found = [tile for tile in native.tiles() if tile.name == self.tile and tile.available]
        if self.tile and not found:
            return ()
        first = found[0].id if found else 0
        return (first, self.kc, self.mc, self.nc, self.ahead, self.copies, self.threads)


class Table:
    """Blocks by the key of a step. digest: of what decides plans, "" for none."""

    def __init__(self, blocks: Mapping[str, Blocks] | None = None) -> None:
        self.blocks: Mapping[str, Blocks] = dict(blocks or {})
        plain = {key: value.ints() for key, value in sorted(self.blocks.items())}
        self.digest = hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:12] if plain else ""


# --- which step ------------------------------------------------------------------------------------


def key_of(step: Step, isa: str, threads: int) -> str | None:
    """What a matmul's best blocks depend on: dtypes, sizes, layouts, groups, instruction set and threads.
    None for other kernels and for batches of matrices."""
    if step.kernel not in MATMULS or len(step.operands[0].shape) != 2:
        return None
    first = step.ints[0]
    out, a, b = step.operands[0], step.operands[first], step.operands[first + 1]
    if len(b.shape) != 2:
        return None
    groups = f" {step.operands[first + 2].shape[0]} groups" if step.kernel == "matmul_scaled" else ""
    (m, n), k = out.shape, a.shape[1]
    layouts = f"a {_layout(a)} b {_layout(b)}"
    return f"{a.dtype} x {b.dtype} {m}x{n}x{k} {layouts}{groups} {isa} {threads} threads"


def _layout(view: View) -> str:
    """rows or columns (which axis has unit stride), and the distance between them."""
    by_rows, by_columns = view.strides[1] == 1, view.strides[0] == 1
    if by_rows:
        return f"rows/{view.strides[0]}"
    return f"columns/{view.strides[1]}" if by_columns else f"{view.strides[0]}/{view.strides[1]}"


# --- where -----------------------------------------------------------------------------------------


def directory() -> Path:
    """VOLTA_CACHE, else the platform's cache directory."""
    given = os.environ.get("VOLTA_CACHE")
    return Path(given) if given else Path(platformdirs.user_cache_dir("volta", appauthor=False))


def processor() -> dict[str, Any]:
    """What tables are made for."""
    info = native.cpu_info()
    return {
        "cpu": info.model,
        "isas": list(info.isas),
        "features": list(info.features),
        "cache_bytes": list(info.cache_bytes),
        "abi": native.ABI_VERSION,
        "tiles": [tile.name for tile in native.tiles()],
    }


@lru_cache(maxsize=1)
def _name_of_table() -> str:
    digest = hashlib.sha256(json.dumps(processor(), sort_keys=True).encode()).hexdigest()
    return f"tuned-{digest[:16]}.json"


def path_of_table() -> Path:
    """One file per processor and version of the kernels."""
    return directory() / _name_of_table()


# --- reading ---------------------------------------------------------------------------------------


def read(path: Path) -> Table:
    """The table of a file; empty where there is none. Raises VoltaError where it cannot be used."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return Table()
    except OSError as error:
        raise VoltaError(f"[tuned] {path} cannot be read: {error.strerror}") from error
    try:
        document = json.loads(text)
    except ValueError as error:
        raise VoltaError(f"[tuned] {path} is damaged: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        given = document.get("schema") if isinstance(document, dict) else type(document).__name__
        raise VoltaError(f"[tuned] {path} has schema {given!r}: expected {SCHEMA!r}")
    if document.get("processor") != processor():
        raise VoltaError(f"[tuned] {path} is of another processor or another version of the kernels")
    entries = document.get("blocks")
    if not isinstance(entries, dict) or document.get("sha256") != _sha256(entries):
        raise VoltaError(f"[tuned] {path} is damaged: its blocks do not have the hash that it states")
    return Table({key: _blocks(path, key, value) for key, value in entries.items()})


def _blocks(path: Path, key: str, value: object) -> Blocks:
    known: dict[str, type | tuple[type, ...]] = {"tile": str, "gain": (int, float)}
    known |= dict.fromkeys(("kc", "mc", "nc", "ahead", "copies", "threads"), int)
    if not isinstance(value, dict) or set(value) != set(known):
        raise VoltaError(f"[tuned] {path} is damaged: {key!r} has other fields than {', '.join(known)}")
    for name, kind in known.items():
        number = value[name]
        if not isinstance(number, kind) or isinstance(number, bool):
            raise VoltaError(f"[tuned] {path} is damaged: {name} of {key!r} is {number!r}")
        if isinstance(number, int) and not 0 <= number <= LARGEST_BLOCK:
            raise VoltaError(f"[tuned] {path} is damaged: {name} of {key!r} is {number}")
    if value["kc"] % 32 or value["copies"] >= 16 or value["copies"] & 3 == 3:
        raise VoltaError(f"[tuned] {path} is damaged: {key!r} has blocks that no kernel takes")
    return Blocks(**value)


def _sha256(entries: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


_lock = threading.Lock()
_read: dict[str | None, Table] = {}  # by the value of VOLTA_CACHE


def current() -> Table:
    """This process's table, read once; a TunedWarning tells why a file is not used."""
    where = os.environ.get("VOLTA_CACHE")
    with _lock:
        if where not in _read:
            try:
                _read[where] = read(path_of_table())
            except VoltaError as error:
                _read[where] = Table()
                warnings.warn(f"{error}: it is ignored", TunedWarning, stacklevel=2)
        return _read[where]


def forget() -> None:
    """The next `current` reads the file again."""
    with _lock:
        _read.clear()


# --- writing ---------------------------------------------------------------------------------------


def add(entries: Mapping[str, Blocks]) -> Path:
    """Puts entries into this processor's table, beside those of other writers; an unusable file is
    replaced. Raises CheckpointError where the disk refuses."""
    path = path_of_table()
    atomic.make_directory(path.parent)
    with _writing(path):
        try:
            known = dict(read(path).blocks)
        except VoltaError:
            known = {}
        plain = {key: asdict(value) for key, value in sorted({**known, **entries}.items())}
        document = {
            "schema": SCHEMA,
            "processor": processor(),
            "sha256": _sha256(plain),
            "blocks": plain,
        }
        atomic.write_text(path, json.dumps(document, indent=1) + "\n", "tuned")
    forget()
    return path


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Alone among all processes and threads that write this table."""
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def clear() -> Path:
    """Removes this processor's table."""
    path = path_of_table()
    path.unlink(missing_ok=True)
    forget()
    return path
