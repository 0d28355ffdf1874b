"""How many elements differ: `volta bench bits --peers torch`.

The same numbers computed in two ways that should not matter: a row alone or in a batch, one thread or
two, AVX2 or AVX-512, prefill or decode. Counts output elements whose bits differ.
"""

from __future__ import annotations

import math
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from volta import __version__
from volta import functions as F
from volta.bench.cases import AbsentError
from volta.bench.machine import machine
from volta.bench.peers.bits import torch_outputs
from volta.errors import VoltaError
from volta.runtime import gateway
from volta.runtime.policy import current
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


SCHEMA = "volta-bench-bits/1"
ABSENT = 3  # exit code of a side whose library is not installed


@dataclass(frozen=True, slots=True)
class Comparison:
    """ways: for each way and library the number and share of differing elements, or why it could not be
    measured. skipped: libraries that are not installed."""

    ways: Mapping[str, Mapping[str, Any]]
    skipped: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "command": "volta " + shlex.join(sys.argv[1:]),
            "version": __version__,
            "machine": machine(),
            "ways": self.ways,
            "skipped": self.skipped,
        }


def main() -> None:
    """One side of one comparison in a process of its own: LIBRARY:WHAT:SIDE and the file for its output."""
    library, what, side = sys.argv[1].split(":")
    threads = int(os.environ.get("VOLTA_NUM_THREADS", "2"))
    try:
        found = outputs(library, what, int(side), threads)
    except ImportError as error:
        sys.stderr.write(f"not installed ({error}): pip install 'volta-runtime[peers]'\n")
        sys.exit(ABSENT)
    np.save(sys.argv[2], found)


def compare(libraries: Sequence[str], watch: Callable[[str], None] = lambda line: None) -> Comparison:
    """Each way with each library. A library that is not there is skipped by name."""
    gateway.resolve(current())
    ways: dict[str, dict[str, Any]] = {way: {} for way in WAYS}
    skipped: dict[str, str] = {}
    for way, (what, environments) in WAYS.items():
        for library in libraries:
            if library in skipped:
                continue
            watch(f"{library}: {way}")
            if what == "isa" and "avx512" not in gateway.cpu_info().isas:
                ways[way][library] = "no AVX-512 here"
                continue
            try:
                first, second = (_run(library, what, side, environments[side]) for side in (0, 1))
            except AbsentError as why:
                skipped[library] = str(why)
                continue
            differ = int((first.view(np.uint32) != second.view(np.uint32)).sum())
            ways[way][library] = {"elements": first.size, "differ": differ, "share": differ / first.size}
    return Comparison(ways, tuple(f"{library}: {why}" for library, why in skipped.items()))


def table(found: Comparison) -> str:
    """Markdown."""
    result = found.ways
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
    lines += ["", *(f"- skipped: {line}" for line in found.skipped)] if found.skipped else []
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
        if done.returncode == ABSENT:
            raise AbsentError(done.stderr.strip().splitlines()[-1])
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "no message"
            raise VoltaError(f"[bench] {library} could not run: {last}")
        result: Array = np.load(out)
        return result


if __name__ == "__main__":
    main()
