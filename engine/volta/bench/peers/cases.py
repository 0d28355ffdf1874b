"""The cases of volta.bench.cases in NumPy and in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from volta.bench.cases import IGNORE, AbsentError, Case

Array = npt.NDArray[Any]
Call = Callable[[], None]


class Prepared(Protocol):
    """A case with its memory, ready to run."""

    description: str

    def run(self) -> None: ...

    def outputs(self) -> list[Array]:
        """What the last run wrote, as float64 or integers."""

    def poison(self) -> None:
        """Overwrites the outputs where the library lets the caller own them."""


class NumpyCase:
    """np.matmul with `out`; NumPy has no bf16 and no int8 product of its own."""

    def __init__(self, case: Case, arrays: Sequence[Array], threads: int) -> None:
        if case.suite != "gemm" or case.dtype != "f32":
            raise AbsentError("NumPy has no such operation in C")
        self._a, self._b = arrays
        self._out = np.empty((self._a.shape[0], self._b.shape[1]), np.float32)
        config: Any = np.show_config(mode="dicts")
        blas = config["Build Dependencies"]["blas"]
        self.description = f"NumPy {np.__version__}, {blas['name']} {blas['version']}, {threads} threads"

    def run(self) -> None:
        np.matmul(self._a, self._b, out=self._out)

    def outputs(self) -> list[Array]:
        return [self._out]

    def poison(self) -> None:
        self._out[...] = np.nan


class TorchCase:
    """The functions that PyTorch's users call, outputs preallocated where they take `out`."""

    def __init__(self, case: Case, arrays: Sequence[Array], threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self._torch = torch
        self._out: tuple[Any, ...] = ()
        tensors = []
        for one, array in zip(case.inputs, arrays, strict=True):
            tensor = torch.from_numpy(array)
            tensors.append(tensor.view(torch.bfloat16) if one.dtype == "bf16" else tensor)
        self._call = _TORCH[case.suite](torch, case, tensors, self)
        self.description = f"PyTorch {torch.__version__}, {threads} threads"

    def run(self) -> None:
        self._call()

    def outputs(self) -> list[Array]:
        return [tensor.detach().to(self._torch.float64).numpy() for tensor in self._out]

    def poison(self) -> None:
        for tensor in self._out:
            if tensor.is_floating_point():
                tensor.detach().fill_(float("nan"))


def _torch_gemm(torch: Any, case: Case, tensors: list[Any], peer: TorchCase) -> Call:
    a, b, *scale = tensors
    m, n = a.shape[0], b.shape[1]
    if case.dtype == "i8":
        whole = torch.empty(m, n, dtype=torch.int32)
        peer._out = (torch.empty(m, n),)

        def quantized() -> None:
            torch._int_mm(a, b, out=whole)
            torch.mul(whole, scale[0], out=peer._out[0])

        return quantized
    peer._out = (torch.empty(m, n, dtype=a.dtype),)

    def product() -> None:
        torch.mm(a, b, out=peer._out[0])

    return product


def _torch_attention(torch: Any, case: Case, tensors: list[Any], peer: TorchCase) -> Call:
    from torch.nn import functional

    def mixed(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    if not case.parameters["backward"]:

        def forward() -> None:
            with torch.no_grad():
                peer._out = (mixed(*tensors),)

        return forward
    *qkv, g = tensors
    for tensor in qkv:
        tensor.requires_grad_()

    def backward() -> None:
        peer._out = torch.autograd.grad(mixed(*qkv), qkv, g)

    return backward


def _torch_op(torch: Any, case: Case, tensors: list[Any], peer: TorchCase) -> Call:
    from torch.nn import functional

    kind, x = case.parameters["kind"], tensors[0]
    targets: Any = tensors[1].long() if kind == "cross_entropy" else None
    calls: dict[str, Callable[[], Any]] = {
        "gelu_tanh": lambda: functional.gelu(x, approximate="tanh"),
        "gelu_erf": lambda: functional.gelu(x),
        "silu": lambda: functional.silu(x),
        "exp": lambda: torch.exp(x),
        "add": lambda: torch.add(*tensors),
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax": lambda: torch.log_softmax(x, -1),
        "layer_norm": lambda: functional.layer_norm(x, x.shape[-1:], tensors[1], tensors[2], 1e-5),
        "rms_norm": lambda: functional.rms_norm(x, x.shape[-1:], tensors[1], 1e-5),
        "cross_entropy": lambda: functional.cross_entropy(x, targets, ignore_index=IGNORE, reduction="none"),
        "embedding": lambda: functional.embedding(tensors[1], x),
        "sum_rows": lambda: torch.sum(x, 0),
    }
    if kind not in calls:
        raise AbsentError("PyTorch has it only inside its automatic differentiation")

    def run() -> None:
        with torch.no_grad():
            peer._out = (calls[kind](),)

    return run


_TORCH = {"gemm": _torch_gemm, "attention": _torch_attention, "ops": _torch_op}
CASES: dict[str, Callable[[Case, Sequence[Array], int], Prepared]] = {"numpy": NumpyCase, "torch": TorchCase}
