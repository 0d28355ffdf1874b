"""A clone of its own for every attempt, and what is taken back from it.

Not a worktree of the repository itself: worktrees share refs, configuration and hooks, so an agent in one
could move any branch. A clone shares the objects alone, to read. What comes back is fetched as from a
stranger: the clone's own configuration, hooks and filters are never used.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gates.errors import GateError
from gates.trees.repository import Repository, Tree

from tasks.files import Entry
from tasks.verdict import Verdict
from tasks.work.place import IDENTITY, home

KEPT = "refs/volta/work"  # refs of what every attempt left, by task and attempt
MARKS = re.compile(rb"^(<{7} |>{7} )", re.MULTILINE)
MOST_SEARCHED = 1 << 20  # bytes of a file that is searched for marks


@dataclass(frozen=True, slots=True)
class Workspace:
    """path: the clone. branch: the agent's own. base: where it starts."""

    path: Path
    branch: str
    base: Tree
    kept: str  # the ref that will hold the work


@dataclass(frozen=True, slots=True)
class Work:
    """head: what the agent left, uncommitted files included; kept at a ref. verdict: of how it was left; None
    where nothing is wrong with that."""

    head: Tree
    verdict: Verdict | None = None
    why: str = ""


def place_of(repository: Repository, entry: Entry) -> Path:
    return home(repository, "work") / entry.task.id


def kept_ref(entry: Entry, attempt: int) -> str:
    return f"{KEPT}/{entry.task.id}/{attempt}"


def open_workspace(repository: Repository, entry: Entry, base: Tree, attempt: int) -> Workspace:
    """A new clone at `base`. What an earlier attempt left must have been collected before."""
    path = place_of(repository, entry)
    if path.exists():
        shutil.rmtree(path)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="new-") as scratch:
        new = Path(scratch, "clone")
        options = ("--quiet", "--shared", "--no-checkout", "--no-tags")
        repository.git("clone", *options, str(repository.root), str(new))
        clone = Repository(new)
        for branch in clone.git("for-each-ref", "--format=%(refname)").split():
            clone.git("update-ref", "-d", branch)
        clone.git("checkout", "--quiet", "-B", entry.branch, base.commit)
        clone.git("remote", "remove", "origin")  # nothing to push to, nobody to ask
        clone.git("config", "user.name", f"agent for {entry.task.id}")
        clone.git("config", "user.email", f"{entry.task.id.lower()}@volta.invalid")
        new.rename(path)
    return Workspace(path, entry.branch, base, kept_ref(entry, attempt))


def collect(repository: Repository, place: Workspace) -> Work:
    """Takes all that the agent left into the repository, at the workspace's ref, and says what is wrong with
    how it was left. The clone stays as it is."""
    heads = heads_of(repository, place)
    branch = f"refs/heads/{place.branch}"
    start = heads.get(branch) or place.base.commit
    head = snapshot(repository, place, start)
    repository.git("update-ref", place.kept, head.commit)
    elsewhere = sorted(name for name in heads if name != branch)
    if elsewhere:
        names = ", ".join(elsewhere)
        return Work(head, Verdict.COMMITTED_ELSEWHERE, f"{names}: expected commits on {place.branch} alone")
    if not holds(repository, place.base.commit, start):
        why = f"{place.branch} does not hold its base {place.base.short} any more"
        return Work(head, Verdict.REWROTE_HISTORY, why)
    if marked := marks(repository, place.base, head):
        why = f"{', '.join(marked)}: lines begin with <<<<<<< or >>>>>>>"
        return Work(head, Verdict.CONFLICT_MARKERS, why)
    if head.tree == place.base.tree:
        return Work(head, Verdict.NO_CHANGE, "every file is as it was")
    return Work(head)


def heads_of(repository: Repository, place: Workspace) -> dict[str, str]:
    """The clone's branches that have commits which the base has not, or that are its own; each is fetched and
    kept below the workspace's ref. Without one that is at its base or behind."""
    for what in (f"+refs/heads/*:{place.kept}-heads/*", f"+HEAD:{place.kept}-head"):
        with contextlib.suppress(GateError):  # a damaged clone: its files can still be taken
            repository.git(
                "-c", "fetch.fsckObjects=true", "-c", "protocol.file.allow=always",
                "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-auto-gc",
                "--recurse-submodules=no", "--force", str(place.path), what,
            )  # fmt: skip
    prefix = f"{place.kept}-heads/"
    listing = repository.git(
        "for-each-ref", "--format=%(refname) %(objectname)", f"{place.kept}-heads", f"{place.kept}-head"
    )
    found = {}
    for line in listing.splitlines():
        name, commit = line.split()
        own = name == f"{prefix}{place.branch}"
        if own or not holds(repository, commit, place.base.commit):
            said = "HEAD" if name == f"{place.kept}-head" else f"refs/heads/{name.removeprefix(prefix)}"
            found[said] = commit
    own_head = found.get(f"refs/heads/{place.branch}")
    if found.get("HEAD") == own_head:
        found.pop("HEAD", None)
    return found


def holds(repository: Repository, older: str, newer: str) -> bool:
    """Whether the history of `newer` has `older` in it."""
    try:
        repository.git("merge-base", "--is-ancestor", older, newer)
    except GateError:
        return False
    return True


def snapshot(repository: Repository, place: Workspace, start: str) -> Tree:
    """The files of the clone on top of the commit: that commit where it has them all, else a new one. By this
    repository's configuration; what .gitignore names is left out."""
    before = repository.tree(start)
    with tempfile.TemporaryDirectory() as scratch:
        env = {**IDENTITY, "GIT_INDEX_FILE": str(Path(scratch, "index")), "GIT_DIR": git_dir(repository)}
        env["GIT_WORK_TREE"] = str(place.path)
        clone = Repository(place.path)
        clone.git("read-tree", before.commit, env=env)
        clone.git("add", "--all", "--", ":/", env=env)
        tree = clone.git("write-tree", env=env).strip()
    if tree == before.tree:
        return before
    message = "What the agent left without a commit\n"
    return commit_tree(repository, tree, [before.commit], message)


def git_dir(repository: Repository) -> str:
    return repository.git("rev-parse", "--absolute-git-dir").strip()


def commit_tree(
    repository: Repository, tree: str, parents: list[str], message: str, env: Mapping[str, str] = IDENTITY
) -> Tree:
    options = [part for parent in parents for part in ("-p", parent)]
    commit = repository.git("commit-tree", tree, *options, "-F", "-", env=env, stdin=message).strip()
    return Tree(commit, commit, tree)


def marks(repository: Repository, base: Tree, head: Tree) -> list[str]:
    """Changed files with the marks of a conflict that the base's have not."""
    found = []
    for change in repository.changes(base, head):
        before = repository.text(base, change.before or change.path) or ""
        after = repository.text(head, change.path) or ""
        if len(after) <= MOST_SEARCHED and MARKS.search(after.encode()) and not MARKS.search(before.encode()):
            found.append(change.path)
    return found
