"""Tells others when the queue has ended or a task is blocked: one POST of JSON to an address of theirs."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from urllib.parse import urlsplit

VARIABLE = "VOLTA_TASKS_WEBHOOK"  # addresses; each may hold a secret, so none is ever shown
LIMIT_S = 10.0


def tell(event: str, facts: Mapping[str, object]) -> list[str]:
    """event: `ended` or `blocked`. Gives a line for each address, by its place, that was not told."""
    wrong = []
    text = json.dumps({"event": event, **facts}).encode()
    for place, address in enumerate(os.environ.get(VARIABLE, "").split(), 1):
        scheme = urlsplit(address).scheme
        if scheme not in ("https", "http"):
            wrong.append(f"webhook {place}: expected an address that begins with https://")
            continue
        request = urllib.request.Request(address, text, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
                answer.read(1)
        except (urllib.error.URLError, OSError, ValueError) as error:
            reason = getattr(error, "code", "") or type(getattr(error, "reason", error)).__name__
            wrong.append(f"webhook {place} was not reached: {reason}")
    return wrong
