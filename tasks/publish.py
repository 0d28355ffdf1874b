"""What follows from queue and ledger, as files of the repository: kept up to date in commits of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from gates.trees.checkout import checkout
from gates.trees.repository import Repository, Tree

from tasks.documents.drift import drift, generated
from tasks.evidence.ledger import COPY, Ledger, verify
from tasks.evidence.state import done_tasks
from tasks.files import QUEUE, Entry, read_directory, read_queue
from tasks.landing import Target
from tasks.work.place import IDENTITY
from tasks.work.workspace import commit_tree

MESSAGE = "Record what the tasks' evidence says\n"


def queue_of(repository: Repository, tree: Tree) -> dict[str, Entry]:
    """As a commit has it: what nobody can change while work goes on. Raises TaskError."""
    paths = [path for path in repository.paths(tree, QUEUE) if path.startswith(f"{QUEUE}/")]
    return read_queue([(path, repository.text(tree, path) or "") for path in paths])


def publish(repository: Repository, ledger: Ledger, target: Target) -> Tree | None:
    """On the target branch; None where everything is as it should be. Raises TaskError."""
    tip = target.tip()
    entries = queue_of(repository, tip)
    files = texts(repository, entries, ledger, tip)
    changed = {path: text for path, text in files.items() if repository.text(tip, path) != text}
    if not changed:
        return None
    commit = commit_tree(repository, with_files(repository, tip, changed), [tip.commit], MESSAGE)
    target.move(commit, tip)
    return commit


def drifted(repository: Repository, files: Path, before: Path | None, commit: str) -> list[str]:
    """What is wrong with the files of a commit: `path:line: what`. By their own copy of the ledger, since the
    ref is this repository's alone; its records are evidence for what the commit holds. before: an earlier
    commit's files, whose records must still be there."""
    copy = files / COPY
    lines = copy.read_text().splitlines() if copy.is_file() else []
    records, wrong = verify(lines)
    found = [f"{COPY}: {one}" for one in wrong]
    if before is not None and (before / COPY).is_file():
        old = (before / COPY).read_text().splitlines()
        if lines[: len(old)] != old:
            found.append(f"{COPY}: records that were there have gone or are others: it may only grow")
    entries = read_directory(files)
    done = done_tasks(repository, entries, records, repository.tree(commit).commit)
    return found + drift(files, entries, done)


def texts(repository: Repository, entries: Mapping[str, Entry], ledger: Ledger, tip: Tree) -> dict[str, str]:
    """By path: the ledger's copy and all that is generated."""
    done = done_tasks(repository, entries, ledger.records(), tip.commit)
    return {COPY: ledger.text(), **generated(checkout(repository, tip).path, dict(entries), done)}


def with_files(repository: Repository, tip: Tree, files: Mapping[str, str]) -> str:
    """The id of the tip's tree with these files in it."""
    with tempfile.TemporaryDirectory() as scratch:
        env = {**IDENTITY, "GIT_INDEX_FILE": str(Path(scratch, "index"))}
        repository.git("read-tree", tip.commit, env=env)
        for path, text in files.items():
            blob = repository.git("hash-object", "-w", "--stdin", stdin=text).strip()
            repository.git("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}", env=env)
        return repository.git("write-tree", env=env).strip()
