"""volta tune as a user meets it: what it prints, what it keeps, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.ops.parity import isas
from tests.tune.products import KINDS, step_of

from volta.backends.cpu import tuned
from volta.bench import roofline
from volta.bench.roofline import Roofline
from volta.bench.statistics import Ratio
from volta.cli import main
from volta.cli import tune as cli
from volta.model.config import Config
from volta.plan.steps import Step
from volta.runtime import gateway
from volta.runtime.gateway import Blocks
from volta.train.loop import Settings, Trainer
from volta.train.schedule import Schedule
from volta.train.synthetic import synthetic_text
from volta.tune import search
from volta.tune.grid import Problem
from volta.tune.search import Found

FAST = isas()[1:]
pytestmark = pytest.mark.skipif(not FAST, reason="this processor has no tiles to choose from")
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def volta(cache: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `volta ARGUMENTS` in this process: exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, printed.out, printed.err

    return run


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, ceiling: Roofline) -> dict[str, float]:
    """Seconds of the default and of all others, which run once and are not timed. Change them to change what
    is found."""
    seconds = {"default": 2e-3, "others": 1e-3}

    def sample(bench: search.Bench, blocks: Blocks | None) -> float:
        bench.sessions(blocks)
        return seconds["default" if blocks is None else "others"]

    monkeypatch.setattr(roofline, "measure", lambda threads, isa: ceiling)
    monkeypatch.setattr(search.Bench, "sample", sample)
    monkeypatch.setattr(search, "KEPT", 2)
    monkeypatch.setattr(search, "copies", lambda graph: 1)
    return seconds


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one small block after two steps."""
    directory = tmp_path_factory.mktemp("tune") / "run"
    config = Config(vocabulary=128, context=16, depth=1, width=32, heads=2, kv_heads=2)
    settings = Settings(config, Schedule("constant", 1e-3, 2, 0, 0.1), batch=2, seed=1, evaluate_every=0)
    for _ in Trainer(settings, synthetic_text(5000), directory).steps():
        pass
    return directory


def one(median: float, kept: bool) -> Found:
    problem = Problem("f32", 1, 1, 1, True, True)
    return Found(
        "key", problem, 1e-3, Ratio(median, 1.0, 2.0, 0.97, 6), Blocks(gain=median) if kept else None, 5, 9
    )


# --- matmul ------------------------------------------------------------------------------------------


def test_matmul_keeps_what_is_faster_and_says_where(volta: Command, made_up: dict[str, float]) -> None:
    code, out, err = volta("tune", "matmul", "--dim", 40, "--shapes", "30x50x70, 64x33x96", "--runs", 1)
    assert code == 0, err
    path = gateway.tuned_path()
    assert f"kept in {path}: matmul uses it from now on" in out
    assert "faster than the default: 3 of 3 products, the most by 100.0%" in out
    assert "3 of 3: f32 x f32 40x40x40 a rows/40 b rows/40" in err
    entries = tuned.read(path).blocks
    assert [re.search(r"\d+x\d+x\d+", key)[0] for key in entries] == ["30x50x70", "40x40x40", "64x33x96"]  # type: ignore[index]
    assert {blocks.gain for blocks in entries.values()} == {2.0}


@pytest.mark.parametrize("dtype", ["f32", "bf16", "int8"])
@pytest.mark.parametrize("isa", FAST)
def test_matmul_prints_json_for_every_dtype_and_instruction_set(
    volta: Command, made_up: dict[str, float], dtype: str, isa: str
) -> None:
    code, out, err = volta(
        *("tune", "matmul", "--shapes", "30x50x70", "--dtype", dtype, "--isa", isa, "--threads", 2, "--json")
    )
    assert code == 0, err
    document = json.loads(out)
    (product,) = document["products"]
    assert product["key"].endswith(f"{isa} 2 threads")
    assert product["key"].startswith({"int8": "i8"}.get(dtype, dtype))
    assert product["default_seconds"] == 2e-3
    assert product["default_over_best"]["median"] == 2.0
    assert 0 < product["timed"] <= product["grid"]
    assert document["path"] == str(gateway.tuned_path())
    assert Blocks(**product["blocks"]) == gateway.tuned_table().blocks[product["key"]]


def test_a_default_that_is_as_fast_is_said_so_and_nothing_is_written(
    volta: Command, made_up: dict[str, float]
) -> None:
    made_up["others"] = made_up["default"]
    code, out, _ = volta("tune", "matmul", "--dim", 20)
    assert code == 0
    assert "the default is within 0.0% of the best of the grid for 1 product" in out
    assert "kept in" not in out
    assert not gateway.tuned_path().exists()


def test_a_later_search_that_finds_nothing_takes_the_entry_out(
    volta: Command, made_up: dict[str, float]
) -> None:
    volta("tune", "matmul", "--shapes", "20x20x20,21x20x20")
    assert len(gateway.tuned_table().blocks) == 2
    made_up["others"] = made_up["default"]
    volta("tune", "matmul", "--shapes", "20x20x20")
    (key,) = gateway.tuned_table().blocks
    assert "21x20x20" in key


# --- model -------------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, ceiling: Roofline) -> list[tuple[str, str, int]]:
    """Key, instruction set and threads of every product that is to be tuned: none is."""
    found: list[tuple[str, str, int]] = []

    def tune(key: str, step: Step, isa: str, threads: int, *_: object) -> Found:
        assert search.graph_of(step) is not None
        found.append((key, isa, threads))
        return replace(one(1.5, True), key=key)

    monkeypatch.setattr(roofline, "measure", lambda threads, isa: ceiling)
    monkeypatch.setattr(cli, "tune", tune)
    return found


def test_a_models_products_are_those_of_its_step_and_of_a_token(
    volta: Command, asked: list[tuple[str, str, int]], run_directory: Path
) -> None:
    keys: dict[str, set[str]] = {}
    for option in ("--train", "--no-train", "--no-generate"):
        asked.clear()
        code, out, err = volta("tune", "model", run_directory, "--json", option)
        assert code == 0, err
        keys[option] = {key for key, _, _ in asked}
        assert {product["key"] for product in json.loads(out)["products"]} == keys[option]
    assert keys["--train"] == keys["--no-train"] | keys["--no-generate"]
    assert keys["--no-train"] == {key for key in keys["--train"] if " 1x" in key}
    assert {"32x96x32", "32x32x32"} <= {key.split()[3] for key in keys["--no-generate"]}
    assert set(gateway.tuned_table().blocks) == keys["--train"]


@pytest.mark.parametrize("isa", FAST)
@pytest.mark.parametrize("threads", [1, 3])
def test_the_instruction_set_and_threads_of_a_model_can_be_chosen(
    volta: Command, asked: list[tuple[str, str, int]], run_directory: Path, isa: str, threads: int
) -> None:
    code, _, err = volta("tune", "model", run_directory, "--isa", isa, "--threads", threads)
    assert code == 0, err
    assert asked
    assert {(isa, threads)} == {one[1:] for one in asked}
    assert all(key.endswith(f" {isa} {threads} threads") for key, _, _ in asked)


def test_left_to_volta_each_product_has_the_threads_of_its_program(
    volta: Command, asked: list[tuple[str, str, int]], run_directory: Path
) -> None:
    """A token of a small model runs on one thread, a large product on all."""
    volta("tune", "model", run_directory, "--no-train")
    assert {threads for _, _, threads in asked} == {1}
    asked.clear()
    volta("tune", "matmul", "--shapes", "8x8x8,700x700x700")
    assert [threads for _, _, threads in asked] == [1, gateway.cpu_info().cpus]


def test_what_is_tuned_is_what_an_ordinary_call_runs(
    volta: Command, asked: list[tuple[str, str, int]]
) -> None:
    """A small product runs on one thread where the number is left to Volta, and is tuned for that."""
    volta("tune", "matmul", "--shapes", "43x523x130,700x700x700", "--runs", 1)
    for sizes in ((43, 523, 130), (700, 700, 700)):
        m, n, k = sizes
        plan = gateway.compile(replace(KINDS["f32"], m=m, n=n, k=k).graph).plan
        assert [len(step.ints) for step in plan.steps] == [8]  # with blocks


def test_a_product_that_cannot_be_run_alone_is_named(volta: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "tune", lambda *_: None)
    monkeypatch.setattr(roofline, "measure", lambda threads, isa: None)
    assert (
        "skipped, its layout cannot be run alone: f32 x f32 9x9x9 " in volta("tune", "matmul", "--dim", 9)[1]
    )
    document = json.loads(volta("tune", "matmul", "--dim", 9, "--json")[1])
    assert [key.split()[3] for key in document["skipped"]] == ["9x9x9"]


# --- show and clear ----------------------------------------------------------------------------------


def table_of_all_kinds() -> dict[str, Blocks]:
    found = {}
    for product in KINDS.values():
        large = replace(product, m=30720, n=10000, k=40960, a_layout="wide columns", b_layout="wide columns")
        key, _ = step_of(large.graph, FAST[-1], 256)
        found[key] = Blocks("", 2048, 336, 4096, 33, 5, 255, 1.2345)
    return found


def test_show_and_clear(volta: Command) -> None:
    path = gateway.tuned_path()
    assert volta("tune", "show")[1] == f"{path}: 0 entries\n"
    assert volta("tune", "clear")[1] == f"nothing was tuned: no {path}\n"
    entries = table_of_all_kinds()
    gateway.keep_tuned(entries)
    assert json.loads(volta("tune", "show", "--json")[1])["blocks"].keys() == entries.keys()
    assert volta("tune", "show")[1].startswith(f"{path}: {len(entries)} entries\n")
    assert volta("tune", "clear")[1] == f"removed {path}\n"
    assert not path.exists()
    assert json.loads(volta("tune", "show", "--json")[1]) == {"path": str(path), "blocks": {}}


def test_tables_fit_eighty_columns_and_lose_nothing(
    volta: Command, made_up: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    entries = table_of_all_kinds()
    gateway.keep_tuned(entries)
    shown = volta("tune", "show")[1].splitlines()[1:]
    found = volta("tune", "matmul", "--shapes", "90x300x200", "--threads", 2)[1].splitlines()
    searched = [line for line in found if line[:1] in "┏┡┃│└"]
    assert len(searched) > 5
    assert max(map(len, shown + searched)) <= 80
    text = " ".join(shown)
    for word in ("i8 x i8", "30720x10000x40960", "a columns/30725", "b columns/40965 2 groups", "1.23"):
        assert word in text
    for word in ("2048/336/4096", "32 ahead", "B in place", "A in place", "255 threads", "256 threads"):
        assert word in text


def test_blocks_that_leave_everything_to_the_kernel_can_be_shown() -> None:
    assert cli.described(Blocks()) == "-\n-/-/-"
    assert cli.described(Blocks("f32_matmul_6x16_avx2", 64, 96, 0, 1, 10, 1)).split("\n") == [
        "6x16",
        "64/96/-",
        "0 ahead",
        "B copied",
        "A copied",
        "1 thread",
    ]


# --- the verdict -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([one(1.3, True)], "faster than the default: 1 of 1 product, the most by 30.0%"),
        (
            [one(1.05, True), one(1.0, False), one(1.01, True)],
            "faster than the default: 2 of 3 products, the most by 5.0%",
        ),
        ([one(1.04, True)], "the default is within 4.0% of the best of the grid for 1 product"),
        (
            [one(0.9, False), one(1.02, False)],
            "the default is within 2.0% of the best of the grid for 2 products",
        ),
        ([one(0.9, False)], "the default is within 0.0% of the best of the grid for 1 product"),
        ([one(1.3, False)], "the default is within 30.0% of the best of the grid for 1 product"),
    ],
)
def test_the_verdict_tells_a_gain_of_five_percent_or_how_near_the_default_is(
    found: list[Found], said: str
) -> None:
    """A gain counts only where it was kept."""
    assert cli.verdict(found) == said


# --- mistakes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("matmul",), 2, "no size was given: expected --dim N or --shapes MxNxK"),
        (("matmul", "--dim", "0"), 2, "--dim is 0: expected a whole number above 0"),
        (("matmul", "--dim", "-3"), 2, "--dim is -3: expected"),
        (("matmul", "--dim", "many"), 2, "(not a |Input should be a )valid"),
        (("matmul", "--dim", "100000000"), 2, "100000000x100000000x100000000 .*expected"),
        (("matmul", "--shapes", "8x8"), 2, "shape is '8x8': expected MxNxK"),
        (("matmul", "--shapes", "8x0x8"), 2, "shape is '8x0x8': expected MxNxK"),
        (("matmul", "--shapes", "8x8x٣"), 2, "expected MxNxK"),
        (("matmul", "--shapes", "1x1x" + "9" * 50), 2, "expected"),
        (("matmul", "--shapes", "1x1x" + "9" * 5000), 2, "expected MxNxK"),
        (("matmul", "--dim", "8", "--dtype", "f64"), 2, "'f64': expected one of f32, bf16, int8"),
        (("matmul", "--dim", "8", "--runs", "0"), 2, "runs is 0: expected at least 1"),
        (("matmul", "--dim", "8", "--threads", "999"), 2, "threads is 999: expected 0"),
        (("matmul", "--dim", "8", "--isa", "neon"), 2, "isa is 'neon': expected one of"),
        (("matmul", "--dim", "8", "--isa", "ref"), 2, "the plain reference has no blocks to choose"),
        (("model",), 2, "Missing argument"),
        (("model", "{tmp}/nothing"), 1, "/nothing is not there: expected a checkpoint"),
        (("model", "{tmp}"), 1, "holds no checkpoint: expected"),
        (("model", "{run}", "--no-train", "--no-generate"), 2, "expected --train or --generate"),
        (("model", "{run}", "--runs", "-1"), 2, "runs is -1: expected at least 1"),
        (("frobnicate",), 2, "No such command"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_every_mistake_gets_one_clear_line(
    volta: Command,
    run_directory: Path,
    tmp_path: Path,
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """Before anything is timed, and nothing is kept."""
    places = {"tmp": str(tmp_path), "run": str(run_directory)}
    given, out, err = volta("tune", *(argument.format(**places) for argument in arguments))
    assert (given, out) == (code, "")
    assert re.search(said, err), err
    assert err.startswith("volta: ")
    assert err.count("\n") == 1
    assert not gateway.tuned_path().exists()


def test_a_size_that_would_fill_the_memory_gets_one_clear_line(
    volta: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a machine of 1 MiB."""
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 256}[name])
    code, out, err = volta("tune", "matmul", "--dim", 2000)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "2000x2000x2000 needs 0.1 GiB: expected up to half of the 0.0 GiB" in err


@pytest.mark.parametrize("command", ["matmul", "model", "clear"])
def test_a_cache_that_cannot_be_written_is_one_line_before_the_search(
    volta: Command, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("VOLTA_CACHE", str(tmp_path / "file"))
    options = {"matmul": ("--dim", "8"), "model": (str(run_directory),), "clear": ()}[command]
    code, out, err = volta("tune", command, *options)
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert re.match(rf"volta: \[tuned\] .*VOLTA_CACHE {tmp_path}/file cannot be ", err), err


def test_a_damaged_table_is_one_line_and_is_replaced(
    volta: Command, made_up: dict[str, float], cache: Path
) -> None:
    path = gateway.keep_tuned(table_of_all_kinds())
    path.write_bytes(path.read_bytes()[:-5])
    tuned.forget()
    code, out, err = volta("tune", "show")
    assert (code, out) == (0, f"{path}: 0 entries\n")
    assert re.fullmatch(rf"volta: \[tuned\] {path} is damaged: .*: it is ignored\n", err)
    tuned.forget()
    code, out, err = volta("tune", "matmul", "--dim", 20)
    assert (code, err.count("is damaged")) == (0, 1)
    assert len(tuned.read(path).blocks) == 1


# --- interrupted -------------------------------------------------------------------------------------


def test_ctrl_c_keeps_what_was_found_before(
    volta: Command, made_up: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second of three products."""
    real, calls = search.tune, []

    def stopped(*arguments: Any) -> Found | None:
        calls.append(arguments)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(cli, "tune", stopped)
    code, out, err = volta("tune", "matmul", "--shapes", "20x20x20,21x20x20,22x20x20")
    assert (code, out) == (130, "")
    assert err.endswith("stopped after 1 of 3 products: 1 of them in the table\nvolta: interrupted\n")
    (key,) = tuned.read(gateway.tuned_path()).blocks
    assert "20x20x20" in key


def default_signals() -> None:
    """A process that a shell starts in the background would inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("lines", [1, 3])
def test_ctrl_c_ends_a_real_search_with_130_and_a_table_that_can_be_read(cache: Path, lines: int) -> None:
    """Whenever the signal comes: while the ceiling is measured, and in the second product."""
    command = [sys.executable, "-m", "volta", "tune", "matmul", "--shapes", "20x20x20,40x30x20,200x300x400"]
    process = subprocess.Popen(
        [*command, "--threads", "1", "--runs", "1"],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=default_signals,
    )
    assert process.stderr is not None
    for _ in range(lines):
        assert process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.endswith("volta: interrupted\n")
    assert "Traceback" not in err
    assert len(tuned.read(gateway.tuned_path()).blocks) <= lines


def test_a_real_search_of_a_small_product(cache: Path) -> None:
    """In a fresh process, on the real clock."""
    command = [sys.executable, "-m", "volta", "tune", "matmul", "--dim", "24", "--runs", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    (product,) = document["products"]
    kept = tuned.read(gateway.tuned_path()).blocks
    assert (product["key"] in kept) == (product["blocks"] is not None) == (document["path"] is not None)


def test_a_damaged_table_costs_any_command_one_line(cache: Path) -> None:
    """The answer is the same; standard error says once what is ignored."""
    path = tuned.path_of_table()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("garbage")
    done = subprocess.run(
        [sys.executable, "-m", "volta", "doctor", "--bits"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("volta: [tuned]")
    assert line.endswith("it is ignored")
