"""The law in words: clauses in order with what proves them, RFCs in form, workflows that run nox alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from gates.documents.markdown import slug
from gates.law.files import read
from gates.law.limits import PATH as LIMITS
from gates.law.limits import Limits
from gates.law.registers import OWNERS, RFCS, WAIVERS, Owners, Rfc, Rfcs, Waivers
from gates.law.tiers import PATH as TIERS
from gates.law.tiers import Tiers
from gates.registry import GATES
from ruamel.yaml import YAML

from gates import policy

ROOT = Path(__file__).resolve().parents[2]
GENERATED = {"capability.md"}  # from tables; the gate of that name compares
TEXTS = sorted({path.name for path in (ROOT / "governance").glob("*.md")} - GENERATED)
FIRST = {"determinism.md": ("N", 0), "memory.md": ("M", 1), "numerics.md": ("F", 1),
         "operations.md": ("O", 1), "performance.md": ("P", 1)}  # fmt: skip
TEMPLATE = ROOT / "governance" / "rfcs" / "0000-template.md"
SPAN = re.compile(r"`([^`]+)`")
FILE = re.compile(r"[\w./-]+\.(py|c|h|md|yaml|yml|json|def)|\.github/CODEOWNERS")


def limits() -> Limits:
    return read(ROOT, LIMITS, Limits)


def test_every_gate_has_a_session() -> None:
    """`nox` alone asks nine of them, in the order of the registry."""
    sessions = re.findall(
        r"^@nox\.session\((.*)\)\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.MULTILINE
    )
    assert set(GATES) <= {name for _, name in sessions}
    asked = [name for how, name in sessions if "default=False" not in how]
    assert asked == [name for name in GATES if name in asked]
    assert asked == [
        "fmt",
        "lint",
        "types",
        "policy",
        "tests",
        "parity",
        "determinism",
        "memory",
        "bench_smoke",
    ]


# --- clauses --------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Clause:
    """A row of a text's index, and the section that it names. proofs: the last cell."""

    name: str
    anchor: str
    proofs: str
    title: str = ""
    body: str = ""


def index(text: str) -> list[Clause]:
    """The rows of the table that begins with the column `clause`."""
    rows = []
    for line in text.split("\n| clause |", 1)[1].split("\n\n", 1)[0].splitlines()[2:]:
        first, *_, proofs = (cell.strip() for cell in line.strip("|").split("|"))
        match = re.fullmatch(r"\[(\w+)\]\(#([\w-]+)\)", first)
        assert match, line
        rows.append(Clause(match[1], match[2], proofs))
    return rows


def sections(text: str, letter: str) -> dict[str, tuple[str, str]]:
    """Clause -> title, body, for each heading that begins with the letter and a number."""
    found: dict[str, tuple[str, str]] = {}
    for part in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        title, _, body = part.partition("\n")
        if re.match(rf"{letter}\d+ ", title):
            name = title.split(" ")[0]
            assert name not in found, f"{name} stands there twice"
            found[name] = (title, body.strip())
    return found


def proving_files(proofs: str) -> Iterator[str]:
    """A bare name lies where the file before it lies, or at the root."""
    folder = ""
    for span in SPAN.findall(proofs):
        if not FILE.fullmatch(span):
            continue
        path = span if "/" in span or (ROOT / span).is_file() else f"{folder}/{span}"
        folder = path.rpartition("/")[0]
        yield path


def test_every_text_of_the_law_has_clauses() -> None:
    assert sorted(FIRST) == TEXTS


@pytest.mark.parametrize("name", TEXTS)
def test_clauses_are_numbered_without_gaps_and_listed_in_order(name: str) -> None:
    text, (letter, first) = (ROOT / "governance" / name).read_text(), FIRST[name]
    found = sections(text, letter)
    assert list(found) == [f"{letter}{number}" for number in range(first, first + len(found))]
    assert [row.name for row in index(text)] == list(found)
    for row in index(text):
        title, body = found[row.name]
        assert row.anchor == slug(title), f"{name}: the link of {row.name} leads nowhere"
        assert body, f"{name}: {row.name} says nothing"


@pytest.mark.parametrize("name", TEXTS)
def test_every_clause_names_files_that_prove_it_and_all_of_them_exist(name: str) -> None:
    for row in index((ROOT / "governance" / name).read_text()):
        files = list(proving_files(row.proofs))
        assert files, f"{name}: {row.name} names no file"
        missing = [path for path in files if not (ROOT / path).is_file()]
        assert not missing, f"{name}: {row.name} names {missing}"
        gates = re.findall(r"gate `(\w+)`", row.proofs)
        assert set(gates) <= set(GATES), f"{name}: {row.name} names gates that there are not"


def section(name: str, clause: str) -> str:
    return sections((ROOT / "governance" / name).read_text(), clause[0])[clause][1]


def test_figures_in_the_texts_are_those_of_the_limits() -> None:
    """A figure stands in two places, so that the texts can be read; they agree."""
    planning, timing, counters = limits().planning, limits().timing, limits().counters
    for clause, said in {
        "P1": f"at most {planning.uncached_p95_ms:g} ms",
        "P2": f"at most {planning.cached_p95_ms:g} ms",
        "P3": f"at least {planning.hit_rate:.0%}",
        "P5": f"`least_pairs` ({timing.least_pairs})",
        "P6": f"`confidence` ({timing.confidence:.0%})",
        "P7": f"`timing.noise` ({timing.noise:.0%})",
    }.items():
        assert said in unwrapped(section("performance.md", clause)), f"{clause} does not say {said!r}"
    assert f"`most_pairs` ({timing.most_pairs})" in unwrapped(section("performance.md", "P5"))
    assert f"`timing.margin` ({timing.margin:.0%})" in unwrapped(section("performance.md", "P7"))
    for counter, share in counters.model_dump().items():
        allowed = f"{share:.0%}" if share else "nothing"
        assert f"| {counter.replace('_', ' ')} | {allowed} |" in section("performance.md", "P4")


def unwrapped(text: str) -> str:
    return " ".join(text.split())


# --- what the texts claim of the tree ---------------------------------------------------------------
ALLOCATORS = re.compile(
    r"\b(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|valloc|alloca|mmap|strdup)\("
)


def functions(text: str) -> Iterator[tuple[str, str]]:
    """Each definition at the margin of a C file, as clang-format lays it out: its name, and all of it."""
    for part in re.split(r"(?<=^\})$", without_comments(text), flags=re.MULTILINE):
        match = re.search(r"^[a-z][\w \*]*?\b(\w+)\(", part, re.MULTILINE)
        yield (match[1] if match else ""), part


def without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def test_only_the_functions_that_m4_names_allocate() -> None:
    named = set(re.findall(r"`(\w+)`", section("memory.md", "M4").split("(")[1].split(")")[0]))
    found = set()
    for path in sorted((ROOT / "engine" / "csrc").rglob("*.[ch]")):
        for name, body in functions(path.read_text()):
            if ALLOCATORS.search(body):
                found.add((path.name, name))
            assert "pthread_create(" not in body or path.name == "pool.c", path
    assert found == {("program.c", name) for name in named}


def test_verdicts_on_bits_are_not_waived() -> None:
    """O9."""
    waived = {waiver.gate for waiver in read(ROOT, WAIVERS, Waivers).waivers}
    assert not waived & {"parity", "determinism"}


# --- RFCs -----------------------------------------------------------------------------------------
def headings(path: Path) -> list[str]:
    return re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE)


def register() -> list[Rfc]:
    return read(ROOT, RFCS, Rfcs).rfcs


@pytest.mark.parametrize("rfc", register(), ids=lambda rfc: rfc.id)
def test_an_rfc_has_its_text_in_the_templates_form(rfc: Rfc) -> None:
    path = ROOT / rfc.file
    assert path.read_text().startswith(f"# {rfc.id}: {rfc.title}\n")
    assert path.name.startswith(rfc.id.removeprefix("RFC-") + "-")
    assert headings(path) == headings(TEMPLATE)
    parts = re.split(r"^## .+$", path.read_text(), flags=re.MULTILINE)[1:]
    assert all(part.strip() for part in parts), "a heading has nothing below it"


def test_every_text_is_in_the_register_and_numbers_go_up() -> None:
    texts = sorted((ROOT / "governance" / "rfcs").glob("[0-9]*.md"))
    assert [f"governance/rfcs/{path.name}" for path in texts if path != TEMPLATE] == [
        rfc.file for rfc in register()
    ]
    assert all(one.id < other.id for one, other in pairwise(register()))


def test_the_process_names_every_state_in_order() -> None:
    text = (TEMPLATE.parent / "README.md").read_text()
    named = re.findall(r"^\| (\w+) \|", text.split("## States")[1].split("\n## ")[0], re.MULTILINE)
    assert tuple(named[1:]) == get_args(Rfc.model_fields["state"].annotation)


# --- pull requests --------------------------------------------------------------------------------
def test_code_owners_are_those_of_the_register() -> None:
    assert (ROOT / policy.CODEOWNERS).read_text() == read(ROOT, OWNERS, Owners).codeowners()


PULL_REQUEST = ROOT / ".github" / "PULL_REQUEST_TEMPLATE.md"


def test_the_template_asks_for_what_the_policy_gate_reads() -> None:
    text = PULL_REQUEST.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(policy.FIELDS)
    for part in re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]:
        lines = [line for line in part.splitlines() if line]
        assert lines
        assert all(re.fullmatch(r"<!-- .+ -->", line) for line in lines), "a comment is whole on its line"


def test_a_template_that_nobody_filled_in_is_a_finding_for_each_section(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tier = read(ROOT, TIERS, Tiers).tiers[0]
    monkeypatch.setenv(policy.BODY, str(PULL_REQUEST))
    assert len(list(policy.body(tier))) == len(policy.FIELDS)
    filled = re.sub(r"<!--.*-->", "T0: something", PULL_REQUEST.read_text())
    (tmp_path / "body.md").write_text(filled)
    monkeypatch.setenv(policy.BODY, str(tmp_path / "body.md"))
    assert list(policy.body(tier)) == []


# --- workflows ------------------------------------------------------------------------------------
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.y*ml"))
SESSIONS = ("gate", "tests", "lint", "quickstart", "nightly", "release", "system")
NOX = re.compile(rf"python3 noxfile\.py -s ({'|'.join(SESSIONS)})( -- [\w .\"/{{}}$-]+)?")
ACTIONS = {"actions/checkout", "actions/setup-python", "actions/upload-artifact", "actions/github-script"}
EXPRESSION = re.compile(r"\$\{\{.*?\}\}")
SAFE = {"${{ github.base_ref }}"}  # in a command: a branch of this repository, which maintainers name


def workflow(path: Path) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = YAML(typ="safe").load(path.read_text())
    return loaded


def steps(path: Path) -> list[Mapping[str, Any]]:
    return [step for job in workflow(path)["jobs"].values() for step in job["steps"]]


def test_the_workflows_are_these() -> None:
    assert [path.name for path in WORKFLOWS] == ["nightly-quality.yml", "pr-gates.yml", "release-gates.yml"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_step_runs_a_nox_session_or_uses_a_pinned_action(path: Path) -> None:
    for step in steps(path):
        assert ("run" in step) != ("uses" in step), step
        if "run" in step:
            assert NOX.fullmatch(step["run"]), step["run"]
            assert set(EXPRESSION.findall(step["run"])) <= SAFE, step["run"]
            assert set(step) <= {"run", "env", "name", "if"}, "no other shell, no other directory"
        else:
            action, _, version = step["uses"].partition("@")
            assert action in ACTIONS, action
            assert re.fullmatch(r"v\d+", version), step["uses"]


def test_the_sessions_exist() -> None:
    tree = ast.parse((ROOT / "noxfile.py").read_text())
    defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert set(SESSIONS) <= defined
    commands = [step["run"].split()[3] for path in WORKFLOWS for step in steps(path) if "run" in step]
    assert set(commands) == set(SESSIONS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_and_ends(path: Path) -> None:
    found = workflow(path)
    assert found["permissions"] == {"contents": "read"}
    assert "group" in found["concurrency"]
    assert "pull_request_target" not in found["on"], "it hands rights to a stranger's code"
    assert "secrets." not in path.read_text()
    for job in found["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 360
        assert not {"permissions", "defaults", "container", "services", "uses"} & set(job)
        checkout = next(step for step in job["steps"] if step.get("uses", "").startswith("actions/checkout@"))
        assert checkout["with"]["persist-credentials"] is False


def test_a_pull_requests_text_reaches_the_gate_as_a_file() -> None:
    """The script writes it from the event; neither script nor command has it interpolated."""
    path = ROOT / ".github" / "workflows" / "pr-gates.yml"
    job = workflow(path)["jobs"]["gate"]
    (script,) = (step for step in job["steps"] if step.get("uses", "").startswith("actions/github-script@"))
    _, gate = (step for step in job["steps"] if "run" in step)
    assert "${{" not in script["with"]["script"]
    assert script["env"] == gate["env"] == {policy.BODY: "${{ runner.temp }}/pull-request.md"}
    assert gate["run"] == 'python3 noxfile.py -s gate -- --base "origin/${{ github.base_ref }}"'
    assert job["steps"][0]["with"]["fetch-depth"] == 0
    assert job["if"] == "github.event_name == 'pull_request'"
    for text in ("github.event.pull_request.body", "github.event.pull_request.title", "github.head_ref"):
        assert text not in path.read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_evidence_is_kept_although_its_folder_is_hidden(path: Path) -> None:
    (upload,) = (step for step in steps(path) if step.get("uses", "").startswith("actions/upload-artifact@"))
    assert upload["with"]["path"] == ".gates/evidence"
    assert upload["with"]["include-hidden-files"] is True
    assert upload["if"] == "always()"
    days = upload["with"]["retention-days"]
    assert f"| {days} days" in section("operations.md", "O7")
