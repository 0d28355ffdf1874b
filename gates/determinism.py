"""determinism: fresh processes over threads, ISA, batch, chunks, fusion and tuning give one hash.

One process after the other: what another test does to the machine must not decide anything here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gates.asking import run
from gates.context import Context
from gates.evidence.verdict import Finding, Outcome, judged

THREADS = (1, 2, 3)
REPEATS = 100
PLAIN = {"isa": "ref", "threads": 1}


def check(context: Context) -> Outcome:
    context.build(context.head)
    head = context.head
    truth = run(context, head, "train", PLAIN)
    isas = truth.pop("isas")
    findings: list[Finding] = []
    compared = 0
    for name, setting, env in settings(context, isas):
        found = run(context, head, "train", setting, env=env)
        compared += len(truth)
        findings += differences(context, name, truth, found, setting)
    for isa in isas:
        found = run(context, head, "generate", {"isa": isa, "threads": 2})
        if isa == isas[0]:
            first = found
        compared += len(found) - 1
        findings += [Finding(f"{isa}: {line}") for line in unequal(found)]
        findings += [
            Finding(f"{isa}, generation: {name} differs from {isas[0]}")
            for name in found
            if name != "isas" and found[name] != first[name]
        ]
    repeated = run(context, head, "plans", PLAIN, repeats=REPEATS)
    if len(repeated["fingerprints"]) != 1:
        said = f"{REPEATS} plans of one graph have {len(repeated['fingerprints'])} fingerprints: expected 1"
        findings.append(Finding(said))
    figure = f"{compared} hashes over {', '.join(isas)}, {len(THREADS)} thread counts; {REPEATS} plans, one"
    return judged(findings, figure, outputs={name: str(value) for name, value in truth.items()})


def settings(context: Context, isas: list[str]) -> list[tuple[str, dict[str, Any], dict[str, str]]]:
    """(name, policy, environment) of every run that must equal plain C on one thread."""
    grid: list[tuple[str, dict[str, Any], dict[str, str]]] = [
        (f"{isa}, {threads} threads", {"isa": isa, "threads": threads}, {})
        for isa in isas
        for threads in THREADS
    ]
    best = {"isa": isas[-1], "threads": 2}
    grid.append((f"{isas[-1]}, passes off", {**best, "passes": []}, {}))
    grid.append((f"{isas[-1]}, fusion alone", {**best, "passes": ["fuse", "epilogue"]}, {}))
    tuned = {"VOLTA_CACHE": str(context.evidence / "tuned")}
    entries = run(context, context.head, "forge_tuned", best, env=tuned)["entries"]
    grid.append((f"{isas[-1]}, tuned ({entries} products)", best, tuned))
    return grid


def differences(
    context: Context,
    name: str,
    truth: Mapping[str, Any],
    found: Mapping[str, Any],
    setting: Mapping[str, Any],
) -> list[Finding]:
    """What a run computed otherwise, and the first operation that does."""
    wrong = [key for key in truth if truth[key] != found.get(key)]
    if not wrong:
        return []
    models = list(dict.fromkeys(key.split(" ")[0] for key in wrong))
    policy = {key: setting[key] for key in ("isa", "threads")}
    where = run(context, context.head, "diverging", models=models, settings=[PLAIN, policy])
    first = (
        f"first to diverge: {where['op']} of {where['model']}"
        if where["op"]
        else "no operation diverges by itself: fusion, planning or the schedule does"
    )
    return [Finding(f"{name}: {', '.join(wrong)} differ from plain C on one thread; {first}")]


def unequal(found: Mapping[str, Any]) -> list[str]:
    """Names whose first words are equal must have equal values."""
    said = []
    by_model: dict[str, tuple[str, str]] = {}
    for name, value in found.items():
        if name == "isas":
            continue
        model, _, way = name.partition(" ")
        first_way, first_value = by_model.setdefault(model, (way, value))
        if value != first_value:
            said.append(f"{model}: {way} differs from {first_way}")
    return said
