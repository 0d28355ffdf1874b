"""`.tasks`, which ignores itself: workspaces, logs and leases of the repository that is worked on."""

from __future__ import annotations

from pathlib import Path

from gates.trees.repository import Repository

HOME = ".tasks"


def home(repository: Repository, *below: str) -> Path:
    """A directory below it, made where it is not there."""
    root = repository.root / HOME
    path = root.joinpath(*below)
    path.mkdir(parents=True, exist_ok=True)
    ignore = root / ".gitignore"
    if not ignore.is_file():
        ignore.write_text("*\n")
    return path
