"""A digest of everything that changes a plan's code or bytes."""

from __future__ import annotations

import hashlib
from weakref import WeakKeyDictionary

import numpy as np

from volta.ir.graph import Attr, Graph

# Graphs never change, and a compiled function asks at every call; who asks keeps the graph alive, not this.
_digests: WeakKeyDictionary[Graph, str] = WeakKeyDictionary()


def graph_digest(graph: Graph) -> str:
    """sha256 over structure, types, attributes and literals; node names and ids do not matter beyond
    their order."""
    found = _digests.get(graph)
    if found is None:
        digest = hashlib.sha256()
        _feed(digest, graph)
        found = _digests[graph] = digest.hexdigest()
    return found


def fingerprint(graph: Graph, *flags: str) -> str:
    """The graph's digest joined with every flag (target signature, passes, policy, versions)."""
    digest = hashlib.sha256(graph_digest(graph).encode())
    for flag in flags:
        digest.update(f"\0{len(flag)}:{flag}".encode())
    return digest.hexdigest()


def _feed(digest: hashlib._Hash, graph: Graph) -> None:
    position = {node: index for index, node in enumerate(graph.nodes)}
    for node in graph.nodes:
        types = ";".join(map(str, node.types))
        digest.update(f"\n{node.op}({[position[source] for source in node.inputs]}){types}".encode())
        for key in sorted(node.attrs):
            digest.update(f"\0{key}=".encode())
            _feed_attr(digest, node.attrs[key])
    donations = sorted((output, position[node]) for output, node in graph.donations.items())
    digest.update(
        f"\n{[position[n] for n in graph.inputs]}{[position[n] for n in graph.outputs]}{donations}".encode()
    )


def _feed_attr(digest: hashlib._Hash, value: Attr) -> None:
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(value.tobytes())
    elif isinstance(value, Graph):
        _feed(digest, value)
    else:
        digest.update(f"{type(value).__name__}:{value!r}".encode())
