"""Where a program's time goes: per step and per kernel, beside what the machine could do at most.

Nothing is added to the program: each thread stamps when it begins and ends a step. A step's time is what
its threads were busy, on average; what is left of the run is waiting at barriers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from volta.bench.roofline import Roofline
from volta.ir.cost import Work
from volta.ir.ops import work_of
from volta.plan.steps import Plan, Step

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
    """seconds: of a whole run; waiting: what threads spent at barriers, on average; stamps: of one run."""

    steps: tuple[StepTime, ...]
    seconds: float
    waiting: float
    stamps: Stamps
    roofline: Roofline


def profile(plan: Plan, run_traced: Callable[[], Stamps], ceiling: Roofline, runs: int = 11) -> Profile:
    """Runs `runs` times after one that warms up."""
    run_traced()
    taken = [run_traced() for _ in range(runs)]
    busy = np.median([np.mean(stamps[..., 1] - stamps[..., 0], axis=0) for stamps in taken], axis=0)
    seconds = float(np.median([stamps[..., 1].max(initial=0.0) for stamps in taken]))
    counted = works(plan)
    steps = tuple(
        StepTime(index, step.kernel, label(step), float(time), work, dtype_of(step))
        for index, (step, time, work) in enumerate(zip(plan.steps, busy, counted, strict=True))
    )
    middle = taken[len(taken) // 2]
    return Profile(steps, seconds, max(0.0, seconds - float(busy.sum())), middle, ceiling)


def works(plan: Plan) -> list[Work]:
    """Operations and bytes of each step. A node that became several steps gives its operations to the last,
    which runs its kernel; the others move what their operands hold."""
    last = {step.node: index for index, step in enumerate(plan.steps)}
    found = []
    for index, step in enumerate(plan.steps):
        moved = sum(view.numel * view.dtype.itemsize for view in step.operands)
        work = work_of(step.node)
        found.append(
            Work(work.contraction, work.steps, moved) if last[step.node] == index else Work(0, 0, moved)
        )
    return found


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
            seconds = max(end - begin, 1e-12)
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
                        "GFLOP/s of its share": round(
                            step.work.flops / len(found.stamps) / seconds * 1e-9, 2
                        ),
                        "GB/s of its share": round(step.work.bytes / len(found.stamps) / seconds * 1e-9, 2),
                    },
                }
            )
    return {"traceEvents": events, "displayTimeUnit": "ms"}
