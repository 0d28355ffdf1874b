"""What follows from queue and ledger, as files of the repository: kept up to date in commits of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from gates.trees.checkout import checkout
from gates.trees.repository import Repository, Tree

from tasks.documents.drift import generated
from tasks.evidence.ledger import COPY, IDENTITY, Ledger
from tasks.evidence.state import done_tasks
from tasks.files import QUEUE, Entry, read_queue
from tasks.landing import Target
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
