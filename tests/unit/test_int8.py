"""Tensors of int8: made, moved, saved and read back without change; what has no meaning is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import isas

import volta as vt
from volta.backends.interp import evaluate
from volta.dtypes import float32, int8
from volta.errors import DTypeError, GradientError, UsageError
from volta.ir.graph import GraphBuilder
from volta.runtime.policy import runtime
from volta.tensor import Tensor, as_dtype

Bytes = npt.NDArray[np.int8]
EVERY = np.arange(-128, 128, dtype=np.int8)


def whole(*shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng([seed, *shape]).integers(-128, 128, shape).astype(np.int8)


# --- in and out ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int64, np.uint8])
def test_integers_become_i8_where_that_is_asked_for(dtype: npt.DTypeLike) -> None:
    values = np.array([[0, 1, 127], [5, 6, 7]], dtype)
    for wanted in ("i8", int8):
        x = vt.asarray(values, wanted)
        assert x.dtype is int8
        assert x.numpy().dtype == np.int8
        np.testing.assert_array_equal(x.numpy(), values)


def test_every_value_survives() -> None:
    x = vt.asarray(EVERY, "i8")
    np.testing.assert_array_equal(x.numpy(), EVERY)
    assert (x.ndim, x.size, x.storage().nbytes) == (1, 256, 256)
    x.numpy()[0] = 5  # a copy
    assert x.numpy()[0] == -128


def test_numbers_booleans_and_nothing() -> None:
    assert vt.asarray(-7, "i8").item() == -7
    assert (vt.asarray([True, False], "i8").numpy() == [1, 0]).all()
    assert vt.asarray(np.zeros((0, 3), np.int64), "i8").shape == (0, 3)
    assert vt.zeros((2,), "i8").dtype is vt.ones((2,), "i8").dtype is int8
    assert as_dtype("i8") is int8
    assert "i8[2]" in repr(vt.zeros((2,), "i8"))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([128], r"\[asarray\] integers reach 128: expected values that i8 holds"),
        ([-129], r"\[asarray\] integers reach -129: expected values that i8 holds"),
        (np.array([2**64 - 1], np.uint64), r"\[asarray\] integers reach 18446744073709551615"),
        ([1.0], r"\[asarray\] values are float64, dtype is i8: expected integers"),
        (["a"], r"\[asarray\] values are <U1"),
    ],
)
def test_what_i8_does_not_hold_is_refused(values: Any, message: str) -> None:
    with pytest.raises(DTypeError, match=message):
        vt.asarray(values, "i8")


def test_a_cast_to_f32_is_exact_and_there_is_none_back() -> None:
    """Rounding to whole numbers needs scales: that is `quantize`."""
    for isa in isas():
        with runtime(isa=isa):
            wide = vt.asarray(EVERY, "i8").astype("f32")
            assert wide.dtype is float32
            np.testing.assert_array_equal(wide.numpy(), EVERY.astype(np.float32))
    x = vt.asarray(EVERY, "i8")
    assert x.astype("i8") is x
    for given, wanted in ((vt.ones((2,)), "i8"), (vt.zeros((2,), "i32"), "i8"), (x, "i32"), (x, "bf16")):
        with pytest.raises(DTypeError, match=rf"\[cast\] x is {given.dtype}, dtype is '{wanted}'"):
            vt.astype(given, wanted)


# --- moving ----------------------------------------------------------------------------------------

MOVES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Bytes], Bytes]]] = {
    "reshape": (lambda x: vt.reshape(x, (6, -1)), lambda x: x.reshape(6, -1)),
    "transpose": (lambda x: x.T, lambda x: x.T),
    "swapaxes": (lambda x: vt.swapaxes(x, 0, 2), lambda x: x.swapaxes(0, 2)),
    "slice": (lambda x: x[1:, ::2, 3:29:5], lambda x: x[1:, ::2, 3:29:5]),
    "index": (lambda x: x[1, -1], lambda x: x[1, -1]),
    "broadcast": (lambda x: vt.broadcast_to(x[:, :1], (2, 4, 33)), lambda x: np.repeat(x[:, :1], 4, 1)),
    "concatenate": (lambda x: vt.concatenate([x, x[:, :2]], 1), lambda x: np.concatenate([x, x[:, :2]], 1)),
    "stack": (lambda x: vt.stack([x, x], -1), lambda x: np.stack([x, x], -1)),
    "split": (lambda x: vt.split(x, (1, 3), 1)[1], lambda x: x[:, 1:]),
    "pad": (lambda x: vt.pad(x, ((1, 0), (0, 0), (2, 3))), lambda x: np.pad(x, ((1, 0), (0, 0), (2, 3)))),
}


@pytest.mark.parametrize("name", MOVES)
def test_what_moves_elements_moves_bytes(name: str) -> None:
    """On every instruction set, eager and compiled."""
    ours, theirs = MOVES[name]
    values = whole(2, 4, 33)
    expected = np.ascontiguousarray(theirs(values))
    x = vt.asarray(values, "i8")
    for isa in isas():
        for threads in (1, 2):
            with runtime(isa=isa, threads=threads):
                for y in (ours(x), vt.compile(ours)(x)):
                    assert y.dtype is int8
                    np.testing.assert_array_equal(y.numpy(), expected)


def test_compiled_functions_take_give_donate_and_close_over_i8() -> None:
    outside = vt.asarray(whole(40, seed=1), "i8")
    x = vt.asarray(whole(40, seed=2), "i8")
    step = vt.compile(lambda x, w: (vt.reshape(x, (40,)), vt.concatenate([x, outside]), w.T), donate=(0,))
    same, joined, turned = step(x, vt.asarray(whole(3, 5, seed=3), "i8"))
    np.testing.assert_array_equal(same.numpy(), whole(40, seed=2))
    np.testing.assert_array_equal(joined.numpy(), np.concatenate([whole(40, seed=2), whole(40, seed=1)]))
    np.testing.assert_array_equal(turned.numpy(), whole(3, 5, seed=3).T)
    with pytest.raises(UsageError, match="donated"):
        x.numpy()


def test_literals_of_i8_are_folded_and_read_as_they_are() -> None:
    build = GraphBuilder()
    literal = build.constant(whole(3, 4))
    graph = build.freeze([build.add("transpose", (literal,), {"axes": (1, 0)}), literal])
    for found in evaluate(graph, []):
        assert found.dtype == np.int8
    from volta.runtime import gateway

    for passes in (None, ()):
        with runtime(passes=passes):
            turned, same = gateway.compile(graph).run([])
        np.testing.assert_array_equal(turned, whole(3, 4).T)
        np.testing.assert_array_equal(same, whole(3, 4))


# --- on disk ---------------------------------------------------------------------------------------


def test_files_keep_i8_beside_the_other_dtypes(tmp_path: Path) -> None:
    given = {
        "q": vt.asarray(whole(5, 7), "i8"),
        "every": vt.asarray(EVERY, "i8"),
        "empty": vt.zeros((0, 3), "i8"),
        "number": vt.asarray(-1, "i8"),
        "scale": vt.asarray([0.5, float("nan")]),
        "half": vt.asarray([1.5], "bf16"),
        "index": vt.asarray([3]),
    }
    vt.save(tmp_path / "t", given)
    found = vt.load(tmp_path / "t")
    assert found.keys() == given.keys()
    for name, value in given.items():
        assert found[name].type == value.type
        assert found[name].storage().tobytes() == value.storage().tobytes()


def test_other_tools_read_and_write_i8_as_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    vt.save(tmp_path / "ours", {"q": vt.asarray(whole(5, 7), "i8")})
    theirs = safetensors.load_file(tmp_path / "ours")["q"]
    assert theirs.dtype == np.int8
    np.testing.assert_array_equal(theirs, whole(5, 7))
    safetensors.save_file({"q": whole(4, 3)}, tmp_path / "theirs")
    ours = vt.load(tmp_path / "theirs")["q"]
    assert ours.dtype is int8
    np.testing.assert_array_equal(ours.numpy(), whole(4, 3))


def test_a_loaded_quantized_layer_computes_the_same_bits(tmp_path: Path) -> None:
    weight = vt.asarray(np.random.default_rng(4).standard_normal((32, 6)))
    q, scale = vt.quantize(weight.T, 8)
    vt.save(tmp_path / "t", {"w.q": q, "w.scale": scale})
    found = vt.load(tmp_path / "t")
    x = vt.asarray(np.random.default_rng(5).standard_normal((3, 32)))
    one = vt.quantized_matmul(x, q.T, scale.T).numpy()
    two = vt.quantized_matmul(x, found["w.q"].T, found["w.scale"].T).numpy()
    assert one.tobytes() == two.tobytes()


# --- what is refused ---------------------------------------------------------------------------------

Q = vt.asarray([[1, 2], [3, -4]], "i8")
REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    **{
        name: (lambda f=function: f(Q), rf"\[{op}\] x is i8: expected f32")  # type: ignore[misc]
        for name, op, function in (
            ("negative", "neg", vt.negative),
            ("abs", "abs", vt.abs),
            ("exp", "exp", vt.exp),
            ("relu", "relu", vt.relu),
            ("sum", "sum", vt.sum),
            ("mean", "mean", vt.mean),
            ("max", "max", vt.max),
            ("argmax", "argmax", vt.argmax),
            ("softmax", "softmax", vt.softmax),
            ("quantize", "quantize", vt.quantize),
            ("check_finite", "check_finite", vt.check_finite),
        )
    },
    "add": (lambda: Q + Q, r"\[add\] a is i8: expected f32"),
    "add a number": (lambda: Q + 1, r"\[add\] a is i8: expected f32"),
    "subtract": (lambda: 1 - Q, r"\[sub\] b is i8: expected f32"),
    "scale": (lambda: vt.scale(Q, 2.0), r"\[scale\] x is i8: expected f32"),
    "matmul": (lambda: Q @ Q, r"\[matmul\] a is i8, b is i8: expected"),
    "f32 by i8": (lambda: vt.ones((2, 2)) @ Q, r"\[matmul\] a is f32, b is i8: expected"),
    "mixed parts": (lambda: vt.concatenate([Q, vt.ones((2, 2))]), r"\[concat\] dtypes are i8, f32"),
    "indices": (lambda: vt.embedding(Q, vt.ones((5, 2))), r"\[embedding\] indices is i8: expected i32"),
    "table": (lambda: vt.embedding(vt.zeros((1,), "i32"), Q), r"\[embedding\] table is i8: expected f32"),
    "targets": (
        lambda: vt.cross_entropy(vt.ones((2, 2, 3)), Q),
        r"\[cross_entropy\] targets is i8: expected i32",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arithmetic_on_i8_is_refused_in_one_line(name: str) -> None:
    call, message = REFUSED[name]
    with pytest.raises(DTypeError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_i8_has_no_gradient() -> None:
    with pytest.raises(GradientError, match="is i8: expected f32"):
        vt.grad(lambda q: vt.sum(vt.astype(q, "f32")))(Q)
    value, grad = vt.value_and_grad(lambda x: vt.sum(x * vt.astype(Q, "f32")))(vt.ones((2, 2)))
    assert value.item() == 2.0
    np.testing.assert_array_equal(grad.numpy(), Q.numpy())
