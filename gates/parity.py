"""parity: every operation, on every instruction set and number of threads, equals the base's plain C.

Inputs are drawn anew in every run; `--seed` replays one. The reference is the base's: a head that changes its
own plain C is compared with what it was before.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gates import asking, operations
from gates.asking import Answer
from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, Verdict, judged
from gates.trees.checkout import Checkout

CALLS = 8  # of each operation
REFERENCE = [{"isa": "ref", "threads": 1}]
MOST_SHOWN = 40
Job = list[Any]  # [op, index, seed]


def check(context: Context) -> Outcome:
    context.build(context.base)
    context.build(context.head)
    jobs: list[Job] = [[op, index, context.seed] for op in operations.MAKERS for index in range(CALLS)]
    truth = ask(context, context.base, jobs, REFERENCE)
    found = ask(context, context.head, jobs, "all")
    findings, compared, new = [], 0, []
    for job, expected, given in zip(jobs, truth["answers"], found["answers"], strict=True):
        if not expected and given:
            new.append(job[0])
        if not expected:
            continue
        if expected[0].startswith("refused"):
            findings.append(
                Finding(f"{job[0]} #{job[1]}: the base refuses the judge's own call: {expected[0]}")
            )
            continue
        if not given:
            findings.append(Finding(f"{job[0]}: the head has no such operation"))
            continue
        for setting, answer in zip(found["settings"], given, strict=True):
            compared += 1
            if answer != expected[0]:
                why = difference(context, job, setting) if len(findings) < MOST_SHOWN else answer[:80]
                name = f"{job[0]} #{job[1]}, {setting['isa']}, {setting['threads']} threads"
                findings.append(Finding(f"{name}: {why}"))
                break  # one setting of a call says it
    unknown = sorted(set(found["ops"]) - set(operations.MAKERS) - operations.WITHOUT)
    figure = f"{compared:,} comparisons on {', '.join(found['isas'])}, seed {context.seed}"
    if not compared:
        return Outcome(Verdict.FAIL, "nothing was compared", [Finding("the judge knows no operation of it")])
    notes = {"not judged: operations that the judge does not know": unknown, "new": sorted(set(new))}
    return judged(findings, figure, notes=notes)


def ask(context: Context, engine: Checkout, jobs: list[Job], settings: Any, keep: str = "") -> Answer:
    """A worker's answer about an engine."""
    request = {"calls": jobs, "settings": settings, "keep": keep}
    return asking.ask(context, "gates.parity_worker", engine, request)


def difference(context: Context, job: Job, setting: dict[str, Any]) -> str:
    """How many elements of one call differ, and the first of them."""
    files = [str(context.evidence / name) for name in ("expected.npz", "given.npz")]
    asked = (
        ask(context, context.base, [job], REFERENCE, files[0]),
        ask(context, context.head, [job], [setting], files[1]),
    )
    for one in asked:
        if one["answers"][0][0].startswith("refused"):
            return str(one["answers"][0][0])
    with np.load(files[0]) as expected, np.load(files[1]) as given:
        for index, name in enumerate(expected.files):
            a, b = expected[name], given[name] if name in given.files else np.empty(0)
            if a.shape != b.shape:
                return f"result {index} has shape {b.shape}: expected {a.shape}"
            bits = [one.view(np.uint32) if one.dtype == np.float32 else one for one in (a, b)]
            wrong = (bits[0] != bits[1]) & ~((a != a) & (b != b))
            if wrong.any():
                first = tuple(int(i) for i in np.argwhere(wrong)[0])
                shape = "x".join(map(str, a.shape))
                return (
                    f"{np.count_nonzero(wrong):,} of {a.size:,} elements of result {index} [{shape}] differ; "
                    f"first at {first}: {b[first]!r}, expected {a[first]!r}"
                )
    return "the results differ from run to run"
