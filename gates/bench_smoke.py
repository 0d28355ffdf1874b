"""bench_smoke: on pinned small cases the head needs no more instructions, allocations, planned bytes or steps
than the base, and no more time.

Counters repeat exactly, so they are compared as they are. Times do not: base and head take turns in fresh
processes, the host's own noise is measured first, and what stays undecided is no verdict.
"""

from __future__ import annotations

from gates.context import Context
from gates.evidence.verdict import Outcome, Verdict
from gates.law.files import in_force
from gates.law.limits import PATH as LIMITS
from gates.law.limits import Limits
from gates.performance.answer import outcome
from gates.performance.cases import SMOKE
from gates.performance.counters import counters
from gates.performance.pairs import timing
from gates.performance.sampling import Stopwatch, quiet_cpu
from gates.trees.checkout import engine_hash


def check(context: Context) -> Outcome:
    same = engine_hash(context.base.path) == engine_hash(context.head.path)
    if same and not context.alone:
        return Outcome(Verdict.NOT_APPLICABLE, "the engine is the base's in every byte")
    limits = in_force(context.base.path, context.head.path, LIMITS, Limits)
    for which in (context.base, context.head):
        context.build(which)
    counted = counters(context, limits.counters)
    cases = [case for case in SMOKE if case not in counted.notes.get("not in the base", {})]
    parts = {"counters": counted}
    if not same:
        parts["time"] = timing(context, limits.timing, cases, Stopwatch(context, (quiet_cpu(),)))
    return outcome(parts)
