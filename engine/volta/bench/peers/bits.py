"""What volta.bench.bits compares, in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


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
