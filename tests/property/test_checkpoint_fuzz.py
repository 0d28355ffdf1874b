"""The loader meets any bytes at all: it gives a proven checkpoint or a CheckpointError, nothing else."""

from __future__ import annotations

import hashlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from volta.errors import CheckpointError
from volta.storage.tensorfile import canonical
from volta.train import checkpoint as ck

Content = tuple[object, ...]


def _valid() -> ck.Checkpoint:
    return ck.Checkpoint(
        step=3,
        config={"depth": 1},
        parameters={"w": np.arange(6, dtype=np.float32).reshape(2, 3), "h": np.arange(3, dtype=np.uint16)},
        optimizer={"count": np.array(3, np.int32), "empty": np.zeros((0, 2), np.float32)},
        rng={"seed": 1},
    )


def _content(checkpoint: ck.Checkpoint) -> Content:
    def bits(tensors: dict[str, npt.NDArray[Any]]) -> list[tuple[str, str, tuple[int, ...], bytes]]:
        return [(name, str(a.dtype), a.shape, a.tobytes()) for name, a in sorted(tensors.items())]

    names = ("step", "config", "optimizer_config", "rng", "data", "state", "graph")
    return (bits(checkpoint.parameters), bits(checkpoint.optimizer), *(getattr(checkpoint, n) for n in names))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz") / "x.safetensors"


@pytest.fixture(scope="module")
def raw(file: Path) -> bytes:
    ck.write(file, _valid())
    return file.read_bytes()


def _read(file: Path, content: bytes) -> ck.Checkpoint | None:
    """The checkpoint in these bytes; None for a CheckpointError of one line."""
    file.write_bytes(content)
    result, errors = None, []
    for reader in (ck.info, ck.load):
        try:
            result = reader(file)
        except CheckpointError as error:
            result = None
            errors.append(str(error))
    assert all(error.startswith("[checkpoint] ") and "\n" not in error for error in errors)
    return result if isinstance(result, ck.Checkpoint) else None


def _file(header: bytes, payload: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header + payload


def _split(raw: bytes) -> tuple[dict[str, Any], bytes]:
    end = 8 + int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:end]), raw[end:]


names = st.text(max_size=8)
arrays = st.builds(
    lambda dtype, shape, fill: np.resize(np.frombuffer(fill, dtype), shape),
    st.sampled_from([np.float32, np.uint16, np.int32]),
    st.lists(st.integers(0, 4), max_size=4).map(tuple),
    st.binary(min_size=16, max_size=16),
)
tensors = st.dictionaries(names, arrays, max_size=4)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.text(max_size=5), json_values, max_size=3)


@given(
    checkpoint=st.builds(
        ck.Checkpoint,
        step=st.integers(0, 10**18 - 1),
        config=objects,
        parameters=tensors,
        optimizer=tensors,
        optimizer_config=objects,
        rng=objects,
        data=objects,
        state=objects,
        graph=st.text(max_size=20),
    )
)
@settings(deadline=None, max_examples=100)
def test_every_checkpoint_comes_back_in_every_bit(file: Path, checkpoint: ck.Checkpoint) -> None:
    ck.write(file, checkpoint)
    assert _content(ck.load(file)) == _content(checkpoint)


@given(content=st.binary(max_size=300))
@settings(deadline=None, max_examples=200)
def test_random_bytes_are_never_a_checkpoint(file: Path, content: bytes) -> None:
    assert _read(file, content) is None


@given(header=st.binary(max_size=100), payload=st.binary(max_size=50))
@settings(deadline=None, max_examples=200)
def test_random_bytes_behind_a_plausible_start_are_never_a_checkpoint(
    file: Path, header: bytes, payload: bytes
) -> None:
    assert _read(file, _file(b"{" + header, payload)) is None


numbers = st.integers(-2, 64) | st.sampled_from([1 << 31, 1 << 40, 1 << 62, 1 << 64, 1 << 200]) | st.floats()
claims = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "BF16", "I32", "F64", "", 7, None]),
        "shape": st.lists(numbers, max_size=8) | json_values,
        "data_offsets": st.lists(numbers, max_size=3) | json_values,
    }
)


@given(
    header=st.dictionaries(names | st.just("__metadata__"), claims | json_values, max_size=4),
    payload=st.binary(),
)
@settings(deadline=None, max_examples=200)
def test_headers_with_random_claims_are_never_a_checkpoint(
    file: Path, header: dict[str, Any], payload: bytes
) -> None:
    assert _read(file, _file(json.dumps(header).encode(), payload)) is None


edits = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "insert", "delete", "cut"]), st.integers(0, 4095), st.integers(0, 255)
    ),
    min_size=1,
    max_size=4,
)


def _edited(raw: bytes, changes: list[tuple[str, int, int]]) -> bytes:
    content = bytearray(raw)
    for kind, position, value in changes:
        at = position % max(1, len(content))
        if kind == "insert":
            content.insert(at, value)
        elif kind == "cut":
            del content[at:]
        elif not content:
            continue
        elif kind == "delete":
            del content[at : at + 1 + value % 8]
        else:
            content[at] = value if kind == "set" else content[at] ^ (1 << value % 8)
    return bytes(content)


@given(changes=edits)
@settings(deadline=None, max_examples=400)
def test_a_damaged_file_is_refused_or_means_exactly_the_same(
    file: Path, raw: bytes, changes: list[tuple[str, int, int]]
) -> None:
    loaded = _read(file, _edited(raw, changes))
    assert loaded is None or _content(loaded) == _content(_valid())


def test_every_single_bit_of_the_file_is_guarded(file: Path, raw: bytes) -> None:
    """Whichever bit is wrong: refused, or (a blank of the header became another) the same content."""
    expected = _content(_valid())
    accepted = 0
    for position in range(len(raw)):
        content = bytearray(raw)
        content[position] ^= 1 << (position * 5 + position // 8) % 8
        loaded = _read(file, bytes(content))
        if loaded is not None:
            accepted += 1
            assert _content(loaded) == expected
    assert accepted <= 8


@given(
    changes=st.dictionaries(
        st.sampled_from(
            ["step", "config", "optimizer", "rng", "data", "state", "graph", "writer", "version"]
        ),
        st.text(max_size=20) | json_values.map(json.dumps),
        max_size=3,
    ),
    drop=st.sampled_from([None, "step", "weights_sha256", "format", "sha256"]),
)
@example(changes={"config": "1e999"}, drop=None)
@example(changes={"config": '{"a":1e999}'}, drop=None)
@settings(deadline=None, max_examples=200)
def test_metadata_that_somebody_signed_are_read_or_refused(
    file: Path, raw: bytes, changes: dict[str, str], drop: str | None
) -> None:
    """A fitting checksum makes metadata intact, not sensible."""
    head, payload = _split(raw)
    metadata = head["__metadata__"] | changes
    if drop is not None:
        del metadata[drop]
    if "sha256" in metadata:
        rest = {key: value for key, value in metadata.items() if key != "sha256"}
        metadata["sha256"] = hashlib.sha256(canonical(rest)).hexdigest()
    loaded = _read(file, _file(json.dumps(head | {"__metadata__": metadata}).encode(), payload))
    assert loaded is None or (drop is None and _content(loaded)[:2] == _content(_valid())[:2])


@pytest.mark.parametrize("claimed", [1 << 20, 1 << 34, 1 << 40, 1 << 59])
def test_sizes_in_a_file_allocate_nothing_before_they_are_proven(file: Path, claimed: int) -> None:
    header = {"a": {"dtype": "F32", "shape": [claimed], "data_offsets": [0, claimed * 4]}}
    tracemalloc.start()
    try:
        assert _read(file, _file(json.dumps(header).encode(), b"\0" * 100)) is None
        assert _read(file, claimed.to_bytes(8, "little") + b"{" * 100) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 18
