"""The tuned table on disk: what is written is read, and nothing else ever is."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ops.parity import isas
from tests.tune.table_writer import entry

from volta.backends.cpu import native, tuned
from volta.backends.cpu.tuned import DEFAULT, Blocks, TunedWarning
from volta.errors import CheckpointError, UsageError, VoltaError
from volta.runtime import gateway

WRITER = Path(__file__).with_name("table_writer.py")
pytestmark = pytest.mark.skipif(len(isas()) == 1, reason="this processor has no tiles to choose from")

ISA = isas()[-1]
TILE = native.tiles_of("f32", ISA)[0] if len(isas()) > 1 else None
KEY = f"f32 x f32 20x30x40 a rows/40 b rows/30 {ISA} 1 threads"
OTHER = f"f32 x f32 21x30x40 a columns/21 b rows/30 {ISA} 2 threads"


def some_blocks(**changes: Any) -> Blocks:
    assert TILE is not None
    values: dict[str, Any] = {"tile": TILE.name, "kc": 64, "mc": 32, "nc": 256, "ahead": 5, "gain": 1.25}
    return Blocks(**{**values, **changes})


def written(cache: Path) -> Path:
    """A table of two entries."""
    path = tuned.add({KEY: some_blocks(), OTHER: some_blocks(copies=10, threads=1)})
    assert path.parent == cache
    return path


def signed(document: dict[str, Any]) -> bytes:
    """With the hash that its blocks have: what only a bug or a forger writes."""
    plain = json.dumps(document["blocks"], sort_keys=True)
    return json.dumps({**document, "sha256": hashlib.sha256(plain.encode()).hexdigest()}).encode()


def test_a_test_session_has_a_cache_of_its_own() -> None:
    """tests/conftest.py: empty when the session begins, and that of every process it starts."""
    directory = Path(os.environ["VOLTA_CACHE"])
    assert directory.is_dir()
    assert directory.name.startswith("volta-tests-")
    program = "from volta.runtime import gateway; print(gateway.tuned_path())"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()).parent == directory == tuned.directory()


def test_without_volta_cache_the_platforms_directory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    for value in ("", None):
        if value is None:
            monkeypatch.delenv("VOLTA_CACHE")
        else:
            monkeypatch.setenv("VOLTA_CACHE", value)
        assert tuned.directory() == Path("/somewhere/volta")


# --- round trip --------------------------------------------------------------------------------------


def test_what_is_added_is_read_and_in_use(cache: Path) -> None:
    assert gateway.tuned_table().blocks == {}
    path = gateway.keep_tuned({KEY: some_blocks()})
    assert gateway.tuned_path() == path
    assert gateway.tuned_table().blocks == tuned.read(path).blocks == {KEY: some_blocks()}


def test_additions_stay_beside_each_other_and_replace_their_own_key(cache: Path) -> None:
    tuned.add({KEY: some_blocks()})
    tuned.add({OTHER: some_blocks(kc=96)})
    path = tuned.add({KEY: some_blocks(kc=128)})
    assert tuned.read(path).blocks == {KEY: some_blocks(kc=128), OTHER: some_blocks(kc=96)}


def test_the_defaults_blocks_take_an_entry_out(cache: Path) -> None:
    written(cache)
    path = tuned.add({KEY: DEFAULT})
    assert set(tuned.read(path).blocks) == {OTHER}


def test_adding_nothing_makes_the_directory_and_writes_no_table(cache: Path) -> None:
    path = tuned.add({})
    assert cache.is_dir()
    assert not path.exists()


def test_an_unusable_file_is_replaced_by_the_next_addition(cache: Path) -> None:
    written(cache).write_bytes(b"{")
    path = tuned.add({KEY: some_blocks()})
    assert tuned.read(path).blocks == {KEY: some_blocks()}


def test_clearing_removes_the_table_and_is_no_error_without_one(cache: Path) -> None:
    assert gateway.clear_tuned() == gateway.tuned_path()
    path = written(cache)
    assert gateway.tuned_table().blocks
    gateway.clear_tuned()
    assert not path.exists()
    assert gateway.tuned_table().blocks == {}


def test_the_digest_tells_tables_apart_by_what_they_decide(cache: Path) -> None:
    """Not by the gain that was measured, nor by the order of entries."""
    one = tuned.Table({KEY: some_blocks(), OTHER: some_blocks()})
    same = tuned.Table({OTHER: some_blocks(gain=2.0), KEY: some_blocks()})
    other = tuned.Table({KEY: some_blocks(kc=96), OTHER: some_blocks()})
    assert tuned.Table().digest == ""
    assert one.digest == same.digest != other.digest


BAD_BLOCKS: dict[str, tuple[str, dict[str, Any]]] = {
    "no key": ("a key", {}),
    "a reference, which has no tiles": (KEY.replace(ISA, "ref"), {"tile": ""}),
    "no such instruction set": (KEY.replace(ISA, "neon"), {"tile": ""}),
    "no such tile": (KEY, {"tile": "f32_matmul_99x99_avx2"}),
    "a tile of another kind": (KEY.replace("f32 x f32", "bf16 x bf16"), {}),
    "a K block that is no multiple of 32": (KEY, {"kc": 48}),
    "fewer rows than the tile has": (KEY, {"mc": 1}),
    "fewer rows than the default tile has": (KEY, {"tile": "", "mc": 1}),
    "a negative number": (KEY, {"nc": -1}),
    "a number that is too large": (KEY, {"threads": (1 << 20) + 1}),
    "copies that do not exist": (KEY, {"copies": 16}),
    "B packed, but it is not": (KEY, {"copies": 3}),
    "no gain": (KEY, {"gain": 0.0}),
    "an endless gain": (KEY, {"gain": float("inf")}),
}


@pytest.mark.parametrize("name", BAD_BLOCKS)
def test_blocks_that_no_kernel_takes_are_refused_when_written_and_when_read(cache: Path, name: str) -> None:
    """And then nothing of the addition is written: what stood there stays."""
    key, changes = BAD_BLOCKS[name]
    path = written(cache)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"^\[tuned\] '.*': .* is "):
        tuned.add({OTHER: some_blocks(), key: some_blocks(**changes)})
    assert path.read_bytes() == before
    document = json.loads(before)
    plain = {name: getattr(some_blocks(**changes), name) for name in document["blocks"][KEY]}
    document["blocks"][key] = plain
    path.write_bytes(signed(document))
    with pytest.raises(VoltaError, match="is damaged"):
        tuned.read(path)


# --- damage ------------------------------------------------------------------------------------------


def assert_reported_once_and_ignored(path: Path, said: str) -> None:
    tuned.forget()
    with pytest.warns(TunedWarning, match=said) as caught:
        assert tuned.current().blocks == {}
    assert len(caught) == 1
    assert str(caught[0].message).startswith(f"[tuned] {path} ")
    assert str(caught[0].message).endswith(": it is ignored")
    assert "\n" not in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tuned.current().blocks == {}


def changed(**changes: Any) -> Callable[[dict[str, Any]], bytes]:
    return lambda document: json.dumps({**document, **changes}).encode()


def with_entry(**changes: Any) -> Callable[[dict[str, Any]], bytes]:
    """An entry changed, the hash made anew."""

    def change(document: dict[str, Any]) -> bytes:
        document["blocks"][KEY].update(changes)
        return signed(document)

    return change


def without_field(document: dict[str, Any]) -> bytes:
    del document["blocks"][KEY]["nc"]
    return signed(document)


def of_another_processor(**changes: Any) -> Callable[[dict[str, Any]], bytes]:
    return lambda document: json.dumps(
        {**document, "processor": {**document["processor"], **changes}}
    ).encode()


FOREIGN = "is of another processor or another version of the kernels"
BAD_FILES: dict[str, tuple[Callable[[dict[str, Any]], bytes], str]] = {
    "empty": (lambda document: b"", "is damaged"),
    "no JSON": (lambda document: b"tile 6x16", "is damaged"),
    "no text": (lambda document: b"\xff\xfe\x00\xd8", "is damaged"),
    "nested without end": (lambda document: b"[" * 100_000, "is damaged"),
    "a number of 5000 digits": (lambda document: b"9" * 5000, "is damaged"),
    "a list": (lambda document: b"[]", "has schema 'list'"),
    "no schema": (changed(schema=None), "has schema 'None'"),
    "a later schema": (changed(schema="volta-tuned/2"), "has schema 'volta-tuned/2'"),
    "another processor": (of_another_processor(cpu="Another"), FOREIGN),
    "other instruction sets": (of_another_processor(isas=["ref"]), FOREIGN),
    "other caches": (of_another_processor(cache_bytes=[1, 2, 3]), FOREIGN),
    "another version": (of_another_processor(abi=native.ABI_VERSION + 1), FOREIGN),
    "no processor": (changed(processor=None), FOREIGN),
    "a wrong hash": (changed(sha256="0" * 64), "do not have the hash"),
    "no hash": (changed(sha256=None), "do not have the hash"),
    "no blocks": (changed(blocks=None), "do not have the hash"),
    "other blocks than the hash's": (changed(blocks={}), "do not have the hash"),
    "an entry that is a list": (
        lambda document: signed({**document, "blocks": {KEY: [1, 2]}}),
        "has other fields",
    ),
    "a field too many": (with_entry(depth=3), "has other fields"),
    "a field too few": (without_field, "has other fields"),
    "a number as text": (with_entry(kc="64"), "kc of .* is '64'"),
    "a fraction": (with_entry(kc=64.0), "kc of .* is 64.0"),
    "a truth value": (with_entry(threads=True), "threads of .* is True"),
    "a tile as number": (with_entry(tile=1), "tile of .* is 1"),
    "nothing as gain": (with_entry(gain=None), "gain of .* is None"),
    "a gain that is no number": (with_entry(gain=float("nan")), "gain is nan"),
    "a whole gain beyond all floats": (with_entry(gain=10**400), "is damaged"),
    "larger than any table": (
        lambda document: json.dumps(document).encode() + b" " * tuned.LARGEST_FILE,
        "more than",
    ),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_reported_once_and_never_used(cache: Path, name: str) -> None:
    path = written(cache)
    change, said = BAD_FILES[name]
    path.write_bytes(change(json.loads(path.read_bytes())))
    assert_reported_once_and_ignored(path, said)


def test_what_is_no_readable_file_is_reported_once_and_ignored(cache: Path) -> None:
    path = written(cache)
    path.unlink()
    path.mkdir()
    assert_reported_once_and_ignored(path, "cannot be read: Is a directory")
    path.rmdir()
    os.mkfifo(path)
    assert_reported_once_and_ignored(path, "cannot be read: it is no regular file")
    path.unlink()
    path.symlink_to(path)
    assert_reported_once_and_ignored(path, "cannot be read: Too many levels of symbolic links")


def test_a_file_without_permission_is_reported_once_and_ignored(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(cache)
    path.chmod(0)
    if os.access(path, os.R_OK):  # the superuser reads everything: let the system call refuse

        def refuse(*_: object) -> int:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "open", refuse)
    assert_reported_once_and_ignored(path, "cannot be read: Permission denied")


def test_a_cache_that_is_a_file_is_reported_once_and_ignored(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("VOLTA_CACHE", str(tmp_path / "file"))
    assert_reported_once_and_ignored(tuned.path_of_table(), "cannot be read: Not a directory")


CHANGES = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=4)


@given(changes=CHANGES, cut=st.none() | st.integers(0, 1 << 20))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_damage_gives_blocks_that_nobody_wrote(
    cache: Path, changes: list[tuple[int, int]], cut: int | None
) -> None:
    """Bits flipped anywhere, and the end cut off: the file is refused, or its blocks are what was written."""
    path = tuned.path_of_table()
    content = bytearray((path if path.exists() else written(cache)).read_bytes())
    blocks = tuned.read(path).blocks
    for at, bits in changes:
        content[at % len(content)] ^= bits
    damaged = path.with_suffix(".damaged")
    damaged.write_bytes(content if cut is None else content[: cut % len(content)])
    with suppress(VoltaError):
        assert tuned.read(damaged).blocks == blocks


# --- where it cannot be written -----------------------------------------------------------------------


def refusals(tmp_path: Path) -> dict[str, tuple[Path, str]]:
    """Cache directories that no table can be written to, and what is said of them."""
    (tmp_path / "file").write_bytes(b"")
    name = tuned.path_of_table().name
    for directory, taken in (("table", name), ("lock", Path(name).with_suffix(".lock").name)):
        (tmp_path / directory / taken).mkdir(parents=True)
    return {
        "a file": (tmp_path / "file", "cannot be made: a file has this name"),
        "below a file": (tmp_path / "file" / "below", "cannot be made: Not a directory"),
        "a directory has the table's name": (tmp_path / "table", "cannot be written: Is a directory"),
        "a directory has the lock's name": (tmp_path / "lock", "cannot be written: Is a directory"),
    }


@pytest.mark.parametrize("entries", [{}, {KEY: "blocks"}], ids=["nothing", "an entry"])
def test_a_directory_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, str]
) -> None:
    for directory, said in refusals(tmp_path).values():
        monkeypatch.setenv("VOLTA_CACHE", str(directory))
        with pytest.raises(CheckpointError, match=said) as caught:
            tuned.add(dict.fromkeys(entries, some_blocks()))
        assert f"VOLTA_CACHE {directory}" in str(caught.value)


def test_a_directory_without_permission_is_told_before_anything_is_written(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(cache)
    before = path.read_bytes()
    monkeypatch.setattr(os, "access", lambda *_: False)  # what the system call says on a read-only disk
    for entries in ({}, {KEY: some_blocks(kc=96)}):
        with pytest.raises(CheckpointError, match="cannot be written: Permission denied"):
            tuned.add(entries)
    with pytest.raises(CheckpointError, match="cannot be written: Permission denied"):
        tuned.clear()
    assert path.read_bytes() == before


# --- several writers ---------------------------------------------------------------------------------


def start(name: int, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, str(WRITER), str(name), str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def expected(writers: dict[int, int]) -> dict[str, Blocks]:
    """What writers leave that have added so many entries each."""
    return dict(entry(name, number) for name, count in writers.items() for number in range(count))


@pytest.mark.skipif("avx2" not in isas(), reason="the writer's keys are of AVX2")
def test_processes_and_threads_that_write_at_once_lose_nothing(cache: Path) -> None:
    """Two processes and two threads, twelve entries each; a reader never meets a file it cannot use."""
    processes = [start(name, 12) for name in (0, 1)]
    wrong: list[str] = []

    def write(name: int) -> None:
        for number in range(12):
            tuned.add(dict([entry(name, number)]))

    threads = [threading.Thread(target=write, args=(name,)) for name in (2, 3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) or any(one.poll() is None for one in processes):
        try:
            tuned.read(tuned.path_of_table())
        except VoltaError as error:
            wrong.append(str(error))
    for thread in threads:
        thread.join(timeout=60)
    for process in processes:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert wrong == []
    assert tuned.read(tuned.path_of_table()).blocks == expected(dict.fromkeys(range(4), 12))


@pytest.mark.skipif("avx2" not in isas(), reason="the writer's keys are of AVX2")
def test_a_killed_writer_leaves_what_it_had_written_or_one_entry_more(cache: Path) -> None:
    """At any moment, and its lock does not outlive it."""
    delays = random.Random(20240229)
    for name in range(6):
        process = start(name, 0)
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        time.sleep(delays.uniform(0.0, 0.03))
        process.send_signal(signal.SIGKILL)
        acknowledged = [0, *map(int, process.communicate(timeout=60)[0].split())][-1]
        found = tuned.read(tuned.path_of_table()).blocks
        own = {key: value for key, value in found.items() if value.nc == name}
        assert own in (expected({name: acknowledged + 1}), expected({name: acknowledged + 2}))
    path = tuned.add({KEY: some_blocks()})
    assert tuned.read(path).blocks[KEY] == some_blocks()
    assert [one.name for one in cache.iterdir() if one.name.startswith(".volta-")] == []
