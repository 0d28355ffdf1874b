"""The docs gate: every kind of thing that a document can get wrong is found, and what is right passes."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from gates.context import Context
from gates.docs import Seen, written
from gates.documents import blocks, commands, markdown, names, surface
from gates.documents.commands import Judge
from gates.documents.surface import Command, Surface
from gates.evidence.verdict import Finding
from gates.trees.checkout import Checkout
from gates.trees.repository import Repository, Tree

ROOT = Path(__file__).parents[2]
HELP = {"--help": False, "-h": False}
BENCH = Command(HELP, commands={"gemm": Command(HELP | {"--sizes": True, "--markdown": False})})
RUN = Command(HELP | {"--text": True, "--train": False}, most=1, least=1)
VOLTA = Command(HELP | {"--debug": False}, commands={"bench": BENCH, "plan": RUN, "train": RUN})
SURFACE = Surface(
    VOLTA,
    {"gates": Command(HELP, commands={"lint": Command(HELP | {"--base": True})})},
    {"tests": (), "bench": ("volta", "bench")},
    frozenset({"matmul"}),
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small repository: two pages, an engine, a variable."""
    for path in ("engine/volta/ir/ops.py", "engine/csrc/volta.h", "tests/ops/test_add.py", "examples/a.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "engine/volta/policy.py").write_text('ISA = environ["VOLTA_ISA"]\nVOLTA_NEEDS_AMX = 1\n')
    (tmp_path / "noxfile.py").write_text("")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/deep.md").write_text("# Deep\n\n## The `plan`, again!\n\n## Twice\n\n## Twice\n")
    return tmp_path


def judge(tree: Path, text: str, path: str = "README.md") -> list[Finding]:
    """All findings of one page that need no process."""
    (tree / path).write_text(text)
    seen = Seen()
    written(tree, [one for one in markdown.documents(tree) if one.path == path], SURFACE, seen)
    return seen.findings


def known(tree: Path, text: str) -> list[str]:
    """Findings of links, for which the other pages must be read too."""
    (tree / "README.md").write_text(text)
    seen = Seen()
    written(tree, markdown.documents(tree), SURFACE, seen)
    return [str(one) for one in seen.findings]


@pytest.mark.parametrize(
    "link",
    [
        "[a](docs/deep.md)",
        "[a](docs/deep.md#deep)",
        "[a](docs/deep.md#the-plan-again)",
        "[a](docs/deep.md#twice-1)",
        "[a](engine/csrc/volta.h#L3-L5)",
        "[a](/docs)",
        "[a](https://example.org/nothing#here)",
        "[a](#title)",
        '<a href="docs/deep.md">a</a>',
        "[a][r]\n\n[r]: docs/deep.md",
        "    [a](nowhere.md)",  # code
    ],
)
def test_a_link_that_leads_somewhere_passes(tree: Path, link: str) -> None:
    assert known(tree, f"# Title\n\n{link}\n") == []


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("[a](docs/gone.md)", "leads to docs/gone.md, which is not there"),
        ("![a](docs/gone.svg)", "docs/gone.svg"),
        ("[a](docs/deep.md#shallow)", "no heading of docs/deep.md has that anchor"),
        ("[a](docs/deep.md#twice-2)", "#twice-2"),
        ("[a](#other)", "#other"),
        ("[a](../outside.md)", "../outside.md"),
        ('<img src="docs/gone.png">', "docs/gone.png"),
        ("[a][r]\n\n[r]: docs/gone.md", "docs/gone.md"),
    ],
)
def test_a_link_that_leads_nowhere_is_found_on_its_line(tree: Path, link: str, says: str) -> None:
    (one,) = known(tree, f"# Title\n\nsome words\nand {link}\n")
    assert says in one
    assert one.startswith("README.md:4: ")


@pytest.mark.parametrize(
    "span",
    [
        "engine/csrc/volta.h", "csrc/volta.h", "volta.h", "ir/ops.py", "ops.py", "ir/", "../volta/ir/ops.py",
        "tests/ops/test_*.py", "tests/ops/test_add.py::test_x", "ir/ops.py:12",
        "run/", "run/trace.json", ".venv", ".nox/x/bin/volta", "docs/FILE", "docs/NAME.md", "~/.cache/volta",
        "1/n", "volta-bench/1", "f32/bf16", "origin/main", "a.b",
    ],
)  # fmt: skip
def test_a_path_that_is_there_or_need_not_be_passes(tree: Path, span: str) -> None:
    assert judge(tree, f"see `{span}`\n") == []


@pytest.mark.parametrize(
    "span", ["engine/csrc/gone.h", "ir/gone.py", "gone.py", "gone.def", "backends/", "tests/ops/sub_*.py"]
)
def test_a_path_that_is_not_there_is_found(tree: Path, span: str) -> None:
    (one,) = judge(tree, f"a line\n\nsee `two\nlines` and `{span}`\n")
    assert f"`{span}` is not there" in one.message
    assert one.line == 4


def test_variables_and_names_of_the_api_are_held_against_the_sources(tree: Path) -> None:
    assert judge(tree, "`VOLTA_ISA=ref`, `VOLTA_NEEDS_..`, `vt.matmul(a, b)`\n") == []
    said = " ".join(
        map(str, judge(tree, "`VOLTA_GONE`, `VOLTA_WANTS_..`, `vt.gone(a)`\n\n    VOLTA_LOST=1\n"))
    )
    assert "VOLTA_GONE is in no source" in said
    assert "VOLTA_WANTS_ is in no source" in said
    assert "volta has no gone" in said
    assert "README.md:3: VOLTA_LOST" in said


@pytest.mark.parametrize(
    "command",
    [
        "volta",
        "volta bench gemm|gemm",
        "volta bench gemm --sizes 1,2 [--markdown]   # a comment",
        "volta bench gemm --sizes=1",
        "volta plan run/ --train",
        "volta plan run/ --text -3",
        "volta train run/ --debug",
        "volta plan --help",
        "$ VOLTA_ISA=ref volta plan F | head -3",
        "volta bench ..",
        ".nox/bench/bin/volta plan F",
        "python -m volta plan F",
        "python3 noxfile.py -s tests -- tests/ops -k softmax",
        "nox -s tests bench",
        "nox -s bench -- gemm --sizes 1",
        "nox -s NAME",
        "nox -l",
        "python -m gates lint --base X",
        "python -m pip install x",
        "python examples/a.py",
        "engine/volta  cli > tune",  # a picture, not a command
    ],
)
def test_a_command_that_there_is_passes(tree: Path, command: str) -> None:
    assert judge(tree, f"text\n\n    {command}\n\n`{command}`\n") == []


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("volta gone", "`volta` has no command gone: it has bench, plan, train"),
        ("volta bench gemm|gone", "`volta bench` has no command gone"),
        ("volta bench gemm --size 1", "`volta bench gemm` has no option --size"),
        ("volta plan a b", "takes 1 arguments, here it has 2"),
        ("volta plan", "takes 1 arguments, here it has 0"),
        ("volta plan F --text", "--text takes a value"),
        ("volta plan F \\\n    --gone", "no option --gone"),
        ("python -m volta gone", "no command gone"),
        ("python3 noxfile.py -s gone", "the noxfile has no gone: it has tests, bench"),
        ("nox -s tests gone", "no gone"),
        ("nox -s bench -- gone", "`volta bench` has no command gone"),
        ("nox -s tests -- tests/gone.py", "tests/gone.py is not there"),
        ("python -m gates gone", "`gates` has no command gone"),
        ("python examples/gone.py", "examples/gone.py is not there"),
    ],
)
def test_a_command_that_there_is_not_is_found_on_its_line(tree: Path, command: str, says: str) -> None:
    (one,) = judge(tree, f"text\n\n```sh\nls\n{command}\n```\n")
    assert says in one.message
    assert (one.path, one.line) == ("README.md", 5)


def test_a_span_may_leave_out_what_a_line_to_copy_may_not(tree: Path) -> None:
    assert judge(tree, "`volta plan` and `volta plan --text`\n") == []
    assert len(judge(tree, "`volta gone`\n")) == 1


def test_a_changelog_may_name_what_was(tree: Path) -> None:
    gone = "- `volta gone`, `gone.py`, `VOLTA_GONE`, `vt.gone`\n"
    text = f"# Changelog\n\n## [Unreleased]\n\n### Removed\n\n{gone}\n## [0.1.0]\n\n### Added\n\n{gone}"
    assert judge(tree, text, "CHANGELOG.md") == []
    assert len(judge(tree, f"# Changelog\n\n## [Unreleased]\n\n### Added\n\n{gone}", "CHANGELOG.md")) == 4
    assert len(judge(tree, gone)) == 4


def test_documented_commands_are_listed_once(tree: Path) -> None:
    page = markdown.read("`volta bench gemm|gone`, `python -m volta plan F`, `nox -s tests`\n", "README.md")
    assert commands.documented(list(commands.shown(page)), VOLTA) == [
        (), ("bench",), ("bench", "gemm"), ("plan",)
    ]  # fmt: skip


def test_the_noxfile_is_read_without_running_it() -> None:
    source = (
        "@nox.session\ndef one(session):\n    session.run('pytest', *session.posargs)\n"
        "@nox.session(name='a-b', default=False)\ndef two(session):\n"
        "    session.run('python', '-m', 'gates', 'lint', *(session.posargs or ('x',)))\n"
        "def three(session): pass\n"
    )
    assert surface.nox_names(source) == {"one": (), "a-b": ("gates", "lint")}


def test_an_answer_that_is_none_is_refused() -> None:
    for answer in ("", "Traceback", "[]", '{"volta": null}'):
        with pytest.raises(ValueError):
            surface.survey(answer, "")


# --- Python in documents --------------------------------------------------------------------------


@pytest.fixture
def context() -> Iterator[Context]:
    """With this repository's engine."""
    here = Checkout(Tree("", "", ""), ROOT)
    with tempfile.TemporaryDirectory() as scratch:
        yield Context(Repository(ROOT), here, here, 1, Path(scratch), time.monotonic() + 120)


def block_of(text: str, path: str = "docs/a.md") -> tuple[markdown.Piece, blocks.Read]:
    (block,) = blocks.python_blocks(markdown.read(text, path))
    return block, blocks.read(block, path)


def fenced(code: str, before: str = "") -> str:
    return f"# Title\n\n{before}\n```python\n{code}\n```\n"


def test_python_must_compile() -> None:
    finding = block_of(fenced("x = 1\nreturn (x"))[1].finding
    assert finding is not None
    assert (finding.path, finding.line) == ("docs/a.md", 6)
    assert block_of(fenced("return 1"))[1].finding is not None
    assert block_of(fenced("import volta\nx[..., 0]"))[1] == blocks.Read()


def test_what_is_not_run_has_a_reason() -> None:
    assert "..." in block_of(fenced("def f():\n    ..."))[1].not_run
    marked = fenced("gone()", "<!-- not run: it needs a GPU -->\n")
    assert block_of(marked)[1].not_run == "it needs a GPU"
    apart = fenced("gone()", "<!-- not run: it needs a GPU -->\n\nWords.\n")
    assert block_of(apart)[1] == blocks.Read()


@pytest.mark.parametrize(
    ("code", "path", "says"),
    [
        ("import volta as vt\nassert float(vt.ones((2,)).numpy()[0]) == 1", "README.md", ""),
        ("import volta as vt\nvt.gone()", "docs/a.md", "has no attribute 'gone'"),
        ("open('gone.txt')", "README.md", "FileNotFoundError"),
    ],
)
def test_a_block_runs_with_the_heads_engine(context: Context, code: str, path: str, says: str) -> None:
    block, _ = block_of(fenced(code), path)
    finding = blocks.run_block(context, block, path).finding
    assert (finding is None) == (not says)
    assert finding is None or says in finding.message


def test_a_block_that_needs_a_file_is_not_run_but_in_the_readme(context: Context) -> None:
    block, _ = block_of(fenced("open('gone.txt')"))
    assert blocks.run_block(context, block, "docs/a.md").not_run.startswith("it needs a file")


def test_a_block_that_hangs_is_found(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK_S", 0.2)
    block, _ = block_of(fenced("while True: pass"))
    finding = blocks.run_block(context, block, "docs/a.md").finding
    assert finding is not None
    assert "longer" in finding.message


def test_help_of_a_command_that_fails_is_found(context: Context) -> None:
    assert blocks.run_help(context, ("bench", "gemm")) is None
    finding = blocks.run_help(context, ("gone",))
    assert finding is not None
    assert "`volta gone --help` fails" in finding.message


def test_an_example_that_fails_is_found(tree: Path, context: Context) -> None:
    (tree / "examples/b.py").write_text("raise SystemExit('seeded')\n")
    here = Checkout(Tree("", "", ""), tree)
    broken = Context(Repository(tree), here, here, 1, context.evidence, context.deadline)
    assert [str(one) for one in blocks.run_examples(broken)] == ["examples/b.py: it fails: seeded"]


# --- this repository --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real() -> Surface:
    done = subprocess.run(
        [sys.executable, "-c", surface.ASK.read_text()],
        cwd=ROOT, env={"PYTHONPATH": f"{ROOT / 'engine'}:{ROOT}"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return surface.survey(done.stdout, (ROOT / "noxfile.py").read_text())


def test_what_this_repository_says_is_there(real: Surface) -> None:
    seen = Seen()
    shown = written(ROOT, markdown.documents(ROOT), real, seen)
    assert [str(one) for one in seen.findings] == []
    assert seen.names > 100
    assert len(shown) > 50


def test_the_real_commands_are_known_and_a_wrong_one_is_not(real: Surface) -> None:
    judge = Judge(real, names.Places(ROOT))

    def problems(text: str) -> list[str]:
        page = markdown.read(f"```sh\n{text}\n```\n", "README.md")
        return [str(found) for one in commands.shown(page) for found in judge.findings(one)]

    assert problems("volta train --text DIR --dtype bf16 --out run/") == []
    assert problems("python -m gates lint --base HEAD") == []
    assert problems("python3 noxfile.py -s peers -- gemm --peers numpy") == []
    assert "no option --dtyp" in problems("volta train --text DIR --dtyp bf16")[0]
    assert "no command gem" in problems("python3 noxfile.py -s peers -- gem")[0]
