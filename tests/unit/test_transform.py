"""`compile` and `value_and_grad`: one program per shape, the same bits as eager, clear errors for leaks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from tests.ops.parity import assert_same_bits

import volta as vt
from volta import transform, tree
from volta.errors import DTypeError, GradientError, NotFiniteError, UsageError
from volta.runtime import gateway
from volta.tensor import Tensor
from volta.trace import SMALL

F32 = npt.NDArray[np.float32]


def numbers(*shape: int, seed: int = 0) -> F32:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tensor(*shape: int, seed: int = 0) -> Tensor:
    return vt.asarray(numbers(*shape, seed=seed))


class Counted:
    """A function that counts how often Python runs it."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.runs = 0
        self.__doc__ = fn.__doc__

    def __call__(self, *args: Any) -> Any:
        self.runs += 1
        return self.fn(*args)


# --- compile -----------------------------------------------------------------------------------------


def test_a_function_is_traced_once_per_set_of_shapes_and_types() -> None:
    fn = Counted(lambda x, y: x * y + 1)
    compiled = vt.compile(fn)
    for _ in range(3):
        result = compiled(tensor(3), tensor(3, seed=1))
    assert fn.runs == 1
    assert_same_bits(result.numpy(), numbers(3) * numbers(3, seed=1) + np.float32(1))
    compiled(tensor(4), tensor(4))
    compiled(tensor(3), tensor(1))
    assert fn.runs == 3
    compiled(tensor(3), tensor(3))
    assert fn.runs == 3


def test_dtypes_and_structures_are_told_apart() -> None:
    fn = Counted(lambda x: x)
    compiled = vt.compile(fn)
    for value in (
        vt.zeros((2,)),
        vt.zeros((2,), "i32"),
        [vt.zeros((2,))],
        (vt.zeros((2,)),),
        {"a": vt.zeros((2,))},
    ):
        compiled(value)
    assert fn.runs == 5
    assert isinstance(compiled([vt.zeros((2,))]), list)
    assert isinstance(compiled((vt.zeros((2,)),)), tuple)


def test_nested_arguments_and_results_keep_their_structure() -> None:
    def fn(batch: dict[str, Any], weights: list[tuple[Tensor, ...]]) -> dict[str, Any]:
        x = batch["x"] + batch["more"]["y"]
        return {
            "out": [x * w for pair in weights for w in pair],
            "same": batch,
            "nothing": (),
            "text": "kept",
        }

    args = (
        {"x": tensor(2), "more": {"y": tensor(2, seed=1)}},
        [(tensor(2, seed=2), tensor(2, seed=3)), (tensor(2, seed=4),)],
    )
    eager, compiled = fn(*args), vt.compile(fn)(*args)
    assert [len(compiled["out"]), compiled["nothing"], compiled["text"]] == [3, (), "kept"]
    for a, b in zip(eager["out"], compiled["out"], strict=True):
        assert_same_bits(a.numpy(), b.numpy())
    assert_same_bits(compiled["same"]["more"]["y"].numpy(), numbers(2, seed=1))


def test_everything_else_in_the_arguments_is_static() -> None:
    fn = Counted(lambda x, factor, flag: x * factor if flag else x)
    compiled = vt.compile(fn)
    x = tensor(3)
    assert_same_bits(compiled(x, 2.0, True).numpy(), numbers(3) * 2)
    assert_same_bits(compiled(x, 3.0, True).numpy(), numbers(3) * 3)
    assert_same_bits(compiled(x, 3.0, False).numpy(), numbers(3))
    assert fn.runs == 3
    compiled(x, 2.0, True)
    assert fn.runs == 3


def test_static_values_that_are_equal_but_not_the_same_are_told_apart() -> None:
    """1 == 1.0 == True and 0.0 == -0.0, but they do not compute the same."""
    fn = Counted(lambda x, c: x * c)
    compiled = vt.compile(fn)
    ones = vt.ones((2,))
    for value in (0.0, -0.0, 0, False, 1, 1.0, True):
        compiled(ones, value)
    assert fn.runs == 7
    assert not np.signbit(compiled(ones, 0.0).numpy()).any()
    assert np.signbit(compiled(ones, -0.0).numpy()).all()


def test_an_argument_that_cannot_be_compared_is_refused() -> None:
    compiled = vt.compile(lambda x, y: x)
    for value in (np.zeros(3), {1, 2}):
        with pytest.raises(
            UsageError, match=r"\[compile\] unhashable type: .*: expected Tensors and hashable"
        ):
            compiled(tensor(2), value)


def test_tensors_from_outside_are_part_of_the_function() -> None:
    """Large ones are bound at each call, small ones become literals: the values are the same."""
    for size in (SMALL // 2, SMALL + 1):
        outside = tensor(size, seed=1)
        compiled = vt.compile(lambda x, outside=outside: x * outside + outside)
        for seed in (2, 3):
            expected = numbers(size, seed=seed) * numbers(size, seed=1) + numbers(size, seed=1)
            assert_same_bits(compiled(tensor(size, seed=seed)).numpy(), expected)
    traced = vt.compile(lambda x: x + outside).traced(tensor(SMALL + 1))
    assert traced.captured == [outside]
    half = vt.asarray([1.0, 2.0], "bf16")
    assert_same_bits(vt.compile(lambda x: x + half.astype("f32"))(vt.zeros((2,))).numpy(), half.numpy())


def test_a_function_without_tensors_runs_too() -> None:
    assert vt.compile(lambda: vt.ones((2,)))().numpy().tolist() == [1.0, 1.0]
    assert vt.compile(lambda x: 7)(tensor(2)) == 7


def test_compile_is_a_decorator_and_keeps_name_and_text() -> None:
    @vt.compile
    def plain(x: Tensor) -> Tensor:
        """Adds one."""
        return x + 1

    @vt.compile(donate=(0,))
    def donating(x: Tensor) -> tuple[Tensor]:
        return (x + 1,)

    assert (plain.__name__, plain.__doc__, donating.__name__) == ("plain", "Adds one.", "donating")
    assert vt.compile(Counted(lambda x: x)).__name__ == "compiled"
    assert plain(vt.zeros((1,))).item() == 1.0
    assert donating(vt.zeros((1,)))[0].item() == 1.0


def test_a_compiled_function_inside_another_is_part_of_its_graph() -> None:
    inner = vt.compile(lambda x: vt.exp(x) * 2)
    outer = vt.compile(lambda x: inner(x) + 1)
    x = tensor(5)
    assert_same_bits(outer(x).numpy(), (inner(x) + 1).numpy())
    assert "exp" in repr(outer.traced(x).graph)


def test_the_policy_counts_at_each_call() -> None:
    fn = Counted(lambda x: vt.exp(x) + 1)
    compiled, x = vt.compile(fn), tensor(4)
    with vt.runtime(isa="ref", threads=1):
        first = compiled.lower(x)
    with vt.runtime(isa="ref", threads=2):
        second = compiled.lower(x)
    assert first is not second
    assert fn.runs == 1


def test_one_compiled_function_serves_many_threads() -> None:
    """Shapes and values differ from thread to thread; every call gets its own."""
    compiled = vt.compile(lambda x, w: vt.softmax(vt.exp(x @ w) + x @ w))
    cases = [(numbers(3 + i % 2, 4, seed=i), numbers(4, 4, seed=i + 50)) for i in range(6)]
    expected = [compiled(vt.asarray(x), vt.asarray(w)).numpy() for x, w in cases]
    fresh = vt.compile(lambda x, w: vt.softmax(vt.exp(x @ w) + x @ w))
    wrong: list[int] = []

    def work(thread: int) -> None:
        for turn in range(30):
            index = (thread + turn) % len(cases)
            x, w = cases[index]
            result = fresh(vt.asarray(x), vt.asarray(w)).numpy()
            if not np.array_equal(result, expected[index]):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not wrong


# --- donation ----------------------------------------------------------------------------------------


def step(state: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    new = {"m": state["m"] * 0.9 + x, "w": state["w"] - state["m"]}
    return new, vt.sum(new["w"])


def test_donated_memory_carries_the_result() -> None:
    state = {"m": tensor(4), "w": tensor(4, seed=1)}
    arrays = {name: value.storage() for name, value in state.items()}
    expected, loss = step(state, vt.ones((4,)))
    new, total = vt.compile(step, donate=(0,))(state, vt.ones((4,)))
    for name, value in new.items():
        assert value.storage() is arrays[name]
        assert_same_bits(value.numpy(), expected[name].numpy())
    assert_same_bits(total.numpy(), loss.numpy())
    with pytest.raises(UsageError, match="was donated"):
        state["m"].numpy()


def test_values_may_change_places() -> None:
    def swap(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor]:
        return {"a": state["b"], "b": state["a"]}, state["a"]

    new, old = vt.compile(swap, donate=(0,))({"a": tensor(3), "b": tensor(3, seed=1)})
    assert_same_bits(new["a"].numpy(), numbers(3, seed=1))
    assert_same_bits(new["b"].numpy(), numbers(3))
    assert_same_bits(old.numpy(), numbers(3))


@pytest.mark.parametrize("donated", [0, 1])
def test_one_tensor_cannot_be_donated_and_given_once_more(donated: int) -> None:
    compiled = vt.compile(lambda a, b: (a + b, b * 2), donate=(donated,))
    x = tensor(3)
    with pytest.raises(UsageError, match=r"\[compile\] a f32\[3\] is donated and given once more"):
        compiled(x, x)
    assert_same_bits(x.numpy(), numbers(3), "nothing was given away")


def test_a_captured_tensor_cannot_be_donated() -> None:
    x = tensor(SMALL + 1)
    with pytest.raises(UsageError, match="donated and given once more"):
        vt.compile(lambda a: (a + x,), donate=(0,))(x)
    assert_same_bits(x.numpy(), numbers(SMALL + 1))


def test_only_what_a_failed_run_wrote_is_lost() -> None:
    def update(state: dict[str, Tensor], x: Tensor) -> tuple[dict[str, Tensor]]:
        a = -state["a"]
        return ({"a": a, "b": state["b"] + vt.check_finite(vt.softmax(a) * x)},)

    state = {"a": tensor(4), "b": tensor(4, seed=1)}
    with vt.runtime(passes=()), pytest.raises(NotFiniteError):
        vt.compile(update, donate=(0,))(state, vt.asarray([np.inf] * 4))
    assert_same_bits(state["b"].numpy(), numbers(4, seed=1))
    with pytest.raises(UsageError, match="was donated"):
        state["a"].numpy()


def test_an_interrupted_run_may_have_written_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    x = tensor(3)
    monkeypatch.setattr(gateway.Executable, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        vt.compile(lambda x: (x + 1,), donate=(0,))(x)
    with pytest.raises(UsageError, match="was donated"):
        x.numpy()


def test_nothing_is_given_away_when_an_argument_is_refused() -> None:
    compiled = vt.compile(lambda a, b: (a + b,), donate=(0,))
    gone, kept = tensor(3), tensor(3)
    vt.compile(lambda a: (a,), donate=(0,))(gone)
    with pytest.raises(UsageError, match="was donated"):
        compiled(kept, gone)
    assert_same_bits(kept.numpy(), numbers(3))


@pytest.mark.parametrize(
    ("fn", "donate", "message"),
    [
        (lambda a, b: a, (0,), r"\[compile\] donate has 0: expected the function to give a tuple"),
        (lambda a, b: (a,), (1,), r"\[compile\] donate has 1: expected the function to give a tuple"),
        (lambda a, b: (a,), (2,), r"\[compile\] donate has 2: expected a position of 2 arguments"),
        (lambda a, b: (a,), (-1,), r"\[compile\] donate has -1: expected a position of 2 arguments"),
        (
            lambda a, b: (vt.sum(a),),
            (0,),
            r"\[compile\] result 0 differs in structure or types from the argument",
        ),
        (lambda a, b: ([a],), (0,), r"\[compile\] result 0 differs in structure"),
    ],
)
def test_a_donation_that_fits_no_result_is_refused(
    fn: Callable[..., Any], donate: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        vt.compile(fn, donate=donate)(tensor(2), tensor(2))


def test_roles_name_who_owns_the_memory() -> None:
    compiled = vt.compile(lambda w, x: w * x, roles=("parameter", "input"))
    assert [node.attrs["role"] for node in compiled.traced(tensor(2), tensor(2)).graph.inputs] == [
        "parameter",
        "input",
    ]
    donating = vt.compile(lambda s, x: (s * x,), donate=(0, 0))
    assert [node.attrs["role"] for node in donating.traced(tensor(2), tensor(2)).graph.inputs] == [
        "state",
        "input",
    ]
    with pytest.raises(
        UsageError, match=r"\[compile\] 1 roles were given: expected one for each of 2 arguments"
    ):
        vt.compile(lambda w, x: w, roles=("parameter",))(tensor(2), tensor(2))


def test_bound_memory_is_written_run_and_read_without_tensors() -> None:
    state, x = {"m": tensor(4), "w": tensor(4, seed=1)}, vt.ones((4,))
    call = vt.compile(step, donate=(0,)).bind(state, x)
    expected_state: dict[str, Tensor] = {"m": tensor(4), "w": tensor(4, seed=1)}
    for turn in range(3):
        call.arguments[1][:] = turn
        call.run()
        expected_state, expected_loss = step(expected_state, vt.asarray(np.full(4, turn, np.float32)))
        assert_same_bits(call.results[1], expected_loss.numpy())
        for name, value in expected_state.items():
            assert call.results[0][name] is call.arguments[0][name]
            assert_same_bits(call.results[0][name], value.numpy())
    assert_same_bits(x.numpy(), np.ones(4, np.float32), "arguments that were not donated are copies")


def test_shared_memory_is_bound_without_a_copy() -> None:
    w, x = tensor(4), tensor(4)
    call = vt.compile(lambda w, x: w * x).bind(w, x, shared=(0,))
    assert call.arguments[0] is w.storage()
    assert call.arguments[1] is not x.storage()
    call.run()
    assert_same_bits(call.results, numbers(4) * numbers(4))
    assert call.executable.plan.graph.inputs
    assert call.graph.outputs


# --- value_and_grad ----------------------------------------------------------------------------------


def mlp(params: dict[str, Tensor], x: Tensor, targets: Tensor) -> Tensor:
    hidden = vt.tanh(x @ params["w1"] + params["b1"])
    return vt.cross_entropy(hidden @ params["w2"] + params["b2"], targets)


def mlp_numpy(params: dict[str, Any], x: Any, targets: Any) -> float:
    hidden = np.tanh(x @ params["w1"] + params["b1"])
    logits = hidden @ params["w2"] + params["b2"]
    rows = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return float(-rows[np.arange(len(targets)), targets].mean())


def mlp_case() -> tuple[dict[str, F32], F32, npt.NDArray[np.int64]]:
    shapes = {"w1": (5, 7), "b1": (7,), "w2": (7, 3), "b2": (3,)}
    params = {name: numbers(*shape, seed=i) for i, (name, shape) in enumerate(shapes.items())}
    return params, numbers(4, 5, seed=9), np.array([0, 2, 1, 2])


def test_gradients_are_the_finite_differences_of_numpys_loss() -> None:
    params, x, targets = mlp_case()
    tensors = {name: vt.asarray(value) for name, value in params.items()}
    loss, grads = vt.value_and_grad(mlp)(tensors, vt.asarray(x), vt.asarray(targets))
    wide = {name: value.astype(np.float64) for name, value in params.items()}
    assert abs(loss.item() - mlp_numpy(wide, x, targets)) < 1e-6
    assert grads.keys() == params.keys()
    for name, value in wide.items():
        expected = np.zeros_like(value)
        for at in np.ndindex(value.shape):
            sides = []
            for move in (1e-6, -1e-6):
                moved = value.copy()
                moved[at] += move
                sides.append(mlp_numpy({**wide, name: moved}, x, targets))
            expected[at] = (sides[0] - sides[1]) / 2e-6
        np.testing.assert_allclose(grads[name].numpy(), expected, 1e-4, 1e-6)


def test_eager_and_compiled_gradients_have_the_same_bits() -> None:
    params, x, targets = mlp_case()
    args = ({name: vt.asarray(value) for name, value in params.items()}, vt.asarray(x), vt.asarray(targets))
    loss, grads = vt.value_and_grad(mlp)(*args)
    compiled_loss, compiled_grads = vt.compile(vt.value_and_grad(mlp))(*args)
    assert_same_bits(loss.numpy(), compiled_loss.numpy())
    assert_same_bits(loss.numpy(), mlp(*args).numpy())
    for name, value in grads.items():
        assert_same_bits(value.numpy(), compiled_grads[name].numpy(), name)


def test_argnums_choose_arguments_one_or_several() -> None:
    def fn(a: Tensor, b: Tensor) -> Tensor:
        return vt.sum(a * a * b)

    a, b = tensor(3), tensor(3, seed=1)
    one = vt.value_and_grad(fn, 1)(a, b)[1]
    both = vt.value_and_grad(fn, (1, 0))(a, b)[1]
    last = vt.value_and_grad(fn, -1)(a, b)[1]
    only = vt.grad(fn, (0,))(a, b)
    assert isinstance(one, Tensor)
    assert isinstance(both, tuple)
    assert_same_bits(one.numpy(), numbers(3) * numbers(3))
    assert_same_bits(both[0].numpy(), one.numpy())
    assert_same_bits(last.numpy(), one.numpy())
    assert_same_bits(both[1].numpy(), only[0].numpy())
    assert_same_bits(vt.grad(fn)(a, b).numpy(), only[0].numpy())


def test_has_aux_gives_more_than_the_loss() -> None:
    def fn(x: Tensor) -> tuple[Tensor, dict[str, Any]]:
        y = x * x
        return vt.sum(y), {"y": y, "name": "square"}

    (loss, aux), grads = vt.value_and_grad(fn, has_aux=True)(tensor(3))
    assert aux["name"] == "square"
    assert_same_bits(aux["y"].numpy(), numbers(3) * numbers(3))
    assert_same_bits(grads.numpy(), numbers(3) + numbers(3))
    assert loss.shape == ()


def test_what_the_loss_does_not_depend_on_has_gradient_zero() -> None:
    a, b = tensor(3), tensor(2)
    _, grads = vt.value_and_grad(lambda p: vt.sum(p["a"]))({"a": a, "b": b})
    assert grads["b"].numpy().tolist() == [0.0, 0.0]
    assert grads["a"].numpy().tolist() == [1.0, 1.0, 1.0]
    constant = vt.asarray(3.0)
    loss, grad = vt.value_and_grad(lambda x: constant)(a)
    assert (loss.item(), grad.numpy().tolist()) == (3.0, [0.0] * 3)


def test_tensors_from_outside_are_constants_of_the_loss() -> None:
    for size in (3, SMALL + 1):
        outside = tensor(size, seed=1)
        _, grad = vt.value_and_grad(lambda x, outside=outside: vt.sum(x * outside))(tensor(size))
        assert_same_bits(grad.numpy(), numbers(size, seed=1))
        inside = vt.compile(lambda x, y: vt.value_and_grad(lambda x: vt.sum(x * y))(x)[1])
        assert_same_bits(inside(tensor(size), outside).numpy(), grad.numpy())


def test_a_gradient_of_a_gradient_is_a_second_derivative() -> None:
    """d/da of sum(d/db sum(a b^2)) = d/da sum(2 a b) = 2 b; the inner arguments are not traced."""
    a, b = tensor(3), tensor(3, seed=1)

    def outer(a: Tensor) -> Tensor:
        return vt.sum(vt.grad(lambda b: vt.sum(a * b * b))(b))

    np.testing.assert_allclose(vt.grad(outer)(a).numpy(), 2 * numbers(3, seed=1), 1e-6)
    np.testing.assert_allclose(vt.compile(vt.grad(outer))(a).numpy(), 2 * numbers(3, seed=1), 1e-6)

    def twice(x: Tensor) -> Tensor:
        return vt.sum(vt.grad(lambda x: vt.sum(x * x * x))(x))

    np.testing.assert_allclose(vt.grad(twice)(a).numpy(), 6 * numbers(3), 1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x: vt.value_and_grad(lambda x: x)(x),
            UsageError,
            r"gave shape \(3,\): expected a scalar, shape \(\)",
        ),
        (lambda x: vt.value_and_grad(lambda x: 3.0)(x), DTypeError, r"gave float: expected a scalar Tensor"),
        (
            lambda x: vt.value_and_grad(lambda x: (vt.sum(x), x))(x),
            DTypeError,
            r"gave tuple: expected a scalar",
        ),
        (
            lambda x: vt.value_and_grad(vt.sum, has_aux=True)(x),
            UsageError,
            r"\[value_and_grad\] the function gave Tensor: expected \(loss, aux\)",
        ),
        (
            lambda x: vt.value_and_grad(vt.sum, 1)(x),
            UsageError,
            r"argnums has 1: expected a position of 1 arguments",
        ),
        (lambda x: vt.value_and_grad(vt.sum, (0, -2))(x), UsageError, r"argnums has -2"),
        (
            lambda x: vt.value_and_grad(lambda i: vt.asarray(1.0))(vt.zeros((2,), "i32")),
            GradientError,
            r"\[value_and_grad\] 0 is i32: expected f32",
        ),
        (
            lambda x: vt.value_and_grad(lambda p: vt.asarray(1.0))({"w": vt.zeros((2,), "bf16")}),
            GradientError,
            r"\[value_and_grad\] 0\.w is bf16: expected f32",
        ),
        (
            lambda x: vt.value_and_grad(lambda x: vt.sum(vt.grad(lambda y: vt.sum(vt.gelu(y)))(x)))(x),
            GradientError,
            r"no gradient",
        ),
    ],
)
def test_what_has_no_gradient_is_refused(
    call: Callable[[Tensor], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call(tensor(3))


# --- leaks -------------------------------------------------------------------------------------------


def test_a_traced_value_that_left_its_function_is_refused() -> None:
    kept: list[Tensor] = []

    def leaks(x: Tensor) -> Tensor:
        kept.append(x * 2)
        return x

    message = r"\[trace\] Tensor\(traced, f32\[3\]\) left the function that traced it"
    vt.compile(leaks)(tensor(3))
    for use in (
        lambda: kept[0] + 1,
        lambda: vt.compile(lambda y: y + kept[0])(tensor(3)),
        lambda: vt.compile(lambda y: kept[0])(tensor(3)),
        lambda: vt.value_and_grad(lambda y: vt.sum(kept[0] * y))(tensor(3)),
        lambda: vt.compile(lambda y: y)(kept[0]),
        lambda: vt.value_and_grad(vt.sum)(kept[0]),
    ):
        with pytest.raises(UsageError, match=message):
            use()


def test_a_value_of_an_inner_function_is_refused_by_the_outer_one() -> None:
    kept: list[Tensor] = []

    def inner(x: Tensor) -> Tensor:
        kept.append(x * 2)
        return vt.sum(x)

    def outer(x: Tensor) -> Tensor:
        vt.grad(inner)(x)
        return x + kept[0]

    with pytest.raises(UsageError, match="left the function that traced it"):
        vt.compile(outer)(tensor(3))


def test_a_function_that_fails_leaves_no_open_trace() -> None:
    kept: list[Tensor] = []

    def fails(x: Tensor) -> Tensor:
        kept.append(x)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        vt.compile(fails)(tensor(3))
    with pytest.raises(UsageError, match="left the function"):
        kept[0] + 1


# --- trees -------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: int
    second: int


def test_trees_flatten_in_a_fixed_order_and_come_back() -> None:
    value = {"b": [1, (2, 3)], "a": {"x": 4, "static": "text", "none": None}}
    leaves, structure = tree.flatten(value, lambda part: isinstance(part, int))
    assert leaves == [4, 1, 2, 3]
    assert tree.unflatten(structure, iter(leaves)) == value
    assert tree.unflatten(structure, iter("wxyz")) == {
        "b": ["x", ("y", "z")], "a": {"x": "w", "static": "text", "none": None},
    }  # fmt: skip
    assert tree.paths(structure) == [".a.x", ".b[0]", ".b[1][0]", ".b[1][1]"]
    assert hash(structure) == hash(tree.flatten(value, lambda part: isinstance(part, int))[1])


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1, False), ([1, {"a": (2,)}], False), ([], False), ([1, {"a": ("x",)}], True), (None, True)],
)
def test_a_tree_knows_whether_it_holds_more_than_leaves(value: Any, expected: bool) -> None:
    structure = tree.flatten(value, lambda part: isinstance(part, int))[1]
    assert tree.has_statics(structure) == expected


def test_named_tuples_come_back_as_tuples_and_a_leaf_is_a_tree() -> None:
    leaves, structure = tree.flatten(Pair(1, 2), lambda part: isinstance(part, int))
    assert tree.unflatten(structure, iter(leaves)) == (1, 2)
    leaves, structure = tree.flatten(5, lambda part: isinstance(part, int))
    assert (leaves, structure, tree.paths(structure)) == ([5], tree.LEAF, [""])


def test_arguments_whose_paths_read_alike_get_names_of_their_own() -> None:
    """{"a": {"b": x}, "a.b": y}: both are `.a.b`."""
    state = {"a": {"b": tensor(2)}, "a.b": tensor(2, seed=1)}
    result = vt.compile(lambda s: s["a"]["b"] - s["a.b"])(state)
    assert_same_bits(result.numpy(), numbers(2) - numbers(2, seed=1))


def test_graphs_can_be_looked_at() -> None:
    compiled = vt.compile(lambda x: vt.exp(x))
    assert isinstance(compiled, transform.Compiled)
    assert isinstance(compiled.lower(tensor(2)), gateway.Executable)
    assert [node.op for node in compiled.traced(tensor(2)).graph] == ["input", "exp"]
