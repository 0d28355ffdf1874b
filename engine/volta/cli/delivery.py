"""What every benchmark does with its result: write it, print it, judge it by an earlier one."""

from __future__ import annotations

import os
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from volta.bench import compare, plot, reading, report
from volta.bench.machine import described, machine
from volta.bench.report import Report
from volta.cli import output
from volta.errors import UsageError, VoltaError

STDOUT = Path("-")
WIDE = 400  # columns
FAILING = ("slower", "too few samples", "missing")  # what --fail-on-regression does not let pass


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where a result goes and what it is judged by. base: the baseline; fail: whether to exit 1 for it."""

    json: Path | None
    csv: Path | None
    markdown: bool
    plot: Path | None
    save: Path | None
    base: Report | None
    fail: bool

    @property
    def prints_table(self) -> bool:
        return not self.markdown and STDOUT not in (self.json, self.csv)


def settled(
    suite: str,
    json: Path | None,
    csv: Path | None,
    markdown: bool,
    plot_to: Path | None,
    save: Path | None,
    compare_to: Path | None,
    fail: bool,
) -> Delivery:
    """Refuses, before anything is measured, what could not be written or judged after it."""
    if fail and compare_to is None:
        raise UsageError("[bench] --fail-on-regression needs a baseline: give it with --compare")
    if (json == STDOUT) + (csv == STDOUT) + markdown > 1:
        raise UsageError("[bench] --json -, --csv - and --markdown all print: expected one of them")
    if plot_to is not None:
        plot.check(plot_to)
    files = [
        (name, path)
        for name, path in (("--json", json), ("--csv", csv), ("--plot", plot_to), ("--save", save))
        if path is not None and (path != STDOUT or name == "--save")
    ]
    for index, (name, path) in enumerate(files):
        same = [other for other, earlier in files[:index] if earlier.resolve() == path.resolve()]
        if path == STDOUT or same:
            what = f", like {same[0]}" if same else ""
            raise UsageError(f"[bench] {name} is {path}{what}: expected the name of a file of its own")
        check_writable(path)
    base = reading.read_json(compare_to) if compare_to is not None else None
    if base is not None:
        if base.suite != suite or not base.measurements:
            raise reading.ReportError(
                f"[bench] {compare_to} holds {len(base.measurements)} measurements of {base.suite}: "
                f"expected some of {suite}"
            )
        why = compare.foreign(base, machine())
        if fail and why is not None:
            raise VoltaError(f"[bench] {compare_to} cannot be a baseline here: {why}")
    return Delivery(json, csv, markdown, plot_to, save, base, fail)


def check_writable(path: Path) -> None:
    why = None
    if path.is_dir():
        why = "it is a directory"
    elif not path.parent.is_dir():
        why = f"{path.parent} is no directory"
    elif not os.access(path if path.exists() else path.parent, os.W_OK):
        why = "permission denied"
    if why is not None:
        raise VoltaError(f"[bench] {path} cannot be written: {why}")


def deliver(found: Report, to: Delivery) -> None:
    """Writes what was asked for, prints the table, and judges it by the baseline. What is saved is saved
    last: a result that fails does not become the baseline that it failed by."""
    if to.json not in (None, STDOUT):
        report.write_json(found, to.json)
    if to.csv not in (None, STDOUT):
        report.write_csv(found, to.csv)
    if to.plot is not None:
        plot.draw(found, to.plot)
    if to.json == STDOUT:
        output.print_json(found.document())
    elif to.csv == STDOUT:
        sys.stdout.write(report.comma_separated(found))
    elif to.markdown:
        sys.stdout.write(report.markdown(found))
    else:
        show(found)
    if to.base is not None:
        judge(to.base, found, to.fail, output.out if to.prints_table else output.err)
    if to.save is not None:
        report.write_json(found, to.save)


def show(found: Report) -> None:
    output.out.print(described(dict(found.machine)), markup=False, style="dim")
    table = Table()
    for index, title in enumerate(report.header(found)):
        table.add_column(title, justify="left" if index == 0 else "right", overflow="fold")
    for row in report.rows(found):
        table.add_row(*map(escape, row))
    print_table(table)
    for line in report.summary_lines(found):
        output.out.print(line, markup=False)
    checks = dict.fromkeys(one.sides["volta"].check for one in found.measurements)
    if len(checks) <= 2:
        for line in checks:
            output.out.print(f"checked: {line}", markup=False, style="dim")
    else:
        output.out.print(f"checked: all {len(found.measurements)} cases, Volta's bits too", style="dim")


def judge(base: Report, found: Report, fail: bool, console: Console) -> None:
    """Says what changed. Raises VoltaError where a failure was asked for and a case is slower, cannot be
    judged, or is missing."""
    why = compare.foreign(base, found.machine)
    if why is not None:
        console.print(f"not compared: {why}", markup=False, style="yellow")
        return
    verdicts: Counter[str] = Counter()
    for change in compare.changes(base, found):
        through = "by time" if change.through == "time" else f"beside {change.through}"
        ratio = f"{change.low:.2f} to {change.high:.2f} times as long, {through}"
        threads = report.counted(change.threads, "thread")
        console.print(f"{change.verdict}: {change.name}, {threads}: {ratio}", markup=False)
        verdicts[change.verdict] += 1
    for name in compare.missing(base, found):
        console.print(f"missing: {name} is in the baseline, not in this result", markup=False)
        verdicts["missing"] += 1
    wrong = [f"{verdicts[verdict]} {verdict}" for verdict in FAILING if verdicts[verdict]]
    if fail and wrong:
        raise VoltaError(f"[bench] cases against the baseline: {', '.join(wrong)}")


def print_table(table: Table) -> None:
    """A terminal folds cells into its width; a file or a pipe gets whole lines."""
    console = output.out if output.out.is_terminal else Console(width=WIDE, highlight=False)
    console.print(table)
