"""ModelBuilder: one forward function declares the parameters and uses them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.ops.parity import assert_same_bits

import volta as vt
from volta.errors import ShapeError, UsageError
from volta.model.builder import INITIAL, Constant, Model, ModelBuilder, Normal, ParameterSpec, initial_value
from volta.tensor import Tensor


def mlp(build: ModelBuilder, x: Tensor, width: int = 6, bias: bool = True) -> Tensor:
    with build.scope("trunk"):
        hidden = vt.gelu(build.linear("up", x, width, bias))
        hidden = build.layer_norm("norm", hidden)
    return build.linear("down", hidden, 2)


def model(**options: Any) -> Model:
    return ModelBuilder.build(mlp, vt.zeros((1, 4)), **options)


def test_parameters_are_declared_in_order_with_shape_and_initial_values() -> None:
    assert dict(model().parameters) == {
        "trunk.up.weight": ParameterSpec((4, 6), Normal(0.02)),
        "trunk.up.bias": ParameterSpec((6,), Constant(0.0)),
        "trunk.norm.weight": ParameterSpec((6,), Constant(1.0)),
        "trunk.norm.bias": ParameterSpec((6,), Constant(0.0)),
        "down.weight": ParameterSpec((6, 2), Normal(0.02)),
        "down.bias": ParameterSpec((2,), Constant(0.0)),
    }
    assert next(iter(model().parameters)) == "trunk.up.weight"
    assert model().size == 24 + 6 + 6 + 6 + 12 + 2


def test_options_shape_the_model_and_are_remembered() -> None:
    small = model(width=3, bias=False)
    assert "trunk.up.bias" not in small.parameters
    assert small.parameters["down.weight"].shape == (3, 2)
    assert small.options == {"width": 3, "bias": False}
    assert small(small.init(1), vt.zeros((5, 4))).shape == (5, 2)


def test_calling_a_model_runs_its_forward_function_on_the_values() -> None:
    net, x = model(), vt.asarray(np.random.default_rng(0).standard_normal((3, 4)))
    parameters = net.init(7)
    p = {name.removeprefix("trunk."): value for name, value in parameters.items()}
    hidden = vt.layer_norm(vt.gelu(x @ p["up.weight"] + p["up.bias"]), p["norm.weight"], p["norm.bias"])
    expected = hidden @ p["down.weight"] + p["down.bias"]
    assert_same_bits(net(parameters, x).numpy(), expected.numpy())
    assert_same_bits(vt.compile(net)(parameters, x).numpy(), expected.numpy())


def test_options_given_at_the_call_override() -> None:
    net = ModelBuilder.build(lambda build, x, twice=False: x * (2 if twice else 1), vt.zeros((2,)))
    assert net({}, vt.ones((2,)), twice=True).numpy().tolist() == [2.0, 2.0]
    assert net({}, vt.ones((2,))).numpy().tolist() == [1.0, 1.0]


def test_building_runs_on_shapes_of_any_structure() -> None:
    def forward(build: ModelBuilder, batch: dict[str, Tensor]) -> Tensor:
        return build.embedding("table", batch["tokens"], 5, 3) + build.rms_norm("norm", batch["x"])

    net = ModelBuilder.build(forward, {"x": vt.zeros((2, 3)), "tokens": vt.zeros((2,), "i32")})
    assert {name: spec.shape for name, spec in net.parameters.items()} == {
        "table.weight": (5, 3),
        "norm.weight": (3,),
    }
    batch = {"x": vt.ones((2, 3)), "tokens": vt.asarray([4, 0])}
    parameters = net.init(1)
    expected = parameters["table.weight"].numpy()[[4, 0]]
    np.testing.assert_allclose(net(parameters, batch).numpy() - expected, 1.0, 1e-4)


def test_the_same_name_twice_is_one_parameter() -> None:
    """Tied weights: the embedding's table is also the output layer."""

    def tied(build: ModelBuilder, tokens: Tensor) -> Tensor:
        x = build.embedding("table", tokens, 5, 3)
        return x @ build.parameter("table.weight", (5, 3), Normal(0.02)).T

    net = ModelBuilder.build(tied, vt.zeros((2,), "i32"))
    assert list(net.parameters) == ["table.weight"]
    assert net(net.init(1), vt.asarray([1, 2])).shape == (2, 5)
    grads = vt.grad(lambda p: vt.sum(net(p, vt.asarray([1, 2]))))(net.init(1))
    assert grads["table.weight"].shape == (5, 3)


def test_the_same_name_with_another_shape_is_refused() -> None:
    def clash(build: ModelBuilder, x: Tensor) -> Tensor:
        build.linear("layer", x, 3)
        return build.linear("layer", x, 5)

    message = r"\[model\] parameter layer\.weight is \(4, 3\), asked for as \(4, 5\)"
    with pytest.raises(ShapeError, match=message):
        ModelBuilder.build(clash, vt.zeros((1, 4)))


def test_scopes_nest_and_end_also_after_an_error() -> None:
    build = ModelBuilder()
    with build.scope("a"), build.scope("b"):
        build.parameter("w", (1,), Constant(0.0))
    with pytest.raises(ValueError, match="inside"), build.scope("c"):
        raise ValueError("inside")
    build.parameter("w", (1,), Constant(0.0))
    assert list(build.specs) == ["a.b.w", "w"]


def test_values_that_are_missing_or_misshapen_are_refused_by_name() -> None:
    net = model()
    parameters = net.init(1)
    with pytest.raises(UsageError, match=r"\[model\] parameter down\.bias is missing: expected \(2,\)"):
        net({name: value for name, value in parameters.items() if name != "down.bias"}, vt.zeros((1, 4)))
    with pytest.raises(ShapeError, match=r"\[model\] parameter down\.bias is \(3,\): expected \(2,\)"):
        net({**parameters, "down.bias": vt.zeros((3,))}, vt.zeros((1, 4)))


def test_initial_values_depend_on_seed_and_name_alone() -> None:
    first, again, other = model().init(1), model().init(1), model().init(2)
    for name, value in first.items():
        assert_same_bits(value.numpy(), again[name].numpy(), name)
    assert not np.array_equal(first["down.weight"].numpy(), other["down.weight"].numpy())
    assert not np.array_equal(
        first["down.weight"].numpy().reshape(-1), first["trunk.up.weight"].numpy().reshape(-1)[:12]
    )
    alone = initial_value("down.weight", ParameterSpec((6, 2), Normal(0.02)), 1)
    assert_same_bits(alone.numpy(), first["down.weight"].numpy())
    assert first["trunk.norm.weight"].numpy().tolist() == [1.0] * 6
    assert first["down.bias"].numpy().tolist() == [0.0, 0.0]


def test_normal_values_have_their_deviation() -> None:
    values = initial_value("w", ParameterSpec((200, 50), Normal(0.5)), 3).numpy()
    assert abs(values.std() - 0.5) < 0.02
    assert abs(values.mean()) < 0.02
    assert initial_value("c", ParameterSpec((2,), Constant(-2.5)), 3).numpy().tolist() == [-2.5, -2.5]


def test_initial_values_are_drawn_at_a_step_that_no_training_reaches() -> None:
    drawn = vt.normal(vt.random_key(1, INITIAL), (6, 2), 0.0, 0.02, 0)
    assert INITIAL == 2**32 - 1
    assert drawn.shape == (6, 2)


def test_a_value_of_the_declaring_run_is_refused_afterwards() -> None:
    kept: list[Tensor] = []

    def forward(build: ModelBuilder, x: Tensor) -> Tensor:
        kept.append(x)
        return x

    ModelBuilder.build(forward, vt.zeros((2,)))
    with pytest.raises(UsageError, match="left the function that traced it"):
        kept[0] + 1
