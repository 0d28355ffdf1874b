"""Blocks that a search found for this processor: where they are kept, how they are read, which step they fit.

A table belongs to one processor and one version of the kernels. It can only change how a matmul is cut up,
never a bit, and what no kernel takes is refused when it is written and when it is read. Some ship with the
package, in `tables/`; the user's own, in the cache directory, stands over them, entry by entry. A table that
is damaged, or the user's of another processor, is reported and ignored, whole. Writers of the user's table
hold a lock, read it again and replace it atomically, so several processes and threads may tune at once.
docs/matmul_tuning.md tells more.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs

from volta.backends.cpu import native
from volta.errors import CheckpointError, UsageError, VoltaError
from volta.plan.layout import View
from volta.plan.steps import Step
from volta.storage import atomic

SCHEMA = "volta-tuned/1"
MATMULS = ("matmul", "matmul_scaled")
LARGEST_BLOCK = 1 << 20  # settings_hold in csrc/cpu/matmul.c
LARGEST_FILE = 16 << 20  # bytes; an entry has about 250
SHIPPED = Path(__file__).with_name("tables")  # *.json of all processors; it need not be there
MOST_FILES = 64  # of them
NUMBERS = ("kc", "mc", "nc", "ahead", "copies", "threads")
KEY = re.compile(
    r"(?P<a>f32|bf16|i8) x (?P<b>f32|bf16|i8) \d+x\d+x\d+ a \S+ b \S+(?P<scaled> \d+ groups)? "
    r"(?P<isa>\w+) \d+ threads",
    re.ASCII,
)  # what key_of makes


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


DEFAULT = Blocks()


class Table:
    """Blocks by the key of a step. digest: of what decides plans, "" for none."""

    def __init__(self, blocks: Mapping[str, Blocks] | None = None) -> None:
        self.blocks: Mapping[str, Blocks] = dict(blocks or {})
        plain = {key: value.ints() for key, value in sorted(self.blocks.items())}
        self.digest = hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:12] if plain else ""


class Tables:
    """The entries that ship for this processor, the cache's, and those in use: the cache's over the shipped
    ones. The default's blocks in the cache switch a shipped entry off."""

    def __init__(self, shipped: Mapping[str, Blocks], cached: Mapping[str, Blocks]) -> None:
        self.shipped, self.cached = shipped, cached
        both = {**shipped, **cached}
        self.used = Table({key: value for key, value in both.items() if value != DEFAULT})


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


def why_not(key: str, blocks: Blocks) -> str | None:
    """Why no step with this key takes these blocks, as its kernel would judge (settings_hold in
    csrc/cpu/matmul.c); None where it does."""
    parsed = KEY.fullmatch(key)
    if parsed is None:
        return "it is no key of a matmul"
    for name in NUMBERS:
        if not 0 <= getattr(blocks, name) <= LARGEST_BLOCK:
            return f"{name} is {getattr(blocks, name)}: expected 0 to {LARGEST_BLOCK}"
    if not 0 < blocks.gain <= LARGEST_BLOCK:
        return f"gain is {blocks.gain}: expected a number above 0, up to {LARGEST_BLOCK}"
    if blocks.kc % 32 or blocks.copies >= 16 or blocks.copies & 3 == 3:
        return f"kc is {blocks.kc} and copies {blocks.copies}: expected a multiple of 32, and 0 to 14"
    tiles = native.tiles_of(parsed["a"], parsed["isa"])
    if parsed["scaled"] and parsed["a"] == "f32":  # tiles with scales are at most two vectors wide
        tiles = tuple(tile for tile in tiles if tile.nr <= 2 * min(each.nr for each in tiles))
    chosen = [tile for tile in tiles if blocks.tile in ("", tile.name)][:1]
    if not chosen:
        return f"tile is {blocks.tile!r}: expected one of {', '.join(tile.name for tile in tiles) or 'none'}"
    if 0 < blocks.mc < chosen[0].mr:
        return f"mc is {blocks.mc}: expected at least the {chosen[0].mr} rows of {chosen[0].name}"
    return None


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


def name_of_table() -> str:
    """One per processor and version of the kernels."""
    digest = hashlib.sha256(json.dumps(processor(), sort_keys=True).encode()).hexdigest()
    return f"tuned-{digest[:16]}.json"


def path_of_table() -> Path:
    """The cache's file for this processor."""
    return directory() / name_of_table()


# --- reading ---------------------------------------------------------------------------------------


def read(path: Path) -> Table:
    """The table of a file; empty where there is none. Raises VoltaError where it cannot be used."""
    document = _document(path)
    if document is None:
        return Table()
    if document.get("processor") != processor():
        raise VoltaError(f"[tuned] {path} is of another processor or another version of the kernels")
    return Table(_entries(path, document))


def _document(path: Path) -> dict[str, Any] | None:
    """None where there is no file."""
    content = _content(path)
    if content is None:
        return None
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise VoltaError(f"[tuned] {path} is damaged: {error}") from error
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        given = str(document.get("schema"))[:40] if isinstance(document, dict) else type(document).__name__
        raise VoltaError(f"[tuned] {path} has schema {given!r}: expected {SCHEMA!r}")
    return document


def _entries(path: Path, document: Mapping[str, Any]) -> dict[str, Blocks]:
    entries = document.get("blocks")
    if not isinstance(entries, dict) or document.get("sha256") != _sha256(entries):
        raise VoltaError(f"[tuned] {path} is damaged: its blocks do not have the hash that it states")
    return {key: _blocks(path, key, value) for key, value in entries.items()}


def _content(path: Path) -> bytes | None:
    """None where there is no file. What is no regular file is not waited for."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise VoltaError(f"[tuned] {path} cannot be read: it is no regular file")
            content = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise VoltaError(f"[tuned] {path} cannot be read: {error.strerror}") from error
    if len(content) > LARGEST_FILE:
        raise VoltaError(f"[tuned] {path} is damaged: it has more than {LARGEST_FILE} bytes")
    return content


def _blocks(path: Path, key: str, value: object) -> Blocks:
    known: dict[str, type | tuple[type, ...]] = {"tile": str, "gain": (int, float)}
    known |= dict.fromkeys(NUMBERS, int)
    if not isinstance(value, dict) or set(value) != set(known):
        raise VoltaError(f"[tuned] {path} is damaged: {key!r} has other fields than {', '.join(known)}")
    for name, kind in known.items():
        if not isinstance(value[name], kind) or isinstance(value[name], bool):
            raise VoltaError(f"[tuned] {path} is damaged: {name} of {key!r} is {value[name]!r}")
    blocks = Blocks(**value)
    if (reason := why_not(key, blocks)) is not None:
        raise VoltaError(f"[tuned] {path} is damaged: {key!r}: {reason}")
    return blocks


def _sha256(entries: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()


_lock = threading.RLock()
_ships: list[Mapping[str, Blocks]] = []  # one, once it is read
_read: dict[str | None, Tables] = {}  # by the value of VOLTA_CACHE


def current() -> Table:
    """What matmuls of this process use."""
    return tables().used


def tables() -> Tables:
    """This process's, read once; a TunedWarning tells why a file is not used."""
    where = os.environ.get("VOLTA_CACHE")
    with _lock:
        if where not in _read:
            ships = shipped()
            try:
                _read[where] = Tables(ships, read(path_of_table()).blocks)
            except VoltaError as error:
                _read[where] = Tables(ships, {})
                _warn(str(error))
        return _read[where]


def shipped() -> Mapping[str, Blocks]:
    """The entries of all files in SHIPPED that are of this processor, those of later names over earlier ones;
    read once. Tables of other processors are passed over, unjudged."""
    with _lock:
        if not _ships:
            found: dict[str, Blocks] = {}
            wrong: list[str] = []
            files = sorted(SHIPPED.glob("*.json"))
            for path in files[:MOST_FILES]:
                try:
                    document = _document(path)
                    if document is not None and document.get("processor") == processor():
                        found |= _entries(path, document)
                except VoltaError as error:
                    wrong.append(str(error))
            if len(files) > MOST_FILES:
                wrong.append(f"[tuned] {files[MOST_FILES]} is one too many, the first {MOST_FILES} are read")
            _ships.append(found)
            for line in wrong:
                _warn(line)
        return _ships[0]


def _warn(line: str) -> None:
    warnings.warn(f"{line}: it is ignored", TunedWarning, stacklevel=4)


def forget() -> None:
    """The next `current` reads all files again."""
    with _lock:
        _ships.clear()
        _read.clear()


def _forget_cache() -> None:
    with _lock:
        _read.clear()


# --- writing ---------------------------------------------------------------------------------------


def add(entries: Mapping[str, Blocks]) -> Path:
    """Puts entries into this processor's table, beside those of other writers. The default's blocks take an
    entry out, but stay under a key that ships: they switch that off. No entries at all: nothing is written,
    only found out whether it could be. An unusable file is replaced. Raises UsageError for blocks that no
    kernel takes, CheckpointError where the disk refuses."""
    for key, value in entries.items():
        if (reason := why_not(key, value)) is not None:
            raise UsageError(f"[tuned] {key!r}: {reason}")
    path = path_of_table()
    try:
        atomic.make_directory(path.parent)
    except CheckpointError as error:
        reason = getattr(error.__cause__, "strerror", None) or str(error)
        raise CheckpointError(f"[tuned] {_cache_directory()} cannot be made: {reason}") from error
    with _writing(path):
        try:
            known = dict(read(path).blocks)
        except VoltaError:
            known = {}
        both, ships = {**known, **entries}, shipped()
        left = {key: value for key, value in both.items() if value != DEFAULT or key in ships}
        if left != known:
            _replace(path, left)
    _forget_cache()
    return path


def export(path: Path, keys: Collection[str] | None = None) -> int:
    """Puts the cache's entries, or those of some keys, into a table that is to ship, beside what it has; the
    default's blocks take an entry out. Gives how many it has then. It is written only where that changes
    something; whoever calls is its only writer. Raises UsageError for a key that the cache lacks, VoltaError
    where the file is there and cannot be used, CheckpointError where the disk refuses."""
    cached = read(path_of_table()).blocks
    chosen = cached if keys is None else {key: cached[key] for key in keys if key in cached}
    if lacking := set(keys or ()) - set(chosen):
        raise UsageError(f"[tuned] {min(lacking)!r} is not in {path_of_table()}: expected a key that is")
    known = read(path).blocks
    left = {key: value for key, value in {**known, **chosen}.items() if value != DEFAULT}
    if left != known:
        atomic.make_directory(path.parent)
        _replace(path, left)
        forget()
    return len(left)


def _replace(path: Path, blocks: Mapping[str, Blocks]) -> None:
    plain = {key: asdict(value) for key, value in sorted(blocks.items())}
    document = {"schema": SCHEMA, "processor": processor(), "sha256": _sha256(plain), "blocks": plain}
    atomic.write_text(path, json.dumps(document, indent=1) + "\n", "tuned")


def _cache_directory() -> str:
    chosen = "VOLTA_CACHE" if os.environ.get("VOLTA_CACHE") else "the cache directory"
    return f"{chosen} {directory()}"


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Alone among all processes and threads that write this table; the kernel lets go of the lock when its
    holder dies. Raises CheckpointError where the table could not be written."""
    try:
        with path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.access(path.parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            yield
    except OSError as error:
        raise CheckpointError(
            f"[tuned] {path.name} in {_cache_directory()} cannot be written: {error.strerror}"
        ) from error


def clear() -> Path:
    """Removes this processor's table from the cache, if there is one; what ships stays. Raises
    CheckpointError where the disk refuses."""
    path = path_of_table()
    if path.parent.exists():
        with _writing(path):
            path.unlink(missing_ok=True)
    _forget_cache()
    return path
