"""memory: planned bytes are measured bytes, steps grow by nothing, no peak is above its baseline."""

from __future__ import annotations

from pydantic import Field

from gates.asking import run
from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, judged
from gates.law.files import Article, in_force
from gates.law.limits import PATH as LIMITS
from gates.law.limits import Limits

BASELINE = "governance/baselines/memory.yaml"
STEPS = 1000
PINNED = {"isa": "ref", "threads": 1}  # plans of the same bytes on every machine


class Baseline(Article):
    """Bytes of the arena of a training step, per model of gates/runs_worker.py, in plain C on one thread.
    commit: the one that they were measured on."""

    commit: str = Field(pattern=r"^[0-9a-f]{7,40}$")
    arena_bytes: dict[str, int]


def check(context: Context) -> Outcome:
    context.build(context.head)
    findings: list[Finding] = []
    pinned = run(context, context.head, "memory", PINNED, steps=STEPS)
    fastest = run(context, context.head, "memory", {"isa": pinned["isas"][-1], "threads": 2}, steps=STEPS)
    limits = in_force(context.base.path, context.head.path, LIMITS, Limits)
    samples: dict[str, list[float]] = {}
    for name, found in (("plain C, 1 thread", pinned), (f"{pinned['isas'][-1]}, 2 threads", fastest)):
        for model, (planned, measured) in found["planned"].items():
            if planned != measured or planned <= 0:
                findings.append(Finding(f"{model}, {name}: {planned:,} bytes planned, {measured:,} measured"))
        grown = max(found["pages"]) - found["pages"][0]
        samples[f"pages, {name}"] = [float(pages) for pages in found["pages"]]
        if grown > limits.growth.pages:
            said = f"{name}: {grown} pages more over {STEPS} steps, {limits.growth.pages} are allowed"
            findings.append(Finding(said))
    baseline = in_force(context.base.path, context.head.path, BASELINE, Baseline)
    for model, (planned, _) in pinned["planned"].items():
        most = baseline.arena_bytes.get(model)
        if most is None:
            findings.append(Finding(f"{model} has no baseline", BASELINE))
        elif planned > most:
            findings.append(Finding(f"{model}: the arena has {planned:,} bytes, its baseline {most:,}"))
    total = sum(planned for planned, _ in pinned["planned"].values())
    return judged(findings, f"{total:,} bytes planned and measured; {STEPS} steps", samples=samples)
