"""volta info: what a checkpoint is."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from volta.cli import output
from volta.train.checkpoint import info

NAME = "info"


def command(
    run: Annotated[Path, typer.Argument(help="A run directory or a checkpoint file")],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON")] = False,
) -> None:
    """Show a checkpoint's configuration, step, parameters and hashes, without reading its tensors."""
    found = info(run)
    if json:
        output.print_json(found)
        return
    config = " ".join(f"{name}={value}" for name, value in found["config"].items())
    output.print_rows(
        str(found["path"]),
        [
            ("format version", found["version"]),
            ("written by", found["writer"]),
            ("step", found["step"]),
            ("parameters", f"{found['parameters']:,} ({', '.join(found['dtypes'])})"),
            ("size", output.bytes_text(found["bytes"])),
            ("config", config),
            ("sha256 of the weights", found["weights_sha256"]),
            ("sha256 of the text", found["data"].get("text_sha256", "-")),
            ("training graph", found["graph"]),
        ],
    )
