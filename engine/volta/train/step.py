"""The training step as one graph: forward, backward, clip, update (N12: shards form a fixed tree)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from volta import functions as F
from volta.model.builder import Model
from volta.tensor import Tensor
from volta.train.optim import Optimizer, Tensors, clip
from volta.transform import Compiled, compile, value_and_grad


def training_step(model: Model, optimizer: Optimizer, shards: int = 1, dropout: bool = False) -> Compiled:
    """(parameters, state, tokens, targets [shards, B, T] i32, rate f32 [], key i32 [3]) ->
    (parameters, state, loss [], gradient norm []).

    Parameters and state are donated: the new ones take their memory. The gradient is the mean over
    shards, summed as a binary tree that depends on nothing but their number.
    """

    def loss_of(parameters: Tensors, tokens: Tensor, targets: Tensor, key: Tensor, shard: int) -> Tensor:
        logits = model(parameters, tokens, key=key if dropout else None, shard=shard)
        return F.cross_entropy(logits, F.reshape(targets, (targets.size,)))

    def step(
        parameters: Tensors, state: Tensors, tokens: Tensor, targets: Tensor, rate: Tensor, key: Tensor
    ) -> tuple[Tensors, Tensors, Tensor, Tensor]:
        def one(shard: int) -> dict[str, Tensor]:
            loss, grads = value_and_grad(loss_of)(parameters, tokens[shard], targets[shard], key, shard)
            return {"": loss, **grads}

        total = tree_sum(one, shards)
        mean = {name: F.scale(value, 1.0 / shards) for name, value in total.items()}
        grads, norm, loss = clip({n: g for n, g in mean.items() if n}, optimizer.clip, mean[""])
        return (*optimizer.update(parameters, state, grads, rate), loss, norm)

    compiled: Compiled = compile(
        step, donate=(0, 1), roles=("parameter", "state", "input", "input", "input", "input")
    )
    return compiled


def evaluation(model: Model) -> Compiled:
    """(parameters, tokens, targets [B, T] i32) -> mean loss []."""

    def loss_of(parameters: Tensors, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(model(parameters, tokens), F.reshape(targets, (targets.size,)))

    compiled: Compiled = compile(loss_of, roles=("parameter", "input", "input"))
    return compiled


def tree_sum(one: Callable[[int], dict[str, Any]], count: int, first: int = 0) -> dict[str, Any]:
    """Neighbours are added pair by pair, level by level, an odd one is carried up:
    ((0 + 1) + (2 + 3)) + 4. Evaluated depth first, so that few partial sums are alive."""
    if count == 1:
        return one(first)
    left = 1 << (count - 1).bit_length() - 1
    a = tree_sum(one, left, first)
    b = tree_sum(one, count - left, first + left)
    return {name: F.add(a[name], b[name]) for name in a}
