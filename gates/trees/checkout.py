"""Exact copies of trees on disk, kept by tree id, with kernels compiled once per version of their sources.

All under one ignored directory of the repository, `.gates/`: trees/, builds/, evidence/.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from gates.errors import GateError
from gates.trees.repository import Repository, Tree

HOME = ".gates"
KEPT = 8  # checkouts; older ones are removed
NEW = "new-"  # what begins so is being made by somebody
SOURCES = ("engine/csrc", "setup.py", "pyproject.toml")  # what the compiled kernels are made from
LIBRARY = "engine/volta/_native.abi3.so"
BUILD_LIMIT_S = 900.0


@dataclass(frozen=True, slots=True)
class Checkout:
    """A tree and the directory that holds exactly its files."""

    tree: Tree
    path: Path


def home(repository: Repository) -> Path:
    """`.gates`, which ignores itself."""
    path = repository.root / HOME
    path.mkdir(exist_ok=True)
    (path / ".gitignore").write_text("*\n")
    return path


_held: dict[Path, int] = {}  # checkouts that this process uses, each with its lock's descriptor


def hold(path: Path) -> None:
    """Nobody removes the checkout until this process ends or releases it."""
    while path not in _held:
        lock = os.open(lock_of(path), os.O_CREAT | os.O_RDWR, 0o644)
        fcntl.flock(lock, fcntl.LOCK_SH)
        if lock_of(path).exists() and os.fstat(lock).st_ino == lock_of(path).stat().st_ino:
            _held[path] = lock
        else:  # it was removed, with its lock, while this process waited
            os.close(lock)


def release(path: Path) -> None:
    if path in _held:
        os.close(_held.pop(path))


def lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.lock")


def checkout(repository: Repository, tree: Tree) -> Checkout:
    """The tree's files in a directory of their own; a second call finds it there."""
    trees = home(repository) / "trees"
    trees.mkdir(exist_ok=True)
    path = trees / tree.tree
    hold(path)
    if not path.is_dir():
        with tempfile.TemporaryDirectory(dir=trees, prefix=NEW) as scratch:
            new = Path(scratch, "tree")
            new.mkdir()
            env = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
            repository.git("read-tree", tree.tree, env=env)
            repository.git("checkout-index", "--all", "--force", f"--prefix={new}/", env=env)
            try:
                new.rename(path)
            except OSError:  # another process was first
                if not path.is_dir():
                    raise
    os.utime(path)
    forget(trees, KEPT)
    return Checkout(tree, path)


def forget(directory: Path, kept: int) -> None:
    """Removes all but the entries used last, and none that a process holds."""
    entries = []
    for path in directory.iterdir():
        if not path.name.endswith(".lock") and not path.name.startswith(NEW):
            with contextlib.suppress(FileNotFoundError):  # another process was first
                entries.append((path.stat().st_mtime, path))
    for _, path in sorted(entries, reverse=True)[kept:]:
        if path.is_dir():
            remove(path)
        else:
            path.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """A checkout, unless it is held."""
    lock = os.open(lock_of(path), os.O_CREAT | os.O_RDWR, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(path, ignore_errors=True)
        lock_of(path).unlink(missing_ok=True)
    finally:
        os.close(lock)


def sources_hash(root: Path) -> str:
    """sha256 of all that the compiled kernels are made from, names included."""
    content = hashlib.sha256(f"{sys.implementation.cache_tag} {os.environ.get('CFLAGS', '')}\n".encode())
    for place in SOURCES:
        where = root / place
        for file in sorted(where.rglob("*")) if where.is_dir() else [where]:
            if not file.is_symlink():
                add(content, root, file)
    return content.hexdigest()


def engine_hash(root: Path) -> str:
    """sha256 of all that an engine runs: its kernels' sources and its own files, names included."""
    content = hashlib.sha256(sources_hash(root).encode())
    for file in sorted((root / "engine" / "volta").rglob("*")):
        if file.suffix not in (".so", ".pyc", ".partial"):
            add(content, root, file)
    return content.hexdigest()


def add(content: hashlib._Hash, root: Path, file: Path) -> None:
    """Of a regular file: its name, size and bytes."""
    if file.is_file():
        data = file.read_bytes()
        content.update(f"{file.relative_to(root)} {len(data)}\n".encode() + data)


def build(repository: Repository, tree: Checkout) -> Path:
    """Puts the compiled kernels into a checkout and gives their path. Raises GateError with the compiler's
    last words where they do not compile."""
    target = tree.path / LIBRARY
    return target if target.is_file() else build_in_place(repository, tree.path)


def build_in_place(repository: Repository, root: Path) -> Path:
    """The kernels of the sources below `root`, beside its Python: from the cache, or compiled now."""
    builds = home(repository) / "builds"
    builds.mkdir(exist_ok=True)
    kept = builds / f"{sources_hash(root)}.so"
    if not kept.is_file():
        with tempfile.TemporaryDirectory(dir=builds, prefix=NEW) as scratch:
            compile_kernels(root, Path(scratch), kept)
    os.utime(kept)
    forget(builds, 4 * KEPT)
    target = root / LIBRARY
    if not target.is_file() or target.read_bytes() != kept.read_bytes():
        partial = target.with_suffix(".partial")
        shutil.copyfile(kept, partial)
        partial.rename(target)
    return target


def compile_kernels(root: Path, scratch: Path, to: Path, **env: str) -> None:
    """Compiles the sources below `root`; env: CFLAGS and the like for this build alone."""
    out = scratch / "out"
    command = [
        sys.executable,
        "setup.py",
        "--quiet",
        "build_ext",
        "--build-lib",
        str(out),
        "--build-temp",
        str(scratch),
    ]
    done = subprocess.run(
        command,
        cwd=root,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
        errors="replace",
    )
    made = list(out.rglob("_native*.so"))
    if done.returncode or len(made) != 1:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line.lower()]
        raise GateError(f"[build] the kernels do not compile: {lines[0].strip() if lines else 'see the log'}")
    made[0].rename(to)
