"""What Ralphy did by itself, judged as if one of our own agents had done it.

`ralphy --parallel --no-merge` leaves branches, in 4.7 named `ralphy/agent-N-TIME-RANDOM-slug-of-the-title`;
with `--branch-per-task` they are `ralphy/slug-of-the-title`. It also ticks boxes, those of tasks that failed
for good too. Each branch goes the way of an attempt: its change since it left the target, scope, gates,
commands, the queue to land, a record of each in the ledger. A tick that the ledger does not prove is undone.

Two things are Ralphy's doing and no fault of who worked: the ticks in the copies of PRD.md and tasks.yaml
that it puts into each worktree, and the notes that its prompt asks for. Of those files the base's version is
judged.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from gates.errors import GateError
from gates.law.files import LawError, parse
from gates.trees.repository import Repository, Tree

from tasks.agents.process import Ending
from tasks.attempt import Attempt, Shop
from tasks.documents import prd, ralphy
from tasks.documents.drift import content
from tasks.errors import TaskError
from tasks.evidence.state import BLOCKED, CLAIMED, ENDED, WORKED, State, done_tasks, opened, statuses
from tasks.files import Entry, slug
from tasks.loop import records_of, resume, used_up
from tasks.verdict import Verdict
from tasks.work.lease import Lease, claim
from tasks.work.place import IDENTITY
from tasks.work.workspace import Work, commit_tree, marks

AGENT = "ralphy"
HEADS = "refs/heads/"
SLUG = 50  # characters that Ralphy keeps of a title
NAMED = re.compile(r"(?<![a-z0-9])t-[0-9]{3,}(?![0-9])", re.IGNORECASE)
# What may stand before the title in a branch's name: directories, the agent's number, a time, random letters.
BEFORE = re.compile(r"(?:[^/]+/)*(?:agent-[0-9]+-(?:[0-9]{10,}-(?:[a-z0-9]{1,6}-)?)?)?")
MARK = re.compile(r"^- \[[ xX]\]", re.MULTILINE)
NOTES = (".ralphy/progress.txt", ".ralphy/deferred.json")
NOTES_OF_AGENTS = "progress.txt"  # where those that work side by side are told to put theirs
SHOWN = 5  # findings in a line for people


@dataclass(frozen=True, slots=True)
class Found:
    """task: empty where a branch belongs to none. branch: empty where a box was ticked. verdict: None where
    nothing was judged; why says the reason."""

    task: str
    branch: str
    verdict: Verdict | None
    why: str


def reconcile(shop: Shop, entries: Mapping[str, Entry], branches: Sequence[str] | None = None) -> list[Found]:
    """entries: the queue of the target's tip. branches: local ones by name, None for all below `ralphy/`.

    In the order in which tasks depend on each other, a task's newest branch first. Ticks are undone in the
    working tree, and what is generated is written anew. Branches stay as they are. Raises TaskError where
    PRD.md or tasks.yaml hold more than ticks that are not committed.
    """
    ticked = take_back(shop.repository)
    owners: dict[str, list[str]] = {}
    found = []
    for branch in branches_of(shop.repository) if branches is None else branches:
        try:
            names = tasks_of(shop, entries, branch)
        except GateError as error:
            found.append(Found("", branch, None, str(error)))
            continue
        if len(names) == 1 and names[0] in entries:
            owners.setdefault(names[0], []).append(branch)
        else:
            found.append(Found("", branch, None, unclear(names)))
    for entry in chain.from_iterable(prd.steps(dict(entries))):
        mine = owners.get(entry.task.id, ())
        found += [reconciled(shop, entries, entry, branch) for branch in mine if not shop.stop()]
    shop.publish()
    return found + reopened(shop, entries, ticked)


# --- whose a branch is -----------------------------------------------------------------------------------


def branches_of(repository: Repository) -> list[str]:
    """Newest first."""
    lines = repository.git("for-each-ref", "--sort=-committerdate", "--format=%(refname)", f"{HEADS}{AGENT}/")
    return [line.removeprefix(HEADS) for line in lines.splitlines()]


def tasks_of(shop: Shop, entries: Mapping[str, Entry], branch: str) -> list[str]:
    """Ids, by the first of these that tells: its name, the subjects of its commits, a title's slug."""
    named = list(dict.fromkeys(match[0].upper() for match in NAMED.finditer(branch)))
    if named:
        first = NAMED.search(branch)
        leads = first is not None and BEFORE.fullmatch(branch[: first.start()])
        return named[:1] if leads else named
    subjects = shop.repository.git("log", "--format=%s", f"{shop.target.ref}..{HEADS}{branch}", "--")
    if said := list(dict.fromkeys(match[0].upper() for match in NAMED.finditer(subjects))):
        return said
    return [name for name, entry in entries.items() if carries(branch, entry.task.title)]


def carries(branch: str, title: str) -> bool:
    """Whether the name ends with the title's slug, as Ralphy makes it or as ours, and says nothing else."""
    theirs = re.sub("[^a-z0-9]+", "-", title.lower()).strip("-")[:SLUG]
    return any(
        branch.endswith(one) and BEFORE.fullmatch(branch.removesuffix(one)) for one in (theirs, slug(title))
    )


def unclear(names: Sequence[str]) -> str:
    if not names:
        return "neither its name nor its commits say of which task it is"
    if len(names) == 1:
        return f"{names[0]} is no task of the queue"
    return f"it may be of {' or '.join(names)}: expected one; name the branch T-NNN-words and ask again"


# --- one branch ------------------------------------------------------------------------------------------


def reconciled(shop: Shop, entries: Mapping[str, Entry], entry: Entry, branch: str) -> Found:
    try:
        verdict, why = outcome(shop, entries, entry, branch)
        return Found(entry.task.id, branch, verdict, why + uncommitted(shop.repository, branch))
    except (TaskError, GateError) as error:
        return Found(entry.task.id, branch, None, str(error))


def outcome(
    shop: Shop, entries: Mapping[str, Entry], entry: Entry, branch: str
) -> tuple[Verdict | None, str]:
    if why := closed(shop, entries, entry):
        return None, why
    with claim(shop.repository, entry.task.id) as lease:
        resume(shop, entry, lease)  # where a runner died
        commit = shop.repository.tree(f"{HEADS}{branch}")
        if before := judged_before(shop, entry, commit):
            return before, f"judged before: {before.value}"
        if why := settled(shop, entries, entry):
            return None, why
        verdict, findings = attempted(shop, entry, lease, branch, commit)
        if not verdict.done and (why := used_up(shop, entry)):
            shop.ledger.append(entry.task.id, BLOCKED, {"why": why, "task": entry.digest})
    return verdict, "; ".join(findings[:SHOWN]) or verdict.value


def closed(shop: Shop, entries: Mapping[str, Entry], entry: Entry) -> str:
    """Why nobody may begin it now; empty where one may."""
    if entry.task.agent is None:
        return f"its owner is a person: who merges {entry.task.id} by hand can `prove` it"
    tip = shop.target.tip().commit
    status = statuses(shop.repository, entries, shop.ledger.records(), tip)[entry.task.id]
    if status.state in (State.DONE, State.WAITING, State.BLOCKED):
        return f"{status.state.value}: {status.why}"
    return ""


def settled(shop: Shop, entries: Mapping[str, Entry], entry: Entry) -> str:
    """The same, asked by the one who holds it: what came between the question and the lease."""
    tip = shop.target.tip().commit
    if entry.task.id in done_tasks(shop.repository, entries, shop.ledger.records(), tip):
        return f"{State.DONE.value}: proved by its evidence"
    return used_up(shop, entry)


def judged_before(shop: Shop, entry: Entry, commit: Tree) -> Verdict | None:
    """How this very commit ended for this very text of the task, since it was opened last."""
    own = opened(records_of(shop, entry))
    worked = [one for one in own if one.kind == WORKED and one.data.get("branch_commit") == commit.commit]
    attempts = {one.data["attempt"] for one in worked}
    for one in reversed(own):
        if one.kind == ENDED and one.data["attempt"] in attempts and one.data["task"] == entry.digest:
            verdict = Verdict[one.data["verdict"]]
            return None if verdict in (Verdict.INTERRUPTED, Verdict.STOPPED) else verdict
    return None


def attempted(shop: Shop, entry: Entry, lease: Lease, branch: str, commit: Tree) -> tuple[Verdict, list[str]]:
    repository, tip = shop.repository, shop.target.tip()
    try:
        base, apart = repository.merge_base(tip, commit), ""
    except GateError:
        base, apart = tip, f"{branch} has no history in common with {shop.target.ref}"
    base = repository.tree(base.commit)
    number = sum(one.kind == CLAIMED for one in records_of(shop, entry)) + 1
    attempt = Attempt(shop, entry, lease, number, base)
    attempt.phase(f"{branch} as it was left")
    attempt.claim(AGENT)
    work = left(repository, base, commit, apart)
    kept = attempt.workspace.kept
    repository.git("update-ref", kept, work.head.commit)
    attempt.record(
        WORKED, head=work.head.commit, head_tree=work.head.tree, kept=kept, branch=branch,
        branch_commit=commit.commit, prompt=None, output=None, ending=Ending.FINISHED.name, exit=0,
        seconds=0.0, tokens=None, usd=None, wait_s=None, left=work.verdict.name if work.verdict else None,
        why=work.why,
    )  # fmt: skip
    verdict = attempt.after_work(work, Ending.FINISHED, 0, work.why, None)
    return verdict, attempt.findings


def left(repository: Repository, base: Tree, commit: Tree, apart: str) -> Work:
    """What is to be judged of a branch, and what is wrong with how it was left."""
    head = without_ticks(repository, base, commit)
    if apart:
        return Work(head, Verdict.REWROTE_HISTORY, apart)
    if marked := marks(repository, base, head):
        why = f"{', '.join(marked)}: lines begin with <<<<<<< or >>>>>>>"
        return Work(head, Verdict.CONFLICT_MARKERS, why)
    if head.tree == base.tree:
        same = "it has no commit that the target has not"
        why = same if commit.commit == base.commit else "every file is as it was, but for ticks and notes"
        return Work(head, Verdict.NO_CHANGE, why)
    return Work(head)


def uncommitted(repository: Repository, branch: str) -> str:
    """Ralphy leaves a worktree in which something is not committed; nobody has judged that."""
    for block in repository.git("worktree", "list", "--porcelain").split("\n\n"):
        place = dict(line.partition(" ")[::2] for line in block.splitlines())
        if place.get("branch") == f"{HEADS}{branch}" and Path(place["worktree"]).is_dir():
            options = ("--porcelain", "--no-renames", "--untracked-files=all", "-z")
            listing = Repository(Path(place["worktree"])).git("status", *options)
            own = (*DOCUMENTS, *NOTES, NOTES_OF_AGENTS)
            if files := [line[3:] for line in listing.split("\0") if line and line[3:] not in own]:
                shown = ", ".join(files[:SHOWN])
                return f"; not committed in {place['worktree']}, and so not judged: {shown}"
    return ""


# --- ticks and notes -------------------------------------------------------------------------------------


def without_ticks(repository: Repository, base: Tree, commit: Tree) -> Tree:
    """The commit with the base's version of what Ralphy itself writes; that commit where it wrote nothing."""
    paths = {path for change in repository.changes(base, commit) for path in change.paths}
    theirs = sorted(path for path in paths if is_theirs(repository, base, commit, path))
    if not theirs:
        return commit
    with tempfile.TemporaryDirectory() as scratch:
        env = {**IDENTITY, "GIT_INDEX_FILE": str(Path(scratch, "index"))}
        repository.git("read-tree", commit.commit, env=env)
        for path in theirs:
            repository.git("update-index", "--force-remove", "--", path, env=env)
            if row := repository.git("ls-tree", "-z", base.tree, "--", path):
                mode, _, blob = row.partition("\t")[0].split(" ")
                repository.git("update-index", "--add", "--cacheinfo", f"{mode},{blob},{path}", env=env)
        tree = repository.git("write-tree", env=env).strip()
    return commit_tree(repository, tree, [commit.commit], "Without what Ralphy itself writes\n")


def is_theirs(repository: Repository, base: Tree, commit: Tree, path: str) -> bool:
    if path in DOCUMENTS:
        return only_ticks(path, repository.text(base, path), repository.text(commit, path))
    if path == NOTES_OF_AGENTS:
        return not repository.git("ls-tree", base.tree, "--", path)
    return path in NOTES


def only_ticks(path: str, before: str | None, after: str | None) -> bool:
    """Whether two versions of a file say the same, but for what is done. False where one is not there."""
    if before is None or after is None:
        return False
    blank = BLANK[path]
    try:
        return blank(before) == blank(after)
    except LawError:
        return False


def blank_prd(text: str) -> object:
    return MARK.sub("- [ ]", "\n".join(text.splitlines()))


def blank_tasks(text: str) -> object:
    rows = parse(text, ralphy.TASKS, ralphy.Rows).tasks
    return [row.model_copy(update={"completed": False}) for row in rows]


BLANK: Mapping[str, Callable[[str], object]] = {prd.PATH: blank_prd, ralphy.TASKS: blank_tasks}
DOCUMENTS: Mapping[str, Callable[[str], dict[str, bool]]] = {
    prd.PATH: prd.boxes,
    ralphy.TASKS: ralphy.completed,
}


def take_back(repository: Repository) -> dict[str, list[str]]:
    """Files in which a task is ticked in the working tree, by task; there they become as they are committed,
    for else nothing that is generated could land. Raises TaskError."""
    head = repository.tree("HEAD")
    found: dict[str, list[str]] = {}
    changed = []
    for path, read in DOCUMENTS.items():
        given = content(repository.root / path)
        if given is None:
            continue
        text, committed = given.decode(errors="replace"), repository.text(head, path)
        if text != committed:
            if not only_ticks(path, committed, text):
                raise TaskError(
                    f"[reconcile] {path} has changes that are not committed and no ticks: undo them first"
                )
            changed.append(path)
        for name, done in read(text).items():
            if done:
                found.setdefault(name, []).append(path)
    if changed:
        repository.git("checkout", "--quiet", head.commit, "--", *changed)
    return found


def reopened(shop: Shop, entries: Mapping[str, Entry], ticked: Mapping[str, Sequence[str]]) -> list[Found]:
    """What was ticked without evidence. No record of it: nothing happened but that somebody said so."""
    tip = shop.target.tip().commit
    done = done_tasks(shop.repository, entries, shop.ledger.records(), tip)
    found = []
    for name, paths in sorted(ticked.items()):
        if name not in done:
            known = "and the ledger has no proof: open again" if name in entries else "and it is no task"
            found.append(Found(name, "", None, f"ticked in {' and '.join(paths)}, {known}"))
    return found
