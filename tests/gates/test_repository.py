"""What git says is seen whole: renames, modes, links, submodules, what is not committed, and what is no
repository at all."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from gates.errors import GateError
from gates.trees import checkout as trees
from gates.trees.checkout import checkout, forget, release, sources_hash
from gates.trees.repository import SUBMODULE, SYMLINK, WORKTREE, Change, Repository, Tree, parsed
from tests.gates.repositories import commit, git, put, repository

TEXT = "".join(f"line {i}\n" for i in range(20))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "it", {"a.txt": TEXT, "b/c.txt": "c\n", "gone.txt": "g\n"})


def changes(root: Path) -> dict[str, Change]:
    found = Repository(root)
    return {one.path: one for one in found.changes(found.tree("HEAD~1"), found.tree("HEAD"))}


def test_added_modified_deleted_and_renamed_paths_are_told_apart(root: Path) -> None:
    (root / "gone.txt").unlink()
    git(root, "mv", "a.txt", "elsewhere.txt")
    commit(root, {"b/c.txt": "d\n", "new file ü.txt": "n\n"})
    found = changes(root)
    assert {path: one.kind for path, one in found.items()} == {
        "b/c.txt": "modified", "elsewhere.txt": "renamed", "gone.txt": "deleted", "new file ü.txt": "added",
    }  # fmt: skip
    assert found["elsewhere.txt"].paths == ("a.txt", "elsewhere.txt")
    assert found["gone.txt"].paths == ("gone.txt",)


def test_a_renamed_file_is_found_whatever_the_user_has_set(root: Path) -> None:
    git(root, "config", "diff.renames", "false")
    git(root, "config", "diff.external", "false")
    git(root, "mv", "a.txt", "z.txt")
    commit(root, {})
    assert changes(root)["z.txt"].kind == "renamed"


def test_links_modes_and_submodules_are_seen(root: Path) -> None:
    (root / "link").symlink_to("b/c.txt")
    (root / "a.txt").chmod(0o755)
    git(root, "add", "--all")
    blob = "0123456789abcdef0123456789abcdef01234567"
    git(root, "update-index", "--add", "--cacheinfo", f"{SUBMODULE},{blob},vendor")
    git(root, "commit", "--quiet", "-m", "strange")
    found = changes(root)
    assert found["link"].new_mode == SYMLINK
    assert found["vendor"].new_mode == SUBMODULE
    assert (found["a.txt"].old_mode, found["a.txt"].new_mode) == ("100644", "100755")


def test_binary_files_and_many_files_are_listed(root: Path) -> None:
    (root / "blob.bin").write_bytes(bytes(range(256)) * 40)
    put(root, {f"many/{i // 100}/{i}.txt": f"{i}\n" for i in range(10_000)})
    commit(root, {})
    found = changes(root)
    assert len(found) == 10_001
    assert Repository(root).text(Repository(root).tree("HEAD"), "blob.bin") is None


def test_the_working_tree_is_what_lies_there_without_what_is_ignored(root: Path) -> None:
    """And git's own index is left as it was."""
    put(root, {".gitignore": "*.log\n", "b/c.txt": "changed\n", "new.txt": "n\n", "x.log": "no\n"})
    git(root, "add", "new.txt")
    before = git(root, "status", "--porcelain")
    found = Repository(root)
    tree = found.tree(WORKTREE)
    assert tree.commit == ""
    assert {one.path for one in found.changes(found.tree("HEAD"), tree)} == {
        ".gitignore",
        "b/c.txt",
        "new.txt",
    }
    assert git(root, "status", "--porcelain") == before
    assert "not committed" in tree.short


def test_a_clean_working_tree_is_its_commit(root: Path) -> None:
    found = Repository(root)
    assert found.tree(WORKTREE).commit == found.tree("HEAD").commit


def test_a_merge_is_counted_from_where_the_lines_parted(root: Path) -> None:
    git(root, "checkout", "--quiet", "-b", "side")
    commit(root, {"side.txt": "s\n"})
    git(root, "checkout", "--quiet", "main")
    commit(root, {"main.txt": "m\n"})
    git(root, "checkout", "--quiet", "side")
    git(root, "merge", "--quiet", "--no-ff", "-m", "merge", "main")
    commit(root, {"after.txt": "a\n"})
    found = Repository(root)
    head = found.tree("HEAD")
    base = found.merge_base(found.tree("main"), head)
    assert {one.path for one in found.changes(base, head)} == {"side.txt", "after.txt"}


@pytest.mark.parametrize("revision", ["nowhere", "HEAD~9", "--all", "", "a b"])
def test_an_unknown_revision_is_one_line(root: Path, revision: str) -> None:
    with pytest.raises(GateError, match=r"\[git\] revision is .*: expected a commit of") as caught:
        Repository(root).tree(revision)
    assert "\n" not in str(caught.value)


def test_what_is_no_repository_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(GateError, match="is not in a git repository: expected a checkout"):
        Repository.at(tmp_path)


def test_a_shallow_clone_says_what_it_lacks(root: Path, tmp_path: Path) -> None:
    commit(root, {"a.txt": "2\n"})
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--depth=1", f"file://{root}", str(clone))
    with pytest.raises(GateError, match="this clone is shallow: `git fetch --unshallow`"):
        Repository(clone).tree("HEAD~1")


def test_a_tree_with_conflicts_is_refused(root: Path) -> None:
    git(root, "checkout", "--quiet", "-b", "side")
    commit(root, {"b/c.txt": "one\n"})
    git(root, "checkout", "--quiet", "main")
    commit(root, {"b/c.txt": "two\n"})
    with pytest.raises(subprocess.CalledProcessError):
        git(root, "merge", "side")
    with pytest.raises(GateError, match="has conflicts"):
        Repository(root).tree(WORKTREE)


def test_a_checkout_holds_exactly_the_tree(root: Path) -> None:
    """Attributes that hide files from an archive hide nothing here; links stay links."""
    (root / "link").symlink_to("../outside")
    commit(root, {".gitattributes": "b/ export-ignore\n", "run.sh": "true\n"})
    (root / "run.sh").chmod(0o755)
    commit(root, {})
    found = Repository(root)
    tree = checkout(found, found.tree("HEAD"))
    listed = {str(path.relative_to(tree.path)) for path in tree.path.rglob("*") if not path.is_dir()}
    assert listed == set(found.paths(tree.tree))
    assert (tree.path / "link").is_symlink()
    assert os.access(tree.path / "run.sh", os.X_OK)
    assert checkout(found, found.tree("HEAD")).path == tree.path
    assert git(root, "status", "--porcelain") == ""


def test_only_the_checkouts_used_last_are_kept(tmp_path: Path) -> None:
    for index in range(5):
        (tmp_path / str(index)).mkdir()
        os.utime(tmp_path / str(index), (index, index))
    forget(tmp_path, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3", "4"]


def test_a_checkout_that_is_held_stays(root: Path) -> None:
    """By this process or another, until it is released."""
    found = Repository(root)
    path = checkout(found, found.tree("HEAD")).path
    forget(path.parent, 0)
    assert path.is_dir()
    release(path)
    forget(path.parent, 0)
    assert not path.exists()
    assert checkout(found, found.tree("HEAD")).path == path
    assert (path / "a.txt").read_text() == TEXT


def test_the_hash_of_the_sources_sees_names_contents_and_places(tmp_path: Path) -> None:
    put(tmp_path, {"engine/csrc/a.c": "1", "engine/csrc/b.c": "23", "setup.py": "", "engine/volta/x.py": ""})
    seen = {sources_hash(tmp_path)}
    for change in (
        {"engine/csrc/a.c": "12", "engine/csrc/b.c": "3"},
        {"engine/csrc/c.c": ""},
        {"setup.py": "#"},
    ):
        put(tmp_path, change)
        seen.add(sources_hash(tmp_path))
    assert len(seen) == 4
    put(tmp_path, {"engine/volta/x.py": "not compiled"})
    assert sources_hash(tmp_path) in seen


def test_raw_lines_of_git_are_taken_apart_whatever_their_names_hold() -> None:
    raw = ":100644 100644 " + "a" * 40 + " " + "b" * 40 + " R087\0old\tname\0new\nname\0"
    (found,) = parsed(raw)
    assert (found.kind, found.before, found.path) == ("renamed", "old\tname", "new\nname")


def test_checkouts_that_threads_make_at_once_do_not_remove_each_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents are judged side by side: each has a tree of its own, and the oldest go."""
    monkeypatch.setattr(trees, "KEPT", 1)
    found = Repository(root)
    heads = []
    for number in range(12):
        commit(root, {"a.txt": f"{number}\n"})
        heads.append(found.tree("HEAD"))

    def make(tree: Tree) -> str:
        path = checkout(found, tree).path
        text = (path / "a.txt").read_text()
        release(path)
        return text

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(make, heads)) == [f"{number}\n" for number in range(12)]
