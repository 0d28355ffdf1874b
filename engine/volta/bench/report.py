"""The result of a benchmark: one JSON schema for every suite (schema.json), and its tables.

All times are seconds; flops and bytes are those of one run; ratios say how many times longer a peer took
than Volta.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from volta.bench.machine import described
from volta.bench.statistics import LEAST_PAIRS, Ratio, geometric_mean
from volta.storage import atomic

SCHEMA = "volta-bench/1"


@dataclass(frozen=True, slots=True)
class Timing:
    """One side of one case. seconds: one sample per round, in order; check: what its output was compared
    with, and how it came out."""

    description: str
    seconds: tuple[float, ...]
    median: float
    low: float
    high: float
    check: str


@dataclass(frozen=True, slots=True)
class Measurement:
    """One case. limit: the least seconds by the measured roofline, 0 where there is none; bound: what sets
    it. figures: what else was found, by name."""

    name: str
    parameters: Mapping[str, Any]
    threads: int
    flops: int
    bytes: int
    sides: Mapping[str, Timing]
    ratios: Mapping[str, Ratio]
    limit: float = 0.0
    bound: str = ""
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def share(self) -> float | None:
        """Of the limit that Volta reaches."""
        return self.limit / self.sides["volta"].median if self.limit and "volta" in self.sides else None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that one run of a suite found."""

    suite: str
    command: str
    version: str
    machine: Mapping[str, Any]
    method: Mapping[str, Any]
    rooflines: tuple[Mapping[str, Any], ...]
    measurements: tuple[Measurement, ...]
    skipped: tuple[str, ...] = ()

    def summary(self) -> dict[str, dict[str, float]]:
        """Per peer the geometric mean, least and most of its ratios, over all cases that it has."""
        found: dict[str, dict[str, float]] = {}
        for peer in dict.fromkeys(name for one in self.measurements for name in one.ratios):
            ratios = [one.ratios[peer].median for one in self.measurements if peer in one.ratios]
            found[peer] = {
                "geometric_mean": geometric_mean(ratios),
                "least": min(ratios),
                "most": max(ratios),
                "cases": len(ratios),
            }
        return found

    def document(self) -> dict[str, Any]:
        return {"schema": SCHEMA, **asdict(self), "summary": self.summary()}


def write_json(report: Report, path: Path) -> None:
    """Atomically: a temporary name, fsync, rename."""
    write_text(path, json.dumps(report.document(), indent=1, allow_nan=False) + "\n")


def write_csv(report: Report, path: Path) -> None:
    write_text(path, comma_separated(report))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode())


def write_bytes(path: Path, content: bytes) -> None:
    """Raises CheckpointError, one line that says why; then the old file is as it was. What is no regular file
    (/dev/null, a pipe) is written to, not replaced."""
    if path.exists() and not path.is_file():
        path.write_bytes(content)
    else:
        atomic.write(path, (content,), len(content), "bench")


# --- tables ----------------------------------------------------------------------------------------


def rate(one: Measurement, seconds: float) -> str:
    """GFLOP/s of a contraction, GB/s of what only moves."""
    if one.flops > one.bytes:
        return f"{one.flops / seconds * 1e-9:.1f} GFLOP/s"
    return f"{one.bytes / seconds * 1e-9:.1f} GB/s" if one.bytes else "-"


def duration(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def counted(number: int, noun: str) -> str:
    """2, "case" -> "2 cases"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def shown_ratio(ratio: Ratio) -> str:
    return f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def header(report: Report) -> list[str]:
    peers = list(report.summary())
    columns = ["case", "threads", "Volta", "spread", "rate"]
    if any(one.limit for one in report.measurements):
        columns.append("of the limit")
    return [*columns, *(f"{peer} / Volta" for peer in peers)]


def rows(report: Report) -> Iterable[list[str]]:
    """One per case: Volta's median, spread, rate, share of its limit, and how many times longer each peer
    took, with the interval that holds the median."""
    peers, limited = list(report.summary()), any(one.limit for one in report.measurements)
    for one in report.measurements:
        volta = one.sides.get("volta")
        if volta is None:
            continue
        spread = f"{duration(volta.low)} to {duration(volta.high)}"
        row = [one.name, str(one.threads), duration(volta.median), spread, rate(one, volta.median)]
        if limited:
            row.append(f"{one.share:.0%} ({one.bound})" if one.share is not None else "-")
        yield [*row, *(shown_ratio(one.ratios[p]) if p in one.ratios else "-" for p in peers)]


def summary_lines(report: Report) -> list[str]:
    lines = [
        f"{peer} / Volta: geometric mean {found['geometric_mean']:.2f}, least {found['least']:.2f}, "
        f"most {found['most']:.2f} over {counted(int(found['cases']), 'case')}"
        for peer, found in report.summary().items()
    ]
    return [*lines, *(f"skipped: {line}" for line in report.skipped)]


def markdown(report: Report) -> str:
    """The table with its machine, command and summary."""
    titles = header(report)
    lines = [
        f"`{report.command}`  ",
        f"{described(dict(report.machine))}  ",
        f"rounds: {report.method.get('rounds', '?')}; ratios are medians of pairs measured in turn, with the "
        f"interval that holds the median with 95% confidence (less with fewer than {LEAST_PAIRS} pairs)",
        "",
        "| " + " | ".join(titles) + " |",
        "|" + "---|" * len(titles),
        *("| " + " | ".join(row) + " |" for row in rows(report)),
        "",
        *(f"- {line}" for line in summary_lines(report)),
    ]
    return "\n".join(lines) + "\n"


CSV_COLUMNS = (
    *("suite", "case", "threads", "side", "median_seconds", "low_seconds", "high_seconds", "samples"),
    *("flops", "bytes", "limit_seconds", "bound", "ratio", "ratio_low", "ratio_high", "check"),
)


def comma_separated(report: Report) -> str:
    """One line per side and case, every figure a number."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for one in report.measurements:
        for name, timing in one.sides.items():
            ratio = one.ratios.get(name)
            found = [ratio.median, ratio.low, ratio.high] if ratio else ["", "", ""]
            numbers = [timing.median, timing.low, timing.high, len(timing.seconds)]
            work: Sequence[object] = [one.flops, one.bytes, one.limit or "", one.bound]
            writer.writerow(
                [report.suite, one.name, one.threads, name, *numbers, *work, *found, timing.check]
            )
    return out.getvalue()
