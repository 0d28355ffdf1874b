"""Problems for the attention kernels, and clause N5 written a second time, one rounding at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from tests.ops.rows import Floats, exp, n2, row_max

from volta.backends.cpu.native import run_kernel

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Problem:
    """q, g [B, H, T, D]; k, v [B, G, S, D]; position [B]."""

    q: Floats
    k: Floats
    v: Floats
    g: Floats
    position: Ints
    causal: bool = True

    @property
    def scale(self) -> float:
        return float(np.float32(1 / np.sqrt(max(1, self.q.shape[3]))))

    @property
    def group(self) -> int:
        return self.q.shape[1] // self.k.shape[1]

    def visible(self, b: int, t: int) -> int:
        return int(self.position[b]) + t + 1 if self.causal else self.k.shape[2]

    def __str__(self) -> str:
        return f"q {self.q.shape} k {self.k.shape} position {self.position.tolist()} causal {self.causal}"


def random_problem(
    batch: int,
    heads: int,
    groups: int,
    queries: int,
    keys: int,
    width: int,
    *,
    causal: bool = True,
    position: tuple[int, ...] | None = None,
    seed: int = 0,
) -> Problem:
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> Floats:
        return random.standard_normal(shape).astype(np.float32)

    return Problem(
        normal(batch, heads, queries, width),
        normal(batch, groups, keys, width),
        normal(batch, groups, keys, width),
        normal(batch, heads, queries, width),
        np.array(position if position is not None else [0] * batch, np.int32),
        causal,
    )


def packed_views(problem: Problem) -> Problem:
    """The same numbers with q, k, v as views of one [B, T, 3, H, D], as one projection writes them."""
    batch, heads, queries, width = problem.q.shape
    assert problem.k.shape == problem.q.shape
    memory = np.empty((batch, queries, 3, heads, width), np.float32)
    views = [memory[:, :, part].transpose(0, 2, 1, 3) for part in range(3)]
    for view, values in zip(views, (problem.q, problem.k, problem.v), strict=True):
        view[...] = values
    g = np.ascontiguousarray(problem.g.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3)
    return replace(problem, q=views[0], k=views[1], v=views[2], g=g)


def outputs_of(problem: Problem) -> list[Floats]:
    return [np.empty(problem.q.shape, np.float32), np.empty((*problem.q.shape[:3], 2), np.float32)]


def gradients_of(problem: Problem) -> list[Floats]:
    return [np.empty(x.shape, np.float32) for x in (problem.q, problem.k, problem.v)]


def run_forward(problem: Problem, isa: str, threads: int, outputs: list[Floats]) -> None:
    run_kernel(
        "attention",
        [*outputs, problem.q, problem.k, problem.v, problem.position],
        2,
        ints=[int(problem.causal)],
        floats=[problem.scale],
        isa=isa,
        threads=threads,
    )


def run_backward(
    problem: Problem, o: Floats, stats: Floats, isa: str, threads: int, outputs: list[Floats]
) -> None:
    inputs = [problem.q, problem.k, problem.v, o, stats, problem.g, problem.position]
    run_kernel(
        "attention_grad",
        [*outputs, *inputs],
        3,
        ints=[int(problem.causal)],
        floats=[problem.scale],
        isa=isa,
        threads=threads,
    )


def forward(problem: Problem, isa: str = "ref", threads: int = 1) -> tuple[Floats, Floats]:
    o, stats = outputs_of(problem)
    run_forward(problem, isa, threads, [o, stats])
    return o, stats


def backward(problem: Problem, isa: str = "ref", threads: int = 1) -> list[Floats]:
    o, stats = forward(problem, isa, threads)
    gradients = gradients_of(problem)
    run_backward(problem, o, stats, isa, threads, gradients)
    return gradients


# --- the contract -----------------------------------------------------------------------------------
def fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """a * b + c rounded once. The product is exact in float64; the sum is rounded to odd there, so
    that rounding it again to float32 rounds the exact value."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    total = product + addend
    back = total - product
    lost = (product - (total - back)) + (addend - back)
    bits = total.view(np.int64)
    toward = np.where((lost > 0) == (total > 0), 1, -1)
    odd = np.where((lost != 0) & (bits & 1 == 0), bits + toward, bits).view(np.float64)
    return odd.astype(np.float32)


def n1(a: Floats, b: Floats) -> Floats:
    """Clause N1: a [m, k] by b [k, n]."""
    sums = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(a.shape[1]):
        sums = fma(*np.broadcast_arrays(a[:, k, None], b[None, k]), sums)
    return sums


def contract_forward(problem: Problem) -> tuple[Floats, Floats]:
    o, stats = outputs_of(problem)
    for b, h, t in np.ndindex(problem.q.shape[:3]):
        seen = problem.visible(b, t)
        k, v = (x[b, h // problem.group, :seen] for x in (problem.k, problem.v))
        s = n1(problem.q[b, h, t, None], k.T)[0] * np.float32(problem.scale)
        m = row_max(s)
        e = exp(s - m)
        inverse = np.float32(1) / n2(e)
        o[b, h, t] = n1((e * inverse)[None], v)[0]
        stats[b, h, t] = m, inverse
    return o, stats


def contract_backward(problem: Problem, o: Floats, stats: Floats) -> list[Floats]:
    """dk and dv go on from one (head, query) to the next: the order of their contractions."""
    gradients = [np.zeros_like(x) for x in gradients_of(problem)]
    dq, dk, dv = gradients
    for b, h, t in np.ndindex(problem.q.shape[:3]):
        seen, kept = problem.visible(b, t), h // problem.group
        q, g = problem.q[b, h, t, None], problem.g[b, h, t, None]
        k, v = problem.k[b, kept, :seen], problem.v[b, kept, :seen]
        scale = np.float32(problem.scale)
        p = exp(n1(q, k.T)[0] * scale - stats[b, h, t, 0]) * stats[b, h, t, 1]
        ds = (p * (n1(g, v.T)[0] - n2(g[0] * o[b, h, t]))) * scale
        dq[b, h, t] = n1(ds[None], k)[0]
        dk[b, kept, :seen] = fma(*np.broadcast_arrays(ds[:, None], q), dk[b, kept, :seen])
        dv[b, kept, :seen] = fma(*np.broadcast_arrays(p[:, None], g), dv[b, kept, :seen])
    return gradients


# --- float64 ------------------------------------------------------------------------------------------
def exact_forward(q: Doubles, k: Doubles, v: Doubles, problem: Problem) -> Doubles:
    """Attention in float64; `problem` gives positions, scale and whether it is causal."""
    o = np.empty_like(q)
    for b, h, t in np.ndindex(q.shape[:3]):
        seen = problem.visible(b, t)
        s = k[b, h // problem.group, :seen] @ q[b, h, t] * problem.scale
        e = np.exp(s - s.max())
        o[b, h, t] = (e / e.sum()) @ v[b, h // problem.group, :seen]
    return o
