"""The law is read with its line numbers, and decides as it is written."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest
from gates.law.files import LawError, parse, read
from gates.law.limits import Limits
from gates.law.registers import Owners, Rfcs, Waivers, rfcs_named
from gates.law.tiers import Tiers, matches
from gates.memory import Baseline
from gates.registry import FAST, GATES
from gates.trees.repository import EMPTY, SUBMODULE, SYMLINK, Change
from hypothesis import given
from hypothesis import strategies as st
from tests.gates.repositories import put

ROOT = Path(__file__).parents[2]
TIERS = """\
tiers:
  - id: T0
    title: judges
    paths: [gates/, "*conftest.py"]
    gates: [policy]
    approvals: 2
    rfc: true
  - id: T1
    title: engine
    paths: [engine/]
    gates: [parity]
    approvals: 1
  - id: T2
    title: texts
    paths: [docs/, README.md]
    gates: [docs]
    approvals: 1
"""
tiers = parse(TIERS, "tiers.yaml", Tiers)
PATHS = {
    "gates/x.py": "T0",
    "engine/a.c": "T1",
    "docs/a.md": "T2",
    "README.md": "T2",
    "odd/place": "T0",
    "engine/conftest.py": "T0",
    "README.md.sh": "T0",
}


def change(path: str, before: str = "", mode: str = "100644") -> Change:
    return Change("renamed" if before else "modified", path, before, "100644", mode, EMPTY, EMPTY)


@pytest.mark.parametrize(("path", "tier"), list(PATHS.items()))
def test_the_strictest_tier_names_a_path_and_an_unmatched_path_is_strictest(path: str, tier: str) -> None:
    assert tiers.of_path(path).id == tier


@given(st.lists(st.sampled_from(list(PATHS)), min_size=1), st.sampled_from(list(PATHS)))
def test_more_paths_never_make_a_change_less_strict(paths: list[str], more: str) -> None:
    fewer, all_of_them = (tiers.of(map(change, some)) for some in (paths, [*paths, more]))
    assert fewer is not None
    assert all_of_them is not None
    assert all_of_them.id <= fewer.id


def test_a_rename_is_of_both_places() -> None:
    assert tiers.of_change(change("docs/policy.md", before="gates/policy.py")).id == "T0"
    assert tiers.of_change(change("engine/a.c", before="docs/a.md")).id == "T1"


@pytest.mark.parametrize("mode", [SYMLINK, SUBMODULE])
def test_links_and_submodules_are_strictest(mode: str) -> None:
    assert tiers.of_change(change("docs/a.md", mode=mode)).id == "T0"


def test_no_change_has_no_tier() -> None:
    assert tiers.of([]) is None


def test_a_directory_is_no_prefix_of_a_name() -> None:
    assert not matches("docs/", "docs.md")
    assert not matches("docs/", "other/docs/a.md")
    assert matches("*.md", "a/b.md")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("tiers:\n  - id: T0\n    title: [\n", 4, "not YAML"),
        ("tiers:\n  - id: T0\n  - id: T0\n", 2, "title"),
        (TIERS.replace("approvals: 2", "approvals: two"), 6, "tiers.0.approvals"),
        (TIERS.replace("approvals: 2", "approvals: 2\n    approval: 3"), 7, "approval"),
        (TIERS.replace("paths: [engine/]", "paths: [../engine/]"), 8, "expected one from the repository"),
        (TIERS.replace("id: T1", "id: T0"), 1, "once each, strictest first"),
        ("tiers: []\n", 1, "at least 1 item"),
        ("[1, 2]\n", 1, "the file"),
        ("", 1, "the file"),
        ("tiers: &a [*a]\n", 1, ""),
        ("tiers: !!python/object/apply:os.system [true]\n", 1, ""),
    ],
)
def test_a_malformed_law_names_file_line_and_what_was_expected(text: str, line: int, said: str) -> None:
    with pytest.raises(LawError) as caught:
        parse(text, "governance/tiers.yaml", Tiers)
    message = str(caught.value)
    assert message.startswith("governance/tiers.yaml:")
    assert said in message
    assert caught.value.line == line
    assert "\n" not in message


def test_a_law_that_is_not_there_or_no_text_or_too_long_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(LawError, match="it is not there"):
        read(tmp_path, "governance/tiers.yaml", Tiers)
    (tmp_path / "x.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(LawError, match="no UTF-8 text"):
        read(tmp_path, "x.yaml", Tiers)
    (tmp_path / "x.yaml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(LawError, match="expected at most"):
        read(tmp_path, "x.yaml", Tiers)


def test_this_repository_has_a_readable_law() -> None:
    models = {
        "tiers": Tiers, "rfcs": Rfcs, "waivers": Waivers, "owners": Owners, "limits": Limits,
        "baselines/memory": Baseline,
    }  # fmt: skip
    found = {name: read(ROOT, f"governance/{name}.yaml", model) for name, model in models.items()}
    law = found["tiers"]
    assert isinstance(law, Tiers)
    assert set(law.tiers[0].gates) == {row.name for row in GATES.values() if row.set == FAST}
    for judge in (
        "gates/lint.py",
        "governance/new.yaml",
        "noxfile.py",
        ".github/workflows/x.yml",
        "x/conftest.py",
    ):
        assert law.of_path(judge).id == "T0"
    assert law.of_path("engine/csrc/cpu/ref/matmul.c").id == "T0"
    assert law.of_path("engine/csrc/cpu/simd/norm.h").id == "T1"
    assert law.of_path("engine/volta/backends/cpu/tuned.py").id == "T1"
    assert law.of_path("engine/volta/backends/cpu/tables/tuned-0.json").title == "Tuned tables"


def test_what_a_tier_leaves_to_a_later_one_that_does_not_name_it_is_strictest() -> None:
    one = {"id": "T0", "title": "law", "paths": ["gates/"], "gates": ["fmt"], "approvals": 1}
    two = {**one, "id": "T1", "paths": ["engine/"], "without": ["engine/data/", "engine/gone/"]}
    three = {**one, "id": "T2", "paths": ["engine/data/"]}
    law = Tiers.model_validate({"tiers": [one, two, three]})
    found = [law.of_path(path).id for path in ("engine/a.c", "engine/data/a", "engine/gone/a", "docs/a")]
    assert found == ["T1", "T2", "T0", "T0"]


WAIVER = """\
waivers:
  - id: W-001
    gate: docs
    scope: [docs/old/]
    reason: the pages go with the next release
    owner: someone
    expires: 2030-06-30
"""


def test_a_waiver_covers_its_gate_and_paths_until_its_day() -> None:
    found = parse(WAIVER, "w", Waivers)
    last, after = date(2030, 6, 30), date(2030, 7, 1)
    assert found.covering("docs", "docs/old/a.md", last) is not None
    assert found.covering("docs", "docs/old/a.md", after) is None
    assert found.covering("docs", "docs/new.md", last) is None
    assert found.covering("docs", "", last) is None
    assert found.covering("lint", "docs/old/a.md", last) is None
    assert found.expired(last) == []
    assert [waiver.id for waiver in found.expired(after)] == ["W-001"]


@pytest.mark.parametrize("key", ["gate", "scope", "reason", "owner", "expires"])
def test_a_waiver_says_everything(key: str) -> None:
    lines = [line for line in WAIVER.splitlines() if f"    {key}:" not in line]
    with pytest.raises(LawError, match=f"{key}: Field required"):
        parse("\n".join(lines) + "\n", "w", Waivers)


def test_codeowners_lists_paths_in_order() -> None:
    found = parse(
        'owners:\n  - paths: ["*"]\n    owners: ["@a"]\n  - paths: [x/]\n    owners: ["@b", "@c"]\n',
        "o",
        Owners,
    )
    assert found.codeowners().splitlines()[1:] == ["* @a", "/x/ @b @c"]


def test_rfcs_are_named_by_their_ids_alone(tmp_path: Path) -> None:
    put(tmp_path, {})
    assert rfcs_named(["RFC-0003: x", "see RFC-0001 and RFC-0003, not RFC-12 or XRFC-0002"]) == [
        "RFC-0003",
        "RFC-0001",
    ]
