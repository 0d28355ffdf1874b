"""How each agent is started without a person beside it, and what its output says about its cost."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tasks.errors import TaskError

STDIN, ARGUMENT = "stdin", "argument"  # where the prompt goes
PROMPT = "{prompt}"
WAIT_S = 900.0  # for a service that asks to wait and does not say how long
LONGEST_S = 6 * 3600.0
VERSION_S = 10.0
LIMITED = re.compile(
    r"rate.?limit|usage limit|too many requests|\b429\b|quota exceeded|overloaded_error", re.I
)
EPOCH = re.compile(r"limit reached\|(\d{10})\b")
AFTER = re.compile(
    r"(?i)(?:try again|retry|reset\w*|wait)\D{0,20}?"
    r"(\d+(?:\.\d+)?)\s*(seconds?|secs?|s|minutes?|mins?|m|hours?|h)\b"
)
COSTS, COUNTS = ("total_cost_usd", "cost_usd"), ("input_tokens", "output_tokens")
MOST_AMOUNT = 1e12
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True)
class Usage:
    """As the agent reports it; None: it does not say."""

    tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Agent:
    """name: as the ledger has it. command: `{prompt}` stands for the prompt where it is an argument. secrets:
    variables of the environment that it gets, where they are set. writable: directories of its own settings,
    below the home directory. version: a command that prints it. asked: what `find` was given,
    where that is more than the name."""

    name: str
    command: Sequence[str]
    prompt: str = STDIN
    secrets: Sequence[str] = ()
    writable: Sequence[str] = ()
    version: Sequence[str] = ()
    network: bool = True
    asked: str = ""

    def argv(self, prompt: str) -> tuple[list[str], str]:
        """The command line and its standard input."""
        if self.prompt == STDIN:
            return list(self.command), prompt
        return [prompt if part == PROMPT else part for part in self.command], ""

    def variables(self) -> dict[str, str]:
        """Beyond the allow-listed environment: our own agents are modules of this package."""
        own = self.command[:2] == (sys.executable, "-m")
        return {"PYTHONPATH": str(Path(__file__).parents[2])} if own else {}


def row(name: str, *command: str, secrets: Sequence[str], writable: Sequence[str]) -> Agent:
    prompt = ARGUMENT if PROMPT in command else STDIN
    return Agent(name, command, prompt, secrets, writable, (command[0], "--version"))


AGENTS = {
    agent.name: agent
    for agent in (
        row("claude", "claude", "--print", "--output-format", "json", "--dangerously-skip-permissions",
            secrets=("ANTHROPIC_API_KEY",), writable=(".claude", ".claude.json")),
        row("codex", "codex", "exec", "--json", "--dangerously-bypass-approvals-and-sandbox", "-",
            secrets=("OPENAI_API_KEY", "CODEX_API_KEY"), writable=(".codex",)),
        row("opencode", "opencode", "run", PROMPT,
            secrets=("ANTHROPIC_API_KEY", "OPENAI_API_KEY"),
            writable=(".config/opencode", ".local/share/opencode")),
        row("cursor", "cursor-agent", "--print", "--force", "--output-format", "text", PROMPT,
            secrets=("CURSOR_API_KEY",), writable=(".cursor",)),
        row("qwen", "qwen", "--yolo", "--prompt", PROMPT,
            secrets=("DASHSCOPE_API_KEY", "OPENAI_API_KEY"), writable=(".qwen",)),
        row("droid", "droid", "exec", "--auto", "medium", PROMPT,
            secrets=("FACTORY_API_KEY",), writable=(".factory",)),
        row("copilot", "copilot", "--allow-all-tools", "--prompt", PROMPT,
            secrets=("GH_TOKEN", "GITHUB_TOKEN"), writable=(".copilot",)),
        row("gemini", "gemini", "--yolo", "--prompt", PROMPT,
            secrets=("GEMINI_API_KEY", "GOOGLE_API_KEY"), writable=(".gemini",)),
        Agent("tuner", (sys.executable, "-m", "tasks.agents.tuner"), network=False),
    )
}  # fmt: skip


def find(name: str) -> Agent:
    """A row's name, `command:"..."` for any program that reads the prompt from its standard input, or
    `patch:FILE` for a change that is made already. Raises TaskError."""
    kind, _, rest = name.partition(":")
    if name in AGENTS:
        return AGENTS[name]
    if kind == "command" and rest.strip():
        try:
            return Agent("command", shlex.split(rest), asked=name)
        except ValueError as error:
            raise TaskError(f"[agent] {rest!r} cannot be split into words: {error}") from error
    if kind == "patch" and rest:
        file = Path(rest).resolve()
        if not file.is_file():
            raise TaskError(f"[agent] {rest} is not there: expected a patch as `git diff` writes it")
        command = ("git", "-c", "core.hooksPath=/dev/null", "apply", "--whitespace=nowarn", str(file))
        return Agent("patch", command, network=False, asked=f"patch:{file}")
    raise TaskError(f'[agent] {name!r}: expected {", ".join(AGENTS)}, command:"..." or patch:FILE')


def version_of(agent: Agent) -> str:
    """What its version command prints first; empty where it has none, or is not there."""
    if not agent.version:
        return ""
    try:
        done = subprocess.run(
            agent.version, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            check=False, timeout=VERSION_S,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return next((line.strip()[:80] for line in done.stdout.splitlines() if line.strip()), "")


# --- what it printed ---------------------------------------------------------------------------------


def usage(output: str) -> Usage:
    """The largest figures of any JSON document that it printed: agents report a running sum."""
    tokens: list[int] = []
    usd: list[float] = []
    for document in documents(output):
        for one in objects(document):
            usd += [float(one[name]) for name in COSTS if amount(one.get(name))]
            counts = [one.get(name) for name in COUNTS]
            if all(amount(count) and type(count) is int for count in counts):
                tokens.append(sum(count for count in counts if count is not None))
    return Usage(max(tokens, default=None), max(usd, default=None))


def amount(value: object) -> bool:
    """A number that can be added to a sum: neither NaN nor below 0, and small enough to be one."""
    return type(value) in (int, float) and 0 <= value <= MOST_AMOUNT  # type: ignore[operator]


def documents(output: str) -> Iterator[Any]:
    for line in output.splitlines():
        if line.startswith(("{", "[")):
            try:
                yield json.loads(line)
            except (ValueError, RecursionError):
                continue


def objects(document: Any) -> Iterator[dict[str, Any]]:
    """All that a document holds, itself included, however deep."""
    waiting = [document]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            yield one
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one


def wait_s(output: str, now: Callable[[], float] = lambda: datetime.now(UTC).timestamp()) -> float | None:
    """How long the agent's service asks to wait, by the last lines of an output; None where it does not."""
    last = "\n".join(output.splitlines()[-20:])
    if match := EPOCH.search(last):
        return min(LONGEST_S, max(1.0, float(match[1]) - now()))
    if not LIMITED.search(last):
        return None
    if match := AFTER.search(last):
        return min(LONGEST_S, max(1.0, float(match[1]) * UNITS[match[2][0].lower()]))
    return WAIT_S
