"""A patch as edits of a tree: made into a commit through git's plumbing, so no branch and no file moves."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gates.errors import GateError
from gates.trees.repository import SUBMODULE, SYMLINK, Repository, Tree, git_bytes

FILE, PROGRAM = "100644", "100755"
AUTHOR = {
    "GIT_AUTHOR_NAME": "selftest", "GIT_AUTHOR_EMAIL": "selftest@localhost",
    "GIT_COMMITTER_NAME": "selftest", "GIT_COMMITTER_EMAIL": "selftest@localhost",
    "GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Edit:
    """old -> new in a file, once; without `old`, the whole file is `new`; with `remove`, it goes. mode: of
    git, where it is not a plain file's; to: where a renamed file goes."""

    path: str
    old: str = ""
    new: str = ""
    remove: bool = False
    mode: str = ""
    to: str = ""
    every: bool = False  # replaces every occurrence


def replace(path: str, old: str, new: str, every: bool = False) -> Edit:
    return Edit(path, old, new, every=every)


def write(path: str, text: str) -> Edit:
    return Edit(path, new=text)


def remove(path: str) -> Edit:
    return Edit(path, remove=True)


def rename(path: str, to: str) -> Edit:
    return Edit(path, to=to)


def link(path: str, target: str) -> Edit:
    return Edit(path, new=target, mode=SYMLINK)


def submodule(path: str) -> Edit:
    return Edit(path, new="0123456789abcdef0123456789abcdef01234567", mode=SUBMODULE)


def commit(repository: Repository, base: Tree, edits: Sequence[Edit], message: str) -> Tree:
    """A commit on top of a tree. Raises GateError where an edit does not fit the tree any more."""
    upon = ["-p", repository.tree("HEAD").commit]  # evidence is about commits that history holds
    parent = base.commit or make_commit(repository, base.tree, upon, "the tree under test")
    with tempfile.TemporaryDirectory() as scratch:
        env = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
        repository.git("read-tree", base.tree, env=env)
        for edit in edits:
            apply(repository, edit, env, Path(scratch, "blob"))
        tree = repository.git("write-tree", env=env).strip()
    made = make_commit(repository, tree, ["-p", parent], message)
    return Tree(made, made, tree)


def make_commit(repository: Repository, tree: str, parents: list[str], message: str) -> str:
    return repository.git("commit-tree", tree, *parents, "-m", message, env=AUTHOR).strip()


def apply(repository: Repository, edit: Edit, env: dict[str, str], scratch: Path) -> None:
    """Puts one edit into the index that `env` names, on top of those before it."""
    if edit.mode == SUBMODULE:
        place(repository, edit.path, SUBMODULE, edit.new, env)
        return
    content = edit.new.encode()
    listing = repository.git("ls-files", "--stage", "-z", "--", edit.path, env=env)  # mode blob stage path
    if (edit.remove or edit.to or edit.old) and not listing:
        raise GateError(f"[selftest] {edit.path} is not there any more: the patch is stale")
    if edit.remove or edit.to:
        repository.git("update-index", "--force-remove", "--", edit.path, env=env)
    if edit.remove:
        return
    if edit.to:
        content = git_bytes(repository.root, "cat-file", "blob", listing.split()[1])
    elif edit.old:
        text = git_bytes(repository.root, "cat-file", "blob", listing.split()[1]).decode()
        found = text.count(edit.old)
        if not found or (found > 1 and not edit.every):
            raise GateError(f"[selftest] {edit.path} has {found} of {edit.old!r}: the patch is stale")
        content = text.replace(edit.old, edit.new).encode()
    scratch.write_bytes(content)
    blob = repository.git("hash-object", "-w", "--no-filters", "--", str(scratch)).strip()
    mode = edit.mode or (listing.split()[0] if listing else FILE)
    place(repository, edit.to or edit.path, mode, blob, env)


def place(repository: Repository, path: str, mode: str, blob: str, env: dict[str, str]) -> None:
    repository.git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}", env=env)
