"""planning: compiling TinyLM takes what governance/performance.md allows, and plans are found again.

In processor time, so that what else the host does decides little; the median of the 95th percentiles of fresh
processes.
"""

from __future__ import annotations

from statistics import median, quantiles

from gates.asking import run
from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, judged
from gates.law.files import in_force
from gates.law.limits import PATH as LIMITS
from gates.law.limits import Limits

PROCESSES, REPEATS = 3, 100


def check(context: Context) -> Outcome:
    context.build(context.head)
    limits = in_force(context.base.path, context.head.path, LIMITS, Limits).planning
    found = [run(context, context.head, "planning", repeats=REPEATS) for _ in range(PROCESSES)]
    uncached, cached = (
        median(quantiles(one[name], n=20)[-1] * 1e3 for one in found) for name in ("uncached", "cached")
    )
    counts = found[0]["statistics"]
    rate = counts["hits"] / max(1, counts["hits"] + counts["misses"])
    findings = [
        Finding(f"{name} compilation takes {took:.1f} ms at the 95th percentile, {most:g} ms are allowed")
        for name, took, most in (
            ("uncached", uncached, limits.uncached_p95_ms),
            ("cached", cached, limits.cached_p95_ms),
        )
        if took > most
    ]
    if rate < limits.hit_rate:
        findings.append(Finding(f"{rate:.1%} of look-ups find a plan, {limits.hit_rate:.0%} are promised"))
    figure = f"p95 {uncached:.1f} ms uncached, {cached:.2f} ms cached; {rate:.1%} hits"
    samples = {f"{name}, process {index}": one[name] for index, one in enumerate(found, 1) for name in
               ("uncached", "cached")}  # fmt: skip
    return judged(findings, figure, samples=samples)
