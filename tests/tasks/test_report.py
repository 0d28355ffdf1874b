"""The report says what the ledger says, needs nothing but itself, and runs nothing that an agent wrote."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tasks.evidence.ledger import FIRST, Record, following
from tasks.evidence.state import State, Status, statuses
from tasks.files import Entry, slug
from tasks.loop import run_task
from tasks.model import Task
from tasks.publish import queue_of
from tasks.report import BREAK, KIND, LEFT, WIDTH, attempts, lasted, page, picture, scale, stretches, timeline
from tasks.verdict import Verdict
from tests.tasks.workshop import agent, entry, fields, workshop

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'></svg></style>&amp;{{ 7 * 7 }}"
VOID = {"meta", "br", "img", "link", "input"}
BLOCKS = {"td", "th", "li", "p", "title", "text", "summary"}
Row = tuple[float, str, str, dict[str, Any]]  # minutes since BEGIN, task, kind, data
BEGIN = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


class Reader(HTMLParser):
    """Tags in the order in which they stand, each closed by its own; the text; what is linked."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open, self.tags, self.text, self.given = list[str](), list[str](), "", list[tuple[str, str]]()
        self.wrong: list[str] = []
        self.feed(html)
        self.close()
        assert self.wrong == []
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.given += [(name, value or "") for name, value in attrs]
        if tag in BLOCKS:
            self.text += "\n"

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["style"]:
            self.text += data


def read(html: str) -> Reader:
    """Raises where the file would need, or run, anything."""
    found = Reader(html)
    assert not {"script", "img", "link", "iframe", "object", "form", "base"} & set(found.tags)
    names = {name for name, _ in found.given}
    assert not {name for name in names if name.startswith("on")}
    assert not {"src", "srcset", "style", "xlink:href"} & names
    ids = {value for name, value in found.given if name == "id"}
    links = {value for name, value in found.given if name == "href"}
    assert all(link.startswith("#") for link in links)
    assert {link[1:] for link in links} <= ids
    assert "url(" not in html
    assert "@import" not in html
    assert "://" not in html
    return found


def one(name: str, **more: Any) -> Entry:
    made = Task.model_validate(fields(name, **more))
    return Entry(made, f"tasks/queue/{name}-{slug(made.title)}.yaml", "0" * 64)


def chain(*given: Row) -> list[Record]:
    records: list[Record] = []
    for minutes, task, kind, data in given:
        time = (BEGIN + timedelta(minutes=minutes)).isoformat(timespec="milliseconds")
        records.append(following(records[-1] if records else None, task, kind, data, time))
    return records


def claimed(minutes: float, task: str, number: int, agent: str = "claude") -> Row:
    return minutes, task, "claimed", {"attempt": number, "agent": agent, "base": "b" * 40}


def worked(minutes: float, task: str, number: int, **more: Any) -> Row:
    data = {"attempt": number, "ending": "FINISHED", "exit": 0, "seconds": 30.0, "head": "c" * 40}
    return minutes, task, "worked", {**data, "tokens": None, "usd": None, **more}


def judged(minutes: float, task: str, number: int, **more: Any) -> Row:
    gate = {"gate": "fmt", "verdict": "FAIL", "figure": "2 findings", "seconds": 90.0}
    command = {"command": "look", "exit": 3, "metrics": {"a.ratio": 1.25}, "passed": False, "seconds": 4.0}
    statement = {"says": "It has a word", "by": "command:look", "passed": False}
    data = {"gates": [gate], "commands": [command], "acceptance": [statement], "findings": ["fmt: bad"]}
    return minutes, task, "judged", {"attempt": number, **data, **more}


def ended(minutes: float, task: str, number: int, verdict: Verdict, *findings: str) -> Row:
    return minutes, task, "ended", {"attempt": number, "verdict": verdict.name, "findings": list(findings)}


def ready(entries: dict[str, Entry], state: State = State.READY) -> dict[str, Status]:
    return dict.fromkeys(entries, Status(state, "nobody has tried it"))


# --- the page --------------------------------------------------------------------------------------------


def test_a_real_run_is_told_whole(tmp_path: Path) -> None:
    """Everything that the ledger has of it, from tasks that landed, were rejected, and were not begun."""
    shop = workshop(tmp_path, fields("T-001"), fields("T-002"), fields("T-003", depends_on=["T-002"]))
    run_task(shop, entry(shop), agent("paid"))
    run_task(shop, entry(shop, "T-002"), agent("bad", "edits_a_gate"))
    tip = shop.target.tip()
    entries, records = queue_of(shop.repository, tip), shop.ledger.records()
    found = statuses(shop.repository, entries, records, tip.commit)
    text = " ".join(read(page(entries, found, records, {"branch": "main"})).text.split())
    for said in (
        "branch main", "1 done; 1 blocked; 1 waiting", "2; 1 LANDED (landed); 1 REJECTED_SCOPE",
        "1,000 tokens, 0.03 USD; attempts without a price: 1", "for T-002",
        f"{len(records)} records until", f"head {records[-1].digest}",
        "attempt 1 by paid", "fmt PASS", "gates/fmt.py (added) is not in allow: docs/t-002.md",
        "It has a word command:look passed", "It has a word command:look not judged",
        "blocked: 1 of 1 attempts", "2 minutes an attempt, 1 attempts; 1 used",
    ):  # fmt: skip
        assert said in text, said


def test_an_empty_queue_is_said_to_be_empty() -> None:
    text = read(page({}, {}, [], {})).text
    assert "The queue is empty." in text
    assert "no record" in text
    assert FIRST not in text


def test_a_queue_that_nobody_has_tried(tmp_path: Path) -> None:
    entries = {name: one(name) for name in ("T-001", "T-002")}
    text = read(page(entries, ready(entries), [], {})).text
    assert "Nobody has tried a task." in text
    assert "nobody has tried it" in text


def test_records_of_tasks_that_are_gone_are_named() -> None:
    entries = {"T-001": one("T-001")}
    records = chain(claimed(0, "T-009", 1), ended(1, "T-009", 1, Verdict.LANDED), claimed(2, "T-001", 1))
    text = read(page(entries, ready(entries), records, {})).text
    assert "T-009: 2 records" in text


def test_nothing_that_others_wrote_becomes_markup() -> None:
    """Of titles, of agents, of what gates and commands printed, of facts; in text, pictures and tooltips."""
    statement = {"says": EVIL, "by": "command:look"}
    more = {
        "title": EVIL,
        "why": EVIL,
        "allow": [EVIL],
        "acceptance": [statement],
    }
    entries = {"T-001": one("T-001", **more)}
    gate = {"gate": EVIL, "verdict": EVIL, "figure": EVIL, "seconds": 1.0}
    command = {"command": EVIL, "exit": EVIL, "metrics": {EVIL: 1.0}, "passed": True, "seconds": 1.0}
    records = chain(
        claimed(0, "T-001", 1, EVIL),
        worked(1, "T-001", 1, head=EVIL, ending=EVIL),
        judged(2, "T-001", 1, gates=[gate], commands=[command], acceptance=[{**statement, "passed": True}]),
        ended(3, "T-001", 1, Verdict.REJECTED_GATES, EVIL),
        (4, "T-001", "blocked", {"why": EVIL}),
        (4, EVIL, EVIL, {"why": EVIL}),
    )
    html = page(entries, {"T-001": Status(State.BLOCKED, EVIL)}, records, {EVIL: EVIL})
    text = read(html).text
    assert text.count(EVIL) >= 15
    assert "&amp;49" not in text
    assert "<script" not in html


@pytest.mark.parametrize(
    "title",
    [
        "Say <i>this</i> & that",
        "A \"quoted\" 'title' of {{ words }}",
        "Ein Titel über 行列 und 🙂 dazu",
        "x" * 120,
    ],
)
def test_a_title_is_shown_as_it_is(title: str) -> None:
    entries = {"T-001": one("T-001", title=title)}
    text = read(page(entries, ready(entries), [], {})).text
    assert text.count(title) >= 3, "in the table, as the picture's tooltip, above its details"


def test_findings_are_told_once_and_not_all() -> None:
    lines = [f"finding {n}." for n in range(120)]
    entries = {"T-001": one("T-001")}
    records = chain(
        claimed(0, "T-001", 1),
        judged(1, "T-001", 1, findings=lines),
        ended(2, "T-001", 1, Verdict.REJECTED_GATES, *lines),
        claimed(3, "T-001", 2),
        judged(4, "T-001", 2, findings=["its runner died then"]),
    )
    text = read(page(entries, ready(entries), records, {})).text
    assert text.count("finding 0.") == 1
    assert "finding 49." in text
    assert "finding 50." not in text
    assert "and 70 more, in the ledger" in text
    assert "its runner died then" in text


def test_five_hundred_tasks_make_a_file_that_opens() -> None:
    """Each with an attempt, its gates, and up to three tasks that it waits for."""
    entries, given = {}, []
    for n in range(1, 501):
        name = f"T-{n:03d}"
        needed = {m for m in (n // 2, n // 3, n - 100) if 0 < m < n}
        entries[name] = one(name, depends_on=[f"T-{m:03d}" for m in sorted(needed)])
        given += [claimed(n, name, 1), worked(n + 0.2, name, 1), judged(n + 0.4, name, 1)]
        given.append(ended(n + 0.9, name, 1, list(Verdict)[n % len(Verdict)], "it was so"))
    html = page(entries, ready(entries), chain(*given), {})
    assert len(html) < 2_500_000
    assert read(html).tags.count("details") == 500


def test_fifty_attempts_at_one_task() -> None:
    entries = {"T-001": one("T-001")}
    verdicts = [list(Verdict)[n % len(Verdict)] for n in range(50)]
    given = []
    for n, verdict in enumerate(verdicts, 1):
        given += [
            claimed(n, "T-001", n),
            worked(n + 0.5, "T-001", n, usd=0.01),
            ended(n + 0.75, "T-001", n, verdict),
        ]
    records = chain(*given)
    found = read(page(entries, ready(entries), records, {}))
    assert all(f"attempt {n} by claude" in found.text for n in range(1, 51))
    (row,) = timeline({"T-001": attempts(records)})["rows"]
    assert [bar["kind"] for bar in row["bars"]] == [KIND[verdict] for verdict in verdicts]
    assert all(after["x"] > before["x"] for before, after in pairwise(row["bars"]))
    assert "no tokens, 0.50 USD" in found.text


# --- what it is made of ----------------------------------------------------------------------------------


def test_every_verdict_has_a_colour() -> None:
    assert set(KIND) == set(Verdict)


def test_totals_are_sums_over_the_ledger() -> None:
    entries = {name: one(name) for name in ("T-001", "T-002")}
    records = chain(
        claimed(0, "T-001", 1), worked(1, "T-001", 1, tokens=1200, usd=0.5), judged(2, "T-001", 1),
        ended(3, "T-001", 1, Verdict.REJECTED_GATES, "fmt: bad"),
        claimed(10, "T-002", 1), worked(11, "T-002", 1), judged(12, "T-002", 1, commands=[]),
        ended(70, "T-002", 1, Verdict.LANDED),
    )  # fmt: skip
    found = {"T-001": Status(State.BLOCKED, "why"), "T-002": Status(State.DONE, "")}
    text = read(page(entries, found, records, {})).text
    assert "1 h 03 min of all attempts; agents 1 min 00 s, gates 3 min 00 s, commands 4.0 s" in text
    assert "1,200 tokens, 0.50 USD; attempts without a price: 1" in text
    assert "exit code" in text
    assert "a.ratio 1.25" in text


def test_an_attempt_lasts_from_its_claim_to_its_end() -> None:
    records = chain(
        claimed(0, "T-001", 1), ended(5, "T-001", 1, Verdict.PASSED),
        claimed(10, "T-001", 2), worked(11, "T-001", 2),
        (90, "T-001", "landing", {"attempt": 1, "commit": "c", "before": "b"}),
        ended(91, "T-001", 1, Verdict.LANDED),
    )  # fmt: skip
    first, second = attempts(records)
    assert (first.seconds, first.verdict, first.kind) == (300.0, Verdict.LANDED, "landed")
    assert (second.seconds, second.verdict, second.kind) == (60.0, None, "open"), "its runner died"
    now = BEGIN + timedelta(minutes=20)
    assert [one.seconds for one in attempts(records, now)] == [300.0, 600.0], "somebody works on it"


def test_in_the_picture_each_task_is_right_of_what_it_waits_for_and_none_covers_another() -> None:
    needs = {2: [1], 3: [1], 4: [2, 3], 5: [], 6: [5, 4], 7: [1]}
    entries = {"T-001": one("T-001")}
    for n, others in needs.items():
        entries[f"T-{n:03d}"] = one(f"T-{n:03d}", depends_on=[f"T-{m:03d}" for m in others])
    entries |= {f"T-{n:03d}": one(f"T-{n:03d}") for n in range(10, 200)}
    for chosen in (dict(list(entries.items())[:7]), entries):
        drawn = picture(chosen, ready(chosen))
        at = {node["name"]: (node["x"], node["y"]) for node in drawn["nodes"]}
        assert set(at) == set(chosen)
        width, height = drawn["node_width"], drawn["node_height"]
        for name, task in chosen.items():
            assert all(at[other][0] + width < at[name][0] for other in task.task.depends_on)
        places = list(at.values())
        for index, (x, y) in enumerate(places):
            assert 0 <= x <= drawn["width"] - width
            assert 0 <= y <= drawn["height"] - height
            assert all(abs(x - u) >= width or abs(y - v) >= height for u, v in places[:index])
        assert len(drawn["edges"]) == 7


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0 s"), (59.9, "59.9 s"), (60, "1 min 00 s"), (3599.6, "1 h 00 min"), (7380, "2 h 03 min")],
)
def test_times_are_shown_in_words(seconds: float, shown: str) -> None:
    assert lasted(seconds) == shown


def test_long_pauses_are_cut_out_and_order_is_kept() -> None:
    hour = 3600.0
    given = [(0.0, hour), (hour + 5, 2 * hour), (500 * hour, 501 * hour), (500.5 * hour, 501.5 * hour)]
    spans = stretches(given)
    assert spans == [(0.0, 2 * hour), (500 * hour, 501.5 * hour)]
    x = scale(spans)
    times = [0.0, hour, 2 * hour, 500 * hour, 501 * hour, 501.5 * hour]
    assert [x(one) for one in times] == sorted(x(one) for one in times)
    assert x(0.0) == LEFT
    assert math.isclose(x(500 * hour) - x(2 * hour), BREAK, abs_tol=0.2)
    assert x(501.5 * hour) < WIDTH
    assert math.isclose(x(hour) - x(0), x(501 * hour) - x(500 * hour), abs_tol=0.3), "one scale for all"


def test_many_short_runs_leave_room_for_their_bars() -> None:
    """A minute each week for two years: the longest pauses are cut, the bars are seen."""
    week = 7 * 24 * 3600.0
    spans = stretches([(n * week + (n % 3), n * week + 60.0) for n in range(100)])
    assert len(spans) <= 12
    assert scale(spans)(99 * week) < WIDTH


def test_a_moment_without_length_is_drawn() -> None:
    records = chain(claimed(0, "T-001", 1), ended(0, "T-001", 1, Verdict.AGENT_MISSING))
    (row,) = timeline({"T-001": attempts(records)})["rows"]
    assert row["bars"][0]["width"] >= 2.0
