"""ModelBuilder: one forward function serves to declare the parameters and to use them."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from volta import functions as F
from volta import tree
from volta.errors import ShapeError, UsageError
from volta.ir.graph import Shape
from volta.model.config import DTYPES
from volta.tensor import Tensor
from volta.trace import Trace
from volta.transform import compile, is_tensor

INITIAL = 2**32 - 1  # the Philox step of initial values; training steps stay below it


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal with mean 0; drawn from Philox by (seed, the parameter's name), so adding a parameter
    changes no other."""

    std: float


@dataclass(frozen=True, slots=True)
class Constant:
    """Every element the same."""

    value: float


Initial = Normal | Constant


@dataclass(frozen=True, slots=True)
class ParameterSpec:
    """Shape and initial values of one parameter."""

    shape: Shape
    initial: Initial


class ModelBuilder:
    """Given to a forward function: declares parameters the first time, hands out their values later.

    >>> def mlp(build, x):                                    # x [B, 32]
    ...     hidden = vt.gelu(build.linear("up", x, 128))      # [B, 128]
    ...     return build.linear("down", hidden, 10)           # [B, 10]
    >>> model = vt.ModelBuilder.build(mlp, vt.zeros((1, 32)))
    >>> parameters = model.init(seed=1)
    >>> y = model(parameters, x)
    """

    def __init__(self, values: Mapping[str, Tensor] | None = None) -> None:
        self.specs: dict[str, ParameterSpec] = {}
        self._values = values
        self._trace = Trace() if values is None else None
        self._scope: tuple[str, ...] = ()

    @staticmethod
    def build(forward: Callable[..., Any], *examples: Any, **options: Any) -> Model:
        """Runs `forward(builder, *examples, **options)` on shapes alone and gives the model."""
        builder = ModelBuilder()
        leaves, structure = tree.flatten(examples, is_tensor)
        trace = builder._trace
        if trace is None:
            raise UsageError("[model] a builder that declares parameters has a trace")
        inputs = [trace.input(f"x{i}", leaf) for i, leaf in enumerate(leaves)]
        try:
            forward(builder, *tree.unflatten(structure, iter(inputs)), **options)
        finally:
            trace.open = False
        return Model(forward, builder.specs, options)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefixes the names declared inside with `name` and a dot."""
        before = self._scope
        self._scope = (*before, name)
        try:
            yield
        finally:
            self._scope = before

    def parameter(self, name: str, shape: Shape, initial: Initial) -> Tensor:
        """The parameter of this name; the same name twice is one shared parameter of one shape."""
        full = ".".join((*self._scope, name))
        spec = ParameterSpec(tuple(shape), initial)
        if self.specs.setdefault(full, spec).shape != spec.shape:
            raise ShapeError(
                f"[model] parameter {full} is {self.specs[full].shape}, asked for as {spec.shape}"
            )
        if self._values is None:
            if self._trace is None:
                raise UsageError("[model] a builder that declares parameters has a trace")
            return self._trace.input(full, F.zeros(spec.shape), "parameter")
        if full not in self._values:
            raise UsageError(f"[model] parameter {full} is missing: expected {spec.shape}")
        value = self._values[full]
        if value.shape != spec.shape:
            raise ShapeError(f"[model] parameter {full} is {value.shape}: expected {spec.shape}")
        return value

    def linear(
        self, name: str, x: Tensor, width: int, bias: bool = True, std: float = 0.02, dtype: str = "f32"
    ) -> Tensor:
        """x [..., C] @ weight [C, width] + bias [width].

        dtype bf16: both factors are rounded to it (N9). Weights that are given as int8, "NAME.weight.q"
        [width, C] with "NAME.weight.scale" [width, groups], multiply x as it is, or with dtype int8 x
        rounded row by row (N10). The parameter that is declared is the f32 weight they are made from.
        """
        if dtype not in DTYPES:
            raise UsageError(f"[model] dtype of {name} is {dtype!r}: expected one of {', '.join(DTYPES)}")
        y = self._product(f"{name}.weight", x, width, std, dtype)
        return F.add(y, self.parameter(f"{name}.bias", (width,), Constant(0.0))) if bias else y

    def _product(self, name: str, x: Tensor, width: int, std: float, dtype: str) -> Tensor:
        q, scale = self._given(f"{name}.q"), self._given(f"{name}.scale")
        if q is not None and scale is not None:
            if dtype != "int8":
                return F.quantized_matmul(x, F.transpose(q), F.transpose(scale))
            rounded, steps = F.quantize(x)
            return F.multiply(F.quantized_matmul(rounded, F.transpose(q), F.transpose(scale)), steps)
        if dtype == "int8" and self._values is not None:
            full = ".".join((*self._scope, name))
            raise UsageError(f"[model] dtype is int8, and {full} is not: quantize the weights first")
        weight = self.parameter(name, (x.shape[-1], width), Normal(std))
        if dtype == "bf16":
            return F.matmul(F.astype(x, "bf16"), F.astype(weight, "bf16"))
        return F.matmul(x, weight)

    def _given(self, name: str) -> Tensor | None:
        full = ".".join((*self._scope, name))
        return None if self._values is None else self._values.get(full)

    def embedding(self, name: str, indices: Tensor, rows: int, width: int, std: float = 0.02) -> Tensor:
        """Rows of weight [rows, width] at indices [...]: [..., width]."""
        return F.embedding(indices, self.parameter(f"{name}.weight", (rows, width), Normal(std)))

    def layer_norm(self, name: str, x: Tensor, eps: float = 1e-5) -> Tensor:
        """Over the last axis, with weight and bias [C]."""
        shape = x.shape[-1:]
        weight = self.parameter(f"{name}.weight", shape, Constant(1.0))
        return F.layer_norm(x, weight, self.parameter(f"{name}.bias", shape, Constant(0.0)), eps)

    def rms_norm(self, name: str, x: Tensor, eps: float = 1e-5) -> Tensor:
        """Over the last axis, with weight [C]."""
        return F.rms_norm(x, self.parameter(f"{name}.weight", x.shape[-1:], Constant(1.0)), eps)


@dataclass(frozen=True)
class Model:
    """A forward function with its parameters' specifications."""

    forward: Callable[..., Any]
    parameters: Mapping[str, ParameterSpec]
    options: Mapping[str, Any]

    def init(self, seed: int) -> dict[str, Tensor]:
        """Initial values, in the order of declaration; the same on every machine (N8)."""

        def values(key: Tensor) -> dict[str, Tensor]:
            return {name: _drawn(name, spec, key) for name, spec in self.parameters.items()}

        drawn: dict[str, Tensor] = compile(values)(F.random_key(seed, INITIAL))  # one program, not one each
        return {name: drawn[name] for name in self.parameters}

    def __call__(self, parameters: Mapping[str, Tensor], *inputs: Any, **options: Any) -> Any:
        """The forward function with these values; further options override those of `build`."""
        return self.forward(ModelBuilder(parameters), *inputs, **{**self.options, **options})

    @property
    def size(self) -> int:
        """How many numbers the parameters hold."""
        total = 0
        for spec in self.parameters.values():
            count = 1
            for length in spec.shape:
                count *= length
            total += count
        return total


def initial_value(name: str, spec: ParameterSpec, seed: int) -> Tensor:
    """The first value of one parameter; its Philox stream is the CRC-32 of its name."""
    return _drawn(name, spec, F.random_key(seed, INITIAL))


def _drawn(name: str, spec: ParameterSpec, key: Tensor) -> Tensor:
    """key: i32 [3]."""
    if isinstance(spec.initial, Constant):
        return F.scale(F.ones(spec.shape), spec.initial.value)
    return F.normal(key, spec.shape, 0.0, spec.initial.std, zlib.crc32(name.encode()))
