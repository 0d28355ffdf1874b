"""The merge queue: one change at a time, on top of what landed before it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gates.errors import GateError
from gates.trees.repository import GitError, Repository, Tree

from tasks.errors import TaskError
from tasks.files import Entry, slug
from tasks.work.place import IDENTITY, home
from tasks.work.workspace import commit_tree


@dataclass(frozen=True, slots=True)
class Target:
    """The branch on which work lands, by its full name."""

    repository: Repository
    ref: str

    @classmethod
    def of(cls, repository: Repository, branch: str | None = None) -> Target:
        """The branch that is checked out, unless named. Raises TaskError."""
        try:
            name = branch or repository.git("symbolic-ref", "--short", "HEAD").strip()
            repository.git("rev-parse", "--verify", "--quiet", f"refs/heads/{name}^{{commit}}")
        except GateError as error:
            given = f"{branch!r} is no branch" if branch else "no branch is checked out"
            raise TaskError(f"[land] {given}: expected one on which work can land (--onto NAME)") from error
        return cls(repository, f"refs/heads/{name}")

    def tip(self) -> Tree:
        return self.repository.tree(self.ref)

    def move(self, to: Tree, before: Tree) -> None:
        """Forward, from `before` alone. Where a working tree has the branch, its files move too, and changes
        of its own in the same files refuse. Raises TaskError."""
        where = self._checked_out()
        try:
            if where is None:
                self.repository.git("update-ref", self.ref, to.commit, before.commit)
            else:
                if self.tip().commit != before.commit:
                    raise TaskError(f"[land] {self.ref} moved meanwhile")
                Repository(where).git("merge", "--ff-only", "--quiet", to.commit, env=IDENTITY)
        except GateError as error:
            raise TaskError(f"[land] {self.ref} could not move to {to.short}: {error}") from error

    def _checked_out(self) -> Path | None:
        for block in self.repository.git("worktree", "list", "--porcelain").split("\n\n"):
            fields = dict(line.partition(" ")[::2] for line in block.splitlines())
            if fields.get("branch") == self.ref:
                return Path(fields["worktree"])
        return None


@contextmanager
def queue(repository: Repository, watch: Callable[[str], None] = lambda line: None) -> Iterator[None]:
    """One lands; the others wait."""
    with (home(repository) / "landing.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            watch("waits for another task to land")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


class ConflictError(Exception):
    """The paths in which the change and what landed meanwhile do not agree."""

    def __init__(self, paths: list[str]) -> None:
        super().__init__(", ".join(paths))
        self.paths = paths


def merged(repository: Repository, entry: Entry, base: Tree, work: Tree, tip: Tree, by: str) -> Tree:
    """The change as one commit on the tip: what is between base and work, on top of what landed meanwhile.
    Raises ConflictError."""
    tree = work.tree
    if tip.commit != base.commit:
        tree = merge_trees(repository, base, tip, work)
    author = {**IDENTITY, "GIT_AUTHOR_NAME": by, "GIT_AUTHOR_EMAIL": f"{slug(by)}@volta.invalid"}
    message = f"{entry.task.title}\n\n{entry.task.why.strip()}\n\nTask: {entry.task.id}\n"
    return commit_tree(repository, tree, [tip.commit], message, author)


def merge_trees(repository: Repository, base: Tree, tip: Tree, work: Tree) -> str:
    """The work's own changes on the tip, as one commit on the base would merge with it."""
    squashed = commit_tree(repository, work.tree, [base.commit], "one change")
    options = ("--write-tree", "--name-only", "--no-messages")
    try:
        return repository.git("merge-tree", *options, tip.commit, squashed.commit).strip()
    except GitError as error:
        if error.code != 1:
            raise
        _, *paths = error.output.split("\n")
        raise ConflictError(sorted({path for path in paths if path})) from error
