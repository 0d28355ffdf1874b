"""`save` and `load`: every bit comes back, and a damaged file is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.ops.parity import assert_same_bits

import volta as vt
from volta.dtypes import bfloat16, float32, int32
from volta.errors import CheckpointError, UsageError
from volta.tensor import Tensor


def tensors() -> dict[str, Tensor]:
    rng = np.random.default_rng(0)
    special = np.array([np.nan, np.inf, -0.0, 1e-45, -3.4e38], np.float32)
    return {
        "layer.weight": vt.asarray(rng.standard_normal((3, 4))),
        "special": vt.asarray(special),
        "half": vt.asarray(rng.standard_normal((2, 3)), "bf16"),
        "whole": vt.asarray([[1, -2], [2**31 - 1, -(2**31)]]),
        "number": vt.asarray(2.5),
        "empty": vt.zeros((0, 3)),
        "ünïcode": vt.ones((1,)),
    }


def test_every_bit_comes_back_with_shape_and_dtype(tmp_path: Path) -> None:
    path, given = tmp_path / "t.safetensors", tensors()
    vt.save(path, given)
    loaded = vt.load(str(path))
    assert loaded.keys() == given.keys()
    for name, value in given.items():
        assert (loaded[name].shape, loaded[name].dtype) == (value.shape, value.dtype)
        assert loaded[name].storage().tobytes() == value.storage().tobytes()
    assert {value.dtype for value in loaded.values()} == {float32, bfloat16, int32}


def test_loaded_tensors_are_tensors_like_any_other(tmp_path: Path) -> None:
    vt.save(tmp_path / "t", {"x": vt.asarray([1.0, 2.0])})
    x = vt.load(tmp_path / "t")["x"]
    assert (x + 1).numpy().tolist() == [2.0, 3.0]
    (y,) = vt.compile(lambda x: (x * 2,), donate=(0,))(x)
    assert y.numpy().tolist() == [2.0, 4.0]


def test_equal_tensors_give_equal_files_and_others_can_read_them(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    given = {name: value for name, value in tensors().items() if name != "half"}
    vt.save(tmp_path / "a", given)
    vt.save(tmp_path / "b", dict(reversed(given.items())))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    theirs: dict[str, Any] = safetensors.load_file(tmp_path / "a")
    for name, value in given.items():
        assert_same_bits(theirs[name], value.numpy(), name)


def test_saving_replaces_the_old_file(tmp_path: Path) -> None:
    vt.save(tmp_path / "t", {"x": vt.ones((100,))})
    vt.save(tmp_path / "t", {"y": vt.ones((1,))})
    assert list(vt.load(tmp_path / "t")) == ["y"]
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
    vt.save(tmp_path / "t", {})
    assert vt.load(tmp_path / "t") == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"x": np.ones(2)}, r"\[save\] 'x' is ndarray: expected names and Tensors"),
        ({3: vt.ones((2,))}, r"\[save\] 3 is Tensor: expected names and Tensors"),
        ({"x": 1.0}, r"\[save\] 'x' is float"),
    ],
)
def test_what_is_no_named_tensor_is_refused(tmp_path: Path, given: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        vt.save(tmp_path / "t", given)
    assert not list(tmp_path.iterdir())


def test_donated_memory_cannot_be_saved(tmp_path: Path) -> None:
    x = vt.ones((2,))
    vt.compile(lambda x: (x,), donate=(0,))(x)
    with pytest.raises(UsageError, match="was donated"):
        vt.save(tmp_path / "t", {"x": x})


def test_a_place_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot be written: .*; nothing was changed"):
        vt.save(tmp_path / "missing" / "t", {"x": vt.ones((2,))})


def header(entries: Any) -> bytes:
    text = json.dumps(entries).encode()
    return len(text).to_bytes(8, "little") + text


GOOD = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}

DAMAGED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "truncated, or not a checkpoint"),
    "text": (b"hello, this is no tensor file", "expected a safetensors file"),
    "no header": (b"\xff" * 8 + b"{" + b"x" * 20, r"claims \d+ header bytes"),
    "cut header": (header(GOOD)[:30], "is truncated"),
    "cut values": (header(GOOD) + bytes(7), "is truncated: "),
    "long": (header(GOOD) + bytes(9), "is too long"),
    "no json": (b"\x04" + bytes(7) + b"{]]]" + bytes(8), "has a damaged header"),
    "dtype": (header({"x": {**GOOD["x"], "dtype": "F64"}}) + bytes(8), "has dtype 'F64': expected one of"),
    "shape": (
        header({"x": {**GOOD["x"], "shape": [3]}}) + bytes(8),
        "its shape and dtype do not make 8 bytes",
    ),
    "negative": (header({"x": {**GOOD["x"], "shape": [-2]}}) + bytes(8), "expected a shape"),
    "gap": (header({"x": {**GOOD["x"], "data_offsets": [8, 16]}}) + bytes(16), "begins at 8: expected 0"),
    "claims": (header({"x": {"dtype": "F32"}}), "expected dtype, shape and data_offsets"),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    content, message = DAMAGED[case]
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=message) as caught:
        vt.load(path)
    assert "\n" not in str(caught.value)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not there: expected a checkpoint file"):
        vt.load(tmp_path / "missing")
    with pytest.raises(CheckpointError, match="is not a regular file"):
        vt.load(tmp_path)
