"""Where a program's time goes: per step and per kernel, beside what the machine could do at most.

Nothing is added to the program: each thread stamps when it begins and ends a step. A step's time is what
its threads were busy, on average; what is left of the run is waiting at barriers. Early steps, which ran
when memory was bound, are no part of a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.bench.roofline import Roofline
from volta.ir.cost import Work
from volta.ir.ops import work_of
from volta.plan.layout import View
from volta.plan.steps import Plan, Step

# (operand, by which it is bounded): tables and caches, of which a step touches as much as it moves.
IN_PART = {
    "embedding": ((1, 0),),
    "gather": ((1, 0),),
    "rotary": ((2, 0), (3, 0)),
    "cache_update": ((0, 1),),
    "mark_seen": ((0, 1),),
}
KEYS, VALUES = 3, 4  # operands [B, G, S, D] of attention
Stamps = npt.NDArray[np.float64]  # [threads, steps, 2], seconds


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step: its busy seconds (mean over threads, median over runs) and its work."""

    index: int
    kernel: str
    label: str
    seconds: float
    work: Work
    dtype: str


@dataclass(frozen=True, slots=True)
class Profile:
    """seconds: of a whole run; waiting: what threads spent at barriers, on average; stamps: of one run, for
    each of `steps`."""

    steps: tuple[StepTime, ...]
    seconds: float
    waiting: float
    stamps: Stamps
    roofline: Roofline


def profile(
    plan: Plan,
    run_traced: Callable[[], Stamps],
    ceiling: Roofline,
    runs: int = 11,
    keys: int | None = None,
) -> Profile:
    """Runs `runs` times after one that warms up. keys: how many of those in its caches a query sees (all)."""
    run_traced()
    taken = [run_traced() for _ in range(runs)]
    busy = np.median([np.mean(stamps[..., 1] - stamps[..., 0], axis=0) for stamps in taken], axis=0)
    seconds = float(np.median([stamps[..., 1].max(initial=0.0) for stamps in taken]))
    counted = works(plan, keys)
    steps = tuple(
        StepTime(index, step.kernel, label(step), float(busy[index]), counted[index], dtype_of(step))
        for index, step in enumerate(plan.steps)
        if index >= plan.early
    )
    waiting = max(0.0, seconds - sum(step.seconds for step in steps))
    return Profile(steps, seconds, waiting, taken[len(taken) // 2][:, plan.early :], ceiling)


def works(plan: Plan, keys: int | None = None) -> list[Work]:
    """Operations and bytes of each step; `keys` as in `profile`. A node that became several steps gives its
    operations to the last, which runs its kernel; the others move what their operands hold."""
    last = {step.node: index for index, step in enumerate(plan.steps)}
    found = []
    for index, step in enumerate(plan.steps):
        moved = bytes_of(step, keys)
        contraction, steps, _ = work_of(step.node) if last[step.node] == index else Work(0, 0, 0)
        if keys is not None and step.kernel == "attention":
            places = max(1, step.operands[KEYS].shape[2])
            contraction, steps = contraction * keys // places, steps * keys // places
        found.append(Work(contraction, steps, moved))
    return found


def bytes_of(step: Step, keys: int | None = None) -> int:
    """What its operands hold: repeated elements once, and of a table or cache what the step touches."""
    held = [distinct(view) for view in step.operands]
    if keys is not None and step.kernel == "attention":
        for operand in (KEYS, VALUES):
            held[operand] = held[operand] * keys // max(1, step.operands[operand].shape[2])
    for operand, bound in IN_PART.get(step.kernel, ()):
        held[operand] = min(held[operand], held[bound])
    return sum(count * view.dtype.itemsize for count, view in zip(held, step.operands, strict=True))


def distinct(view: View) -> int:
    """Elements, those of axes that were broadcast counted once."""
    return (
        0 if view.numel == 0 else math.prod(n for n, by in zip(view.shape, view.strides, strict=True) if by)
    )


def label(step: Step) -> str:
    """Kernel, sizes and the operations of its chain, as people look for them."""
    out = step.operands[0]
    shape = "x".join(map(str, out.shape)) or "1"
    if step.kernel.startswith("matmul"):
        a = step.operands[step.ints[0]]
        chain = "+".join(dict.fromkeys(one.op for one in step.code))
        return f"{step.kernel} {a.dtype} {shape}x{a.shape[-1]}{' ' + chain if chain else ''}"
    if step.kernel == "chain":
        return f"chain {'+'.join(dict.fromkeys(one.op for one in step.code))} {shape}"
    return f"{step.kernel} {shape}"


def dtype_of(step: Step) -> str:
    """Of its contraction: f32, bf16 or i8."""
    if not step.kernel.startswith("matmul"):
        return "f32"
    name = step.operands[step.ints[0]].dtype.name
    return name if name in ("bf16", "i8") else "f32"


@dataclass(frozen=True, slots=True)
class Group:
    """Steps of one label together. share: of the roofline's least time for them."""

    label: str
    calls: int
    seconds: float
    work: Work
    share: float
    bound: str


def groups(found: Profile) -> list[Group]:
    """The slowest first."""
    members: dict[str, list[StepTime]] = {}
    for step in found.steps:
        members.setdefault(step.label, []).append(step)
    result = []
    for name, steps in members.items():
        limits = [found.roofline.limit(step.work, step.dtype) for step in steps]
        seconds = sum(step.seconds for step in steps)
        least = sum(limit.seconds for limit in limits)
        total = Work(*(sum(step.work[i] for step in steps) for i in range(3)))
        share = least / seconds if seconds else 0.0
        result.append(Group(name, len(steps), seconds, total, share, limits[0].bound))
    return sorted(result, key=lambda group: -group.seconds)


def document(found: Profile) -> dict[str, Any]:
    """As plain data."""
    return {
        "seconds": found.seconds,
        "waiting_seconds": found.waiting,
        "roofline": found.roofline.document(),
        "groups": [
            {
                "label": group.label,
                "calls": group.calls,
                "seconds": group.seconds,
                "flops": group.work.flops,
                "bytes": group.work.bytes,
                "share_of_roofline": group.share,
                "bound": group.bound,
            }
            for group in groups(found)
        ],
        "steps": [
            {"index": step.index, "label": step.label, "seconds": step.seconds} for step in found.steps
        ],
    }


def trace(found: Profile, names: Sequence[str] = ()) -> dict[str, Any]:
    """One run as trace events, which ui.perfetto.dev and chrome://tracing open; times in microseconds."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "tid": 0, "name": "process_name", "args": {"name": "volta"}}
    ]
    for thread, stamps in enumerate(found.stamps):
        events.append(
            {"ph": "M", "pid": 1, "tid": thread, "name": "thread_name", "args": {"name": f"thread {thread}"}}
        )
        for step, (begin, end) in zip(found.steps, stamps, strict=True):
            share = Work(*(count // len(found.stamps) for count in step.work))
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": thread,
                    "name": step.label,
                    "cat": step.kernel,
                    "ts": 1e6 * begin,
                    "dur": 1e6 * (end - begin),
                    "args": {
                        "step": step.index,
                        "node": names[step.index] if step.index < len(names) else "",
                        "GFLOP/s of its share": rate(share.flops, end - begin),
                        "GB/s of its share": rate(share.bytes, end - begin),
                    },
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def rate(amount: int, seconds: float) -> float:
    """In 10^9 per second; 0 where the clock saw no time pass."""
    return round(amount / seconds * 1e-9, 2) if seconds > 0 else 0.0
