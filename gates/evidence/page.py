"""The report of a run: one HTML file that needs nothing else, with the timing samples drawn."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from gates.evidence.record import Record

MOST_FINDINGS = 500  # of one gate, on the page; the record has them all
MOST_LOG = 20_000  # characters of a log's end
WIDTH, ROW, LEFT, PAD = 720, 22, 220, 8  # of a plot, in pixels


def page(records: Sequence[Record], title: str, facts: Mapping[str, Any]) -> str:
    """The HTML text. Everything that comes from a change is escaped: it is not trusted."""
    environment = Environment(
        loader=PackageLoader("gates.evidence"),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    gates = [
        {
            "record": record,
            "outcome": record.outcome,
            "findings": list(record.outcome.findings)[:MOST_FINDINGS],
            "left_out": max(0, len(record.outcome.findings) - MOST_FINDINGS),
            "plot": strips(record.outcome.samples),
            "log": log_end(Path(record.log)) if record.log else "",
        }
        for record in records
    ]
    return environment.get_template("report.html").render(
        gates=gates, title=title, facts=facts, plot_width=WIDTH, left=LEFT, row=ROW
    )


def log_end(path: Path) -> str:
    try:
        return path.read_text(errors="replace")[-MOST_LOG:]
    except OSError:
        return ""


def strips(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    """A row of points per name on one scale, and a stroke at each median: positions in pixels."""
    named = {name: sorted(values) for name, values in samples.items() if values}
    if not named:
        return {}
    low = min(values[0] for values in named.values())
    high = max(values[-1] for values in named.values())
    span = (high - low) or abs(high) or 1.0

    def x(value: float) -> float:
        return round(LEFT + PAD + (value - low) / span * (WIDTH - LEFT - 2 * PAD), 1)

    rows = [
        {
            "name": name,
            "y": ROW * index + ROW // 2,
            "points": [x(value) for value in values],
            "median": x(values[len(values) // 2]),
            "shown": f"{values[len(values) // 2]:.4g}",
        }
        for index, (name, values) in enumerate(named.items())
    ]
    return {"rows": rows, "height": ROW * len(rows), "low": f"{low:.4g}", "high": f"{high:.4g}"}


def write(path: Path, text: str) -> None:
    """To a temporary name, synced, renamed."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
