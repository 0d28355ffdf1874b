"""How many elements differ: `volta bench bits --peers torch`.

The same numbers computed in two ways that should not matter: a row alone or in a batch, one thread or
two, AVX2 or AVX-512, prefill or decode. Counts output elements whose bits differ.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from volta import functions as F
from volta.bench.peers.bits import torch_outputs
from volta.errors import VoltaError
from volta.runtime import gateway
from volta.tensor import asarray
from volta.train.draws import blocks

Array = npt.NDArray[Any]
BATCH, WIDTH, HEADS, TIME, HEAD = 64, 768, 12, 256, 64
# What each library must be told to use an older instruction set.
TORCH_AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
WAYS: dict[str, tuple[str, tuple[dict[str, str], dict[str, str]]]] = {
    "a row alone, in a batch of 64": ("row", ({}, {})),
    "1 thread, 2 threads": ("threads", ({"VOLTA_NUM_THREADS": "1"}, {"VOLTA_NUM_THREADS": "2"})),
    "AVX2, AVX-512": ("isa", ({"VOLTA_ISA": "avx2", **TORCH_AVX2}, {"VOLTA_ISA": "avx512"})),
    "prefill, decode": ("decode", ({}, {})),
}


def main() -> None:
    """One side of one comparison in a process of its own: LIBRARY:WHAT:SIDE and the file for its output."""
    library, what, side = sys.argv[1].split(":")
    np.save(sys.argv[2], outputs(library, what, int(side), int(os.environ.get("VOLTA_NUM_THREADS", "2"))))


def compare(libraries: list[str]) -> dict[str, dict[str, Any]]:
    """For each way and library the share of differing elements, or why it could not be measured."""
    result: dict[str, dict[str, Any]] = {}
    for way, (what, environments) in WAYS.items():
        result[way] = {}
        for library in libraries:
            if what == "isa" and "avx512" not in gateway.cpu_info().isas:
                result[way][library] = "no AVX-512 here"
                continue
            first, second = (_run(library, what, side, environments[side]) for side in (0, 1))
            differ = int((first.view(np.uint32) != second.view(np.uint32)).sum())
            result[way][library] = {"elements": first.size, "differ": differ, "share": differ / first.size}
    return result


def table(result: dict[str, dict[str, Any]]) -> str:
    """Markdown."""
    libraries = list(next(iter(result.values())))
    lines = [
        f"| the same numbers, computed as | {' | '.join(libraries)} |",
        "|---" * (len(libraries) + 1) + "|",
    ]
    for way, cells in result.items():
        shown = [
            cell if isinstance(cell, str) else f"{cell['share']:.1%} of {cell['elements']:,} differ"
            for cell in cells.values()
        ]
        lines.append(f"| {way} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def outputs(library: str, what: str, side: int, threads: int) -> Array:
    """One side of one comparison, computed by one library in this process."""
    x, w, q, k, v = inputs()
    if library == "torch":
        return torch_outputs(what, side, threads, x, w, q, k, v)
    linear: Callable[[Array], Array] = lambda rows: F.softmax(F.matmul(asarray(rows), asarray(w))).numpy()  # noqa: E731
    if what == "decode":
        return _attention(side, q, k, v)
    if what == "row" and side == 0:
        return np.concatenate([linear(x[i : i + 1]) for i in range(BATCH)])
    return linear(x)


def _attention(side: int, q: Array, k: Array, v: Array) -> Array:
    """The last query of a causal attention: among all queries, or alone."""
    if side == 0:
        return F.attention(asarray(q), asarray(k), asarray(v)).numpy()[:, :, -1:]
    position = asarray(np.array([TIME - 1], np.int32))
    return F.attention(asarray(q[:, :, -1:]), asarray(k), asarray(v), position=position).numpy()


def inputs() -> tuple[Array, ...]:
    """Rows [64, 768], weights [768, 768], and q, k, v [1, 12, 256, 64], uniform in [-1, 1)."""

    def draw(stream: int, *shape: int) -> Array:
        words = blocks(0, stream, 0, -(-math.prod(shape) // 4)).reshape(-1)[: math.prod(shape)]
        return ((words >> np.uint64(8)).astype(np.float32) * np.float32(2**-23) - np.float32(1)).reshape(
            shape
        )

    shape = (1, HEADS, TIME, HEAD)
    return draw(0, BATCH, WIDTH), draw(1, WIDTH, WIDTH), draw(2, *shape), draw(3, *shape), draw(4, *shape)


def _run(library: str, what: str, side: int, environment: dict[str, str]) -> Array:
    with TemporaryDirectory() as scratch:
        out = Path(scratch) / "out.npy"
        command = [sys.executable, "-m", "volta.bench.bits", f"{library}:{what}:{side}", str(out)]
        done = subprocess.run(
            command, env={**os.environ, **environment}, check=False, capture_output=True, text=True
        )
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
            raise VoltaError(f"[bench] {library} could not run: {last}")
        result: Array = np.load(out)
        return result


if __name__ == "__main__":
    main()
