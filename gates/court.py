"""A run: from revisions to a table, a page and an exit code. Which gates are asked, and by whose code."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gates.context import Context
from gates.errors import GateError
from gates.evidence import page, record
from gates.evidence.record import Record
from gates.evidence.verdict import Outcome, Verdict
from gates.host import host
from gates.law.files import LawError, read
from gates.law.tiers import PATH as TIERS
from gates.law.tiers import Tiers
from gates.registry import GATES, Row
from gates.runner import run_gate
from gates.trees.checkout import Checkout, checkout, home
from gates.trees.repository import WORKTREE, Repository, Tree

HERE = Path(__file__).resolve().parents[1]
UPSTREAM = ("origin/main", "origin/master")
Watch = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """What is judged: two trees of a repository, and whose gates judge. `by_base`: False for gates that are
    being written, and then the result is no evidence."""

    repository: Repository
    base: Checkout
    head: Checkout
    by_base: bool
    evidence: Path
    seed: int

    def judge(self, row: Row) -> tuple[Path, str]:
        """Where a gate's code is taken from, and that said in a few words."""
        module = Path(*row.module.split(".")).with_suffix(".py")
        if not self.by_base:
            return HERE, "code that is not the base's: no evidence"
        if (self.base.path / module).is_file():
            return self.base.path, f"base {self.base.tree.short}"
        return HERE, f"the head's own code: base {self.base.tree.short} has no such gate"


def open_case(
    where: Path, base: str | None, head: str | None, by_base: bool, evidence: Path | None, seed: int | None
) -> Case:
    """head: the working tree unless named. base: where the head left the main line, or its last commit."""
    repository = Repository.at(where)
    head_tree = repository.tree(head or WORKTREE)
    base_tree = find_base(repository, base, head_tree)
    place = evidence or home(repository) / "evidence" / head_tree.tree[:16]
    place.mkdir(parents=True, exist_ok=True)
    return Case(
        repository,
        checkout(repository, base_tree),
        checkout(repository, head_tree),
        by_base,
        place.resolve(),
        secrets.randbits(32) if seed is None else seed,
    )


def find_base(repository: Repository, base: str | None, head: Tree) -> Tree:
    if base is not None:
        return repository.merge_base(repository.tree(base), head)
    for name in UPSTREAM:
        try:
            upstream = repository.tree(name)
        except GateError:
            continue
        return repository.merge_base(upstream, head)
    return repository.tree("HEAD")


def tier_gates(case: Case) -> tuple[str, list[str]]:
    """The tier of the change by the base's law, and the gates that it asks for."""
    for law in (case.base, case.head):
        try:
            tiers = read(law.path, TIERS, Tiers)
        except LawError:
            continue
        tier = tiers.of(case.repository.changes(case.base.tree, case.head.tree))
        if tier is None:
            return "no change", []
        return f"{tier.id}: {tier.title}", [name for name in GATES if name in tier.gates]
    return "no law: every gate", list(GATES)


def run(case: Case, names: Sequence[str], alone: bool, watch: Watch) -> list[Record]:
    """Asks gates in their order; each gets a directory of its own below the evidence."""
    records = []
    for name in names:
        row = GATES[name]
        watch(f"{name}: {row.says}")
        judge, said = case.judge(row)
        live = partial(progress, watch, name, time.monotonic())
        try:
            with host(row.exclusive, lambda line, name=name: watch(f"{name} {line}")):  # type: ignore[misc]
                context = Context(
                    case.repository, case.base, case.head, case.seed, case.evidence / name,
                    time.monotonic() + row.limit_s, alone,
                )  # fmt: skip
                records.append(run_gate(row, context, judge, said, live))
        except OSError as error:
            outcome = Outcome(Verdict.FAIL, f"it could not be run: {error}")
            records.append(
                Record(name, row.version, said, outcome, case.base.tree, case.head.tree, case.seed, [], [], 1,
                       record.now(), 0.0)
            )  # fmt: skip
    return records


def progress(watch: Watch, name: str, began: float, line: str) -> None:
    watch(f"{name}, {time.monotonic() - began:.0f} s: {line[-100:]}")


def publish(case: Case, records: Sequence[Record], asked: str) -> Path:
    """Writes summary.json and report.html beside the evidence; gives the page's path."""
    facts = {
        "asked for": asked,
        "base": f"{case.base.tree.revision} {case.base.tree.short}",
        "head": f"{case.head.tree.revision} {case.head.tree.short}",
        "paths changed": len(case.repository.changes(case.base.tree, case.head.tree)),
        "judged by": ", ".join(dict.fromkeys(one.judge for one in records)),
        "machine": ", ".join(str(value) for value in record.machine().values()),
        "seed": f"{case.seed} (`--seed {case.seed}` replays it)",
    }
    summary = {"facts": facts, "records": [one.document() for one in records]}
    record.write(case.evidence / "summary.json", summary)
    where = case.evidence / "report.html"
    page.write(where, page.page(records, "Volta gates", facts))
    return where
