"""Nested dicts, lists and tuples of leaves, flattened in a fixed order (dicts by sorted key)."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator
from typing import Any

LEAF: Hashable = "*"


def flatten(tree: Any, is_leaf: Callable[[Any], bool]) -> tuple[list[Any], Hashable]:
    """The leaves and a hashable structure; whatever is no leaf and no container is part of the structure."""
    leaves: list[Any] = []

    def walk(part: Any) -> Hashable:
        if is_leaf(part):
            leaves.append(part)
            return LEAF
        if isinstance(part, dict):
            return ("dict", tuple((key, walk(part[key])) for key in sorted(part)))
        if isinstance(part, list | tuple):
            return (type(part).__name__, tuple(walk(item) for item in part))
        sign = math.copysign(1, part) if isinstance(part, float) else 0  # 0.0 == -0.0, but they differ
        return ("static", type(part).__name__, part, sign)

    return leaves, walk(tree)


def unflatten(structure: Any, leaves: Iterator[Any]) -> Any:
    """The inverse of flatten; namedtuples come back as tuples."""
    if structure == LEAF:
        return next(leaves)
    kind = structure[0]
    if kind == "dict":
        return {key: unflatten(part, leaves) for key, part in structure[1]}
    if kind == "static":
        return structure[2]
    items = [unflatten(part, leaves) for part in structure[1]]
    return items if kind == "list" else tuple(items)


def has_statics(structure: Any) -> bool:
    """Whether anything but leaves and containers is in the tree."""
    if structure == LEAF:
        return False
    kind, content = structure[0], structure[1]
    if kind == "static":
        return True
    return any(has_statics(part[1] if kind == "dict" else part) for part in content)


def paths(structure: Any) -> list[str]:
    """A name per leaf: ".params.w", "[0]"."""
    if structure == LEAF:
        return [""]
    kind = structure[0]
    if kind == "dict":
        return [f".{key}{rest}" for key, part in structure[1] for rest in paths(part)]
    if kind == "static":
        return []
    return [f"[{index}]{rest}" for index, part in enumerate(structure[1]) for rest in paths(part)]
