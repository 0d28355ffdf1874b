"""The tuner: an agent that reads which products to tune, searches with the clone's engine, leaves a table."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gates.trees.checkout import HOME, LIBRARY, sources_hash
from tasks.agents.adapters import find
from tasks.agents.prompt import prompt
from tasks.errors import TaskError
from tasks.files import Entry
from tasks.model import Task
from tests.gates.repositories import git, repository
from tests.ops.parity import isas
from tests.tasks.workshop import fields

import volta
from tasks.agents import tuner
from volta.backends.cpu import tuned
from volta.backends.cpu.tuned import Blocks

ROOT = Path(__file__).parents[2]
TABLES = "engine/volta/backends/cpu/tables/"
TUNABLE = pytest.mark.skipif(len(isas()) == 1, reason="this processor has no tiles to choose from")
# Imported by every Python that has the clone's engine on its path: times are made up, products with a side
# of 40 gain, others do not, and nothing is measured.
MADE_UP = """
from volta.bench import roofline
from volta.bench.roofline import Level, Roofline
from volta.tune import search
peaks = {"fma": 1e11, "add": 5e10, "divide": 1e10, "sqrt": 1e10, "bf16": 0.0, "i8": 2e11}
levels = (Level("memory", float("inf"), 1 << 27, 1e10, 1e10, 1e10),)
roofline.measure = lambda threads, isa: Roofline(threads, isa, peaks, levels, 2e-6)
def sample(bench, blocks):
    bench.sessions(blocks)
    return 1e-3 if blocks is not None and "40x40x40" in bench._key else 2e-3
search.Bench.sample = sample
search.KEPT = 2
search.copies = lambda graph: 1
"""


def told(*lines: str, allow: tuple[str, ...] = (TABLES,), **more: Any) -> str:
    """The prompt of a task whose why has these lines."""
    why = "\n".join(("Products of our model.", "", *lines, "", "Every bit stays."))
    task = Task(**fields("T-001", owner="agent:tuner", why=why, allow=list(allow)))
    return prompt(Entry(task, "tasks/queue/T-001-a.yaml", ""), more.pop("rules", ""), **more)


# --- what is asked for -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "products"),
    [
        (["tune: 256x128x128"], {"f32": ["256x128x128"]}),
        (["tune: 256x128x128, 64x96x256 f32"], {"f32": ["256x128x128", "64x96x256"]}),
        (["  tune: 1x2x3 bf16  "], {"bf16": ["1x2x3"]}),
        (
            ["tune: 8x8x8 int8", "tune: 8x8x8, 9x9x9, 8x8x8", "tune: 9x9x9, 7x7x7 f32"],
            {"int8": ["8x8x8"], "f32": ["8x8x8", "9x9x9", "7x7x7"]},
        ),
    ],
)
def test_lines_of_the_why_name_the_products(lines: list[str], products: dict[str, list[str]]) -> None:
    """By dtype, each once, in their order."""
    assert tuner.wanted(told(*lines)) == tuner.Wanted(products, TABLES)


@pytest.mark.parametrize(
    "line",
    [
        "tune:",
        "tune:8x8x8",
        "tune: 8x8",
        "tune: 8x8x8x8",
        "tune: 0x8x8",
        "tune: 08x8x8",
        "tune: 8x8x12345678",
        "tune: 8x8x8,9x9x9",
        "tune: 8x8x8 9x9x9",
        "tune: 8x8x8, f32",
        "tune: 8x8x8 f64",
        "tune: 8x8x8 f32 bf16",
        "tune: 8x8x8 f32.",
        "tune: 8x8x٣",
    ],
)
def test_a_line_that_is_none_of_the_grammar_is_named(line: str) -> None:
    """Also beside one that is right."""
    for lines in ([line], ["tune: 8x8x8", line]):
        with pytest.raises(TaskError) as caught:
            tuner.wanted(told(*lines))
        expected = "expected `tune: MxNxK[, MxNxK ..] [f32|bf16|int8]`"
        assert str(caught.value) == f"[tuner] {line!r} names no products: {expected}"


def test_only_the_tasks_own_text_names_products_and_only_what_it_allows_is_a_place() -> None:
    """Rules, earlier findings and what landed meanwhile name neither."""
    line = "tune: 8x8x8"
    more: dict[str, Any] = {"rules": f"{line}\n- `tables/`\n", "findings": [line], "intents": [line]}
    with pytest.raises(TaskError, match="the task names no products: expected lines `tune: MxNxK"):
        tuner.wanted(told("Please tune: 8x8x8", **more))
    assert tuner.wanted(told("tune: 9x9x9", **more)).products == {"f32": ["9x9x9"]}
    with pytest.raises(TaskError, match=r"^\[tuner\] docs/a.md may be changed: expected a path that ends in"):
        tuner.wanted(told(line, allow=("docs/a.md",), **more))


@pytest.mark.parametrize(
    ("allow", "place"),
    [
        (("docs/", TABLES), TABLES),
        (("tables/",), "tables/"),
        (("docs/tables.md", f"{TABLES}mine.json", TABLES), f"{TABLES}mine.json"),
        (("engine/", "engine/tables", "my-tables/", f"{TABLES}*.json", f"{TABLES}a/b.json", "a.json"), None),
    ],
)
def test_the_first_allowed_place_for_a_table_is_taken(allow: tuple[str, ...], place: str | None) -> None:
    if place is not None:
        assert tuner.wanted(told("tune: 8x8x8", allow=allow)).place == place
        return
    with pytest.raises(TaskError, match="expected a path that ends in tables/, or a "):
        tuner.wanted(told("tune: 8x8x8", allow=allow))


def test_what_the_task_does_not_say_is_exit_code_2_before_anything_is_done(tmp_path: Path) -> None:
    command, given = find("tuner").argv(told("tune: 8x8"))
    env = {**os.environ, **find("tuner").variables()}
    done = subprocess.run(
        command, input=given, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("[tuner] 'tune: 8x8' names no products: expected `tune: MxNxK[")
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


# --- the kernels -------------------------------------------------------------------------------------


def test_kernels_are_taken_from_where_the_clone_is_from(tmp_path: Path) -> None:
    """Compiled of the same sources they are; there is nothing here that could be compiled."""
    origin = repository(tmp_path / "origin", {"setup.py": "raise SystemExit(1)\n"})
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", "--shared", str(origin), str(clone))
    (clone / "engine/volta").mkdir(parents=True)
    kept = origin / HOME / "builds" / f"{sources_hash(clone)}.so"
    kept.parent.mkdir(parents=True)
    kept.write_bytes(b"compiled")
    tuner.compile_kernels(clone)
    assert (clone / LIBRARY).read_bytes() == b"compiled"
    assert git(clone, "status", "--porcelain", "--", HOME) == ""


# --- the whole of it ---------------------------------------------------------------------------------

Run = Callable[[str], tuple[int, list[str], str]]


def clone_of_the_engine(where: Path) -> Path:
    """A repository with the Python of this engine and, where git does not look, its kernels."""
    files = {".gitignore": "__pycache__/\n*.so\n", "engine/sitecustomize.py": MADE_UP}
    repository(where, files)
    own = Path(volta.__file__).parent
    shutil.copytree(own, where / "engine/volta", ignore=shutil.ignore_patterns("__pycache__", "tables"))
    git(where, "add", "--all")
    git(where, "commit", "--quiet", "-m", "the engine")
    builds = where / HOME / "builds"
    builds.mkdir(parents=True)
    shutil.copyfile(own / Path(LIBRARY).name, builds / f"{sources_hash(where)}.so")
    return where


def changed(clone: Path) -> list[str]:
    """Paths that git sees as changed, added or removed."""
    return [line.split()[1] for line in git(clone, "status", "--porcelain", "-uall").splitlines()]


def shown(clone: Path, cache: Path) -> dict[str, dict[str, Any]]:
    """What the clone's engine uses where nobody tuned anything."""
    env = {**os.environ, "PYTHONPATH": str(clone / "engine"), "VOLTA_CACHE": str(cache)}
    command = [sys.executable, "-m", "volta", "tune", "show", "--json"]
    done = subprocess.run(command, cwd=clone, env=env, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)["blocks"]
    return found


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    return clone_of_the_engine(tmp_path / "clone")


@pytest.fixture
def run(clone: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """The tuner in the clone: exit code, lines of standard output, standard error."""

    def run(given: str) -> tuple[int, list[str], str]:
        monkeypatch.chdir(clone)
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        code = tuner.main()
        out, err = capfd.readouterr()
        return code, out.splitlines(), err

    return run


@TUNABLE
def test_what_is_faster_ships_with_the_clone_and_the_rest_keeps_the_default(
    clone: Path, run: Run, tmp_path: Path
) -> None:
    code, lines, err = run(told("tune: 40x40x40, 30x50x70", "tune: 40x40x40 bf16"))
    assert code == 0, err
    *products, written, last = lines
    said = json.loads(last)
    assert {"tuned": said["tuned"], "kept_default": said["kept_default"]} == {"tuned": 2, "kept_default": 1}
    assert set(said["gain"].values()) == {2.0}
    assert [line.split(":")[0].split(" a rows")[0] for line in products] == [
        "f32 x f32 40x40x40",
        "f32 x f32 30x50x70",
        "bf16 x bf16 40x40x40",
    ]
    assert "tried, the best is 2.000 times as fast as the default" in products[0]
    assert "tried, the default is kept: the best is 1.000 times as fast" in products[1]
    (path,) = changed(clone)
    assert written == f"written to {clone / path}"
    assert path.startswith(f"{TABLES}tuned-")
    used = shown(clone, tmp_path / "empty")
    assert used.keys() == said["gain"].keys()
    assert {(one["from"], one["gain"]) for one in used.values()} == {("shipped", 2.0)}


@TUNABLE
def test_where_nothing_is_faster_no_file_changes(clone: Path, run: Run) -> None:
    code, lines, err = run(told("tune: 30x50x70"))
    assert code == 0, err
    assert lines[-2:] == [
        "nothing is surely faster than the default: no file is changed",
        json.dumps({"tuned": 0, "kept_default": 1, "gain": {}}),
    ]
    assert changed(clone) == []


@TUNABLE
def test_entries_that_the_file_has_stay(
    clone: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose product is searched in vain: nothing surely faster is no proof that it is slower."""
    monkeypatch.setenv("VOLTA_CACHE", str(tmp_path / "cache"))
    old = [f"f32 x f32 {m}x50x70 a rows/70 b rows/50 {isas()[-1]} 1 threads" for m in (29, 30)]
    tuned.add(dict.fromkeys(old, Blocks(kc=32, gain=1.25)))
    place = clone / TABLES / "mine.json"
    assert tuned.export(place) == 2
    before = tuned.read(place).blocks
    code, lines, err = run(told("tune: 30x50x70, 40x40x40", allow=(f"{TABLES}mine.json",)))
    said = json.loads(lines[-1])
    assert (code, said["tuned"], said["kept_default"]) == (0, 1, 1), err
    after = tuned.read(place).blocks
    assert before.items() < after.items()
    assert set(after) - set(before) == set(said["gain"])
    assert changed(clone) == [f"{TABLES}mine.json"]


@TUNABLE
def test_a_file_that_cannot_be_added_to_is_exit_code_1_before_the_search(clone: Path, run: Run) -> None:
    place = clone / TABLES / "mine.json"
    place.parent.mkdir()
    place.write_text("{")
    code, lines, err = run(told("tune: 40x40x40", allow=(f"{TABLES}mine.json",)))
    assert (code, lines) == (1, [])
    assert f"volta: [tuned] {place} is damaged" in err
    assert err.endswith("[tuner] the engine ended with exit code 1\n")
    assert place.read_text() == "{"


@TUNABLE
def test_a_product_that_the_engine_refuses_is_exit_code_1(clone: Path, run: Run) -> None:
    code, _, err = run(told("tune: 9999999x9999999x9999999"))
    assert code == 1
    assert "expected" in err
    assert err.endswith("[tuner] the engine ended with exit code 2\n")
    assert changed(clone) == []


def test_kernels_that_do_not_compile_and_a_directory_without_engine_are_exit_code_1(
    clone: Path, run: Run
) -> None:
    (clone / "setup.py").write_text("raise SystemExit('error: no compiler')\n")
    code, lines, err = run(told("tune: 40x40x40"))
    assert (code, lines) == (1, [])
    assert err == "[build] the kernels do not compile: error: no compiler\n"
    shutil.rmtree(clone / "engine")
    code, lines, err = run(told("tune: 40x40x40"))
    assert (code, lines) == (1, [])
    assert err == f"[tuner] {clone} has no engine/volta: expected to be started in a clone of Volta\n"


@TUNABLE
@pytest.mark.slow
def test_a_clone_compiles_its_kernels_and_searches_on_the_real_clock(tmp_path: Path) -> None:
    """As the harness starts it. What it finds is not judged here."""
    clone = repository(tmp_path / "clone", {".gitignore": (ROOT / ".gitignore").read_text()})
    unwanted = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info", "tables")
    shutil.copytree(ROOT / "engine", clone / "engine", ignore=unwanted)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(ROOT / name, clone / name)
    git(clone, "add", "--all")
    git(clone, "commit", "--quiet", "-m", "the engine")
    command, given = find("tuner").argv(told("tune: 256x128x128, 64x96x256, 128x512x768"))
    env = {**os.environ, **find("tuner").variables()}
    done = subprocess.run(
        command, input=given, cwd=clone, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["tuned"] + said["kept_default"] == 3
    assert all(gain >= 1.01 for gain in said["gain"].values())
    assert len(changed(clone)) == (said["tuned"] > 0)
    assert shown(clone, tmp_path / "empty").keys() == said["gain"].keys()
