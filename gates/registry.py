"""The gates, a row each, in the order in which they run."""

from __future__ import annotations

from dataclasses import dataclass

FAST, SLOW = "fast", "slow"


@dataclass(frozen=True, slots=True)
class Row:
    """module: in this package, with check(context). set: fast ones are `nox`, slow ones the nightly's.
    limit_s: how long it may take before it counts as hung. exclusive: no other gate runs on this host
    meanwhile."""

    name: str
    says: str
    set: str
    limit_s: int
    exclusive: bool = False
    version: int = 1

    @property
    def module(self) -> str:
        return f"gates.{self.name}"


GATES = {
    row.name: row
    for row in (
        Row("fmt", "formatting: ruff format, clang-format", FAST, 300),
        Row("lint", "style, import edges, forbidden flags, kernel names, generated files", FAST, 600),
        Row("types", "mypy --strict over engine, gates, tasks and noxfile", FAST, 600),
        Row("policy", "tiers, RFCs, waivers, owners, and what a diff does to its judges", FAST, 120),
        Row("tests", "the head's tests, the base's where they were changed, the coverage floor", FAST, 1800),
        Row("coverage", "the tests run the lines that a change adds", FAST, 1800),
        Row(
            "parity",
            "every operation on every ISA equals the base's plain C, all bits",
            FAST,
            1200,
        ),
        Row(
            "determinism",
            "one hash over threads, ISA, batch, chunks, fusion, tuning",
            FAST,
            1200,
            exclusive=True,
        ),
        Row("memory", "planned peak = measured peak, no growth, no more than before", FAST, 900),
        Row(
            "bench_smoke",
            "instructions, allocations, bytes, steps do not grow; time by pairs",
            FAST,
            1800,
            exclusive=True,
        ),
        Row("bench", "larger cases take no more time, on one thread and on all", SLOW, 5400, exclusive=True),
        Row("sanitizers", "kernels under ASan, UBSan and memcheck report nothing", SLOW, 3600),
        Row(
            "planning",
            "compile time and plan-cache hits keep governance/performance.md",
            SLOW,
            900,
            exclusive=True,
        ),
        Row("api", "public names: what goes needs a line in the changelog", FAST, 120),
        Row("capability", "governance/capability.md is what the tables say", FAST, 120),
        Row("docs", "every command and name in README, docs and governance exists", FAST, 600),
        Row("security", "secrets, licences of dependencies, known vulnerabilities", FAST, 300),
    )
}
