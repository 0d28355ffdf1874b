"""The security gate: every kind of secret, licence and construct that it refuses is found, and what is right
passes. The secrets here are put together from parts, so that no line of this file holds one."""

from __future__ import annotations

import random
import string
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from gates.context import Context
from gates.law.files import LawError, parse, read
from gates.safety import constructs, licences, requirements, secrets
from gates.safety.licences import LAW, Expression, Licences
from gates.trees.checkout import Checkout
from gates.trees.lines import Line
from gates.trees.repository import Repository, Tree
from tests.gates.repositories import commit

from gates import security

ROOT = Path(__file__).parents[2]
PLACES = ("docs", "engine", "examples", "gates", "governance", "tests")
RANDOM = random.Random(3)
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's hash of no files


def signs(count: int, alphabet: str = string.ascii_letters + string.digits) -> str:
    """Random, and with both letters and digits as a real one has."""
    return "A1b2C3"[:count] + "".join(RANDOM.choice(alphabet) for _ in range(count - 6))


# --- secrets ----------------------------------------------------------------------------------------

UPPER = string.ascii_uppercase + string.digits
SECRETS = {
    "a private key": "-----BEGIN RSA " + "PRIVATE KEY-----",
    "a PuTTY private key": "PuTTY-User-" + "Key-File-3: ssh-ed25519",
    "an AWS access key": "key AK" + "IA" + "Q" * 10 + "234567",
    "a GitHub token": "gh" + "p_" + signs(36),
    "a GitLab token": "gl" + "pat-" + signs(20),
    "a Slack token": "xo" + "xb-" + signs(24),
    "a Slack webhook": "https://hooks.slack" + ".com/services/" + signs(30),
    "a PyPI token": "py" + "pi-Ag" + signs(60),
    "an npm token": "np" + "m_" + signs(36),
    "a Hugging Face token": "h" + "f_" + signs(34),
    "a Google API key": "AI" + "za" + signs(35),
    "a Stripe key": "sk_" + "live_" + signs(24),
    "a SendGrid key": "S" + "G." + signs(22) + "." + signs(43),
    "an API key (sk-..)": "s" + "k-proj-" + signs(40),
    "a JSON web token": "ey" + "J" + signs(20) + ".ey" + "J" + signs(30) + "." + signs(20),
    "a password in an address": "postgres://user:" + "s3cr3tw0rd" + "@host/db",
}


def found(text: str, path: str = "a.py") -> list[str]:
    return [str(one) for one in secrets.scan([Line(path, 7, text)]).findings]


def test_every_kind_of_secret_has_a_seeded_one() -> None:
    assert SECRETS.keys() == secrets.KINDS.keys()


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_found_and_never_shown(kind: str) -> None:
    (said,) = found(f'value = "{SECRETS[kind]}"' if kind != "a PuTTY private key" else SECRETS[kind])
    assert said.startswith(f"a.py:7: {kind}")
    assert not any(word in said for word in SECRETS[kind].split() if len(word) > 8)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('db_passw' + f'ord = "{signs(16)}"', "a.py"),
        ('{"api_' + f'key": "{signs(24)}"}}', "a.json"),
        ("config['client_sec" + f"ret'] = '{signs(24)}'", "a.py"),
        ("AUTH_TO" + f"KEN={signs(24)}", ".env"),
        ("  access_" + f"key: {signs(24)}", "a.yaml"),
        ("x" * 10_000 + 'tok' + f'en="{signs(24)}"', "a.js"),
    ],
)  # fmt: skip
def test_a_random_value_that_a_name_calls_secret_is_found(text: str, path: str) -> None:
    (said,) = found(text, path)
    assert "a secret by its name (not shown)" in said


@pytest.mark.parametrize(
    "text",
    [
        'token = "end_of_text_marker"',
        "token = tokenizer_of_the_model2",
        'password = os.environ["PASSWORD_OF_THE_DATABASE_1"]',
        'api_key: "${{ secrets.API_KEY_12 }}"',
        'secret = "<your-secret-here-123>"',
        'token_sha256 = "' + signs(64, "0123456789abcdef") + '"',
        "tokens = [17, 23, 42]",
        "https://example.org:8080/path@2",
        "risk-" + signs(30),
        signs(64),
        "",
    ],
)
def test_what_is_no_secret_passes(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize("text", ["a" * 300_000, 'token = "' * 30_000, "sk-" * 100_000, "\x00\udcff" * 9_000])
def test_a_long_or_binary_line_is_searched_within_seconds(text: str) -> None:
    begin = time.monotonic()
    assert found(text) == []
    assert time.monotonic() - begin < 10


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return Repository(tmp_path)


def snapshot(repository: Repository) -> Tree:
    """The files as they are, without a commit."""
    repository.git("add", "--all")
    return Tree("", "", repository.git("write-tree").strip())


def test_only_added_lines_are_searched_wherever_they_hide(repository: Repository) -> None:
    root, token = repository.root, SECRETS["a GitHub token"]
    (root / "old.txt").write_text(f"first\n{token}\nlast\n")
    before = snapshot(repository)
    (root / "old.txt").write_text(f"first\n{token}\nmiddle\nlast\n")
    (root / "new.txt").write_text(f"++ b/fake\n@@ -0,0 +9,9 @@\n\f{token}\n")
    (root / "spaced name.txt").write_text(f"a\r\n{token}")
    (root / "data.bin").write_bytes(b"\x00\xff\n" + token.encode() + b"\n\x00")
    (root / "called.binary").write_text(f"{token}\n")
    (root / ".gitattributes").write_text("*.binary -diff binary\n")
    searched = secrets.search(repository, before, snapshot(repository))
    assert sorted((one.path, one.line) for one in searched.findings) == [
        ("called.binary", 1), ("data.bin", 2), ("new.txt", 3), ("spaced name.txt", 2)
    ]  # fmt: skip
    assert not any(token in one.message for one in searched.findings)


def test_what_is_taken_away_is_no_finding(repository: Repository) -> None:
    (repository.root / "a.txt").write_text(SECRETS["a GitHub token"])
    before = snapshot(repository)
    (repository.root / "a.txt").unlink()
    searched = secrets.search(repository, before, snapshot(repository))
    assert (searched.lines, list(searched.findings)) == (0, [])


def test_a_secret_that_a_later_commit_takes_away_is_found_in_the_history(repository: Repository) -> None:
    root, token = repository.root, SECRETS["a GitHub token"]
    commit(root, {"README.md": "first\n"})
    before = repository.tree(repository.git("rev-parse", "HEAD").strip())
    commit(root, {"a.txt": f"{token}\n", "b.txt": f"{token}\n"})
    commit(root, {"a.txt": "nothing\n"})
    head = repository.tree("HEAD")
    known = secrets.search(repository, before, head).findings
    assert [one.path for one in known] == ["b.txt"]
    (one,) = secrets.passing(repository, before, head, known)
    assert (one.path, one.line) == ("a.txt", 1)
    assert one.message.endswith(f"it stays in commit {repository.git('rev-parse', 'HEAD~1')[:12]}")
    assert secrets.passing(repository, before, snapshot(repository), []) == []


def test_a_large_file_is_named_and_many_go_in_batches(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "MOST_BYTES", 2000)
    monkeypatch.setattr(secrets, "BATCH_BYTES", 3000)
    (repository.root / "large").write_text("x" * 2001)
    for number in range(5):
        (repository.root / f"{number}.txt").write_text("x\n" * 900)
    searched = secrets.search(repository, Tree("", "", EMPTY_TREE), snapshot(repository))
    assert (searched.lines, searched.too_large) == (4500, ["large"])


# --- licences and requirements ----------------------------------------------------------------------

SMALL_LAW = Licences(
    allowed=["MIT", "BSD-3-Clause", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"],
    spelled={"MIT License": "MIT", "Apache 2.0": "Apache-2.0"},
    exceptions=[
        licences.Exempt(distribution="odd", licences=["MPL-2.0"], reason="for tests only, and nothing else")
    ],
)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("MIT", []),
        ("mit and bsd-3-clause", []),
        ("GPL-3.0-only", ["GPL-3.0-only"]),
        ("MIT AND GPL-3.0-only", ["GPL-3.0-only"]),
        ("GPL-3.0-only OR MIT", []),
        ("(GPL-2.0-only OR GPL-3.0-only) AND MIT", ["GPL-2.0-only"]),
        ("MIT AND (GPL-3.0-only OR BSD-3-Clause)", []),
        ("(Apache-2.0 WITH LLVM-exception) AND MIT", []),
        ("MIT WITH LLVM-exception", ["MIT WITH LLVM-exception"]),
        ("MIT OR GPL-3.0-only AND MIT", []),
        ("MIT AND", ["MIT AND"]),
        ("(MIT", ["(MIT"]),
        ("MIT BSD-3-Clause", ["MIT BSD-3-Clause"]),
        ("", [""]),
    ],
)
def test_a_licence_expression_holds_or_names_what_is_not_allowed(text: str, wrong: list[str]) -> None:
    assert Expression(text, SMALL_LAW).refused() == wrong


@pytest.mark.parametrize(
    ("name", "about", "passes"),
    [
        ("a", {"license_expression": "MIT", "license": "GPL"}, True),
        ("a", {"license_expression": "MPL-2.0"}, False),
        ("odd", {"license_expression": "MPL-2.0"}, True),
        ("odd", {"license_expression": "GPL-3.0-only"}, False),
        ("a", {"classifier": ["License :: OSI Approved :: MIT License"], "license": "long text"}, True),
        ("a", {"classifier": ["License :: OSI Approved", "Typing :: Typed"], "license": "Apache 2.0"}, True),
        ("a", {"classifier": ["License :: Other/Proprietary License"], "license": "MIT"}, False),
        (
            "a",
            {"classifier": ["License :: OSI Approved :: MIT License", "License :: OSI Approved :: GPL"]},
            False,
        ),
        ("a", {"license": "MIT"}, True),
        ("a", {"license": "UNKNOWN"}, False),
        ("a", {}, False),
    ],
)
def test_what_a_distribution_states_decides(name: str, about: dict[str, object], passes: bool) -> None:
    problem = licences.refused(name, licences.stated(about), SMALL_LAW)
    assert (problem is None) == passes
    assert problem is None or LAW in problem


def test_the_list_of_licences_is_checked() -> None:
    for text in (
        "allowed: []\nspelled: {}\nexceptions: []\n",
        "allowed: [MIT]\nspelled: {GNU: GPL-3.0-only}\nexceptions: []\n",
        "allowed: [MIT]\nspelled: {}\nexceptions: [{distribution: a, licences: [X], reason: short}]\n",
        "allowed: [MIT]\nspelled: {}\n",
    ):
        with pytest.raises(LawError):
            parse(text, LAW, Licences)


PYPROJECT = """
[build-system]
requires = ["setuptools"]
[project]
name = "a"
dependencies = [
  "one>=1",  # for this and that
  "two>=2",
  # for the other thing
  "three",
]
[project.optional-dependencies] # extras
more = ["four", "five"] # both for more
[dependency-groups]
test = [
  "two>=2", # this time with a reason
  { include-group = "other" },
]
other = ["Six.x_y[extra]>=1"] #
[tool.x]
y = ["one>=1"]
"""


def test_a_requirement_without_a_reason_is_found(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    asked = requirements.read(tmp_path)
    assert [one.name for one in asked] == ["one", "two", "three", "four", "five", "two", "six-x-y"]
    assert [(one.line, one.message.split(":")[0]) for one in requirements.without_reason(asked)] == [
        (8, "two>=2"), (19, "Six.x_y[extra]>=1")
    ]  # fmt: skip


def test_a_distribution_that_is_not_installed_is_noted() -> None:
    asked = [
        requirements.Requirement("no-such-distribution>=1", 3, "x"),
        requirements.Requirement("pytest", 4, ""),
    ]
    findings, missing = licences.judge(asked, SMALL_LAW)
    assert (findings, missing) == ([], ["no-such-distribution"])


def test_vulnerabilities_of_known_versions_are_findings() -> None:
    known: list[dict[str, Any]] = [
        {"name": "one", "version": "1.0", "vulns": [{"id": "CVE-1", "fix_versions": ["1.1"]}]},
        {"name": "two", "version": "2.0", "vulns": []},
    ]
    assert [str(one) for one in security.vulnerabilities(known, {"one": 7})] == [
        "pyproject.toml:7: one 1.0 has CVE-1: fixed in 1.1"
    ]


SKIPPED = '{"dependencies": [{"name": "pytest", "skip_reason": "not found"}]}'
FLAWED = '{"dependencies": [{"name": "pytest", "version": "1", "vulns": [{"id": "CVE-2"}]}]}'


@pytest.mark.parametrize(
    ("answer", "note", "count"),
    [
        (SKIPPED, "not reachable", 0),
        ("no JSON", "not reachable", 0),
        (None, "not reachable", 0),
        (FLAWED, "1 of 1 distributions", 1),
    ],
)
def test_an_audit_without_a_network_gives_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str | None, note: str, count: int
) -> None:
    program = tmp_path / "pip-audit"
    write = "" if answer is None else f"printf '%s' '{answer}' > \"${{@: -1}}\""
    program.write_text(f"#!/usr/bin/env bash\n{write}\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(security, "tool", lambda name: str(program))
    here = Checkout(Tree("", "", ""), ROOT)
    context = Context(Repository(ROOT), here, here, 1, tmp_path, time.monotonic() + 60)
    findings, said = security.audited(context, [requirements.Requirement("pytest>=8", 3, "x")])
    assert note in said
    assert len(findings) == count


# --- constructs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from marshal import loads",
        "def f():\n    import shelve as s",
        "__import__('pickle')",
        "import importlib\nimportlib.import_module('pickle')",
        "eval('1')",
        "exec(text)",
        "import builtins\nbuiltins.eval('1')",
        "import os\nos.system('ls')",
        "import os as o\no.popen('ls')",
        "from os import system as run\nrun('ls')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import subprocess\nsubprocess.run('ls', shell=given)",
        "from subprocess import getoutput\ngetoutput('ls')",
        "import tempfile\ntempfile.mktemp()",
        "import yaml\nyaml.load(text)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
        "import yaml\nyaml.unsafe_load(text)",
        "from ruamel.yaml import YAML\nYAML(typ='unsafe')",
        "import numpy as np\nnp.load(path, allow_pickle=True)",
        "import socket",
        "import urllib.request",
        "from http.client import HTTPConnection",
        "import time\ntime.perf_counter = mine",
        "import time as clock\ndel clock.perf_counter",
        "import os.path\nos.path.exists = mine",
        "import sys\nsys.modules['__main__'].x = 1",
        "from sys import modules as all\nfirst, x.y = all",
        "def f(:",
    ],
)
def test_a_forbidden_construct_is_found(source: str) -> None:
    (one,) = constructs.python(source, "engine/volta/a.py")
    assert (one.path, one.line) == ("engine/volta/a.py", source.count("\n") + 1)


@pytest.mark.parametrize(
    "source",
    [
        "model.eval()\nself.exec(x)",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)\nyaml.safe_load(text)",
        "from ruamel.yaml import YAML\nYAML(typ='rt')",
        "import numpy as np\nnp.load(path, allow_pickle=False)",
        "from .pickle import jar\nfrom . import socket",
        "'import pickle'  # import pickle; eval(x)",
        "import os\nos.environ['A'] = 'b'\nself.time.clock = mine",
        "import warnings\nwarnings.showwarning = mine",
        "import importlib\nimportlib.import_module(name)",
    ],
)
def test_what_only_looks_like_one_passes(source: str) -> None:
    assert constructs.python(source, "engine/volta/a.py") == []


def test_the_network_is_forbidden_to_the_engine_only() -> None:
    assert constructs.python("import socket", "gates/a.py") == []


@pytest.mark.parametrize("call", constructs.C_CALLS)
def test_c_that_ends_prints_or_overruns_is_found(call: str) -> None:
    source = (
        f'/* {call}(1) */\n// {call}(1)\nchar *a = "{call}(1)"; /*\n*/ int my_{call}(void);\n  {call} (1);\n'
    )
    (one,) = constructs.c(source, "engine/csrc/a.c")
    assert (one.path, one.line) == ("engine/csrc/a.c", 5)


def test_bounded_c_passes() -> None:
    source = 'snprintf(a, n, "%d", 1);\nchar b = \'"\'; // " exit(\nvolta_exit(1); exited = 1;\n'
    assert list(constructs.c(source, "engine/csrc/a.c")) == []


def test_both_halves_of_a_tree_are_read(tmp_path: Path) -> None:
    for path, text in {
        "engine/volta/a.py": "eval('1')\n",
        "gates/b.py": "import pickle\n",
        "tests/c.py": "eval('1')\n",
        "engine/csrc/cpu/d.def": "ROW(exit(1))\n",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert [one.path for one in constructs.judge(tmp_path)] == [
        "engine/volta/a.py", "gates/b.py", "engine/csrc/cpu/d.def"
    ]  # fmt: skip


# --- this repository --------------------------------------------------------------------------------


def test_this_repository_passes() -> None:
    """Its files as they are: constructs, requirements, licences, and no secret in any line."""
    asked = requirements.read(ROOT)
    files = [
        path
        for pattern in ("*.md", "*.py", "*.toml", *(f"{place}/**/*" for place in PLACES))
        for path in sorted(ROOT.glob(pattern))
        if path.is_file() and path.suffix not in (".so", ".pyc")
    ]
    searched = secrets.scan(
        Line(path.relative_to(ROOT).as_posix(), number, line)
        for path in files
        for number, line in enumerate(path.read_text(errors="replace").split("\n"), 1)
    )
    refused, _ = licences.judge(asked, read(ROOT, LAW, Licences))
    found = [*searched.findings, *requirements.without_reason(asked), *refused, *constructs.judge(ROOT)]
    assert [str(one) for one in found] == []
    assert searched.lines > 10_000
    assert len(asked) > 20
