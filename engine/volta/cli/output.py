"""What commands print: progress and tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from rich.console import Console
from rich.table import Table

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    """The one document that `--json` promises, on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, default=str) + "\n")
    sys.stdout.flush()


def print_rows(title: str, rows: Sequence[tuple[str, Any]]) -> None:
    """Two columns: what, and its value."""
    table = Table(title=title, title_justify="left", show_header=False, title_style="bold")
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(name, str(value))
    out.print(table)


def fail(error: BaseException, code: int, debug: bool) -> NoReturn:
    """One line on standard error, and the exit code."""
    if debug:
        traceback.print_exception(error)
    else:
        line = " ".join(str(error).split()) or type(error).__name__
        sys.stderr.write(f"volta: {line}\n")
    sys.exit(code)


def interrupted() -> NoReturn:
    """What a shell expects of a command that Ctrl-C ended."""
    sys.stderr.write("volta: interrupted\n")
    sys.stderr.flush()
    sys.exit(130)


def bytes_text(count: float) -> str:
    """1536 -> "1.5 KiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def resident_bytes() -> int:
    """The most physical memory this process has held."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def is_interactive() -> bool:
    return out.is_terminal and not os.environ.get("CI")
