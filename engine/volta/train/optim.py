"""Optimizers: update formulas as graph operations (N11), so that a training step is one program.

State is a dict of tensors named like the parameters ("m/NAME", "v/NAME") plus scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from volta import functions as F
from volta.errors import UsageError
from volta.tensor import Tensor
from volta.trace import apply

Tensors: TypeAlias = dict[str, Tensor]
CLIP_EPS = 1e-6  # PyTorch's: the clip factor is max_norm / (norm + 1e-6)
KINDS = ("sgd", "adam", "adamw")


@dataclass(frozen=True, slots=True)
class Optimizer:
    """kind sgd: buffer = momentum * buffer + g; w = w - rate * buffer (weight decay added to g).
    adam: Kingma and Ba 2015, weight decay added to g. adamw: Loshchilov and Hutter 2019, decoupled.
    Weight decay applies to matrices only (two axes or more). clip 0: gradients are not clipped.
    """

    kind: str = "adamw"
    momentum: float = 0.9
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.1
    clip: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UsageError(f"[optimizer] kind is {self.kind!r}: expected one of {', '.join(KINDS)}")
        for name in ("momentum", "beta1", "beta2", "eps", "weight_decay", "clip"):
            if type(getattr(self, name)) not in (int, float):
                raise UsageError(f"[optimizer] {name} is {getattr(self, name)!r}: expected a number")
        for name in ("momentum", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise UsageError(f"[optimizer] {name} is {getattr(self, name)}: expected 0 <= {name} < 1")
        for name in ("weight_decay", "clip"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"[optimizer] {name} is {getattr(self, name)}: expected 0 or more")
        if not 0 < self.eps < 1:
            raise UsageError(f"[optimizer] eps is {self.eps}: expected 0 < eps < 1")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def init(self, parameters: Mapping[str, Tensor]) -> Tensors:
        """The state before the first update."""
        if self.kind == "sgd":
            return {f"buffer/{name}": F.zeros(value.shape) for name, value in parameters.items()}
        moments = {
            f"{moment}/{name}": F.zeros(value.shape)
            for moment in ("m", "v")
            for name, value in parameters.items()
        }
        return {**moments, "power1": F.ones(()), "power2": F.ones(())}

    def update(
        self,
        parameters: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
        grads: Mapping[str, Tensor],
        rate: Tensor,
    ) -> tuple[Tensors, Tensors]:
        """New parameters and new state; rate f32 []."""
        return RULES[self.kind](self, parameters, state, grads, rate)

    def decay(self, value: Tensor) -> float:
        return self.weight_decay if value.ndim >= 2 else 0.0


def clip(grads: Mapping[str, Tensor], max_norm: float, loss: Tensor) -> tuple[Tensors, Tensor, Tensor]:
    """Gradients times min(1, max_norm / (norm + 1e-6)), their global norm f32 [], and the loss.

    norm = sqrt(N2 over tensors in name order of N2 over elements of g^2). A NaN or infinity in the loss,
    a gradient's sum of squares or the norm stops the program before anything is updated, naming the first
    that has one.
    max_norm 0 does not clip: the factor is then exactly 1.
    """
    names = sorted(grads)
    values = F.stack(
        [loss, *(F.sum_squares(F.reshape(grads[name], grads[name].shape or (1,))) for name in names)]
    )
    values = F.check_finite(values, ["the loss", *(f"the gradient of {name}" for name in names)])
    norm = F.sqrt(F.check_finite(F.sum(values[1:], keepdims=True), ["the norm of all gradients"]))[0]
    factor = F.minimum(F.divide(max_norm or float("inf"), F.add(norm, CLIP_EPS)), 1.0)
    return {name: F.multiply(grads[name], factor) for name in names}, norm, values[0]


def _sgd(
    o: Optimizer,
    parameters: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    grads: Mapping[str, Tensor],
    rate: Tensor,
) -> tuple[Tensors, Tensors]:
    new: Tensors = {}
    buffers: Tensors = {}
    for name, value in parameters.items():
        g = _with_decay(o, value, grads[name])
        buffers[f"buffer/{name}"] = apply("momentum", state[f"buffer/{name}"], g, mu=o.momentum)
        new[name] = apply("sgd", value, buffers[f"buffer/{name}"], rate)
    return new, buffers


def _adam(
    o: Optimizer,
    parameters: Mapping[str, Tensor],
    state: Mapping[str, Tensor],
    grads: Mapping[str, Tensor],
    rate: Tensor,
) -> tuple[Tensors, Tensors]:
    """power1 and power2 hold beta^t, by one multiplication a step."""
    new: Tensors = {}
    power1, power2 = F.scale(state["power1"], o.beta1), F.scale(state["power2"], o.beta2)
    correction1, correction2 = (F.divide(1.0, F.subtract(1.0, power)) for power in (power1, power2))
    moments: Tensors = {"power1": power1, "power2": power2}
    decoupled = o.kind == "adamw"
    for name, value in parameters.items():
        g = grads[name] if decoupled else _with_decay(o, value, grads[name])
        m = apply("adam_m", state[f"m/{name}"], g, beta1=o.beta1)
        v = apply("adam_v", state[f"v/{name}"], g, beta2=o.beta2)
        moments[f"m/{name}"], moments[f"v/{name}"] = m, v
        new[name] = apply(
            "adam",
            value,
            m,
            v,
            rate,
            correction1,
            correction2,
            eps=o.eps,
            weight_decay=o.decay(value) if decoupled else 0.0,
        )
    return new, moments


def _with_decay(o: Optimizer, value: Tensor, g: Tensor) -> Tensor:
    decay = o.decay(value)
    return F.add(g, F.scale(value, decay)) if decay else g


RULES: dict[str, Callable[..., tuple[Tensors, Tensors]]] = {"sgd": _sgd, "adam": _adam, "adamw": _adam}
