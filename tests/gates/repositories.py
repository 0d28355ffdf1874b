"""Small git repositories for tests: made, changed and committed in a few words."""

from __future__ import annotations

import subprocess
from pathlib import Path

IDENTITY = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, "-C", str(root), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def repository(root: Path, files: dict[str, str]) -> Path:
    """A repository with one commit of these files."""
    root.mkdir(parents=True, exist_ok=True)
    git(root, "init", "--quiet", "--initial-branch=main")
    return commit(root, files)


def commit(root: Path, files: dict[str, str], message: str = "a change") -> Path:
    put(root, files)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--allow-empty", "-m", message)
    return root


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
