"""A small repository with a law, a queue and scripts for agents: what the tests of the loop share."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from gates.trees.repository import Repository
from tasks.agents.adapters import Agent
from tasks.attempt import Shop
from tasks.evidence.ledger import Ledger, Record
from tasks.files import QUEUE, Entry, slug, to_text
from tasks.landing import Target
from tasks.publish import publish, queue_of
from tests.gates.repositories import repository

AGENTS = Path(__file__).parent / "agents"
TIERS = """\
tiers:
  - {id: T0, title: law, paths: [gates/, governance/, tests/], gates: [fmt, policy], approvals: 2, rfc: true}
  - {id: T1, title: code, paths: [src/], gates: [fmt, policy], approvals: 1}
  - {id: T2, title: texts, paths: [docs/, AGENTS.md, PRD.md, tasks.yaml], gates: [fmt], approvals: 1}
"""
LAW = {
    "governance/tiers.yaml": TIERS,
    "governance/rfcs.yaml": "rfcs: []\n",
    "governance/waivers.yaml": "waivers: []\n",
    "governance/owners.yaml": 'owners:\n  - paths: ["*"]\n    owners: ["@me"]\n',
    ".github/CODEOWNERS": "",
    "AGENTS.md": "# Working here\n\n## Rules\n\n1. Parity before speed.\n2. One change a branch.\n",
    ".gitignore": "__pycache__/\n",
    "src/a.py": "x = 1\n",
    "docs/a.md": "a\n",
    "tests/test_a.py": "def test_a() -> None:\n    assert 1 + 1 == 2\n",
}


def fields(name: str, title: str = "", **more: Any) -> dict[str, Any]:
    """A task that wants docs/NAME.md, and nothing else."""
    file = f"docs/{name.lower()}.md"
    found = {
        "id": name,
        "title": title or f"Write the text {name}",
        "why": "So that there is something to read.",
        "owner": "agent:writer",
        "allow": [file],
        "commands": {"look": f"python -c \"print(open('{file}').read())\""},
        "expect": [{"command": "look", "output": ["word"]}],
        "acceptance": [{"says": "It has a word", "by": "command:look"}],
        "budget": {"minutes": 2, "attempts": 1},
    }
    return {**found, **more}


def files(*tasks: dict[str, Any]) -> dict[str, str]:
    return {f"{QUEUE}/{one['id']}-{slug(one['title'])}.yaml": to_text(one) for one in tasks}


def workshop(where: Path, *tasks: dict[str, Any], more: dict[str, str] | None = None, **how: Any) -> Shop:
    """how: fields of Shop."""
    root = repository(where / "it", {**LAW, **files(*tasks), **(more or {})})
    made = Repository(root)
    ledger, target = Ledger(made), Target.of(made)
    shop = Shop(made, ledger, target, lambda: None, sandboxed=False)
    return replace(shop, publish=lambda: publishing(shop), **how)


def publishing(shop: Shop) -> None:
    publish(shop.repository, shop.ledger, shop.target)


def entry(shop: Shop, name: str = "T-001") -> Entry:
    return queue_of(shop.repository, shop.target.tip())[name]


def agent(script: str, *arguments: str, **how: Any) -> Agent:
    """A script of tests/tasks/agents."""
    return Agent(script, (sys.executable, str(AGENTS / f"{script}.py"), *arguments), **how)


def kinds(shop: Shop, name: str = "T-001") -> list[str]:
    return [one.kind for one in records(shop, name)]


def records(shop: Shop, name: str = "T-001") -> list[Record]:
    return [one for one in shop.ledger.records() if one.task == name]


def last(shop: Shop, name: str = "T-001") -> Record:
    return records(shop, name)[-1]
