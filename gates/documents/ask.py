"""What there is to name, as JSON: run by surface.py as text, in a process of the tree that is judged, so it
imports nothing of the judge.

{"volta": COMMAND, "modules": {name: COMMAND}, "public": names of `import volta`}, where a COMMAND is
{"options": {"--name": whether it takes a value}, "most": positional arguments, -1 for any number,
"least": of these, "commands": {name: COMMAND}}.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from typing import Any

import typer
import typer.main

MODULES = ("gates", "tasks")  # with a command of their own: `python -m NAME`


def command_tree(command: Any) -> dict[str, Any]:
    """Of a click command, whichever copy of click typer uses."""
    options: dict[str, bool] = {}
    most = least = 0
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            least += bool(parameter.required)
            most = -1 if most < 0 or parameter.nargs < 0 else most + parameter.nargs
        else:
            takes = not (parameter.is_flag or parameter.count)
            options |= dict.fromkeys((*parameter.opts, *parameter.secondary_opts), takes)
    options |= dict.fromkeys(command.context_settings.get("help_option_names", ("--help",)), False)
    below = {name: command_tree(one) for name, one in getattr(command, "commands", {}).items()}
    return {"options": options, "most": most, "least": least, "commands": below}


def tree_of(module: str) -> dict[str, Any] | None:
    """Of the typer app that a module calls `app`."""
    package = module.partition(".")[0]
    if importlib.util.find_spec(package) is None or importlib.util.find_spec(module) is None:
        return None
    app = importlib.import_module(module).app
    assert isinstance(app, typer.Typer)
    return command_tree(typer.main.get_command(app))


def main() -> None:
    public = [name for name in dir(importlib.import_module("volta")) if not name.startswith("_")]
    modules = {name: tree for name in MODULES if (tree := tree_of(f"{name}.__main__"))}
    answer = {"volta": tree_of("volta.cli"), "modules": modules, "public": public}
    sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
