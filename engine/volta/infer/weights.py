"""Weights for inference: as trained, rounded to bf16, or as whole numbers with scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from volta import functions as F
from volta.errors import UsageError
from volta.model.config import Config
from volta.tensor import Tensor

DTYPES = ("f32", "bf16", "int8")
LINEAR = (
    ".attention.qkv.weight",
    ".attention.out.weight",
    ".mlp.up.weight",
    ".mlp.down.weight",
    ".head.weight",
)


@dataclass(frozen=True, slots=True)
class Weights:
    """dtype: of the weights of linear layers. group: neighbours along the inner dimension that share a scale
    (0: all, one scale for each output). activations int8: inputs of those layers are rounded row by row, so
    that products are whole numbers (N10); f32: only the weights are int8."""

    dtype: str = "f32"
    group: int = 0
    activations: str = "f32"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"[weights] dtype is {self.dtype!r}: expected one of {', '.join(DTYPES)}")
        if self.activations not in ("f32", "int8"):
            raise UsageError(f"[weights] activations are {self.activations!r}: expected f32 or int8")
        if self.dtype != "int8" and (self.group or self.activations != "f32"):
            raise UsageError(f"[weights] dtype is {self.dtype}: groups and int8 activations go with int8")
        if type(self.group) is not int or self.group < 0:
            raise UsageError(f"[weights] group is {self.group!r}: expected 0 (all) or a number of neighbours")

    def __str__(self) -> str:
        parts = [self.dtype, f"group {self.group}" if self.group else ""]
        return ", ".join(
            [part for part in parts if part] + ["int8 activations"] * (self.activations == "int8")
        )

    def config(self, config: Config) -> Config:
        """The configuration whose linear layers take these weights."""
        return replace(config, dtype="int8") if self.activations == "int8" else config


def converted(parameters: Mapping[str, Tensor], weights: Weights) -> dict[str, Tensor]:
    """The parameters with those of linear layers in the dtype: bf16 under their name, int8 as NAME.q
    [width, C] and NAME.scale [width, groups]."""
    result: dict[str, Tensor] = {}
    for name, value in parameters.items():
        if weights.dtype == "f32" or not f".{name}".endswith(LINEAR):
            result[name] = value
        elif weights.dtype == "bf16":
            result[name] = F.astype(value, "bf16")
        else:
            depth = value.shape[0]
            if weights.group and depth % weights.group:
                raise UsageError(
                    f"[weights] group is {weights.group}: {name} has {depth} rows, no multiple of it"
                )
            result[f"{name}.q"], result[f"{name}.scale"] = F.quantize(
                F.transpose(value), weights.group or None
            )
    return result
