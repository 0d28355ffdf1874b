"""The registers: RFCs with their states, waivers with their ends, owners of paths."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Literal

from pydantic import Field, model_validator

from gates.law.files import Article
from gates.law.tiers import matches
from gates.registry import GATES

RFCS, WAIVERS, OWNERS = "governance/rfcs.yaml", "governance/waivers.yaml", "governance/owners.yaml"
NAMED = re.compile(r"\bRFC-[0-9]{4}\b")
IN_FORCE = ("Accepted", "Implemented", "Verified")


class Rfc(Article):
    """file: its text, below governance/rfcs/."""

    id: str = Field(pattern=r"^RFC-[0-9]{4}$")
    title: str
    state: Literal["Draft", "Review", "Accepted", "Implemented", "Verified"]
    owner: str
    file: str = Field(pattern=r"^governance/rfcs/[0-9]{4}-[a-z0-9-]+\.md$")


class Rfcs(Article):
    rfcs: list[Rfc]

    @model_validator(mode="after")
    def distinct(self) -> Rfcs:
        names = [rfc.id for rfc in self.rfcs]
        if len(set(names)) != len(names):
            raise ValueError(f"ids are {', '.join(names)}: expected each once")
        return self

    def find(self, name: str) -> Rfc | None:
        return next((rfc for rfc in self.rfcs if rfc.id == name), None)


class Waiver(Article):
    """Lets findings of one gate pass in some paths until a day, for a reason that somebody answers for."""

    id: str = Field(pattern=r"^W-[0-9]{3}$")
    gate: str
    scope: list[str] = Field(min_length=1)
    reason: str = Field(min_length=20)
    owner: str
    expires: date

    @model_validator(mode="after")
    def known(self) -> Waiver:
        if self.gate not in GATES:
            raise ValueError(f"gate {self.gate!r} is unknown: expected one of {', '.join(GATES)}")
        return self

    def covers(self, gate: str, path: str) -> bool:
        return self.gate == gate and bool(path) and any(matches(pattern, path) for pattern in self.scope)


class Waivers(Article):
    waivers: list[Waiver]

    def expired(self, today: date) -> list[Waiver]:
        return [waiver for waiver in self.waivers if waiver.expires < today]

    def covering(self, gate: str, path: str, today: date) -> Waiver | None:
        """The waiver in force that lets a finding pass."""
        return next((one for one in self.waivers if one.expires >= today and one.covers(gate, path)), None)


class Owner(Article):
    paths: list[str] = Field(min_length=1)
    owners: list[str] = Field(min_length=1)


class Owners(Article):
    """The last that matches a path owns it, as in CODEOWNERS."""

    owners: list[Owner] = Field(min_length=1)

    def codeowners(self) -> str:
        """The file that GitHub reads; `python -m gates codeowners` writes it."""
        lines = ["# Generated from governance/owners.yaml by `python -m gates codeowners`."]
        for entry in self.owners:
            lines += [
                f"{'*' if path == '*' else '/' + path} {' '.join(entry.owners)}" for path in entry.paths
            ]
        return "\n".join(lines) + "\n"


def rfcs_named(texts: Iterable[str]) -> list[str]:
    """The RFC ids in some texts, each once, in order."""
    return list(dict.fromkeys(name for text in texts for name in NAMED.findall(text)))
