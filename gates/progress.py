"""What goes on, for whoever waits for it."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape

SILENCE_S = 60.0  # between lines about a gate that runs, where no terminal shows a live one


class Progress:
    """One live line on a terminal; elsewhere a line where a gate or task begins, and one now and then."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status = console.status("starting") if console.is_terminal else None
        self._said: dict[str, float] = {}  # of a gate or task: when it was last shown

    def __enter__(self) -> Progress:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def __call__(self, line: str) -> None:
        if self._status is not None:
            self._status.update(escape(line))
            return
        name, now = line.partition(":")[0].partition(",")[0], time.monotonic()
        if now - self._said.get(name, -SILENCE_S) >= SILENCE_S:
            self._said[name] = now
            self._console.print(line, style="dim", markup=False, soft_wrap=True)
