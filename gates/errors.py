"""What can be wrong with a question, as opposed to an answer: one line each."""

from __future__ import annotations


class GateError(Exception):
    """The question cannot be judged: what was given and what was expected, in one line."""
