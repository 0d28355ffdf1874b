"""The command line: one module per command. `volta` and `python -m volta` are the same."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TextIO

import typer

from volta import __version__
from volta.cli import bench, doctor, generate, info, plan, profile, quickstart, train, tune
from volta.cli.output import reporting
from volta.errors import UsageError

app = typer.Typer(
    name="volta",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"volta {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error. May stand anywhere."),
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_version, help="Show the version."
    ),
) -> None:
    """Train and run small transformers whose every result is defined bit for bit."""


def _warned(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning is for the user: one line, without the place in the code."""
    typer.echo(f"volta: {message}", err=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit code 0; 2 for usage, 1 for a failure, 130 for Ctrl-C: one clear line each, no traceback
    without --debug."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    warnings.showwarning = _warned
    reporting.debug = "--debug" in given
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a sign shows another
    arguments = [argument for argument in given if argument != "--debug"] or ["--help"]
    try:
        code = app(arguments, standalone_mode=False)
    except Exception as error:
        say = getattr(error, "format_message", None)  # of click's usage errors, which typer carries inside
        if say is None:
            raise
        reporting.fail(UsageError(f"{say()} (--help shows what there is)"), 2)
    sys.exit(code if isinstance(code, int) else 0)


for module in (train, generate, info, plan, profile, doctor, quickstart):
    app.command(module.NAME)(reporting(module.command))
for group in (bench, tune):
    commands = typer.Typer(no_args_is_help=True, help=group.HELP)
    for name, command in group.COMMANDS.items():
        commands.command(name)(reporting(command))
    app.add_typer(commands, name=group.NAME)
