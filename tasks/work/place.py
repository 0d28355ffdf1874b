"""`.tasks`, which ignores itself: workspaces, logs and leases of the repository; and who commits there."""

from __future__ import annotations

from pathlib import Path

from gates.trees.repository import Repository

HOME = ".tasks"
# Of commits that the runner makes: they depend on what they hold alone.
IDENTITY = {
    "GIT_AUTHOR_NAME": "volta tasks", "GIT_AUTHOR_EMAIL": "tasks@volta.invalid",
    "GIT_COMMITTER_NAME": "volta tasks", "GIT_COMMITTER_EMAIL": "tasks@volta.invalid",
    "GIT_NO_REPLACE_OBJECTS": "1",
}  # fmt: skip


def home(repository: Repository, *below: str) -> Path:
    """A directory below it, made where it is not there."""
    root = repository.root / HOME
    path = root.joinpath(*below)
    path.mkdir(parents=True, exist_ok=True)
    ignore = root / ".gitignore"
    if not ignore.is_file():
        ignore.write_text("*\n")
    return path
