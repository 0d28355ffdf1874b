"""A webhook is told what happened; one that is not reached is said, without its address, and harms nobody."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tasks import webhook


@pytest.fixture
def server() -> Iterator[tuple[str, list[dict[str, object]]]]:
    """Its address, and what it was told; below /gone it knows nobody."""
    told: list[dict[str, object]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["Content-Length"]))
            told.append(json.loads(text))
            self.send_response(404 if self.path.startswith("/gone") else 200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=listening.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{listening.server_port}", told
    listening.shutdown()
    listening.server_close()


def test_every_address_is_told(monkeypatch: pytest.MonkeyPatch, server: tuple[str, list[object]]) -> None:
    address, told = server
    monkeypatch.setenv(webhook.VARIABLE, f"{address}/one {address}/two")
    assert webhook.tell("ended", {"tasks": {"T-001": "LANDED"}}) == []
    assert told == [{"event": "ended", "tasks": {"T-001": "LANDED"}}] * 2


def test_what_cannot_be_told_is_said_without_the_address(
    monkeypatch: pytest.MonkeyPatch, server: tuple[str, list[object]]
) -> None:
    address, told = server
    monkeypatch.setenv(
        webhook.VARIABLE, f"{address}/gone?key=secret http://127.0.0.1:1/secret file:///secret"
    )
    wrong = webhook.tell("blocked", {})
    assert [line.split(":")[0].split(" was")[0] for line in wrong] == ["webhook 1", "webhook 2", "webhook 3"]
    assert "404" in wrong[0]
    assert not any("secret" in line for line in wrong)
    assert len(told) == 1


def test_nobody_is_told_where_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(webhook.VARIABLE, raising=False)
    assert webhook.tell("ended", {}) == []
