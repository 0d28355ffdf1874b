"""What can be wrong with a question: one line each."""

from __future__ import annotations


class TaskError(Exception):
    """What was asked cannot be done: what was given and what was expected, in one line."""
