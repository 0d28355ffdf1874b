"""The same training step in Volta and in PyTorch: same weights, same batches, so the losses must agree.

torch is the optional extra `peers`; this is the only module that imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from volta.errors import UsageError
from volta.model.config import Config
from volta.model.transformer import tinylm
from volta.runtime.policy import runtime
from volta.train.data import Batches
from volta.train.loop import Settings, Trainer
from volta.train.optim import Optimizer
from volta.train.schedule import Schedule

RATE, SEED = 1e-3, 1
OPTIMIZER = Optimizer("adamw")
Weights = dict[str, npt.NDArray[np.float32]]


class Peer(Protocol):
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
    """PyTorch on the CPU, written as its users write it: Linear, layer_norm, scaled_dot_product_attention,
    clip_grad_norm_, AdamW. compiled: through torch.compile."""

    def __init__(self, config: Config, batch: int, text: bytes, threads: int, compiled: bool = False) -> None:
        import torch

        if config.norm != "layer" or config.positions != "learned" or not config.tied or config.dropout:
            raise UsageError(
                "[bench] the torch peer has layer norm, learned positions, tied embeddings and no dropout"
            )
        torch.set_num_threads(threads)
        self._torch = torch
        self._parameters = {
            name: torch.nn.Parameter(torch.from_numpy(array.copy()))
            for name, array in initial_weights(config).items()
        }
        matrices = [p for p in self._parameters.values() if p.ndim >= 2]
        vectors = [p for p in self._parameters.values() if p.ndim < 2]
        groups = [
            {"params": matrices, "weight_decay": OPTIMIZER.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(
            groups, lr=RATE, betas=(OPTIMIZER.beta1, OPTIMIZER.beta2), eps=OPTIMIZER.eps
        )
        self._batches = Batches(np.frombuffer(text, np.uint8), batch, config.context, SEED)
        self._loss: Callable[..., Any] = _torch_loss(config)
        if compiled:
            self._loss = torch.compile(self._loss)
        self._step = 0
        self.description = (
            f"torch {torch.__version__}, {'compile' if compiled else 'eager'}, {threads} threads"
        )

    def step(self) -> float:
        torch = self._torch
        tokens, targets = (torch.from_numpy(array.astype(np.int64)) for array in self._batches.at(self._step))
        self._step += 1
        self._optimizer.zero_grad(set_to_none=True)
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
        return x @ w[f"{name}.weight"] + w[f"{name}.bias"]

    def norm(w: Mapping[str, Any], name: str, x: Any) -> Any:
        return functional.layer_norm(x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], config.eps)

    def loss(w: Mapping[str, Any], tokens: Any, targets: Any) -> Any:
        batch, time_ = tokens.shape
        x = w["tokens.weight"][tokens] + w["positions.weight"][:time_]
        for layer in range(config.depth):
            block = f"block{layer}"
            packed = linear(w, f"{block}.attention.qkv", norm(w, f"{block}.norm1", x))
            q, k, v = (part.view(batch, time_, heads, width).transpose(1, 2) for part in packed.chunk(3, -1))
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            rows = mixed.transpose(1, 2).reshape(batch, time_, config.width)
            x = x + linear(w, f"{block}.attention.out", rows)
            hidden = linear(w, f"{block}.mlp.up", norm(w, f"{block}.norm2", x))
            x = x + linear(w, f"{block}.mlp.down", functional.gelu(hidden, approximate=approximate))
        logits = norm(w, "norm", x) @ w["tokens.weight"].T
        return functional.cross_entropy(logits.reshape(-1, config.vocabulary), targets.reshape(-1))

    return loss


def initial_weights(config: Config) -> Weights:
    """The weights both sides start from."""
    return {name: value.numpy() for name, value in tinylm(config).init(SEED).items()}


def make(name: str, config: Config, batch: int, text: bytes, threads: int) -> Peer:
    """A peer by name: volta, torch, torch-compile."""
    if name == "volta":
        return VoltaPeer(config, batch, text, threads)
    return TorchPeer(config, batch, text, threads, compiled=name == "torch-compile")


PEERS = ("volta", "torch", "torch-compile")


def torch_outputs(what: str, side: int, threads: int, *arrays: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """What volta.bench.bits compares, in PyTorch with its deterministic algorithms on."""
    import torch
    from torch.nn import functional

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads)
    x, w, q, k, v = (torch.from_numpy(array) for array in arrays)
    if what == "decode":
        if side == 0:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)[:, :, -1:]
        else:
            mixed = functional.scaled_dot_product_attention(q[:, :, -1:], k, v)
        return np.ascontiguousarray(mixed.numpy())
    if what == "row" and side == 0:
        return np.concatenate([torch.softmax(x[i : i + 1] @ w, -1).numpy() for i in range(len(x))])
    result: npt.NDArray[Any] = torch.softmax(x @ w, -1).numpy()
    return result
