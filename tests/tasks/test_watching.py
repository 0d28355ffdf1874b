"""Who works is seen as they work, from another process, and what agents print does nothing to a terminal."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console
from tasks.attempt import Attempt, Shop
from tasks.crew import run_queue
from tasks.evidence.state import BLOCKED, WORKED
from tasks.publish import queue_of
from tasks.verdict import Verdict
from tasks.watching import Row, clock, looks, snapshot, table, watch
from tasks.work.lease import Lease, claim, path_of
from tests.tasks.workshop import agent, entry, fields, records, workshop

from tasks import watching

TERMINAL = {"TERM": "xterm"}  # whatever the one that runs the tests can do


def attempt(shop: Shop, lease: Lease, number: int = 1, name: str = "T-001") -> Attempt:
    one = Attempt(shop, entry(shop, name), lease, number, shop.target.tip())
    one.claim("claude")
    return one


def rows(shop: Shop, after_s: float = 0.0) -> list[Row]:
    now = datetime.now(UTC) + timedelta(seconds=after_s)
    return snapshot(shop.repository, queue_of(shop.repository, shop.target.tip()), shop.ledger.records(), now)


def text(shown: object, **how: object) -> str:
    out = Console(file=StringIO(), width=160, highlight=False, _environ=TERMINAL, **how)  # type: ignore[arg-type]
    out.print(shown)
    return out.file.getvalue()  # type: ignore[attr-defined]


def test_only_what_somebody_holds_is_shown(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"), fields("T-002"))
    assert rows(shop) == []
    with claim(shop.repository, "T-002") as lease:
        attempt(shop, lease, 3, "T-002").phase("landing")
        (one,) = rows(shop, after_s=61.5)
    assert (one.task, one.agent, one.attempt, one.phase) == ("T-002", "claude", 3, "landing")
    assert 61.0 <= one.seconds < 72.0
    assert (one.line, one.tokens, one.usd) == ("", None, None)
    assert rows(shop) == []


def test_who_has_claimed_nothing_yet_has_a_row(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    with claim(shop.repository, "T-001"):
        (one,) = rows(shop, after_s=9)
        assert (one.agent, one.attempt, one.phase) == ("", 0, "claimed")
        assert 8.0 <= one.seconds < 20.0
        path_of(shop.repository, "T-001").write_text("")  # between being emptied and being written
        assert rows(shop)[0].seconds == 0.0


def test_an_attempt_that_is_gone_on_with_counts_from_then(tmp_path: Path) -> None:
    """Claimed before the runner died, long ago: the time is that of who works on it now."""
    shop = workshop(tmp_path, fields("T-001"))
    with claim(shop.repository, "T-001") as lease:
        attempt(shop, lease)
        lease._since = (datetime.now(UTC) + timedelta(hours=2)).isoformat(timespec="seconds")
        lease.beat("judged by the gates")
        assert rows(shop, after_s=2 * 3600 + 5)[0].seconds < 10


@pytest.mark.parametrize(
    ("printed", "shown"),
    [
        (b"one\ntwo\n", "two"),
        (b"one\ntw", "tw"),
        (b"10%\r20%\r", "20%"),
        (b"one\n\n  \n\x1b[0m\n", "one"),
        (b"\x1b[31mred\x1b[0m \x1b]0;title\x07and \x00\x07more\n", "red and more"),
        (b"[bold]not markup[/bold] :smile: [/]\n", "[bold]not markup[/bold] :smile: [/]"),
        ("ab\u202ecd \u2066\n".encode(), "abcd"),
        (b"\xff\xfe\n", "\ufffd\ufffd"),
        (b"x" * 500 + b"\n", "x" * 120),
        (b"x\n" * 200_000 + b"last\n", "last"),
        (b"[" * 60_000 + b"\n", "[" * 120),
    ],
)
def test_the_last_line_is_plain_text(tmp_path: Path, printed: bytes, shown: str) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    with claim(shop.repository, "T-001") as lease:
        (attempt(shop, lease).place / "agent.log").write_bytes(printed)
        (one,) = rows(shop)
    assert one.line == shown
    drawn = text(table([one]), force_terminal=True, color_system=None)
    assert "\x1b" not in drawn
    assert shown[:30] in drawn


def test_tokens_and_money_are_those_of_all_attempts_and_of_this_one(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    with claim(shop.repository, "T-001") as lease:
        first = attempt(shop, lease)
        first.record(WORKED, tokens=1000, usd=0.5)
        first.end(Verdict.AGENT_FAILED)
        assert rows(shop)[0].phase == "after: the agent ended with an error"
        second = attempt(shop, lease, 2)
        log = second.place / "agent.log"
        log.write_text('{"total_cost_usd": 0.25, "usage": {"input_tokens": 90, "output_tokens": 10}}\n')
        (one,) = rows(shop)
        assert (one.attempt, one.tokens, one.usd) == (2, 1100, 0.75)
        second.record(WORKED, tokens=100, usd=None)
        (one,) = rows(shop)
        assert (one.tokens, one.usd) == (1100, 0.5), "what is in a record is not counted twice"
        assert "1,100" in text(table([one]))


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3599, "59:59"), (3661, "1:01:01")]
)
def test_time_is_shown_as_a_clock_does(seconds: float, shown: str) -> None:
    assert clock(seconds) == shown


# --- watching --------------------------------------------------------------------------------------------


def watched(shop: Shop, stop: Callable[[], bool] = lambda: False, **how: object) -> str:
    out = Console(file=StringIO(), width=200, highlight=False, _environ=TERMINAL, **how)  # type: ignore[arg-type]
    watch(shop.repository, shop.ledger, queue_of(shop.repository, shop.target.tip()), out, stop, every_s=0.02)
    return out.file.getvalue()  # type: ignore[attr-defined]


def clock_of(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], object]) -> None:
    """For the watching alone: the rest of the process sleeps as ever."""
    monkeypatch.setattr(watching, "time", SimpleNamespace(sleep=sleep))


def test_where_nobody_works_it_says_so_at_once(tmp_path: Path) -> None:
    assert watched(workshop(tmp_path, fields("T-001"))) == "nobody works on a task\n"


def test_lines_tell_changes_once_and_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    holding = claim(shop.repository, "T-001")
    one = attempt(shop, holding.__enter__())
    log = one.place / "agent.log"
    log.write_text("")
    steps = iter(
        (
            lambda: one.phase("claude at work"),
            lambda: log.write_text("first\n"),
            lambda: None,
            lambda: log.write_text("first\nsecond [b]x[/b]\n"),
            lambda: (one.end(Verdict.NO_CHANGE, ["nothing"]), holding.__exit__(None, None, None)),
        )
    )
    clock_of(monkeypatch, lambda seconds: next(steps, lambda: None)())
    lines = [line.replace("0:01", "0:00") for line in watched(shop).splitlines()]
    assert lines == [
        "T-001: claude, attempt 1, 0:00, claimed",
        "T-001: claude, attempt 1, 0:00, claude at work",
        "T-001: claude, attempt 1, 0:00, claude at work: first",
        "T-001: claude, attempt 1, 0:00, claude at work: second [b]x[/b]",
        "T-001: the agent ended and changed nothing",
        "nobody works on a task",
    ]


def test_a_task_that_is_let_go_is_said_to_be_blocked_or_left(tmp_path: Path) -> None:
    shop = workshop(tmp_path, fields("T-001"), fields("T-002"))
    shop.ledger.append("T-001", BLOCKED, {"why": "3 of 3 attempts"})
    assert watching.let_go("T-001", shop.ledger.records()) == "T-001: blocked: 3 of 3 attempts"
    assert watching.let_go("T-002", shop.ledger.records()) == "T-002: its runner let it go before it ended"


def test_a_moment_between_two_tasks_is_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    held = Row("T-001", "a", 1, "p", 0.0, "", None, None)
    seen = iter([[held], [], [], [held], [], [], []])
    monkeypatch.setattr(watching, "snapshot", lambda *_: next(seen))
    found = [len(one) for _, one, _ in looks(shop.repository, shop.ledger, {}, lambda: False, 0.0)]
    assert found == [1, 0, 0, 1, 0, 0, 0]


@pytest.mark.parametrize("terminal", [True, False])
def test_ctrl_c_and_stop_end_the_watching_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    shop = workshop(tmp_path, fields("T-001"))

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    with claim(shop.repository, "T-001") as lease:
        attempt(shop, lease)
        clock_of(monkeypatch, interrupt)
        said = watched(shop, force_terminal=terminal)
        assert said.rstrip().endswith("stopped watching; who works goes on")
        assert ("\x1b[?25h" in said) is terminal, "the cursor is shown again"
        assert "stopped watching" in watched(shop, lambda: True, force_terminal=terminal)
        assert rows(shop), "it is held still"


@pytest.mark.parametrize("terminal", [True, False])
def test_a_whole_run_is_seen_from_beside_it(tmp_path: Path, terminal: bool) -> None:
    shop = workshop(tmp_path, fields("T-001"))
    worker = threading.Thread(target=run_queue, args=(shop, lambda one: agent("honest"), 1))
    worker.start()
    while not rows(shop) and worker.is_alive():
        time.sleep(0.01)
    said = watched(shop, force_terminal=terminal)
    worker.join()
    assert "T-001: landed" in said
    assert said.rstrip().endswith("nobody works on a task")
    assert records(shop)[-1].data["verdict"] == "LANDED"
