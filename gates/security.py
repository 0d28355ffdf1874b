"""security: no secrets in what is added, no licence that nobody agreed to, no construct that opens a door."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from typing import Any

from gates.context import Context
from gates.errors import GateError
from gates.evidence.verdict import Finding, Outcome, judged
from gates.law.files import LawError, read
from gates.safety import constructs, licences, requirements, secrets
from gates.safety.licences import LAW, Licences
from gates.safety.requirements import Requirement
from gates.tools import tool

AUDIT_S = 90.0
NOT_REACHABLE = "pip-audit: not reachable"


def check(context: Context) -> Outcome:
    root = context.head.path
    searched = secrets.search(context.repository, context.base.tree, context.head.tree)
    findings = list(searched.findings)
    findings += secrets.passing(context.repository, context.base.tree, context.head.tree, findings)
    asked = requirements.read(root)
    findings += requirements.without_reason(asked)
    law, problems = agreed(context)
    findings += problems
    missing: list[str] = []
    if law is not None:
        refused, missing = licences.judge(asked, law)
        findings += refused
    findings += constructs.judge(root)
    vulnerable, audit = audited(context, asked)
    findings += vulnerable
    sources = len(constructs.python_files(root)) + len(constructs.c_files(root))
    return judged(
        findings,
        f"{searched.lines} added lines, {len(asked)} requirements, {sources} sources",
        notes={"audit": audit, "not installed": missing, "too large to search": list(searched.too_large)},
    )


def agreed(context: Context) -> tuple[Licences | None, list[Finding]]:
    """The base's list decides; the head's must be readable, and decides where the base has none."""
    try:
        law = read(context.head.path, LAW, Licences)
    except LawError as error:
        return None, [Finding(error.message, error.path, error.line)]
    try:
        return read(context.base.path, LAW, Licences), []
    except LawError:
        return law, []


def audited(context: Context, asked: Sequence[Requirement]) -> tuple[list[Finding], str]:
    """Known vulnerabilities of the versions that are installed. Without pip-audit or its network there is a
    note and no verdict: what a database says today is no property of the change."""
    try:
        program = tool("pip-audit")
    except GateError:
        return [], "pip-audit: not installed"
    pinned, answer = context.evidence / "pinned.txt", context.evidence / "audit.json"
    pinned.write_text("".join(f"{name}=={version}\n" for name, version in installed(asked).items()))
    answer.unlink(missing_ok=True)
    limited = replace(context, deadline=min(context.deadline, time.monotonic() + AUDIT_S))
    try:
        limited.run(
            (
                program, "--requirement", pinned, "--no-deps", "--disable-pip", "--progress-spinner", "off",
                "--timeout", "15", "--format", "json", "--output", answer,
            )
        )  # fmt: skip
        found = json.loads(answer.read_text())
    except (subprocess.TimeoutExpired, OSError, ValueError):
        return [], NOT_REACHABLE
    # pip-audit passes, with a reason, where its database does not answer for a distribution
    asked_of = found.get("dependencies", ())
    known = [one for one in asked_of if "skip_reason" not in one]
    if not known:
        return [], NOT_REACHABLE
    lines = {one.name: one.line for one in asked}
    return vulnerabilities(known, lines), f"pip-audit: {len(known)} of {len(asked_of)} distributions"


def installed(asked: Sequence[Requirement]) -> dict[str, str]:
    """The versions of those that are here; a local part such as +cpu is unknown to the database."""
    found = {}
    for one in asked:
        try:
            found[one.name] = metadata.version(one.name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return found


def vulnerabilities(known: Sequence[Mapping[str, Any]], lines: Mapping[str, int]) -> list[Finding]:
    """Of pip-audit's entries: {"name", "version", "vulns": [{"id", "fix_versions"}]}."""
    return [
        Finding(
            f"{one['name']} {one['version']} has {flaw['id']}: "
            f"fixed in {', '.join(flaw.get('fix_versions', ())) or 'no version yet'}",
            requirements.PATH,
            lines.get(str(one["name"]).lower(), 0),
        )
        for one in known
        for flaw in one.get("vulns", ())
    ]
