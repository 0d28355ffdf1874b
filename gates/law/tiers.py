"""Which changes need what: paths to tiers, the strictest wins, an unmatched path gets the strictest."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from pydantic import Field, model_validator

from gates.law.files import Article
from gates.registry import GATES
from gates.trees.repository import SUBMODULE, SYMLINK, Change

PATH = "governance/tiers.yaml"


class Tier(Article):
    """paths: a file, a directory ending in `/`, or a pattern with `*`. without: of these, what a later tier
    names. gates: what must pass. rfc: whether
    an Accepted RFC must be named. evidence: what a reviewer must find in the pull request."""

    id: str = Field(pattern=r"^T[0-9]$")
    title: str
    paths: list[str] = Field(min_length=1)
    without: list[str] = Field(default=[])
    gates: list[str] = Field(min_length=1)
    approvals: int = Field(ge=0, le=9)
    rfc: bool = False
    evidence: list[str] = Field(default=[])

    @model_validator(mode="after")
    def known(self) -> Tier:
        for path in (*self.paths, *self.without):
            if path.startswith(("/", "./")) or ".." in path.split("/") or "//" in path:
                raise ValueError(
                    f"path {path!r}: expected one from the repository's root, such as engine/csrc/"
                )
        return self

    def holds(self, path: str) -> bool:
        named, left = (any(matches(one, path) for one in some) for some in (self.paths, self.without))
        return named and not left


class Tiers(Article):
    """Strictest first."""

    tiers: list[Tier] = Field(min_length=1)

    @model_validator(mode="after")
    def distinct(self) -> Tiers:
        names = [tier.id for tier in self.tiers]
        if names != sorted(set(names)):
            raise ValueError(f"tiers are {', '.join(names)}: expected T0, T1, .. once each, strictest first")
        return self

    def unknown(self, root: Path) -> list[str]:
        """Gates that a tier names, and neither these gates nor those below `root` have: a change may bring a
        gate and name it at once, and its judge, the base's, does not know it yet."""
        return sorted(
            {
                gate
                for tier in self.tiers
                for gate in tier.gates
                if gate not in GATES
                and not (gate.isidentifier() and (root / "gates" / f"{gate}.py").is_file())
            }
        )

    def of_path(self, path: str) -> Tier:
        """The strictest tier that names the path; the strictest of all where none does."""
        return next((tier for tier in self.tiers if tier.holds(path)), self.tiers[0])

    def of_change(self, change: Change) -> Tier:
        """Of every path it touches. A link or a submodule stands for files that no path shows: strictest."""
        if {change.old_mode, change.new_mode} & {SYMLINK, SUBMODULE}:
            return self.tiers[0]
        return min((self.of_path(path) for path in change.paths), key=lambda tier: tier.id)

    def of(self, changes: Iterable[Change]) -> Tier | None:
        """The strictest of some changes; None for no change."""
        return min((self.of_change(change) for change in changes), key=lambda tier: tier.id, default=None)


def matches(pattern: str, path: str) -> bool:
    if pattern.endswith("/"):
        return path.startswith(pattern)
    return fnmatchcase(path, pattern) if "*" in pattern else path == pattern
