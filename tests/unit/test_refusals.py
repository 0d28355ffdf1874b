"""What Volta refuses rather than answers wrongly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import volta as vt
from volta.errors import GradientError, NotFiniteError, UsageError
from volta.model.config import Config, from_dict
from volta.plan.cache import PlanCache
from volta.train.loop import Settings
from volta.train.optim import Optimizer
from volta.train.schedule import Schedule


@pytest.mark.parametrize("argument", [3.0, np.ones(2, np.float32), {"w": vt.ones((2,)), "s": 0.5}], ids=repr)
def test_gradients_of_anything_but_tensors_are_refused(argument: object) -> None:
    """An argument that is no Tensor has no gradient; it must not come back as its own."""
    with pytest.raises(GradientError, match="more than Tensors"):
        vt.grad(lambda x: vt.sum(vt.ones((2,))))(argument)


def test_comparing_tensors_with_equals_is_refused() -> None:
    x = vt.ones((2,))
    with pytest.raises(UsageError, match="=="):
        _ = x == vt.ones((2,))
    with pytest.raises(UsageError, match="=="):
        _ = x != 1.0
    assert {x: 1}[x] == 1  # by identity


def test_a_donated_tensor_survives_a_run_that_stopped_before_it_was_written() -> None:
    step = vt.compile(lambda w, x: (w + vt.check_finite(x, ("x",)),), donate=(0,))
    w = vt.ones((4,))
    with pytest.raises(NotFiniteError, match="element 1 is NaN"):
        step(w, vt.asarray(np.array([1, np.nan, 1, 1], np.float32)))
    np.testing.assert_array_equal(w.numpy(), np.ones(4))
    (new,) = step(w, vt.ones((4,)))
    np.testing.assert_array_equal(new.numpy(), 2 * np.ones(4))
    with pytest.raises(UsageError, match="donated"):
        w.numpy()


def test_a_check_is_not_dropped_because_nobody_reads_its_value() -> None:
    def checked(x: vt.Tensor) -> vt.Tensor:
        vt.check_finite(x, ("x",))
        return x + 1.0

    with pytest.raises(NotFiniteError, match="x is NaN"):
        vt.compile(checked)(vt.asarray(np.array([np.nan], np.float32)))


def test_a_tensor_named_like_the_metadata_cannot_be_saved(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="__metadata__"):
        vt.save(tmp_path / "x.safetensors", {"__metadata__": vt.ones((1,))})


def test_a_cache_holds_at_most_its_bytes_beside_the_newest_entry() -> None:
    cache: PlanCache[int] = PlanCache(100, max_bytes=10, size_of=lambda entry: entry)
    for size in (4, 4, 4, 50, 3):
        cache.get_or_make(object(), lambda size=size: size)  # type: ignore[misc]
    assert len(cache) == 1


@pytest.mark.parametrize(
    "wrong",
    [{"depth": 10**7}, {"hidden": 1.5}, {"rotary_base": [1]}, {"eps": "abc"}, {"tied": 1}, {"width": True}],
    ids=str,
)
def test_a_configuration_from_a_file_is_checked_field_by_field(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        from_dict({**Config().to_dict(), **wrong})


@pytest.mark.parametrize("wrong", [{"batch": 1.5}, {"shards": 10**5}, {"seed": "1"}], ids=str)
def test_settings_from_a_file_are_checked_field_by_field(wrong: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Settings(Config(), Schedule("cosine", 1e-3, 10), **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="eps"):
        Optimizer(eps="abc")  # type: ignore[arg-type]


@pytest.mark.parametrize("most", [0.0, 1.0])
def test_a_norm_that_overflows_stops_the_program(most: float) -> None:
    """Each sum of squares is finite, their sum is not: gradients would silently become 0, or NaN."""
    from volta.train.optim import clip

    grads = {name: vt.asarray(np.full(1, 1.5e19, np.float32)) for name in "ab"}
    with pytest.raises(vt.NotFiniteError, match="the norm of all gradients is NaN or infinite"):
        clip(grads, most, vt.asarray(np.float32(0.5)))


def test_a_scalar_parameter_can_be_clipped() -> None:
    from volta.train.optim import clip

    grads, norm, _ = clip({"s": vt.asarray(np.float32(3.0))}, 1.0, vt.asarray(np.float32(0.5)))
    assert norm.item() == 3.0
    assert grads["s"].item() == pytest.approx(1.0, rel=1e-5)
