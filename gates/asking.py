"""Questions to a fresh process that holds the engine under judgement, one JSON in, one JSON out."""

from __future__ import annotations

import json
from typing import Any

from gates.context import Context
from gates.errors import GateError
from gates.trees.checkout import Checkout

Answer = dict[str, Any]


def ask(context: Context, module: str, engine: Checkout, request: Answer, **env: str) -> Answer:
    """The answer's last line. Raises GateError with what the process said instead."""
    done = context.worker(module, engine, json.dumps(request), **env)
    try:
        answer = json.loads(done.output.splitlines()[-1])
    except (ValueError, IndexError):
        answer = None
    if done.code or not isinstance(answer, dict):
        said = done.tail(1) or "nothing printed"
        raise GateError(f"[{module.rpartition('.')[2]}] {engine.tree.short}: exit code {done.code}: {said}")
    return answer


def run(context: Context, engine: Checkout, task: str, setting: Answer | None = None, **more: Any) -> Answer:
    """A task of gates.runs_worker."""
    env = more.pop("env", {})
    return ask(context, "gates.runs_worker", engine, {"task": task, "setting": setting or {}, **more}, **env)
