"""The licences of what Volta asks for, as the installed distributions state them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Any

from pydantic import Field, model_validator

from gates.evidence.verdict import Finding
from gates.law.files import Article
from gates.safety.requirements import PATH, Requirement

LAW = "governance/licences.yaml"
CLASSIFIER = "License :: "
FAMILY = "OSI Approved"  # a classifier that names no licence


class Exempt(Article):
    """A distribution whose licence is not on the list: exactly this one is agreed to, for this reason."""

    distribution: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    licences: list[str] = Field(min_length=1)
    reason: str = Field(min_length=20)


class Licences(Article):
    """allowed: SPDX identifiers. spelled: what distributions without a licence expression write for one."""

    allowed: list[str] = Field(min_length=1)
    spelled: dict[str, str]
    exceptions: list[Exempt]

    @model_validator(mode="after")
    def known(self) -> Licences:
        for text, licence in self.spelled.items():
            if licence not in self.allowed:
                raise ValueError(f"{text!r} is spelled for {licence}: expected one that is allowed")
        return self

    def agrees(self, licence: str) -> bool:
        return licence.casefold() in {one.casefold() for one in self.allowed}


def stated(about: Mapping[str, Any]) -> list[str]:
    """What metadata (PEP 566's JSON) says: an SPDX expression (PEP 639), else classifiers, else the field for
    a licence."""
    if expression := about.get("license_expression"):
        return [str(expression)]
    classifiers = [
        str(one).removeprefix(CLASSIFIER).rpartition(" :: ")[2]
        for one in about.get("classifier", ())
        if str(one).startswith(CLASSIFIER)
    ]
    text = " ".join(str(about.get("license") or "").split())
    exact = [one for one in classifiers if one != FAMILY]
    return exact or ([text] if text and text != "UNKNOWN" else [])


def judge(requirements: Sequence[Requirement], law: Licences) -> tuple[list[Finding], list[str]]:
    """Findings, and the names that are not installed here."""
    findings, missing = [], []
    for one in {one.name: one for one in requirements}.values():
        try:
            about = metadata.metadata(one.name).json
        except metadata.PackageNotFoundError:
            missing.append(one.name)
            continue
        problem = refused(one.name, stated(about), law)
        if problem:
            findings.append(Finding(problem, PATH, one.line))
    return findings, missing


def refused(name: str, says: Sequence[str], law: Licences) -> str | None:
    """Why a distribution that says this may not be asked for. Of several classifiers each must be allowed:
    they do not say whether one may choose."""
    agreed = {licence for one in law.exceptions if one.distribution == name for licence in one.licences}
    wrong = [
        licence
        for text in says
        if text not in agreed
        for licence in Expression(law.spelled.get(text, text), law).refused()
    ]
    if says and not wrong:
        return None
    is_under = f"is under {shorten(', '.join(wrong))}" if says else "states no licence"
    return f"{name} {is_under}: neither allowed nor excepted in {LAW}"


def shorten(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."


class Expression:
    """An SPDX licence expression: OR, then AND, then parentheses; `X WITH Y` is one licence."""

    def __init__(self, text: str, law: Licences) -> None:
        joined = re.sub(r"(\S+)\s+WITH\s+(\S+?)(?=[\s)]|$)", r"\1~WITH~\2", text, flags=re.IGNORECASE)
        self.words = re.findall(r"[()]|[^\s()]+", joined)
        self.text, self.law = text, law

    def refused(self) -> list[str]:
        """The licences that are not allowed; none where the expression holds without them. The whole text
        where it is no expression."""
        wrong = self._either()
        return [self.text] if self.words else wrong

    def _either(self) -> list[str]:
        choices = [self._all()]
        while self._take("OR"):
            choices.append(self._all())
        return min(choices, key=len)

    def _all(self) -> list[str]:
        wrong = self._one()
        while self._take("AND"):
            wrong += self._one()
        return wrong

    def _one(self) -> list[str]:
        if self._take("("):
            wrong = self._either()
            return wrong if self._take(")") else [self.text]
        licence = self.words.pop(0).replace("~", " ") if self.words else ""
        return [] if self.law.agrees(licence) else [licence or self.text]

    def _take(self, word: str) -> bool:
        if self.words and self.words[0].upper() == word:
            self.words.pop(0)
            return True
        return False
