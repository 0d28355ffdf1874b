"""TinyLM's configuration: what it is, checked once, and the named ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from volta.errors import UsageError

NORMS = ("layer", "rms")
DTYPES = ("f32", "bf16", "int8")
ACTIVATIONS = ("gelu_tanh", "gelu_erf", "relu", "silu")
POSITIONS = ("learned", "rotary")
# What no configuration exceeds: a damaged file must not make a builder run for hours.
LARGEST = {
    "vocabulary": 1 << 20,
    "context": 1 << 20,
    "depth": 512,
    "width": 1 << 17,
    "heads": 1024,
    "kv_heads": 1024,
}


@dataclass(frozen=True, slots=True)
class Config:
    """depth blocks of width C with `heads` query heads and `kv_heads` key/value heads, over at most
    `context` positions. hidden: width of the feed-forward layer (0: 4 C). dropout: after the embedding
    and on both residual branches, in training only. dtype: of the factors of linear layers; bf16 rounds
    activations and weights (N9), int8 rounds activations and needs weights that are int8 (N10); sums,
    norms, attention and master weights stay f32."""

    vocabulary: int = 256
    context: int = 256
    depth: int = 4
    width: int = 128
    heads: int = 4
    kv_heads: int = 4
    hidden: int = 0
    norm: str = "layer"
    activation: str = "gelu_tanh"
    positions: str = "learned"
    tied: bool = True
    bias: bool = True
    dropout: float = 0.0
    eps: float = 1e-5
    rotary_base: float = 10000.0
    dtype: str = "f32"

    def __post_init__(self) -> None:
        for name in ("vocabulary", "context", "depth", "width", "heads", "kv_heads"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= LARGEST[name]:
                raise UsageError(
                    f"[config] {name} is {value!r}: expected a whole number, 1 to {LARGEST[name]}"
                )
        if self.width % self.heads:
            raise UsageError(f"[config] width is {self.width}, heads {self.heads}: expected a multiple")
        if self.heads % self.kv_heads:
            raise UsageError(f"[config] heads is {self.heads}, kv_heads {self.kv_heads}: expected a multiple")
        if type(self.hidden) is not int or not 0 <= self.hidden <= LARGEST["width"]:
            raise UsageError(
                f"[config] hidden is {self.hidden!r}: expected 0 (4 x width) to {LARGEST['width']}"
            )
        for name in ("tied", "bias"):
            if type(getattr(self, name)) is not bool:
                raise UsageError(f"[config] {name} is {getattr(self, name)!r}: expected true or false")
        for name, low, high in (("dropout", 0.0, 1.0), ("eps", 0.0, 1.0), ("rotary_base", 1.0, 1e12)):
            value = getattr(self, name)
            if type(value) not in (int, float) or not low <= value < high:
                raise UsageError(f"[config] {name} is {value!r}: expected {low:g} to below {high:g}")
        if self.positions == "rotary" and self.head_width % 2:
            raise UsageError(
                f"[config] heads of width {self.head_width} cannot rotate: expected an even width"
            )
        for name, choices in (
            ("norm", NORMS),
            ("activation", ACTIVATIONS),
            ("positions", POSITIONS),
            ("dtype", DTYPES),
        ):
            if getattr(self, name) not in choices:
                raise UsageError(
                    f"[config] {name} is {getattr(self, name)!r}: expected one of {', '.join(choices)}"
                )

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def hidden_width(self) -> int:
        return self.hidden or 4 * self.width

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


ADDED_LATER = frozenset({"dtype"})  # to the fields of version 0.1.0
CONFIGS: Mapping[str, Config] = {
    "micro": Config(context=64, depth=2, width=64, heads=2, kv_heads=2),
    "tiny": Config(positions="rotary"),
    "tiny-llama": Config(kv_heads=2, norm="rms", activation="silu", positions="rotary", bias=False),
    "nanogpt-cpu": Config(vocabulary=96, context=64),
    "small": Config(depth=6, width=384, heads=6, kv_heads=6),
}


def named(name: str, **changes: Any) -> Config:
    """A named configuration, with some fields changed."""
    if name not in CONFIGS:
        raise UsageError(f"[config] given {name!r}: expected one of {', '.join(CONFIGS)}")
    return replace(CONFIGS[name], **changes)


def from_dict(values: Mapping[str, Any]) -> Config:
    """The inverse of Config.to_dict; unknown or missing fields are errors, but for those that files of an
    earlier version lack, which had the default."""
    known = {field.name for field in fields(Config)}
    if not known - ADDED_LATER <= set(values) <= known:
        wrong = ", ".join(sorted(set(values) ^ known))
        raise UsageError(f"[config] fields differ from this version's: {wrong}")
    return Config(**values)
