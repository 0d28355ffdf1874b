"""The progress line of long work: loss, tokens per second, time left."""

from __future__ import annotations

import sys
import time
from collections import deque
from types import TracebackType

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from volta.cli.output import err
from volta.train.loop import Report


class TrainingProgress:
    """A live bar on a terminal; elsewhere a plain line now and then, all on standard error."""

    def __init__(self, start: int, total: int, quiet: bool = False) -> None:
        self.speed: deque[tuple[float, int]] = deque(maxlen=50)
        self._quiet = quiet
        self._validation: float | None = None
        self._live = None
        self._next_line = time.monotonic()
        if err.is_terminal and not quiet:
            self._live = Progress(
                TextColumn("step {task.completed}/{task.total}"),
                BarColumn(bar_width=24),
                TextColumn("loss {task.fields[loss]}  {task.fields[speed]} tokens/s"),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=err,
                transient=False,
            )
            self._task = self._live.add_task("train", total=total, completed=start, loss="-", speed="-")

    def __enter__(self) -> TrainingProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def update(self, report: Report) -> None:
        self.speed.append((report.seconds, report.tokens))
        if self._quiet:
            return
        if report.validation is not None:
            self._validation = report.validation
        loss = f"{report.loss:.4f}" + (
            f" (validation {self._validation:.4f})" if self._validation is not None else ""
        )
        if self._live is not None:
            self._live.update(
                self._task, completed=report.step, loss=loss, speed=f"{self.tokens_per_second:,.0f}"
            )
            return
        now = time.monotonic()
        if now >= self._next_line or report.step == report.steps:
            self._next_line = now + 5
            left = (report.steps - report.step) * sum(s for s, _ in self.speed) / len(self.speed)
            sys.stderr.write(
                f"step {report.step}/{report.steps}  loss {loss}  {self.tokens_per_second:,.0f} tokens/s  "
                f"{left:.0f} s left\n"
            )
            sys.stderr.flush()

    @property
    def tokens_per_second(self) -> float:
        seconds = sum(s for s, _ in self.speed)
        return sum(n for _, n in self.speed) / seconds if seconds else 0.0
