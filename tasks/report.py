"""The queue and its evidence as one HTML file that needs nothing else: no script, no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from itertools import pairwise, zip_longest
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from tasks.evidence.ledger import FIRST, Record
from tasks.evidence.state import CLAIMED, ENDED, JUDGED, WORKED, State, Status, by_name
from tasks.files import Entry
from tasks.show import budget, told
from tasks.verdict import Verdict

MOST_FINDINGS = 50  # of one record, on the page; the ledger has more of them
# Verdicts by what they mean for who looks at a picture; the colours are the template's.
KINDS = {
    "landed": (Verdict.LANDED, Verdict.PROVED),
    "passed": (Verdict.PASSED,),
    "rejected": (
        Verdict.NO_CHANGE, Verdict.REJECTED_SCOPE, Verdict.REJECTED_GATES, Verdict.REJECTED_EXPECTATION,
        Verdict.REWROTE_HISTORY, Verdict.COMMITTED_ELSEWHERE, Verdict.CONFLICT_MARKERS,
    ),
    "failed": (
        Verdict.AGENT_FAILED, Verdict.AGENT_MISSING, Verdict.TIMED_OUT, Verdict.IDLE, Verdict.FLOODED,
        Verdict.DISK_FULL,
    ),
    "off": (
        Verdict.CONFLICT, Verdict.RATE_LIMITED, Verdict.STOPPED, Verdict.INTERRUPTED, Verdict.OVER_BUDGET,
    ),
}  # fmt: skip
KIND = {verdict: kind for kind, verdicts in KINDS.items() for verdict in verdicts}
OPEN = "open"  # of an attempt that has not ended
LEGEND = {
    "landed": "landed or proved", "passed": "passed", "rejected": "rejected", "failed": "the agent failed",
    "off": "put off", OPEN: "not ended",
}  # fmt: skip

# In pixels.
NODE, SMALL_NODE = (176, 40), (70, 24)  # with the title; where there are many tasks without
TITLED, TITLE = 60, 24  # so many tasks have titles in the picture, of so many characters
COLUMN, GAP_X, GAP_Y, MARGIN = 24, 40, 10, 8  # COLUMN: tasks above each other, beyond that beside each other
WIDTH, LEFT, LINE, BAR, BREAK, LABEL = 960, 70, 18, 12, 14, 118
MOST_BREAKS = 10


@dataclass(frozen=True, slots=True)
class Try:
    """An attempt. seconds: from the claim to its end. end: of one that has not ended, the last that is known
    of it. verdict: the last one; what passed may have landed later."""

    number: int
    agent: str
    begin: datetime
    end: datetime
    verdict: Verdict | None

    @property
    def seconds(self) -> float:
        return (self.end - self.begin).total_seconds()

    @property
    def kind(self) -> str:
        return KIND[self.verdict] if self.verdict else OPEN

    def __str__(self) -> str:
        how = self.verdict.value if self.verdict else "not ended"
        return f"attempt {self.number} by {self.agent}: {how}, {lasted(self.seconds)}"


def page(
    entries: Mapping[str, Entry],
    statuses: Mapping[str, Status],
    records: Sequence[Record],
    facts: Mapping[str, str],
) -> str:
    """The HTML text. facts: lines for the top. All that is shown is escaped: agents wrote much of it."""
    environment = Environment(
        loader=PackageLoader("tasks"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["lasted"] = lasted
    own = by_name(entries, records)
    last = moment(records[-1]) if records else None
    tries = {
        name: attempts(own[name], last if statuses[name].state is State.RUNNING else None) for name in entries
    }
    others = Counter(one.task for one in records if one.task not in entries)
    return environment.get_template("report.html").render(
        facts=facts,
        tasks=[task(entries[name], statuses[name], own[name], tries[name]) for name in entries],
        totals=totals(statuses, [one for name in entries for one in own[name]], tries),
        picture=picture(entries, statuses),
        timeline=timeline(tries),
        legend=LEGEND,
        states=[state.value for state in State],
        others=others,
        head=records[-1].digest if records else FIRST,
        count=len(records),
        until=records[-1].time if records else "",
    )


def lasted(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def moment(record: Record) -> datetime:
    return datetime.fromisoformat(record.time)


# --- in words and figures --------------------------------------------------------------------------------


def attempts(own: Sequence[Record], now: datetime | None = None) -> list[Try]:
    """Of one task. now: where somebody works on the last one still."""
    found: list[Try] = []
    for index, begun in enumerate(own):
        if begun.kind != CLAIMED:
            continue
        number = begun.data["attempt"]
        mine = [one for one in own[index:] if one.data.get("attempt") == number]
        ends = [one for one in mine if one.kind == ENDED]
        open_until = now if now and index == last_claim(own) else moment(mine[-1])
        verdict = Verdict[ends[-1].data["verdict"]] if ends else None
        end = moment(ends[0]) if ends else open_until
        found.append(Try(number, str(begun.data["agent"]), moment(begun), max(moment(begun), end), verdict))
    return found


def last_claim(own: Sequence[Record]) -> int:
    return max(index for index, one in enumerate(own) if one.kind == CLAIMED)


def spent(own: Sequence[Record], name: str) -> float | None:
    """tokens or usd, as agents report them; None where none does."""
    given = [one.data[name] for one in own if one.kind == WORKED and one.data.get(name) is not None]
    return sum(given) if given else None


def totals(
    statuses: Mapping[str, Status], own: Sequence[Record], tries: Mapping[str, Sequence[Try]]
) -> dict[str, Any]:
    every = [one for mine in tries.values() for one in mine]
    judged = [one.data for one in own if one.kind == JUDGED]
    states = Counter(one.state for one in statuses.values())
    verdicts = Counter(one.verdict for one in every if one.verdict)
    return {
        "states": {state.value: states[state] for state in State if states[state]},
        "verdicts": {verdict: verdicts[verdict] for verdict in Verdict if verdicts[verdict]},
        "open": sum(one.verdict is None for one in every),
        "kinds": {verdict: KIND[verdict] for verdict in Verdict},
        "attempts": len(every),
        "wall": sum(one.seconds for one in every),
        "agents": sum(one.data.get("seconds") or 0.0 for one in own if one.kind == WORKED),
        "gates": sum(gate["seconds"] for one in judged for gate in one.get("gates", ())),
        "commands": sum(command["seconds"] for one in judged for command in one.get("commands", ())),
        "tokens": spent(own, "tokens"),
        "usd": spent(own, "usd"),
        "silent": sum(one.kind == WORKED and one.data.get("usd") is None for one in own),
    }


def task(entry: Entry, status: Status, own: Sequence[Record], tries: Sequence[Try]) -> dict[str, Any]:
    judged = next((one for one in reversed(own) if one.kind == JUDGED), None)
    said = {
        (one["says"], one["by"]): one["passed"]
        for one in (judged.data.get("acceptance", ()) if judged else ())
    }
    return {
        "entry": entry,
        "task": entry.task,
        "status": status,
        "budget": budget(entry),
        "tries": tries,
        "ended": tries[-1].verdict if tries else None,
        "kind": tries[-1].kind if tries else "",
        "seconds": sum(one.seconds for one in tries),
        "tokens": spent(own, "tokens"),
        "usd": spent(own, "usd"),
        "acceptance": [(one, said.get((one.says, one.by))) for one in entry.task.acceptance],
        "records": [shown(one, after) for one, after in zip_longest(own, own[1:])],
    }


def shown(record: Record, after: Record | None) -> dict[str, Any]:
    """A record in words. Its findings are left to the next one where that has the same."""
    findings = list(record.data.get("findings") or ())
    if after is not None and findings and list(after.data.get("findings") or ()) == findings:
        findings = []
    return {
        "record": record,
        "told": told(record),
        "findings": findings[:MOST_FINDINGS],
        "left_out": max(0, len(findings) - MOST_FINDINGS),
        "gates": record.data.get("gates", ()),
        "commands": record.data.get("commands", ()),
        "acceptance": record.data.get("acceptance", ()),
    }


# --- what waits for what ---------------------------------------------------------------------------------


def picture(entries: Mapping[str, Entry], statuses: Mapping[str, Status]) -> dict[str, Any]:
    """Each task right of all that it depends on, near their height; positions in pixels."""
    titled = len(entries) <= TITLED
    width, height = NODE if titled else SMALL_NODE
    places: dict[str, tuple[int, float]] = {}
    x, lowest = MARGIN, 0.0
    for layer in layers(entries):
        near = {name: mean([places[one][1] for one in entries[name].task.depends_on]) for name in layer}
        ordered = sorted(layer, key=lambda name: near[name])
        for start in range(0, len(ordered), COLUMN):
            for row, name in enumerate(ordered[start : start + COLUMN]):
                places[name] = (x, MARGIN + row * (height + GAP_Y))
                lowest = max(lowest, places[name][1] + height)
            x += width + GAP_Y
        x += GAP_X - GAP_Y
    edges = [
        curve(
            places[other][0] + width,
            places[other][1] + height / 2,
            places[name][0],
            places[name][1] + height / 2,
        )
        for name, entry in entries.items()
        for other in entry.task.depends_on
    ]
    nodes = [
        {
            "name": name, "x": at, "y": y, "state": statuses[name].state.value,
            "whole": entries[name].task.title, "title": cut(entries[name].task.title) if titled else "",
        }
        for name, (at, y) in places.items()
    ]  # fmt: skip
    size = {
        "node_width": width,
        "node_height": height,
        "width": x - GAP_X + MARGIN,
        "height": lowest + MARGIN,
    }
    return {"nodes": nodes, "edges": edges, **size}


def layers(entries: Mapping[str, Entry]) -> list[list[str]]:
    """By the longest way to a task that depends on none."""
    depth: dict[str, int] = {}
    for name in TopologicalSorter(
        {name: one.task.depends_on for name, one in entries.items()}
    ).static_order():
        depth[name] = max((depth[one] + 1 for one in entries[name].task.depends_on), default=0)
    found: list[list[str]] = [[] for _ in range(max(depth.values(), default=-1) + 1)]
    for name in entries:
        found[depth[name]].append(name)
    return found


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def curve(x1: float, y1: float, x2: float, y2: float) -> str:
    middle = (x1 + x2) / 2
    return f"M{x1:g},{y1:g} C{middle:g},{y1:g} {middle:g},{y2:g} {x2:g},{y2:g}"


def cut(text: str) -> str:
    return text if len(text) <= TITLE else f"{text[: TITLE - 1].rstrip()}…"


# --- when it happened ------------------------------------------------------------------------------------


def timeline(tries: Mapping[str, Sequence[Try]]) -> dict[str, Any]:
    """A line for each task that was tried, by its first attempt. Long times without any work are cut out."""
    tried = sorted((name for name in tries if tries[name]), key=lambda name: tries[name][0].begin)
    spans = stretches([(one.begin.timestamp(), one.end.timestamp()) for name in tried for one in tries[name]])
    x = scale(spans)
    rows = []
    for row, name in enumerate(tried):
        bars = [
            {
                "x": (begin := x(one.begin.timestamp())), "kind": one.kind, "told": str(one),
                "width": round(max(2.0, x(one.end.timestamp()) - begin), 1),
            }
            for one in tries[name]
        ]  # fmt: skip
        rows.append({"name": name, "y": LINE * row, "bars": bars})
    labels: list[dict[str, Any]] = []
    for begin, _ in spans:
        if not labels or x(begin) - labels[-1]["x"] >= LABEL:
            labels.append({"x": x(begin), "text": datetime.fromtimestamp(begin, UTC).strftime("%m-%d %H:%M")})
    breaks = [round(x(after[0]) - BREAK / 2, 1) for _, after in pairwise(spans)]
    return {
        "rows": rows, "labels": labels, "breaks": breaks, "height": LINE * len(rows), "width": WIDTH,
        "left": LEFT, "bar": BAR, "line": LINE,
    }  # fmt: skip


def stretches(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Times in which somebody worked, with all but the longest pauses between."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    busy = sum(end - begin for begin, end in merged)
    pauses = sorted((after[0] - before[1] for before, after in pairwise(merged)), reverse=True)
    least = max(60.0, busy / 10, *pauses[MOST_BREAKS : MOST_BREAKS + 1])
    found: list[tuple[float, float]] = []
    for begin, end in merged:
        if found and begin - found[-1][1] <= least:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def scale(spans: Sequence[tuple[float, float]]) -> Callable[[float], float]:
    """From seconds to pixels."""
    room = WIDTH - LEFT - MARGIN - BREAK * max(0, len(spans) - 1)
    per_second = room / (sum(end - begin for begin, end in spans) or 1.0)

    def x(time: float) -> float:
        at = float(LEFT)
        for begin, end in spans:
            if time <= end:
                return round(at + max(0.0, time - begin) * per_second, 1)
            at += (end - begin) * per_second + BREAK
        return round(at - BREAK, 1)

    return x
