"""Git, through its plumbing: revisions become commits and trees, two trees become a list of changes.

Plumbing and not a library: every answer here is one command whose output git promises to keep, and what a
library adds (an object model) would hide modes, symlinks and submodules, which a policy must see.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gates.errors import GateError

WORKTREE = "WORKTREE"  # as a revision: the files as they are, whether committed or not
EMPTY = "0" * 40
KINDS = {
    "A": "added",
    "M": "modified",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "T": "type changed",
}
SYMLINK, SUBMODULE = "120000", "160000"
LIMIT_S = 120.0


class GitError(GateError):
    """git ended with an error: its exit code, and what it printed all the same."""

    def __init__(self, message: str, code: int, output: str) -> None:
        super().__init__(message)
        self.code, self.output = code, output


@dataclass(frozen=True, slots=True)
class Tree:
    """A state of the files. commit: empty for a working tree with changes."""

    revision: str
    commit: str
    tree: str

    @property
    def short(self) -> str:
        return self.commit[:12] if self.commit else f"{self.tree[:12]} (not committed)"


@dataclass(frozen=True, slots=True)
class Change:
    """One path that differs. Modes and blobs as git writes them; `before` is the path it was renamed from."""

    kind: str
    path: str
    before: str
    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str

    @property
    def paths(self) -> tuple[str, ...]:
        """Every path that it touches: a rename cannot leave the rule of the place it came from."""
        return (self.path,) if self.before in ("", self.path) else (self.before, self.path)


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root

    @classmethod
    def at(cls, path: Path) -> Repository:
        """The repository that holds a directory."""
        try:
            top = git(path, "rev-parse", "--show-toplevel").strip()
        except GateError as error:
            raise GateError(f"[git] {path} is not in a git repository: expected a checkout") from error
        return cls(Path(top))

    def git(self, *arguments: str, env: Mapping[str, str] | None = None, stdin: str = "") -> str:
        return git(self.root, *arguments, env=env, stdin=stdin)

    def tree(self, revision: str) -> Tree:
        """What a revision names; WORKTREE is a snapshot of the files, ignored ones left out."""
        if revision == WORKTREE:
            return self._snapshot()
        try:
            commit = self.git(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
            ).strip()
        except GateError as error:
            hint = "; this clone is shallow: `git fetch --unshallow`" if self.is_shallow() else ""
            raise GateError(
                f"[git] revision is {revision!r}: expected a commit of {self.root}{hint}"
            ) from error
        return Tree(revision, commit, self.git("rev-parse", f"{commit}^{{tree}}").strip())

    def _snapshot(self) -> Tree:
        head = self.tree("HEAD")
        if self.git("ls-files", "--unmerged"):
            raise GateError("[git] the working tree has conflicts: resolve them first")
        with tempfile.TemporaryDirectory() as scratch:
            env = {"GIT_INDEX_FILE": str(Path(scratch, "index"))}
            self.git("read-tree", head.commit, env=env)
            self.git("add", "--all", "--", ":/", env=env)
            tree = self.git("write-tree", env=env).strip()
        return Tree(WORKTREE, head.commit if tree == head.tree else "", tree)

    def is_shallow(self) -> bool:
        return self.git("rev-parse", "--is-shallow-repository").strip() == "true"

    def merge_base(self, one: Tree, other: Tree) -> Tree:
        """The last commit that both have; what a pull request changes is counted from there."""
        left, right = (tree.commit or self.tree("HEAD").commit for tree in (one, other))
        try:
            found = self.git("merge-base", left, right).split()
        except GateError as error:
            why = (
                "this clone is shallow: `git fetch --unshallow`"
                if self.is_shallow()
                else "no history in common"
            )
            raise GateError(f"[git] {one.revision} and {other.revision} have no merge base: {why}") from error
        base = self.tree(found[0])
        return Tree(one.revision, base.commit, base.tree)

    def changes(self, base: Tree, head: Tree) -> list[Change]:
        """Every path in which two trees differ: renames found, modes, symlinks and submodules kept."""
        raw = self.git(
            "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--find-renames", "-l0", "--no-ext-diff",
            base.tree, head.tree,
        )  # fmt: skip
        return list(parsed(raw))

    def text(self, tree: Tree, path: str) -> str | None:
        """A file's text; None where there is none, or it is no text, or a link."""
        listing = self.git("ls-tree", "-z", tree.tree, "--", path)
        if not listing or not listing.startswith("100"):
            return None
        blob = listing.split("\0")[0].split("\t")[0].split()[2]
        try:
            return git_bytes(self.root, "cat-file", "blob", blob).decode()
        except UnicodeDecodeError:
            return None

    def paths(self, tree: Tree, under: str = "") -> list[str]:
        listing = self.git("ls-tree", "-r", "-z", "--name-only", tree.tree, *(["--", under] if under else []))
        return [path for path in listing.split("\0") if path]


def parsed(raw: str) -> Iterator[Change]:
    """`git diff-tree -z --raw`: `:old new blob blob STATUS\\0path\\0[path\\0]`."""
    fields = iter(raw.split("\0"))
    for head in fields:
        if not head:
            continue
        old_mode, new_mode, old_blob, new_blob, status = head.removeprefix(":").split()
        path = next(fields)
        before = ""
        if status[0] in "RC":
            before, path = path, next(fields)
        yield Change(KINDS.get(status[0], status), path, before, old_mode, new_mode, old_blob, new_blob)


def git(root: Path, *arguments: str, env: Mapping[str, str] | None = None, stdin: str = "") -> str:
    return git_bytes(root, *arguments, env=env, stdin=stdin).decode("utf-8", "surrogateescape")


def git_bytes(root: Path, *arguments: str, env: Mapping[str, str] | None = None, stdin: str = "") -> bytes:
    # configuration of the user or the repository may not change what a gate sees
    settings = (
        "core.quotePath=false",
        "core.fsmonitor=false",
        "diff.renames=true",
        "core.hooksPath=/dev/null",
    )
    options = [part for setting in settings for part in ("-c", setting)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *options, "-C", str(root), *arguments],
            capture_output=True,
            env={**kept, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", **(env or {})},
            timeout=LIMIT_S,
            check=False,
            input=stdin.encode(),
        )
    except FileNotFoundError as error:
        raise GateError("[git] the command `git` is not there: install git") from error
    except subprocess.TimeoutExpired as error:
        raise GateError(f"[git] `git {arguments[0]}` took longer than {LIMIT_S:.0f} s") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        message = f"[git] `git {arguments[0]}` failed: {said[-1] if said else done.returncode}"
        raise GitError(message, done.returncode, done.stdout.decode("utf-8", "surrogateescape"))
    return done.stdout
