"""Products as the tests of the tuner need them: graphs of every dtype and layout, and their matmul steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.ops.matmuls import bf16, int8, scales

from volta.dtypes import BY_NAME
from volta.ir.graph import Graph, GraphBuilder, Node
from volta.plan.steps import Step
from volta.runtime import gateway
from volta.runtime.policy import Policy

Array = npt.NDArray[Any]
LAYOUTS = ("rows", "columns", "wide rows", "wide columns")


@dataclass(frozen=True)
class Product:
    """[m, k] by [k, n]; groups 0: no scales."""

    a: str
    b: str
    m: int
    n: int
    k: int
    groups: int = 0
    a_layout: str = "rows"
    b_layout: str = "rows"

    @property
    def inputs(self) -> list[tuple[str, tuple[int, int], str]]:
        """Name, shape and dtype of what is stored: five columns more where the layout is wide."""
        found = []
        for name, shape, layout, dtype in (
            ("a", (self.m, self.k), self.a_layout, self.a),
            ("b", (self.k, self.n), self.b_layout, self.b),
        ):
            rows, columns = shape[::-1] if "columns" in layout else shape
            found.append((name, (rows, columns + 5 * ("wide" in layout)), dtype))
        return [*found, ("scale", (self.groups, self.n), "f32")] if self.groups else found

    @property
    def graph(self) -> Graph:
        build = GraphBuilder()
        nodes = [build.input(name, shape, BY_NAME[dtype]) for name, shape, dtype in self.inputs]
        for index, layout in enumerate((self.a_layout, self.b_layout)):
            nodes[index] = laid_out(build, nodes[index], layout)
        return build.freeze([build.add("quantized_matmul" if self.groups else "matmul", nodes)])

    def arrays(self, seed: int = 0) -> list[Array]:
        make: dict[str, Callable[..., Array]] = {"bf16": bf16, "i8": int8}
        made: list[Array] = [
            make[dtype](*shape, seed=seed + index)
            if dtype in make
            else np.random.default_rng([seed, index]).standard_normal(shape, np.float32)
            for index, (_, shape, dtype) in enumerate(self.inputs)
        ]
        if self.groups:
            made[2] = scales(self.groups, self.n, seed)
        return made

    def expected(self, seed: int = 0) -> Array:
        """By the plain C reference."""
        return gateway.compile(self.graph, Policy(isa="ref", threads=1)).run(self.arrays(seed))[0]


def laid_out(build: GraphBuilder, node: Node, layout: str) -> Node:
    if "wide" in layout:
        rows, columns = node.shape
        node = build.add("slice", (node,), {"start": (0, 2), "stop": (rows, columns - 3), "step": (1, 1)})
    return build.add("transpose", (node,), {"axes": (1, 0)}) if "columns" in layout else node


def step_of(graph: Graph, isa: str, threads: int) -> tuple[str, Step]:
    """The one product that blocks can be chosen for, and its key."""
    keys = gateway.matmul_keys(gateway.plan(graph, Policy(isa=isa, threads=threads)), isa, threads)
    assert len(keys) == 1
    return next(iter(keys.items()))


M, N, K = 43, 523, 130  # several blocks of each, none of them whole
KINDS = {
    "f32": Product("f32", "f32", M, N, K),
    "f32, weights bf16": Product("f32", "bf16", M, N, K),
    "f32, weights int8": Product("f32", "i8", M, N, K, 2),
    "bf16": Product("bf16", "bf16", M, N, K),
    "int8": Product("i8", "i8", M, N, K, 2),
    "int8, one scale": Product("i8", "i8", M, N, K, 1),
}
