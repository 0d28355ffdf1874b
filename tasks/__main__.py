"""`python -m tasks`: see what is to be done, let agents do it, land what the gates prove."""

from __future__ import annotations

from tasks.commands import look, work, write
from tasks.commands.desk import app

__all__ = ["app", "look", "work", "write"]  # importing them registers their commands

if __name__ == "__main__":
    app(prog_name="tasks")
