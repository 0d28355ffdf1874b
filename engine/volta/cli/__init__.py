"""The command line: one module per command. `volta` and `python -m volta` are the same."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import typer
from click.exceptions import ClickException, Exit

from volta.cli import doctor, generate, info, plan, quickstart, train
from volta.cli.output import fail, interrupted
from volta.errors import UsageError, VoltaError

app = typer.Typer(
    name="volta",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (train, generate, info, plan, doctor, quickstart):
    app.command(module.NAME)(module.command)


@app.callback(help="Train and run small transformers whose every result is defined bit for bit.")
def _options(
    debug: bool = typer.Option(False, "--debug", help="Show the traceback of an error. May stand anywhere."),
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if version:
        from volta import __version__

        typer.echo(f"volta {__version__}")
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Exit code 0; 2 for usage, 1 for a failure, 130 for Ctrl-C: one clear line each, no traceback
    without --debug."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [argument for argument in given if argument != "--debug"]
    given = given or ["--help"]
    if given == ["--version"]:
        given = ["--version", "info"]
    try:
        sys.exit(app(given, standalone_mode=False) or 0)
    except UsageError as error:
        fail(error, 2, debug)
    except (VoltaError, OSError, MemoryError) as error:
        fail(error, 1, debug)
    except ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except Exit as stop:
        sys.exit(stop.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        interrupted()
