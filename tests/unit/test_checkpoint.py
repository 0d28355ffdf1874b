"""Checkpoint format v1: what is saved is what is loaded, and everything else is one clear error."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import safetensors
import safetensors.numpy

from volta.dtypes import bfloat16, float32, int32
from volta.errors import CheckpointError, DTypeError, UsageError
from volta.storage import tensorfile
from volta.train import checkpoint as ck
from volta.train import checkpoint_format

Bits = dict[str, tuple[str, tuple[int, ...], bytes]]


def _example(step: int = 7) -> ck.Checkpoint:
    numbers = np.random.default_rng(step)
    return ck.Checkpoint(
        step=step,
        config={"depth": 2, "width": 8, "eps": 1e-5, "tied": True, "names": ["a", "b"], "none": None},
        parameters={
            "embedding": numbers.standard_normal((5, 3), np.float32),
            "blocks.0.norm": numbers.standard_normal(3, np.float32),
            "half": numbers.integers(0, 1 << 16, (2, 3), np.uint16),
        },
        optimizer={"m/embedding": np.zeros((5, 3), np.float32), "count": np.array(step, np.int32)},
        optimizer_config={"name": "adamw", "beta1": 0.9},
        rng={"seed": 2**63, "counters": {"dropout": 12}},
        data={"position": step, "sha256": "0" * 64},
        state={"best": 1.25},
        graph="f" * 64,
    )


def _names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def _bits(tensors: tensorfile.Tensors) -> Bits:
    return {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in tensors.items()}


def _assert_same(loaded: ck.Checkpoint, saved: ck.Checkpoint) -> None:
    assert _bits(loaded.parameters) == _bits(saved.parameters)
    assert _bits(loaded.optimizer) == _bits(saved.optimizer)
    for name in ("step", "config", "optimizer_config", "rng", "data", "state", "graph"):
        assert getattr(loaded, name) == getattr(saved, name)


def _rewritten(path: Path, change: Callable[[dict[str, Any]], None], payload: bytes | None = None) -> None:
    """Change the header of a file, keep or replace its payload."""
    raw = path.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    head = json.loads(raw[8:end])
    change(head)
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + (raw[end:] if payload is None else payload))


def _signed(head: dict[str, Any], **changes: str) -> None:
    """Change metadata and give them the checksum that fits."""
    metadata = head["__metadata__"]
    metadata.update(changes)
    rest = {key: value for key, value in metadata.items() if key != "sha256"}
    metadata["sha256"] = hashlib.sha256(tensorfile.canonical(rest)).hexdigest()


# --- what is saved is what is loaded -------------------------------------------------------------


def test_a_saved_checkpoint_comes_back_in_every_bit_and_field(tmp_path: Path) -> None:
    path = ck.save(tmp_path / "runs" / "one", _example())
    assert path.name == "step-00000007.safetensors"
    for source in (path, path.parent):
        loaded = ck.load(source)
        _assert_same(loaded, _example())
        assert loaded.path == path
        assert loaded.writer.startswith("volta-runtime ")


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0, 2), (1, 2, 3, 1, 2, 3)])
@pytest.mark.parametrize("dtype", [np.float32, np.uint16, np.int32])
def test_every_dtype_and_shape_round_trips(tmp_path: Path, shape: tuple[int, ...], dtype: type) -> None:
    size = int(np.prod(shape))
    array: npt.NDArray[Any] = np.arange(size, dtype=dtype).reshape(shape)
    ck.write(tmp_path / "x", ck.Checkpoint(0, {}, {"x": array}))
    assert _bits(ck.load(tmp_path / "x").parameters) == _bits({"x": array})


def test_strided_arrays_are_stored_by_value(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float32).reshape(4, 6)
    arrays = {"t": base.T, "step": base[::2, ::-3]}
    ck.write(tmp_path / "x", ck.Checkpoint(0, {}, arrays))
    loaded = ck.load(tmp_path / "x").parameters
    for name, array in arrays.items():
        assert loaded[name].dtype == np.float32
        assert loaded[name].flags.c_contiguous
        np.testing.assert_array_equal(loaded[name], array)


def test_nan_payloads_and_signed_zeros_survive(tmp_path: Path) -> None:
    patterns = np.array([0x7FC00001, 0xFFC12345, 0x7F800001, 0x80000000, 1, 0xFF800000], np.uint32)
    ck.write(tmp_path / "x", ck.Checkpoint(0, {}, {"x": patterns.view(np.float32)}))
    np.testing.assert_array_equal(ck.load(tmp_path / "x").parameters["x"].view(np.uint32), patterns)


def test_loaded_arrays_can_be_written_to(tmp_path: Path) -> None:
    ck.write(tmp_path / "x", _example())
    assert all(array.flags.writeable for array in ck.load(tmp_path / "x").parameters.values())


def test_equal_states_give_equal_files_whatever_the_order_of_their_names(tmp_path: Path) -> None:
    one = _example()
    turned = replace(
        one, parameters=dict(reversed(one.parameters.items())), config=dict(reversed(one.config.items()))
    )
    ck.write(tmp_path / "one", one)
    ck.write(tmp_path / "two", turned)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_checkpoint_without_tensors_is_valid(tmp_path: Path) -> None:
    ck.write(tmp_path / "x", ck.Checkpoint(0, {}, {}))
    assert ck.load(tmp_path / "x").parameters == {}


def test_the_safetensors_package_reads_the_same_tensors(tmp_path: Path) -> None:
    path = ck.save(tmp_path, _example())
    found = dict(safetensors.deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    expected = {f"parameters/{name}": array for name, array in _example().parameters.items()}
    expected |= {f"optimizer/{name}": array for name, array in _example().optimizer.items()}
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert bytes(found[name]["data"]) == array.tobytes()
        assert tuple(found[name]["shape"]) == array.shape
    assert found["parameters/half"]["dtype"] == "BF16"


def test_a_file_of_the_safetensors_package_is_read(tmp_path: Path) -> None:
    tensors = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.arange(4, dtype=np.int32)}
    safetensors.numpy.save_file(tensors, tmp_path / "x", {"key": "value"})
    header, loaded = tensorfile.read(tmp_path / "x")
    assert _bits(loaded) == _bits(tensors)
    assert header.metadata == {"key": "value"}


def test_the_weights_hash_is_the_documented_one() -> None:
    """Written out by hand: sorted names, one ASCII line each, then little-endian values."""
    parameters: tensorfile.Tensors = {
        "w\u00e9": np.array([[1.0, -2.5]], np.float32),
        "b": np.array([1, 0xFF80], np.uint16),
    }
    expected = hashlib.sha256(
        b'["b","bf16",[2]]\n' + struct.pack("<2H", 1, 0xFF80)
        + b'["w\\u00e9","f32",[1,2]]\n' + struct.pack("<2f", 1.0, -2.5)
    ).hexdigest()  # fmt: skip
    assert ck.weights_sha256(parameters) == expected


def test_the_weights_hash_sees_names_dtypes_shapes_and_bits_and_nothing_else(tmp_path: Path) -> None:
    zeros = np.zeros((2, 2), np.float32)
    negative = zeros.copy()
    negative[1, 1] = -0.0
    variants: list[tensorfile.Tensors] = [
        {"x": zeros},
        {"y": zeros},
        {"x": zeros.view(np.int32)},
        {"x": zeros.reshape(4)},
        {"x": negative},
        {"x": zeros, "y": zeros},
        {},
    ]
    assert len({ck.weights_sha256(variant) for variant in variants}) == len(variants)
    first, later = _example(7), replace(_example(7), step=9, optimizer={}, state={})
    ck.write(tmp_path / "first", first)
    ck.write(tmp_path / "later", later)
    assert ck.info(tmp_path / "first")["weights_sha256"] == ck.info(tmp_path / "later")["weights_sha256"]
    assert ck.info(tmp_path / "first")["sha256"] != ck.info(tmp_path / "later")["sha256"]


def test_info_tells_what_was_saved_and_reads_no_tensor(tmp_path: Path) -> None:
    path = ck.save(tmp_path, _example())
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    info = ck.info(tmp_path)
    assert info["step"] == 7
    assert info["parameters"] == 15 + 3 + 6
    assert info["tensors"] == 5
    assert info["dtypes"] == ["bf16", "f32"]
    assert info["version"] == "1"
    assert info["config"] == _example().config
    assert info["weights_sha256"] == ck.weights_sha256(_example().parameters)
    assert info["bytes"] == len(raw)
    json.dumps(info)
    with pytest.raises(CheckpointError, match="bad checksum"):
        ck.load(tmp_path)


def test_the_writer_names_the_installed_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_format, "installed_version", lambda name: "1.2.3")
    assert checkpoint_format.encode(_example())[1]["writer"] == "volta-runtime 1.2.3"

    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(checkpoint_format, "installed_version", missing)
    assert checkpoint_format.encode(_example())[1]["writer"] == "volta-runtime (not installed)"


# --- the run directory -----------------------------------------------------------------------------


def test_the_newest_checkpoints_are_kept_and_older_ones_removed(tmp_path: Path) -> None:
    for step in (10, 200, 3000, 40000):
        ck.save(tmp_path, _example(step), keep=2)
    assert [step for step, _ in ck.steps(tmp_path)] == [3000, 40000]
    assert ck.newest(tmp_path) == tmp_path / "step-00040000.safetensors"
    assert ck.load(tmp_path).step == 40000


def test_the_default_keeps_three(tmp_path: Path) -> None:
    for step in range(5):
        ck.save(tmp_path, _example(step))
    assert [step for step, _ in ck.steps(tmp_path)] == [2, 3, 4]


def test_steps_of_nine_digits_sort_by_number(tmp_path: Path) -> None:
    ck.save(tmp_path, _example(99_999_999))
    ck.save(tmp_path, _example(100_000_000))
    assert ck.load(tmp_path).step == 100_000_000


def test_the_same_step_is_replaced(tmp_path: Path) -> None:
    ck.save(tmp_path, _example(5))
    ck.save(tmp_path, replace(_example(5), state={"again": 1}))
    assert ck.load(tmp_path).state == {"again": 1}
    assert len(ck.steps(tmp_path)) == 1


def test_older_files_stay_when_the_new_one_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ck.save(tmp_path, _example(1), keep=1)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="its disk is full"):
        ck.save(tmp_path, _example(2), keep=1)
    _assert_same(ck.load(tmp_path), _example(1))


def test_an_older_file_that_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = ck.save(tmp_path, _example(1))

    def refused(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(CheckpointError, match=f"{old.name} cannot be removed: Permission denied"):
        ck.save(tmp_path, _example(2), keep=1)
    monkeypatch.undo()
    assert ck.load(tmp_path).step == 2


def test_other_files_in_the_run_directory_are_left_alone(tmp_path: Path) -> None:
    names = {"notes.txt", "step-1.safetensors", "step-00000001.safetensors.bak", "best.safetensors"}
    for name in names:
        (tmp_path / name).write_bytes(b"mine")
    ck.save(tmp_path, _example(5), keep=1)
    ck.save(tmp_path, _example(6), keep=1)
    assert set(_names(tmp_path)) == names | {"step-00000006.safetensors"}


def test_a_run_cannot_save_below_a_later_step(tmp_path: Path) -> None:
    ck.save(tmp_path, _example(500))
    ck.prepare(tmp_path, 500)
    for call in (lambda: ck.prepare(tmp_path, 0), lambda: ck.save(tmp_path, _example(400))):
        with pytest.raises(CheckpointError, match="already holds step 500, later than step"):
            call()
    assert ck.load(tmp_path).step == 500


def test_an_unwritable_run_directory_is_found_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CheckpointError, match="cannot be written: no permission"):
        ck.prepare(tmp_path, 0)


def test_a_file_is_no_run_directory(tmp_path: Path) -> None:
    (tmp_path / "run").write_bytes(b"")
    with pytest.raises(CheckpointError, match="run cannot be created: a file has this name"):
        ck.prepare(tmp_path / "run", 0)
    with pytest.raises(CheckpointError, match="cannot be read: Not a directory"):
        ck.steps(tmp_path / "run")


@pytest.mark.parametrize("reader", [ck.load, ck.info])
def test_a_damaged_newest_file_is_an_error_that_names_the_one_before(
    tmp_path: Path, reader: Callable[[Path], object]
) -> None:
    before = ck.save(tmp_path, _example(1))
    newest = ck.save(tmp_path, _example(2))
    newest.write_bytes(newest.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match=f"{newest.name} is truncated.*before it is {before}$"):
        reader(tmp_path)


def test_a_renamed_step_is_an_error(tmp_path: Path) -> None:
    path = ck.save(tmp_path, _example(1))
    path.rename(tmp_path / "step-00000009.safetensors")
    with pytest.raises(CheckpointError, match="holds step 1: its name says 9"):
        ck.load(tmp_path)


# --- bad files ---------------------------------------------------------------------------------------


def _bad(path: Path, match: str) -> None:
    for reader in (ck.load, ck.info):
        with pytest.raises(CheckpointError, match=match) as caught:
            reader(path)
        assert "\n" not in str(caught.value)
        assert str(caught.value).startswith("[checkpoint] ")


def test_a_missing_file_a_missing_run_and_an_empty_run_are_told_apart(tmp_path: Path) -> None:
    _bad(tmp_path / "none", "is not there")
    _bad(tmp_path, "holds no checkpoint: expected a file step-NNNNNNNN.safetensors")


def test_what_is_not_a_readable_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe")
    _bad(tmp_path / "pipe", "is not a regular file")
    _bad(Path("bad\0name"), "cannot be read: embedded null byte")
    (tmp_path / "file").write_bytes(b"")
    _bad(tmp_path / "file" / "below", "cannot be read: Not a directory")
    _bad(tmp_path / ("x" * 300), "cannot be read: File name too long")

    def refused(*_: object, **__: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    _bad(tmp_path / "file", "cannot be read: Permission denied")


def test_a_read_error_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = ck.save(tmp_path, _example())

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "readv", broken)
    _bad(path, "cannot be read: Input/output error")


def test_a_file_that_shrinks_while_it_is_read_is_truncated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ck.save(tmp_path, _example())
    monkeypatch.setattr(os, "readv", lambda *_: 0)
    _bad(path, "shrank while it was read")


def test_every_truncation_and_any_extra_byte_is_an_error(tmp_path: Path) -> None:
    path = ck.save(tmp_path, _example())
    raw = path.read_bytes()
    for length in range(len(raw)):
        path.write_bytes(raw[:length])
        with pytest.raises(CheckpointError, match="truncated"):
            ck.load(path)
    path.write_bytes(raw + b"\0")
    _bad(path, "is too long")


@pytest.mark.parametrize(
    ("raw", "match"),
    [
        (b"", "has 0 bytes: truncated, or not a checkpoint"),
        (b"#!/bin/sh\necho hello\n", "is not a checkpoint: expected a safetensors file"),
        (b"\x80\x04\x95\x1c\0\0\0\0\0\0\0pickle" * 9, "is not a checkpoint"),
        (b"\xff" * 8 + b"{}", "claims 18446744073709551615 header bytes: expected 2"),
        (b"\1" + b"\0" * 7 + b"{}", "claims 1 header bytes"),
        (b"\x20" + b"\0" * 7 + b"{}", "is truncated: 10 bytes, 40 in its header"),
        (b"\2" + b"\0" * 7 + b"{}", "is not a Volta checkpoint"),
        (b"\2" + b"\0" * 7 + b"{]", "damaged header: Expecting"),
        (b"\4" + b"\0" * 7 + b'{"\xff"', "damaged header: 'utf-8' codec"),
    ],
)
def test_a_file_of_something_else_is_an_error(tmp_path: Path, raw: bytes, match: str) -> None:
    (tmp_path / "x").write_bytes(raw)
    _bad(tmp_path / "x", match)


def _json_header(text: bytes, payload: bytes = b"") -> bytes:
    return len(text).to_bytes(8, "little") + text + payload


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b'{"a":{},"a":{}}', "a name occurs twice"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b'{"a":' + b"[" * 100_000 + b"}", "nested too deeply"),
        (b'{"a":' + b"1" * 5000 + b"}", "integer string"),
        (b'{"__metadata__":[]}', "__metadata__ is not an object of strings"),
        (b'{"__metadata__":{"a":1}}', "__metadata__ is not an object of strings"),
        (b'{"a":1}', "tensor 'a': expected dtype, shape and data_offsets"),
        (b'{"a":{"dtype":"F32","shape":[]}}', "expected dtype, shape and data_offsets"),
    ],
)
def test_a_damaged_header_is_an_error(tmp_path: Path, text: bytes, match: str) -> None:
    (tmp_path / "x").write_bytes(_json_header(text))
    _bad(tmp_path / "x", f"damaged header: .*{match}")


@pytest.mark.parametrize(
    ("dtype", "shape", "offsets", "match"),
    [
        ("F64", [1], [0, 8], "has dtype 'F64': expected one of F32, BF16, I32"),
        (None, [1], [0, 4], "has dtype 'None'"),
        ("F32", [-1], [0, 4], "expected a shape"),
        ("F32", [1.0], [0, 4], "expected a shape"),
        ("F32", [True], [0, 4], "expected a shape"),
        ("F32", "1", [0, 4], "expected a shape"),
        ("F32", [1] * 7, [0, 4], "at most 6 axes"),
        ("F32", [1], [0], "expected data_offsets"),
        ("F32", [1], [4, 0], "expected data_offsets"),
        ("F32", [1], [-4, 0], "expected data_offsets"),
        ("F32", [1], None, "expected data_offsets"),
        ("F32", [2], [0, 4], "do not make 4 bytes"),
        ("F32", [1 << 59, 1 << 59], [0, 4], "do not make 4 bytes"),
        ("F32", [0, 1 << 59, 2], [0, 0], "too large to address"),
        ("F32", [1], [4, 8], "begins at 4: expected 0"),
    ],
)
def test_a_tensor_whose_claims_do_not_hold_is_an_error(
    tmp_path: Path, dtype: object, shape: object, offsets: object, match: str
) -> None:
    text = json.dumps({"a\n": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()
    (tmp_path / "x").write_bytes(_json_header(text, b"\0" * 8))
    _bad(tmp_path / "x", rf"tensor 'a\\n'.*{match}")


def test_overlapping_and_missing_bytes_are_errors(tmp_path: Path) -> None:
    one = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    for second in ([0, 4], [2, 6], [8, 12]):
        text = json.dumps({"a": one, "b": one | {"data_offsets": second}}).encode()
        (tmp_path / "x").write_bytes(_json_header(text, b"\0" * 12))
        _bad(tmp_path / "x", "begins at .: expected 4")


def test_a_huge_claim_allocates_nothing(tmp_path: Path) -> None:
    """A terabyte in the header of a file of 100 bytes is found from the file's size."""
    text = json.dumps({"a": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}).encode()
    (tmp_path / "x").write_bytes(_json_header(text))
    _bad(tmp_path / "x", "is truncated: .* bytes, its header says 1099511")


def test_every_flipped_bit_in_the_payload_is_a_bad_checksum(tmp_path: Path) -> None:
    path = ck.save(tmp_path, _example())
    raw = path.read_bytes()
    start = 8 + int.from_bytes(raw[:8], "little")
    for position in range(start, len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1 << position % 8
        path.write_bytes(changed)
        with pytest.raises(CheckpointError, match=f"{path.name} has a bad checksum: its .* hash is"):
            ck.load(path)


def test_changed_metadata_are_a_bad_checksum(tmp_path: Path) -> None:
    path = ck.save(tmp_path, _example())
    _rewritten(path, lambda head: head["__metadata__"].update(step="8"))
    _bad(path, "bad checksum: its metadata hash")


def test_an_unknown_version_is_given_with_the_supported_one(tmp_path: Path) -> None:
    path = ck.save(tmp_path, _example())
    _rewritten(path, lambda head: _signed(head, version="2"))
    _bad(path, "has format version '2': supported is '1'")


def test_missing_and_extra_metadata_are_errors(tmp_path: Path) -> None:
    path = ck.save(tmp_path, _example())
    _rewritten(path, lambda head: _signed(head, more=""))
    _bad(path, "misses or adds metadata 'more'")
    path = ck.save(tmp_path, _example())
    _rewritten(path, lambda head: head["__metadata__"].pop("rng"))
    _bad(path, "misses or adds metadata 'rng'")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"step": "-1"}, "has step '-1': expected an integer"),
        ({"step": "1" * 19}, "has step '1+': expected an integer"),
        ({"step": "\u0661"}, "has step .*: expected an integer"),
        ({"config": "[]"}, "damaged metadata config: expected a JSON object"),
        ({"state": "{"}, "damaged metadata state: Expecting"),
        ({"data": '{"a":Infinity}'}, "damaged metadata data: Infinity is not JSON"),
        ({"rng": "[" * 100_000}, "damaged metadata rng: nested too deeply"),
    ],
)
def test_damaged_metadata_with_a_fitting_checksum_are_errors(
    tmp_path: Path, changes: dict[str, str], match: str
) -> None:
    path = ck.save(tmp_path, _example())
    _rewritten(path, lambda head: _signed(head, **changes))
    _bad(path, match)


@pytest.mark.parametrize("name", ["weights", "other/weights", ""])
def test_a_tensor_of_no_known_group_is_an_error(tmp_path: Path, name: str) -> None:
    path = ck.save(tmp_path, _example())
    _rewritten(path, lambda head: head.update({name: head.pop("parameters/embedding")}))
    with pytest.raises(CheckpointError, match=f"holds '{name}': expected parameters/ or optimizer/"):
        ck.load(path)


# --- what cannot be saved ----------------------------------------------------------------------------


def test_only_the_dtypes_of_volta_are_stored(tmp_path: Path) -> None:
    with pytest.raises(DTypeError, match="'x' is float64: expected float32, int32, int8 or uint16"):
        ck.save(tmp_path, ck.Checkpoint(0, {}, {"x": np.zeros(1)}))
    with pytest.raises(DTypeError, match="'x' is >f4"):
        ck.save(tmp_path, ck.Checkpoint(0, {}, {"x": np.zeros(1, ">f4")}))
    assert _names(tmp_path) == []


@pytest.mark.parametrize("step", [-1, 10**18, True, 1.0])
def test_a_step_that_is_no_step_is_refused(step: Any) -> None:
    with pytest.raises(UsageError, match=r"step is .*: expected an integer of 0 to 18 digits"):
        checkpoint_format.encode(replace(_example(), step=step))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object()])
def test_settings_that_json_cannot_carry_are_refused(value: object) -> None:
    with pytest.raises(UsageError, match="state cannot be stored as JSON"):
        checkpoint_format.encode(replace(_example(), state={"value": value}))


def test_keep_must_leave_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="keep is 0: expected at least 1"):
        ck.save(tmp_path, _example(), keep=0)


def test_a_header_over_the_limit_is_refused_when_written(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"needs a header of .* at most 16777216"):
        ck.save(tmp_path, replace(_example(), graph="x" * (16 << 20)))
    assert _names(tmp_path) == []


# --- against a model ---------------------------------------------------------------------------------

SHAPES = {"embedding": (5, 3), "blocks.0.norm": (3,), "half": (2, 3)}


def test_a_checkpoint_of_the_model_is_accepted() -> None:
    ck.expect(
        _example(),
        SHAPES,
        dtypes={"embedding": float32, "half": bfloat16},
        optimizer={"m/embedding": (5, 3), "count": ()},
    )


@pytest.mark.parametrize(
    ("shapes", "match"),
    [
        (SHAPES | {"head": (3, 5)}, "step 7 misses parameter 'head': it is of another model"),
        (SHAPES | {"head": (1,), "tail": (1,), "z": ()}, "misses parameter 'head' and 2 more"),
        ({"embedding": (5, 3), "half": (2, 3)}, "has an extra parameter 'blocks.0.norm'"),
        (SHAPES | {"embedding": (5, 4)}, r"parameter 'embedding' is \(5, 3\): expected \(5, 4\)"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(shapes: dict[str, tuple[int, ...]], match: str) -> None:
    with pytest.raises(CheckpointError, match=match):
        ck.expect(_example(), shapes)


def test_other_dtypes_and_other_optimizer_tensors_are_refused(tmp_path: Path) -> None:
    loaded = ck.load(ck.save(tmp_path, _example()))
    with pytest.raises(
        CheckpointError, match=r"step-00000007.safetensors: parameter 'half' is bf16: expected i32"
    ):
        ck.expect(loaded, SHAPES, dtypes={"half": int32})
    with pytest.raises(CheckpointError, match="misses optimizer tensor 'v/embedding'"):
        ck.expect(loaded, SHAPES, optimizer={"m/embedding": (5, 3), "count": (), "v/embedding": (5, 3)})


def test_a_long_name_is_shortened_in_messages() -> None:
    assert len(tensorfile.printable("x" * 1000)) == 82
