"""Asks each gate about its patches: a bad one must be rejected for the reason it was made for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gates import court
from gates.court import Case
from gates.errors import GateError
from gates.evidence.record import Record
from gates.selftest.edits import commit
from gates.selftest.patches import PATCHES, Patch
from gates.trees.checkout import checkout, release


@dataclass(frozen=True, slots=True)
class Trial:
    """why: empty where the gate did what it must."""

    patch: Patch
    why: str
    seconds: float = 0.0
    record: Record | None = None


def try_all(case: Case, chosen: Sequence[str], watch: Callable[[str], None]) -> list[Trial]:
    """case: whose head is the tree under test. chosen: names of patches or of gates; empty: all."""
    known = {patch.name for patch in PATCHES} | {patch.gate for patch in PATCHES}
    for name in chosen:
        if name not in known:
            raise GateError(f"[selftest] {name!r} is no patch and no gate with patches")
    patches = [one for one in PATCHES if not chosen or one.name in chosen or one.gate in chosen]
    trials = []
    for number, patch in enumerate(patches, 1):
        watch(f"{number} of {len(patches)}: {patch.gate}: {patch.name}")
        trials.append(attempt(case, patch, number))
    return trials


def attempt(case: Case, patch: Patch, number: int) -> Trial:
    try:
        head = commit(case.repository, case.head.tree, patch.edits, patch.message)
    except GateError as error:
        return Trial(patch, str(error))
    parent = case.repository.tree(f"{head.commit}^")
    judged = Case(
        case.repository,
        checkout(case.repository, parent),
        checkout(case.repository, head),
        True,
        case.evidence / "selftest" / f"{number:03d}",
        case.seed,
    )
    judged.evidence.mkdir(parents=True, exist_ok=True)
    try:
        (record,) = court.run(judged, [patch.gate], True, lambda line: None)
    finally:
        release(judged.head.path)
    return Trial(patch, wrong(patch, record), record.seconds, record)


def wrong(patch: Patch, record: Record) -> str:
    """What the gate should have said and did not."""
    outcome = record.outcome
    if outcome.verdict != patch.verdict:
        return f"it said {outcome.verdict} ({outcome.figure}): expected {patch.verdict}"
    said = [str(finding) for finding in outcome.findings] + [outcome.figure]
    if patch.says and not any(patch.says in one for one in said):
        return f"no finding says {patch.says!r}: {said[0][:120]}"
    return ""
