"""bench: on pinned cases larger than a core's caches the head needs no more time than the base, on one thread
and on all.

The method is bench_smoke's; the counters are not taken again, since they know nothing about memory.
"""

from __future__ import annotations

import os
from dataclasses import replace

from gates.context import Context
from gates.evidence.verdict import Outcome, Verdict
from gates.law.files import in_force
from gates.law.limits import PATH as LIMITS
from gates.law.limits import Limits
from gates.performance.answer import Part, outcome
from gates.performance.cases import FULL
from gates.performance.pairs import RESERVE_S, timing
from gates.performance.sampling import Stopwatch, quiet_cpu
from gates.trees.checkout import engine_hash


def check(context: Context) -> Outcome:
    if engine_hash(context.base.path) == engine_hash(context.head.path):
        return Outcome(Verdict.NOT_APPLICABLE, "the engine is the base's in every byte")
    limits = in_force(context.base.path, context.head.path, LIMITS, Limits)
    for which in (context.base, context.head):
        context.build(which)
    every = tuple(sorted(os.sched_getaffinity(0)))
    one: tuple[int, ...] = (quiet_cpu(),)
    parts = {}
    for cpus, share in ((one, 0.5), (every, 1.0)) if len(every) > 1 else ((one, 1.0),):
        reserve_s = RESERVE_S + (1 - share) * (context.left_s - RESERVE_S)  # share: of the time that is left
        said = f"{len(cpus)} thread{'s' if len(cpus) > 1 else ''}"
        part = timing(context, limits.timing, tuple(FULL), Stopwatch(context, cpus), reserve_s)
        parts[said] = named(part, said)
    return outcome(parts)


def named(part: Part, said: str) -> Part:
    """With the number of threads wherever it names a case."""
    return replace(
        part,
        findings=[replace(one, message=f"{said}: {one.message}") for one in part.findings],
        open=[f"{said}: {one}" for one in part.open],
        figure=f"{said}: {part.figure}" if part.figure else "",
        samples={f"{said}: {name}": values for name, values in part.samples.items()},
    )
