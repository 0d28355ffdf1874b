"""policy: the law is readable, the change's tier is known, and what that tier asks for is there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from pathlib import Path

from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, judged
from gates.law import meaning
from gates.law.files import LawError, Model, read
from gates.law.registers import IN_FORCE, OWNERS, RFCS, WAIVERS, Owners, Rfcs, Waivers, rfcs_named
from gates.law.tiers import PATH as TIERS
from gates.law.tiers import Tier, Tiers
from gates.registry import GATES
from gates.trees.repository import SUBMODULE, SYMLINK

CODEOWNERS = ".github/CODEOWNERS"
JUDGES = ("tests/", "gates/", "engine/volta/bench/")  # what is compared by meaning
BODY = "VOLTA_PR_BODY"  # a file with the text of the pull request, where there is one
FIELDS = ("What changes", "Tier", "Evidence", "Determinism", "Rollback")
MOST_LISTED = 200


def check(context: Context) -> Outcome:
    findings: list[Finding] = []
    head_laws = {path: law(context.head.path, path, model, findings) for path, model in LAWS.items()}
    tiers = base_law(context, TIERS, Tiers) or head_laws[TIERS]
    assert tiers is None or isinstance(tiers, Tiers)
    tier = tiers.of(context.changes) if tiers is not None else None
    weaker = weakened(context)
    if tiers is not None:
        findings += strangers(context)
        findings += weaker if rfc_in_force(context) is None else []
        findings += rfc_missing(context, tier)
    head_tiers: object = head_laws[TIERS]
    if isinstance(head_tiers, Tiers):
        known = ", ".join(GATES)
        findings += [
            Finding(f"gate {name!r} is unknown: expected some of {known}, or one in gates/", TIERS)
            for name in head_tiers.unknown(context.head.path)
        ]
    findings += list(registers(context, head_laws))
    findings += body(tier)
    changed = len(context.changes)
    figure = f"{tier.id}: {tier.title}; {changed} paths changed" if tier else f"{changed} paths changed"
    return judged(
        findings[:MOST_LISTED],
        figure,
        notes={
            "tier": tier.id if tier else "",
            "paths": by_tier(context, tiers),
            "judges weaker than before": [str(one) for one in weaker][:MOST_LISTED],
        },
    )


LAWS: dict[str, type] = {TIERS: Tiers, RFCS: Rfcs, WAIVERS: Waivers, OWNERS: Owners}


def today() -> date:
    return datetime.now(UTC).date()


def law(root: Path, path: str, model: type[Model], findings: list[Finding]) -> Model | None:
    try:
        return read(root, path, model)
    except LawError as error:
        findings.append(Finding(error.message, error.path, error.line))
        return None


def base_law(context: Context, path: str, model: type[Model]) -> Model | None:
    """The base's law decides; a base from before there was one has none."""
    try:
        return read(context.base.path, path, model)
    except LawError:
        return None


def by_tier(context: Context, tiers: Tiers | None) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for change in context.changes if tiers else ():
        assert tiers is not None
        found.setdefault(tiers.of_change(change).id, []).append(f"{change.kind} {' -> '.join(change.paths)}")
    return {name: paths[:MOST_LISTED] for name, paths in sorted(found.items())}


def strangers(context: Context) -> Iterator[Finding]:
    """Links that lead out, submodules: files that no path of the diff shows."""
    for change in context.changes:
        if change.new_mode == SUBMODULE:
            yield Finding("a submodule: its files would be judged by nobody", change.path)
        if change.new_mode == SYMLINK:
            target = (context.head.path / change.path).parent / (context.head.path / change.path).readlink()
            where = Path(os.path.normpath(target))
            inside = where.is_relative_to(context.head.path)
            shown = where.relative_to(context.head.path) if inside else where
            why = "what it shows is judged as another path" if inside else "it leaves the repository"
            yield Finding(f"a link to {shown}: {why}", change.path)


def weakened(context: Context) -> list[Finding]:
    """What the change takes away from its judges. With an RFC in force it has been agreed to, and is said."""
    if not context.touches(*JUDGES):
        return []
    return meaning.compare(suite(context.base.path), suite(context.head.path))


def suite(root: Path) -> meaning.Suite:
    files = {}
    for place in JUDGES:
        for path in sorted((root / place).rglob("*.py")):
            if path.is_file() and not path.is_symlink():
                files[str(path.relative_to(root))] = path.read_text(errors="replace")
    return meaning.read(files)


def messages(context: Context) -> list[str]:
    """The commit messages of the change, and the text of its pull request."""
    texts = []
    head = context.head.tree.commit or context.repository.tree("HEAD").commit
    if context.base.tree.commit and head:
        texts.append(context.repository.git("log", "--format=%B", f"{context.base.tree.commit}..{head}"))
    path = os.environ.get(BODY)
    if path and Path(path).is_file():
        texts.append(Path(path).read_text(errors="replace"))
    return texts


def rfc_in_force(context: Context) -> str | None:
    """An RFC that the change names and that the base has accepted: a change cannot accept its own."""
    rfcs = base_law(context, RFCS, Rfcs)
    for name in rfcs_named(messages(context)):
        rfc = rfcs.find(name) if rfcs else None
        if rfc is not None and rfc.state in IN_FORCE:
            return name
    return None


def rfc_missing(context: Context, tier: Tier | None) -> Iterator[Finding]:
    if tier is None or not tier.rfc or rfc_in_force(context) is not None:
        return
    if base_law(context, RFCS, Rfcs) is None:
        return  # the commit that brings the law
    named = rfcs_named(messages(context))
    said = f"names {', '.join(named)}, none of them accepted in the base" if named else "names none"
    touched = [path for change in context.changes for path in change.paths][:3]
    yield Finding(
        f"tier {tier.id} needs an Accepted RFC: this change {said}; write `RFC-NNNN` in a commit's message",
        touched[0] if touched else "",
    )


def registers(context: Context, laws: Mapping[str, object]) -> Iterator[Finding]:
    waivers, rfcs, owners = laws[WAIVERS], laws[RFCS], laws[OWNERS]
    if isinstance(waivers, Waivers):
        for one in waivers.expired(today()):
            yield Finding(
                f"waiver {one.id} of gate {one.gate} expired on {one.expires}: {one.owner} owns it", WAIVERS
            )
    if isinstance(rfcs, Rfcs):
        for rfc in rfcs.rfcs:
            if not (context.head.path / rfc.file).is_file():
                yield Finding(f"{rfc.id} has no text: {rfc.file} is not there", RFCS)
    if isinstance(owners, Owners):
        file = context.head.path / CODEOWNERS
        if not file.is_file() or file.read_text(errors="replace") != owners.codeowners():
            yield Finding(
                "it is not what governance/owners.yaml gives: run `python -m gates codeowners`", CODEOWNERS
            )


def body(tier: Tier | None) -> Iterator[Finding]:
    """The fields of the pull request's template, where its text was given."""
    path = os.environ.get(BODY)
    if not path:
        return
    if not Path(path).is_file():
        yield Finding(f"{BODY} is {path}: expected a file with the pull request's text")
        return
    lines = Path(path).read_text(errors="replace").splitlines()
    sections: dict[str, str] = {}
    title = ""
    for line in lines:
        if line.startswith("## "):
            title = line[3:].strip()
        elif title and line.strip() and not line.strip().startswith("<!--"):
            sections[title] = sections.get(title, "") + line
    for name in FIELDS:
        if name not in sections:
            yield Finding(f"the pull request says nothing under `## {name}`")
    if tier is not None and tier.id not in sections.get("Tier", tier.id):
        yield Finding(f"the pull request says tier {sections['Tier']!r}: its paths say {tier.id}")
