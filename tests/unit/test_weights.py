"""Weights for inference: which parameters are converted, to what, and which requests are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.parity import assert_same_bits

import volta as vt
from volta.dtypes import bfloat16, float32, int8
from volta.errors import UsageError
from volta.infer.weights import Weights, converted
from volta.model.config import Config
from volta.model.transformer import tinylm
from volta.tensor import Tensor

SMALL = Config(vocabulary=32, context=8, depth=2, width=24, heads=2, kv_heads=1, hidden=40, tied=False)
LINEAR = {
    *(
        f"block{layer}.{name}.weight"
        for layer in range(2)
        for name in ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
    ),
    "head.weight",
}


@pytest.fixture(scope="module")
def parameters() -> dict[str, Tensor]:
    return tinylm(SMALL).init(3)


def test_f32_weights_are_the_very_parameters(parameters: dict[str, Tensor]) -> None:
    found = converted(parameters, Weights())
    assert found.keys() == parameters.keys()
    assert all(found[name] is value for name, value in parameters.items())


def test_bf16_rounds_the_weights_of_linear_layers_alone(parameters: dict[str, Tensor]) -> None:
    found = converted(parameters, Weights("bf16"))
    assert found.keys() == parameters.keys()
    assert {name for name, value in found.items() if value.dtype is bfloat16} == LINEAR
    for name, value in parameters.items():
        expected = vt.astype(value, "bf16") if name in LINEAR else value
        assert_same_bits(found[name].storage(), expected.storage(), name)


@pytest.mark.parametrize("group", [0, 1, 8])
def test_int8_has_whole_numbers_and_scales_for_each_output(parameters: dict[str, Tensor], group: int) -> None:
    """NAME.q [width, C], NAME.scale [width, groups]; what they stand for is within half a step."""
    found = converted(parameters, Weights("int8", group))
    assert {name.removesuffix(".q") for name in found if name.endswith(".q")} == LINEAR
    assert not LINEAR & found.keys()
    assert found.keys() - {f"{name}{part}" for name in LINEAR for part in (".q", ".scale")} == (
        parameters.keys() - LINEAR
    )
    for name in LINEAR:
        q, scale, weight = found[f"{name}.q"], found[f"{name}.scale"], parameters[name]
        depth, width = weight.shape
        assert (q.dtype, q.shape) == (int8, (width, depth))
        assert (scale.dtype, scale.shape) == (float32, (width, depth // (group or depth)))
        steps = np.repeat(scale.numpy(), group or depth, axis=1)
        assert (np.abs(q.numpy() * steps - weight.numpy().T) <= 0.5001 * steps).all()


def test_a_group_of_the_whole_depth_is_one_scale_for_each_output() -> None:
    parameters = {"head.weight": vt.asarray(np.random.default_rng(0).standard_normal((24, 5)))}
    whole, all_ = (converted(parameters, Weights("int8", group)) for group in (24, 0))
    for name in whole:
        assert_same_bits(whole[name].numpy(), all_[name].numpy(), name)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "dtype": ({"dtype": "int4"}, r"\[weights\] dtype is 'int4': expected one of f32, bf16, int8"),
    "dtype of a tensor": ({"dtype": "i8"}, r"dtype is 'i8': expected one of f32, bf16, int8"),
    "activations": (
        {"dtype": "int8", "activations": "bf16"},
        r"\[weights\] activations are 'bf16': expected f32 or int8",
    ),
    "group of f32": ({"group": 8}, r"dtype is f32: groups and int8 activations go with int8"),
    "group of bf16": ({"dtype": "bf16", "group": 8}, r"dtype is bf16: groups and int8 activations"),
    "activations of bf16": ({"dtype": "bf16", "activations": "int8"}, r"dtype is bf16: groups and int8"),
    "half a group": ({"dtype": "int8", "group": 8.0}, r"group is 8.0: expected 0 \(all\) or a number"),
    "negative group": ({"dtype": "int8", "group": -1}, r"group is -1: expected 0 \(all\) or a number"),
}


@pytest.mark.parametrize("name", WRONG)
def test_requests_that_mean_nothing_are_refused_in_one_line(name: str) -> None:
    given, message = WRONG[name]
    with pytest.raises(UsageError, match=message) as caught:
        Weights(**given)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("group", [7, 16, 25, 48, 1000])
def test_a_group_that_does_not_divide_a_layer_names_it(parameters: dict[str, Tensor], group: int) -> None:
    message = rf"^\[weights\] group is {group}: [a-z0-9.]+ has (24|40) rows, no multiple of it$"
    with pytest.raises(UsageError, match=message) as caught:
        converted(parameters, Weights("int8", group))
    assert any(name in str(caught.value) for name in LINEAR)


def test_what_was_chosen_can_be_printed() -> None:
    assert str(Weights()) == "f32"
    assert str(Weights("bf16")) == "bf16"
    assert str(Weights("int8", 32, "int8")) == "int8, group 32, int8 activations"


# --- the model they go into --------------------------------------------------------------------------


def test_every_kind_goes_into_the_model(parameters: dict[str, Tensor]) -> None:
    """The same model takes the weights of any dtype; the logits are near those of f32, and not the same."""
    tokens = vt.asarray([[1, 5, 2, 9]])
    exact = tinylm(SMALL)(parameters, tokens).numpy()
    for weights in (Weights("bf16"), Weights("int8"), Weights("int8", 8), Weights("int8", 8, "int8")):
        model = tinylm(weights.config(SMALL))
        assert model.parameters.keys() == parameters.keys()  # declared as they are trained
        logits = model(converted(parameters, weights), tokens).numpy()
        assert 0 < np.abs(logits - exact).max() < 0.1 * np.abs(exact).max(), str(weights)


def test_int8_activations_change_the_configuration_alone() -> None:
    for weights in (Weights(), Weights("bf16"), Weights("int8", 8)):
        assert weights.config(SMALL) is SMALL
    assert Weights("int8", 8, "int8").config(SMALL).dtype == "int8"


def test_int8_products_want_int8_weights(parameters: dict[str, Tensor]) -> None:
    """A model of int8 products that is given f32 weights says which, and what to do."""
    model = tinylm(Weights("int8", 0, "int8").config(SMALL))
    message = (
        r"\[model\] dtype is int8, and block0\.attention\.qkv\.weight is not: quantize the weights first"
    )
    with pytest.raises(UsageError, match=message):
        model(parameters, vt.asarray([[1, 2]]))


def test_a_bf16_model_takes_weights_that_are_bf16_already(parameters: dict[str, Tensor]) -> None:
    """Rounding twice is rounding once."""
    model = tinylm(Config(**{**SMALL.to_dict(), "dtype": "bf16"}))
    tokens = vt.asarray([[1, 5, 2, 9]])
    masters = model(parameters, tokens).numpy()
    assert_same_bits(model(converted(parameters, Weights("bf16")), tokens).numpy(), masters)
