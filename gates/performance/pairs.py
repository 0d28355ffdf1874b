"""Whether the head is slower, case by case: the base beside itself first, then beside the head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from gates.context import Context
from gates.evidence.verdict import Finding, Verdict
from gates.law.limits import Timing
from gates.performance import statistics
from gates.performance.answer import Part
from gates.performance.sampling import BASE, HEAD, Measure, Series, Times, collect, looks
from gates.performance.statistics import Decision, Judged

RESERVE_S = 120.0


def timing(
    context: Context, limits: Timing, cases: Sequence[str], measure: Measure, reserve_s: float = RESERVE_S
) -> Part:
    """The base beside itself, then beside the head. What the first series cannot tell apart is no slowdown in
    the second. reserve_s: no pair is begun with less of the gate's time left."""

    def going() -> bool:
        return context.left_s > reserve_s

    part = Part(Verdict.INCONCLUSIVE)
    at = looks(limits.least_pairs, limits.most_pairs)
    same = collect(
        measure, (BASE, BASE), cases, context.seed, at, lambda series: list(unfit(series, limits)), going
    )
    excluded = unfit(same, limits)
    part.open += [f"{case}: {why}" for case, why in excluded.items()]
    cases = [case for case in cases if case not in excluded]
    margins = margins_of(same.times(), cases, limits)
    decide = partial(judge, margins=margins, limits=limits, looks=len(at))
    series = collect(
        measure,
        (BASE, HEAD),
        cases,
        context.seed + 1,
        at,
        lambda series: [
            case for case, one in decide(series.times()).items() if one.decision is Decision.UNDECIDED
        ],
        going,
    )
    for case, (side, what) in series.problems.items():
        if side == HEAD:
            part.findings.append(Finding(f"{case}: {what}"))
        else:
            part.open.append(f"{case}: the base: {what}")
    found = decide(series.times())
    by_wall = judge(series.walls(), margins_of(same.walls(), cases, limits), limits, len(at))
    for case in cases:
        if case in found:
            verdict(case, found[case], by_wall[case], part)
        elif case not in series.problems:
            part.open.append(f"{case}: {len(series.first[case])} pairs, too few to judge")
    if found:
        worst = max(found.values(), key=lambda one: one.paired.mean)
        part.figure = f"worst case {worst.paired} of the base's time"
    part.samples = {
        f"{case} {side}": [sample.seconds for sample in samples[case]]
        for side, samples in ((BASE, series.first), (HEAD, series.second))
        for case in cases
    }
    return part


def unfit(same: Series, limits: Timing) -> dict[str, str]:
    """The cases on which this host can judge nothing, and why."""
    why = {case: f"the base: {what}" for case, (_, what) in same.problems.items()}
    first, second = same.times()
    for case, times in first.items():
        if len(times) < statistics.LEAST_PAIRS:
            why[case] = f"{len(times)} pairs of the base with itself, too few to judge"
            continue
        one = statistics.paired(times, second[case], limits.confidence)
        if reason := statistics.void(one, limits.noise):
            why[case] = reason
    return why


def margins_of(same: tuple[Times, Times], cases: list[str], limits: Timing) -> dict[str, float]:
    """By case, the law's margin or the host's noise, whichever is greater."""
    first, second = same
    return {
        case: max(
            limits.margin, statistics.noise(statistics.paired(first[case], second[case], limits.confidence))
        )
        for case in cases
    }


def judge(
    times: tuple[Times, Times], margins: Mapping[str, float], limits: Timing, looks: int
) -> dict[str, Judged]:
    """Of the cases with enough pairs."""
    base, head = times
    enough = [case for case, samples in base.items() if len(samples) >= statistics.LEAST_PAIRS]
    return statistics.judge(
        {case: base[case] for case in enough},
        {case: head[case] for case in enough},
        margins,
        limits.confidence,
        looks,
    )


def verdict(case: str, one: Judged, by_wall: Judged, part: Part) -> None:
    """One case's times, by the process's clock and by ours."""
    part.notes[case] = {
        "ratio": one.paired.ratio,
        "wall_ratio": by_wall.paired.ratio,
        "p": one.p,
        "pairs": one.paired.pairs,
        "margin": one.paired.margin,
        "decision": one.decision.value,
    }
    said = f"{case}: {one.paired} of the base's time over {one.paired.pairs} pairs"
    if one.decision is Decision.SLOWER:
        part.findings.append(Finding(f"{said}, allowed {1 + one.paired.margin:.3f}, p = {one.p:.2g}"))
    elif by_wall.decision is Decision.SLOWER:
        part.findings.append(
            Finding(f"{said} by its own clock, but {by_wall.paired} by the judge's: patched timer")
        )
    elif one.decision is Decision.UNDECIDED:
        part.open.append(f"{said}, allowed {1 + one.paired.margin:.3f}: undecided")
