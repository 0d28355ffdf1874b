"""TinyLM: a decoder-only transformer with pre-norm blocks (Radford et al. 2019; rotary positions,
RMS norm and grouped heads as in Touvron et al. 2023).

B batch, T time, S cached keys, C width, H query heads, G key/value heads, D head width, V vocabulary.
Rows are kept as [B*T, C] from the embedding to the logits, so that biases, activations and residuals
join the matmuls they follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from volta import functions as F
from volta.errors import ShapeError
from volta.model.builder import Constant, Model, ModelBuilder, Normal
from volta.model.config import Config
from volta.tensor import Tensor

ACTIVATE = {
    "gelu_tanh": lambda x: F.gelu(x, "tanh"),
    "gelu_erf": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
}


@dataclass(frozen=True, slots=True)
class Cache:
    """Keys and values seen so far, per layer [B, G, S, D]; `positions` i32 [B, T]: where the new tokens
    stand; `last` i32 [B]: which row of [B*T] gives each sequence's logits."""

    keys: list[Tensor]
    values: list[Tensor]
    positions: Tensor
    last: Tensor


def tinylm(config: Config) -> Model:
    """The model with this configuration."""
    return ModelBuilder.build(forward, F.zeros((1, 1), "i32"), config=config)


def forward(
    build: ModelBuilder,
    tokens: Tensor,
    config: Config,
    key: Tensor | None = None,
    shard: int = 0,
    cache: Cache | None = None,
) -> Tensor | tuple[Tensor, list[Tensor], list[Tensor]]:
    """Logits [B*T, V] for tokens i32 [B, T]; key (F.random_key) turns dropout on, with
    streams of its own for each `shard`.

    With a cache: (logits [B, V] of each sequence's last token, new keys, new values).
    """
    batch, time = tokens.shape
    if time > config.context:
        raise ShapeError(f"[tinylm] {time} tokens were given: the context holds {config.context}")
    position = _position(cache, batch)
    x = build.embedding("tokens", F.reshape(tokens, (batch * time,)), config.vocabulary, config.width)
    if config.positions == "learned":
        x = _add_positions(build, x, config, cache, batch, time)
    stream = shard * (2 * config.depth + 1)
    x = _dropout(x, config, key, stream)
    tables = _rotary_tables(config) if config.positions == "rotary" else None
    keys, values = [], []
    for layer in range(config.depth):
        with build.scope(f"block{layer}"):
            seen = (cache.keys[layer], cache.values[layer]) if cache is not None else None
            mixed, k, v = _attend(
                build, _norm(build, "norm1", x, config), config, batch, time, position, seen, tables
            )
            x = F.add(x, _dropout(mixed, config, key, stream + 2 * layer + 1))
            x = F.add(
                x,
                _dropout(
                    _feed_forward(build, _norm(build, "norm2", x, config), config),
                    config,
                    key,
                    stream + 2 * layer + 2,
                ),
            )
            keys.append(k)
            values.append(v)
    if cache is not None:
        x = F.embedding(cache.last, x)  # the last row of each sequence [B, C]
    logits = _logits(build, _norm(build, "norm", x, config), config)
    return logits if cache is None else (logits, keys, values)


def _attend(
    build: ModelBuilder,
    x: Tensor,
    config: Config,
    batch: int,
    time: int,
    position: Tensor,
    seen: tuple[Tensor, Tensor] | None,
    tables: tuple[Tensor, Tensor] | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """x [B*T, C] -> (mixed [B*T, C], keys, values [B, G, S, D]); S is T without a cache."""
    heads, groups, width = config.heads, config.kv_heads, config.head_width
    packed = build.linear("attention.qkv", x, (heads + 2 * groups) * width, config.bias, dtype=config.dtype)
    packed = F.reshape(packed, (batch, time, heads + 2 * groups, width))
    q, k, v = (F.transpose(part, (0, 2, 1, 3)) for part in F.split(packed, (heads, groups, groups), axis=2))
    if tables is not None:
        q, k = F.rotary(q, *tables, position), F.rotary(k, *tables, position)
    if seen is not None:
        k, v = F.cache_update(seen[0], k, position), F.cache_update(seen[1], v, position)
    mixed = F.attention(q, k, v, causal=True, position=position)
    rows = F.reshape(F.transpose(mixed, (0, 2, 1, 3)), (batch * time, config.width))
    std = _residual_std(config)
    return build.linear("attention.out", rows, config.width, config.bias, std, config.dtype), k, v


def _feed_forward(build: ModelBuilder, x: Tensor, config: Config) -> Tensor:
    up = build.linear("mlp.up", x, config.hidden_width, config.bias, dtype=config.dtype)
    hidden = ACTIVATE[config.activation](up)
    return build.linear("mlp.down", hidden, config.width, config.bias, _residual_std(config), config.dtype)


def _logits(build: ModelBuilder, x: Tensor, config: Config) -> Tensor:
    """Tied: the token embedding transposed is the output matrix."""
    if not config.tied:
        return build.linear("head", x, config.vocabulary, bias=False, dtype=config.dtype)
    table = build.parameter("tokens.weight", (config.vocabulary, config.width), Normal(0.02))
    if config.dtype == "bf16":
        x, table = F.astype(x, "bf16"), F.astype(table, "bf16")
    return F.matmul(x, F.transpose(table))


def _norm(build: ModelBuilder, name: str, x: Tensor, config: Config) -> Tensor:
    if config.norm == "layer" and not config.bias:
        weight = build.parameter(f"{name}.weight", x.shape[-1:], Constant(1.0))
        return F.layer_norm(x, weight, F.zeros(x.shape[-1:]), config.eps)
    return (build.layer_norm if config.norm == "layer" else build.rms_norm)(name, x, config.eps)


def _add_positions(
    build: ModelBuilder, x: Tensor, config: Config, cache: Cache | None, batch: int, time: int
) -> Tensor:
    table = build.parameter("positions.weight", (config.context, config.width), Normal(0.02))
    if cache is not None:
        return F.add(x, F.embedding(F.reshape(cache.positions, (batch * time,)), table))
    rows = F.add(F.reshape(x, (batch, time, config.width)), table[:time])
    return F.reshape(rows, (batch * time, config.width))


def _rotary_tables(config: Config) -> tuple[Tensor, Tensor]:
    """cos and sin [context, D/2] of position * base^(-2i/D), made with the engine's own exp, log, cos and
    sin, so that they are the same bits everywhere."""
    half = config.head_width // 2
    log_base = F.log(F.scale(F.ones((1,)), config.rotary_base))
    exponent = F.linear_range(half)
    frequency = F.exp(F.multiply(F.scale(exponent, -1.0 / half), log_base))
    angle = F.multiply(F.reshape(F.linear_range(config.context), (config.context, 1)), frequency)
    return F.cos(angle), F.sin(angle)


def _position(cache: Cache | None, batch: int) -> Tensor:
    return F.zeros((batch,), "i32") if cache is None else F.reshape(cache.positions[:, :1], (batch,))


def _dropout(x: Tensor, config: Config, key: Tensor | None, stream: int) -> Tensor:
    return F.dropout(x, config.dropout, key, stream) if key is not None else x


def _residual_std(config: Config) -> float:
    """GPT-2's: residual branches start smaller with depth."""
    return 0.02 / math.sqrt(2 * config.depth)
