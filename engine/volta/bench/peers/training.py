"""The same training step in Volta and in PyTorch: same weights, same batches, so the losses must agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from volta.bench.cases import AbsentError
from volta.model.config import Config
from volta.model.transformer import tinylm
from volta.runtime.policy import runtime
from volta.train.data import Batches
from volta.train.loop import Settings, Trainer
from volta.train.optim import Optimizer
from volta.train.schedule import Schedule

RATE, SEED = 1e-4, 1  # a rate at which no loss jumps: jumps amplify roundings until losses part
OPTIMIZER = Optimizer("adamw")
Weights = dict[str, npt.NDArray[np.float32]]


class TrainingPeer(Protocol):
    """One implementation of the training step, ready to run."""

    description: str

    def step(self) -> float:
        """One step; gives the loss before its update."""


def settings(config: Config, batch: int) -> Settings:
    return Settings(
        config,
        Schedule("constant", RATE, 10**6),
        OPTIMIZER,
        batch=batch,
        seed=SEED,
        validation=0.0,
        evaluate_every=0,
        save_every=0,
    )


class VoltaPeer:
    """The training loop's own step."""

    def __init__(self, config: Config, batch: int, text: bytes, threads: int) -> None:
        with runtime(threads=threads):
            self._trainer = Trainer(settings(config, batch), text)
        self.description = self._trainer.signature

    def step(self) -> float:
        return self._trainer.advance().loss


class TorchPeer:
    """PyTorch on the CPU as its users write it for speed: nn.Linear's functional form and layout,
    layer_norm, scaled_dot_product_attention, clip_grad_norm_, fused AdamW. compiled: through
    torch.compile. autocast: linear layers and attention in bf16, weights in f32."""

    def __init__(
        self,
        config: Config,
        batch: int,
        text: bytes,
        threads: int,
        compiled: bool = False,
        autocast: bool = False,
    ) -> None:
        import torch

        if config.norm != "layer" or config.positions != "learned" or not config.tied or config.dropout:
            raise AbsentError("this peer has layer norm, learned positions, tied embeddings and no dropout")
        torch.set_num_threads(threads)
        self._torch = torch
        self._autocast = autocast
        self._parameters = {
            name: torch.nn.Parameter(torch.from_numpy(np.ascontiguousarray(array)))
            for name, array in torch_weights(config).items()
        }
        matrices = [p for p in self._parameters.values() if p.ndim >= 2]
        vectors = [p for p in self._parameters.values() if p.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": OPTIMIZER.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(
            groups, lr=RATE, betas=(OPTIMIZER.beta1, OPTIMIZER.beta2), eps=OPTIMIZER.eps, fused=True
        )
        self._batches = Batches(np.frombuffer(text, np.uint8), batch, config.context, SEED)
        self._loss: Callable[..., Any] = _torch_loss(config)
        if compiled:
            self._loss = torch.compile(self._loss)
        self._step = 0
        kind = "compile" if compiled else "eager"
        self.description = (
            f"PyTorch {torch.__version__}, {kind}{', bf16 autocast' if autocast else ''}, {threads} threads"
        )

    def step(self) -> float:
        torch = self._torch
        tokens, targets = (torch.from_numpy(array.astype(np.int64)) for array in self._batches.at(self._step))
        self._step += 1
        self._optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self._autocast):
            loss = self._loss(self._parameters, tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters.values(), OPTIMIZER.clip)
        self._optimizer.step()
        return float(loss.detach())


def _torch_loss(config: Config) -> Callable[..., Any]:
    """Mean cross-entropy of the transformer of volta.model.transformer, in torch's functions."""
    from torch.nn import functional

    heads, width, approximate = (
        config.heads,
        config.head_width,
        "tanh" if config.activation == "gelu_tanh" else "none",
    )

    def linear(w: Mapping[str, Any], name: str, x: Any) -> Any:
        return functional.linear(x, w[f"{name}.weight"], w[f"{name}.bias"])

    def norm(w: Mapping[str, Any], name: str, x: Any) -> Any:
        return functional.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], config.eps)

    def loss(w: Mapping[str, Any], tokens: Any, targets: Any) -> Any:
        batch, time_ = tokens.shape
        x = functional.embedding(tokens, w["tokens.weight"]) + w["positions.weight"][:time_]
        for layer in range(config.depth):
            block = f"block{layer}"
            packed = linear(w, f"{block}.attention.qkv", norm(w, f"{block}.norm1", x))
            q, k, v = (part.view(batch, time_, heads, width).transpose(1, 2) for part in packed.chunk(3, -1))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            rows = mixed.transpose(1, 2).reshape(batch, time_, config.width)
            x = x + linear(w, f"{block}.attention.out", rows)
            hidden = linear(w, f"{block}.mlp.up", norm(w, f"{block}.norm2", x))
            x = x + linear(w, f"{block}.mlp.down", functional.gelu(hidden, approximate=approximate))
        logits = functional.linear(norm(w, "norm", x), w["tokens.weight"])
        return functional.cross_entropy(logits.reshape(-1, config.vocabulary), targets.reshape(-1))

    return loss


def torch_weights(config: Config) -> Weights:
    """The weights both sides start from; those of linear layers [out, in], as nn.Linear keeps them."""
    values = {name: value.numpy() for name, value in tinylm(config).init(SEED).items()}
    return {
        name: array.T if array.ndim == 2 and name.startswith("block") else array
        for name, array in values.items()
    }


def training_peer(name: str, config: Config, batch: int, text: bytes, threads: int) -> TrainingPeer:
    """A side by name: volta, or one of PEERS."""
    if name == "volta":
        return VoltaPeer(config, batch, text, threads)
    return TorchPeer(config, batch, text, threads, **PEERS[name])


PEERS: dict[str, dict[str, bool]] = {
    "torch": {},
    "torch-compile": {"compiled": True},
    "torch-bf16": {"autocast": True},
}
