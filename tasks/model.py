"""A task: what is wanted, what may be touched, how it is judged, what it may cost."""

from __future__ import annotations

import re
import shlex

from gates.law.files import Article
from gates.registry import GATES
from pydantic import Field, field_validator, model_validator

ID = r"T-[0-9]{3,}"
AGENT = "agent:"
SHELL = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "<<", "2>&1"})
GATE, COMMAND = "gate:", "command:"


class Bounds(Article):
    """Of a number that a command prints, both ends included."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def some(self) -> Bounds:
        if self.min is None and self.max is None:
            raise ValueError("neither min nor max: expected one or both")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self

    def hold(self, value: float) -> bool:
        """False for NaN."""
        low = value >= self.min if self.min is not None else value == value
        return low and (self.max is None or value <= self.max)

    def __str__(self) -> str:
        ends = (("min", self.min), ("max", self.max))
        return ", ".join(f"{name} {value:g}" for name, value in ends if value is not None)


class Expectation(Article):
    """What a command must do. output: regular expressions, each found somewhere in what it prints. metrics:
    bounds of numbers by their path in the JSON document that it prints last (`results.0.ratio`)."""

    command: str
    exit: int = Field(default=0, ge=0, le=255)
    output: list[str] = Field(default=[])
    metrics: dict[str, Bounds] = Field(default={})

    @field_validator("output")
    @classmethod
    def patterns(cls, given: list[str]) -> list[str]:
        for pattern in given:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return given


class Statement(Article):
    """Passes or fails with what it is bound to: `gate:NAME` or `command:NAME`."""

    says: str = Field(min_length=1)
    by: str = Field(pattern=rf"^({GATE}|{COMMAND}).+$")


class Budget(Article):
    """Of a task as a whole, but minutes: of one attempt. tokens, usd: as the agent reports them."""

    minutes: float = Field(default=30.0, gt=0, le=24 * 60)
    attempts: int = Field(default=3, ge=1, le=20)
    tokens: int | None = Field(default=None, ge=1)
    usd: float | None = Field(default=None, gt=0)


class Task(Article):
    """One file of tasks/queue. allow: the paths that the change may touch, as governance/tiers.yaml writes
    them. commands: run without a shell, on the change's own tree. parallel_group: tasks of one group may run
    beside each other; a group begins where all lower ones have ended."""

    id: str = Field(pattern=rf"^{ID}$")
    title: str = Field(min_length=8, max_length=120)
    why: str = Field(min_length=1)
    owner: str = Field(pattern=r"^(human|agent:[a-z][a-z0-9-]*)$")
    depends_on: list[str] = Field(default=[])
    allow: list[str] = Field(min_length=1)
    commands: dict[str, str] = Field(default={})
    expect: list[Expectation] = Field(default=[])
    acceptance: list[Statement] = Field(min_length=1)
    budget: Budget = Budget()
    parallel_group: int = Field(default=1, ge=0)

    @field_validator("title")
    @classmethod
    def one_line(cls, given: str) -> str:
        if given != " ".join(given.split()) or "[" in given:
            raise ValueError(
                "expected one line without brackets and double spaces: it becomes a line of PRD.md"
            )
        return given

    @field_validator("depends_on")
    @classmethod
    def others(cls, given: list[str]) -> list[str]:
        for name in given:
            if not re.fullmatch(ID, name):
                raise ValueError(f"{name!r} is no task: expected T-NNN")
        if len(set(given)) != len(given):
            raise ValueError("a task is named twice")
        return given

    @field_validator("allow")
    @classmethod
    def inside(cls, given: list[str]) -> list[str]:
        for path in given:
            if path.startswith(("/", "./", "~")) or ".." in path.split("/") or "//" in path or not path:
                raise ValueError(f"{path!r}: expected one from the repository's root, such as docs/")
        return given

    @field_validator("commands")
    @classmethod
    def words(cls, given: dict[str, str]) -> dict[str, str]:
        for name, command in given.items():
            try:
                words = shlex.split(command)
            except ValueError as error:
                raise ValueError(f"{name}: {command!r} cannot be split into words: {error}") from error
            if not words:
                raise ValueError(f"{name} is empty")
            if found := SHELL & set(words):
                raise ValueError(f"{name} has {min(found)!r}: commands run without a shell, one each")
        return given

    @model_validator(mode="after")
    def bound(self) -> Task:
        if self.id in self.depends_on:
            raise ValueError(f"{self.id} depends on itself")
        for one in self.expect:
            if one.command not in self.commands:
                raise ValueError(f"expect: {one.command!r} is no command of this task")
        for statement in self.acceptance:
            kind, _, name = statement.by.partition(":")
            known = GATES if f"{kind}:" == GATE else self.commands
            if name not in known:
                raise ValueError(
                    f"acceptance: {statement.by!r} is unknown: expected one of {', '.join(known)}"
                )
        return self

    @property
    def agent(self) -> str | None:
        """The agent that owns it; None where a person does."""
        return self.owner.removeprefix(AGENT) if self.owner.startswith(AGENT) else None

    @property
    def gates(self) -> tuple[str, ...]:
        """Those that its statements name, beyond the tier's."""
        named = (one.by.removeprefix(GATE) for one in self.acceptance if one.by.startswith(GATE))
        return tuple(dict.fromkeys(named))
