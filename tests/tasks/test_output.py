"""What an agent prints is shown as plain text; what it writes is measured, with a bound."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks.agents.output import plain, tail, tree_bytes

from tasks.agents import output


@given(st.binary(max_size=600))
def test_a_plain_line_is_short_and_harmless(line: bytes) -> None:
    shown = plain(line)
    assert len(shown) <= output.WIDTH
    assert all(one.isprintable() for one in shown)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"\x1b[1;31mred\x1b[0m\tand\x1b[2K more", "red and more"),
        (b"\x1b]0;a title\x07text\x1b]8;;http://x\x1b\\link", "textlink"),
        (b"a\x00b\x08c\x7f\xff", "abc\ufffd"),
        ("rtl \u202e gone".encode(), "rtl  gone"),
        (b"x" * 300, "x" * 200),
        (b"\x1b", ""),
    ],
)
def test_escapes_and_controls_are_not_shown(line: bytes, shown: str) -> None:
    assert plain(line) == shown


def test_the_tail_of_a_log_is_its_last_lines_that_say_something(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"x" * 100_000 + b"\none\r\n\n\x1b[31mtwo\x1b[0m\nthree")
    assert tail(log, 2) == "two\nthree"
    assert tail(log, 3) == "one\ntwo\nthree"
    log.write_bytes(b"")
    assert tail(log) == ""


def test_a_tree_is_measured_without_links_twice_and_with_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    big = tmp_path / "big"
    big.write_bytes(b"x" * (1 << 20))
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "link").symlink_to(big)
    (tree / "up").symlink_to(tmp_path)
    empty = tree_bytes(tree)
    assert empty < 1 << 16
    (tree / "below" / "file").write_bytes(b"x" * (1 << 19))
    once = tree_bytes(tree)
    assert 1 << 19 <= once - empty < 1 << 20
    (tree / "again").hardlink_to(tree / "below" / "file")
    assert tree_bytes(tree) == once
    for number in range(50):
        (tree / f"{number}").write_bytes(b"x" * 4096)
    monkeypatch.setattr(output, "ENTRIES", 10)
    assert tree_bytes(tree / "nowhere") == 0
    assert tree_bytes(tree) <= (1 << 19) + 10 * 8192
