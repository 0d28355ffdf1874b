"""How agents are started, what their output says about its cost, and when their service asks to wait."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks.agents.adapters import AGENTS, LONGEST_S, WAIT_S, Agent, Usage, find, usage, wait_s
from tasks.agents.prompt import prompt
from tasks.errors import TaskError
from tests.tasks.workshop import entry, fields, workshop

from tasks.agents import adapters


@pytest.mark.parametrize("name", AGENTS)
def test_every_agent_gets_the_prompt_once(name: str) -> None:
    argv, stdin = AGENTS[name].argv("the prompt")
    assert [*argv, stdin].count("the prompt") == 1
    assert adapters.PROMPT not in argv


def test_an_agent_is_a_row_a_command_or_a_patch(tmp_path: Path) -> None:
    assert find("claude").command[0] == "claude"
    assert find("command:my agent 'two words'").command == ["my", "agent", "two words"]
    assert find("command:x").asked == "command:x"
    patch = tmp_path / "a.diff"
    patch.write_text("")
    assert str(patch) in find(f"patch:{patch}").command
    assert find("tuner").variables()["PYTHONPATH"]
    assert find("tuner").command[0] == sys.executable
    assert not find("tuner").network
    for wrong in (
        "",
        "vibes",
        "command:",
        "command: ",
        "command:a 'b",
        "patch:",
        f"patch:{tmp_path / 'gone'}",
    ):
        with pytest.raises(TaskError, match=r"\[agent\]"):
            find(wrong)


def test_a_version_is_what_its_command_prints_first_or_nothing() -> None:
    def version(*command: str) -> str:
        return adapters.version_of(Agent("x", ("x",), version=command))

    assert version(sys.executable, "-c", "print(); print(' 1.2.3 ', 'x' * 200)").startswith("1.2.3")
    assert len(version(sys.executable, "-c", "print('x' * 200)")) == 80
    assert version("volta-no-such-agent", "--version") == version() == ""


@pytest.mark.parametrize(
    ("output", "found"),
    [
        ("", Usage()),
        ("words\n{broken\n", Usage()),
        ('{"total_cost_usd": 0.25}', Usage(None, 0.25)),
        ('{"cost_usd": 1}\n{"cost_usd": 3}\n{"cost_usd": 2}', Usage(None, 3.0)),
        ('{"usage": {"input_tokens": 10, "output_tokens": 5}}', Usage(15, None)),
        ('[{"message": {"usage": {"input_tokens": 1, "output_tokens": 1}}}]', Usage(2, None)),
        ('{"total_cost_usd": NaN}', Usage()),
        ('{"total_cost_usd": Infinity}', Usage()),
        ('{"total_cost_usd": -5}', Usage()),
        ('{"total_cost_usd": true}', Usage()),
        ('{"total_cost_usd": "5"}', Usage()),
        ('{"usage": {"input_tokens": -10, "output_tokens": 5}}', Usage()),
        ('{"usage": {"input_tokens": 10}}', Usage()),
        ("[" * 100_000, Usage()),
        ('{"a":' * 3000 + '{"cost_usd": 1}' + "}" * 3000, None),
    ],
)
def test_what_an_agent_cost_is_what_it_says_in_json(output: str, found: Usage | None) -> None:
    assert usage(output) == found or found is None


@given(st.text())
def test_no_output_is_too_strange_to_be_read(output: str) -> None:
    usage(output)
    wait_s(output)
    json.dumps({"tokens": usage(output).tokens, "usd": usage(output).usd}, allow_nan=False)


@pytest.mark.parametrize(
    ("output", "seconds"),
    [
        ("all is well", None),
        ("it works at the rate limit of the disk\n" + "more\n" * 30, None),
        ("Error: 429 Too Many Requests", WAIT_S),
        ("rate limit exceeded, try again in 20s", 20.0),
        ("Rate-limited. Please retry after 2 minutes.", 120.0),
        ("usage limit reached; resets in 3 hours", 10_800.0),
        ("quota exceeded, try again in 900 hours", LONGEST_S),
        ("usage limit reached|1000000100", 100.0),
        ("usage limit reached|0999999000", 1.0),
    ],
)
def test_a_service_that_asks_to_wait_is_understood(output: str, seconds: float | None) -> None:
    assert wait_s(output, lambda: 1e9) == seconds


def test_a_prompt_has_all_that_the_agent_is_judged_by(tmp_path: Path) -> None:
    bounds = [{"command": "look", "output": ["word"], "metrics": {"a.b": {"min": 2}}}]
    one = entry(workshop(tmp_path, fields("T-001", expect=bounds)))
    text = prompt(one, "# Rules\n\n1. Parity.\n", [f"finding {n}" for n in range(60)], ["Other work (a.py)"])
    for part in (
        "# T-001: Write the text T-001", "- `docs/t-001.md`", "- look: `python", "matches `word`",
        "`a.b` in the JSON that it prints: min 2", "It has a word (command:look)", "- finding 39",
        "- and 20 more", "- Other work (a.py)", "1. Parity.", "You have 2 minutes.",
    ):  # fmt: skip
        assert part in text, part
    plain = prompt(one, "")
    assert "What was wrong" not in plain
    assert "landed meanwhile" not in plain
