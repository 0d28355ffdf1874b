"""Passes: pure functions Graph -> Graph in one ordered list. None changes a bit of any output."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from volta.errors import UsageError
from volta.ir.graph import Graph
from volta.ir.verify import verify
from volta.passes.cse import share_common
from volta.passes.dce import drop_dead
from volta.passes.epilogue import fuse_epilogues
from volta.passes.fold import fold_constants
from volta.passes.fuse import fuse_elementwise
from volta.passes.simplify import simplify

Pass: TypeAlias = Callable[[Graph], Graph]

PASSES: dict[str, Pass] = {
    "fold": fold_constants,
    "simplify": simplify,
    "cse": share_common,
    "dce": drop_dead,
    "fuse": fuse_elementwise,
    "epilogue": fuse_epilogues,
}


def run(
    graph: Graph,
    names: Iterable[str] | None = None,
    observe: Callable[[str, Graph, Graph], None] | None = None,
) -> Graph:
    """Verifies the graph, then runs the named passes (all by default) in order, verifying after each.

    observe(name, before, after) sees every pass's effect.
    """
    verify(graph)
    for name in PASSES if names is None else names:
        if name not in PASSES:
            raise UsageError(f"[passes] given {name!r}: expected one of {', '.join(PASSES)}")
        before, graph = graph, PASSES[name](graph)
        verify(graph)
        if observe is not None:
            observe(name, before, graph)
    return graph
