"""Evidence: one JSON record per gate and run, written whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gates.evidence.verdict import Finding, Outcome, Verdict
from gates.trees.repository import Tree

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """What a gate found, and all that is needed to ask again. version: of the gate; judge: the tree that the
    gate's code came from; exit_code: of the process that ran it; log: beside the record."""

    gate: str
    version: int
    judge: str
    outcome: Outcome
    base: Tree
    head: Tree
    seed: int
    argv: Sequence[str]
    commands: Sequence[Sequence[str]]
    exit_code: int
    started: str
    seconds: float
    machine: dict[str, Any] = field(default_factory=dict)
    log: str = ""

    def document(self) -> dict[str, Any]:
        document = asdict(self)
        outcome = document.pop("outcome")
        return {"format": FORMAT, **document, **outcome, "verdict": str(self.outcome.verdict)}


def read(path: Path) -> Record:
    given = json.loads(path.read_text())
    if given.pop("format") != FORMAT:
        raise ValueError(f"{path}: expected format {FORMAT}")
    outcome = Outcome(
        Verdict(given.pop("verdict")),
        given.pop("figure"),
        [Finding(**one) for one in given.pop("findings")],
        given.pop("samples"),
        given.pop("outputs"),
        given.pop("notes"),
    )
    base, head = Tree(**given.pop("base")), Tree(**given.pop("head"))
    return Record(outcome=outcome, base=base, head=head, **given)


def write(path: Path, document: dict[str, Any]) -> None:
    """To a temporary name, synced, renamed: a crash leaves the old file or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)


def machine() -> dict[str, Any]:
    """What the figures depend on, and a fingerprint of it."""
    model = "unknown"
    cpuinfo = Path("/proc/cpuinfo")
    flags = ""
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name" and model == "unknown":
                model = value.strip()
            if key.strip() == "flags" and not flags:
                flags = " ".join(sorted(value.split()))
    facts = {
        "processor": model,
        "cpus": len(os.sched_getaffinity(0)),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
    }
    identity = f"{model}|{flags}|{facts['cpus']}|{platform.machine()}"
    return {**facts, "fingerprint": hashlib.sha256(identity.encode()).hexdigest()[:16]}


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
