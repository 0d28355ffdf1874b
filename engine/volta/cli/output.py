"""What commands print: progress and tables for people, one JSON document for programs."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import pairwise
from typing import Any, NoReturn

import typer
from rich.console import Console

from volta.errors import UsageError, VoltaError

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    """The one document that `--json` promises, on standard output."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, default=str) + "\n")
    sys.stdout.flush()


def print_rows(title: str, rows: Sequence[tuple[str, Any]]) -> None:
    """One line each: what, and its value, never broken, so that hashes can be copied whole."""
    out.print(title, style="bold", markup=False)
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        out.print(f"  [dim]{name:<{width}}[/]  ", end="")
        out.print(str(value), markup=False)


def thinned(values: Sequence[float], most: int = 200) -> list[float]:
    """At most `most` of the values, evenly spaced, first and last among them."""
    if len(values) <= most:
        return list(values)
    return [values[i * (len(values) - 1) // (most - 1)] for i in range(most)]


def sparkline(values: Sequence[float], width: int = 48) -> str:
    """A curve in one line of text: the mean of each of `width` stretches, lowest to highest."""
    count = min(width, len(values))
    bounds = [len(values) * i // count for i in range(count + 1)] if count else []
    means = [sum(values[a:b]) / (b - a) for a, b in pairwise(bounds)]
    low, high = min(means, default=0.0), max(means, default=0.0)
    scale = 7 / (high - low) if high > low else 0.0
    return "".join("▁▂▃▄▅▆▇█"[round((mean - low) * scale)] for mean in means)


class Reporting:
    """Wraps commands so that a failure is one line on standard error and an exit code."""

    debug = False

    def __call__(self, command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def wrapped(*args: Any, **options: Any) -> None:
            try:
                command(*args, **options)
            except UsageError as error:
                self.fail(error, 2)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has left
                sys.exit(1)
            except (VoltaError, OSError, MemoryError) as error:
                self.fail(error, 1)
            except Exception as error:
                if isinstance(error, typer.Exit | typer.Abort) or hasattr(error, "exit_code"):
                    raise
                self.fail(
                    VoltaError(f"unexpected {type(error).__name__}: {error} (--debug shows where)"), 1, error
                )
            except KeyboardInterrupt:
                sys.stderr.write("volta: interrupted\n")
                sys.exit(130)  # what a shell expects after Ctrl-C

        return wrapped

    def fail(self, error: BaseException, code: int, cause: BaseException | None = None) -> NoReturn:
        if self.debug:
            traceback.print_exception(cause or error)
        else:
            line = " ".join(str(error).split()) or type(error).__name__
            sys.stderr.write(f"volta: {line}\n")
        sys.exit(code)


reporting = Reporting()


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
