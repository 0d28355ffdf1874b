"""volta bench as a user meets it: tables, files, baselines, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.bench.conftest import Bench, LocalSides, Volta, valid

from volta.bench import infer, roofline, worker
from volta.bench.peers.cases import NumpyCase
from volta.bench.worker import VoltaCase

TINY = ("--sizes", "8", "--threads", "1", "--rounds", "6", "--seconds", "0.0001")


@pytest.fixture
def baseline(bench: Bench, local: LocalSides, tmp_path: Path) -> Path:
    """What `gemm` with TINY and numpy saved."""
    path = tmp_path / "baseline.json"
    done = bench("gemm", *TINY, "--peers", "numpy", "--save", path)
    assert done.returncode == 0, done.stderr
    return path


def edited(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return path


# --- results ---------------------------------------------------------------------------------------


def test_a_fresh_process_measures_checks_and_writes_what_was_asked_for(
    volta_bench: Volta, tmp_path: Path
) -> None:
    """With workers, a table on standard output, and progress on standard error alone."""
    paths = [tmp_path / name for name in ("a.json", "a.csv", "b.json")]
    options = ("--json", paths[0], "--csv", paths[1], "--save", paths[2])
    done = volta_bench("gemm", *TINY, "--dtypes", "f32,int8", "--peers", "numpy", *options)
    assert done.returncode == 0, done.stderr
    document = json.loads(paths[0].read_text())
    assert valid(document)
    assert document == json.loads(paths[2].read_text())
    assert [one["name"] for one in document["measurements"]] == ["f32 8x8x8", "int8 8x8x8"]
    assert set(document["measurements"][0]["sides"]) == {"volta", "numpy"}
    assert document["command"].startswith("volta bench gemm --sizes 8")
    assert len(paths[1].read_text().splitlines()) == 4
    for word in ("f32 8x8x8", "numpy / Volta: geometric mean", "skipped: numpy", "differ from plain C"):
        assert word in done.stdout
    assert "measuring the roofline" in done.stderr
    assert "measuring" not in done.stdout


def test_a_table_in_a_pipe_has_whole_lines(bench: Bench, local: LocalSides) -> None:
    """A name or an interval that is broken over lines could not be searched for."""
    done = bench("gemm", *TINY, "--peers", "numpy")
    (line,) = [line for line in done.stdout.splitlines() if "f32 8x8x8" in line]
    assert re.search(r"\d \(\d.* to \d", line)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (("attention", "--seq-lens", "4,5", "--heads", "1", "--width", "8"), 4),
        (("attention", "--seq-lens", "4", "--heads", "1", "--width", "8", "--no-backward"), 1),
        (("ops", "--sizes", "4x8", "--only", "gelu_tanh,sum_rows"), 2),
        (("ops", "--sizes", "4x8,5x8"), 36),
        (("gemm", "--sizes", "8,3x5x7,8", "--dtypes", "f32,bf16,int8,f32"), 6),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else "",
)
def test_every_suite_prints_a_valid_document(
    bench: Bench, local: LocalSides, arguments: tuple[str, ...], names: int
) -> None:
    """What is named twice is measured once."""
    options = ("--threads", "1", "--rounds", "1", "--seconds", "0.0001", "--json", "-")
    done = bench(*arguments, *options)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert valid(document)
    assert len({one["name"] for one in document["measurements"]}) == names
    assert len(document["measurements"]) == names


def test_csv_and_markdown_go_to_standard_output_alone(bench: Bench, local: LocalSides) -> None:
    lines = bench("gemm", *TINY, "--csv", "-").stdout.splitlines()
    assert [line.split(",")[0] for line in lines] == ["suite", "gemm"]
    text = bench("gemm", *TINY, "--markdown").stdout
    assert text.startswith("`volta bench gemm")
    assert "| f32 8x8x8 | 1 |" in text


def test_generation_and_training_print_valid_documents(
    bench: Bench, local: LocalSides, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(infer, "measure", roofline.measure)
    load = ("--prompt", "2", "--tokens", "3", "--runs", "1", "--warmup", "0")
    done = bench("infer", "--config", "micro", *load, "--json", "-")
    assert valid(json.loads(done.stdout)), done.stderr
    done = bench("infer", "--config", "micro", *load)
    assert "tokens_per_second" in done.stdout
    assert "waiting at barriers" in done.stdout
    options = ("--batch", "1", "--rounds", "1", "--steps", "1", "--threads", "1")
    done = bench("train", "--config", "micro", *options, "--json", "-")
    assert valid(json.loads(done.stdout)), done.stderr


def test_the_roofline_is_a_valid_document_for_each_instruction_set(
    bench: Bench, quick_roofline: None, tmp_path: Path
) -> None:
    done = bench("roofline", "--threads", "1,2", "--isa", "ref,avx2", "--json", tmp_path / "a.json")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "a.json").read_text())
    assert valid(document)
    assert len(document["rooflines"]) == 4
    assert "bandwidth" in done.stdout
    assert json.loads(bench("roofline", "--json", "-").stdout)["suite"] == "roofline"


def test_every_command_explains_itself(volta_bench: Volta) -> None:
    said = volta_bench("--help").stdout
    for command in ("gemm", "attention", "ops", "train", "infer", "roofline", "bits"):
        assert command in said
    assert "--fail-on-regression" in volta_bench("gemm", "--help").stdout


# --- baselines -------------------------------------------------------------------------------------


def slowed(times: float) -> Callable[[dict[str, Any]], None]:
    """The baseline as it was when Volta was so many times as fast."""

    def change(document: dict[str, Any]) -> None:
        for one in document["measurements"]:
            volta = one["sides"]["volta"]
            for name in ("median", "low", "high"):
                volta[name] /= times
                for ratio in one["ratios"].values():
                    ratio[name] *= times
            volta["seconds"] = [value / times for value in volta["seconds"]]

    return change


@pytest.mark.parametrize("peers", [("--peers", "numpy"), ()], ids=["beside a peer", "by time"])
def test_a_slowdown_exits_with_1_and_is_not_saved(
    bench: Bench, baseline: Path, peers: tuple[str, ...]
) -> None:
    """The baseline that found it stays what it was."""
    edited(baseline, slowed(1000))
    before = baseline.read_text()
    options = ("--compare", baseline, "--save", baseline)
    done = bench("gemm", *TINY, *peers, *options, "--fail-on-regression")
    assert done.returncode == 1
    assert "slower: f32 8x8x8, 1 thread: " in done.stdout
    assert done.stderr.splitlines()[-1] == "volta: [bench] cases against the baseline: 1 slower"
    assert baseline.read_text() == before
    done = bench("gemm", *TINY, *peers, *options)  # only shown: then it may become the new one
    assert done.returncode == 0
    assert baseline.read_text() != before


def test_a_gain_is_no_failure(bench: Bench, baseline: Path) -> None:
    edited(baseline, slowed(1 / 1000))
    done = bench("gemm", *TINY, "--peers", "numpy", "--compare", baseline, "--fail-on-regression")
    assert (done.returncode, done.stdout.count("faster: f32 8x8x8")) == (0, 1), done.stderr


def test_left_out_cases_exit_with_1(bench: Bench, baseline: Path) -> None:
    options = ("--compare", baseline, "--fail-on-regression")
    done = bench("gemm", "--sizes", "9", *TINY[2:], *options)
    assert done.returncode == 1
    assert "missing: f32 8x8x8, 1 thread is in the baseline" in done.stdout
    assert "1 missing" in done.stderr.splitlines()[-1]


def test_too_few_samples_do_not_pass_for_equal(bench: Bench, baseline: Path) -> None:
    options = ("--compare", baseline, "--fail-on-regression", "--rounds", "5")
    done = bench("gemm", *TINY, *options)
    assert (done.returncode, "1 too few samples" in done.stderr) == (1, True)


def test_a_comparison_does_not_disturb_the_printed_document(bench: Bench, baseline: Path) -> None:
    done = bench("gemm", *TINY, "--compare", baseline, "--json", "-")
    assert valid(json.loads(done.stdout))
    assert "f32 8x8x8, 1 thread: " in done.stderr


def test_a_baseline_of_another_machine_is_said_or_refused(bench: Bench, baseline: Path) -> None:
    """Shown without a verdict; where a verdict was asked for, refused before anything is measured."""
    edited(baseline, lambda document: document["machine"].update(id="0123456789abcdef"))
    done = bench("gemm", *TINY, "--compare", baseline)
    assert done.returncode == 0
    assert "not compared: the baseline is from machine 0123456789abcdef" in done.stdout
    done = bench("gemm", *TINY, "--compare", baseline, "--fail-on-regression")
    assert done.returncode == 1
    assert done.stderr.startswith("volta: ")
    assert (done.stderr.count("\n"), "0123456789abcdef" in done.stderr) == (1, True)


# --- wrong results, missing peers --------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "name"), [(VoltaCase, "volta"), (NumpyCase, "numpy")])
def test_a_wrong_side_ends_the_benchmark(
    kind: Any, name: str, bench: Bench, local: LocalSides, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No time of a wrong result is reported."""
    monkeypatch.setattr(kind, "run", lambda self: None)
    done = bench("gemm", *TINY, "--peers", "numpy", "--json", tmp_path / "a.json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(f"volta: [bench] {name} is wrong in f32 8x8x8")
    assert list(tmp_path.iterdir()) == []


def first_on_the_path(directory: Path) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])}


def test_a_worker_that_computes_something_else_is_found_in_a_fresh_process(
    volta_bench: Volta, tmp_path: Path
) -> None:
    """A defect in a worker's library, seeded by a file that Python reads when it starts."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'volta.bench.worker' in sys.orig_argv:\n"
        "    from volta.transform import BoundCall\n"
        "    honest = BoundCall.run\n"
        "    def run(self):\n"
        "        honest(self)\n"
        "        self.results[...] *= 1.0000002\n"
        "    BoundCall.run = run\n"
    )
    done = volta_bench("gemm", *TINY, env=first_on_the_path(tmp_path))
    assert done.returncode == 1
    assert re.search(r"volta: \[bench\] \d+ of 64 elements of f32 8x8x8 differ", done.stderr), done.stderr


def test_a_library_that_is_not_installed_is_skipped_by_name(volta_bench: Volta, tmp_path: Path) -> None:
    """Whatever it prints before it fails."""
    (tmp_path / "torch.py").write_text("print('hello')\nraise ImportError('No module named torch')\n")
    done = volta_bench("gemm", *TINY, "--peers", "torch,numpy", env=first_on_the_path(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "skipped: torch: not installed (No module named torch)" in done.stdout
    assert "numpy / Volta" in done.stdout
    assert "torch / Volta" not in done.stdout


# --- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("gemm", "--sizes", "0"), 2, "--sizes is '0': expected a whole number"),
        (("gemm", "--sizes", "-8"), 2, "--sizes is '-8': expected a whole number"),
        (("gemm", "--sizes", "8.5"), 2, "--sizes is '8.5'"),
        (("gemm", "--sizes", "8x8"), 2, "size is '8x8': expected MxNxK"),
        (("gemm", "--sizes", "8x0x8"), 2, "size is '8x0x8'"),
        (("gemm", "--sizes", "9" * 30), 2, "expected a whole number"),
        (("gemm", "--sizes", "9" * 5000), 2, "expected a whole number"),
        (("gemm", "--sizes", "1000000"), 2, "too large"),
        (("gemm", "--sizes", ""), 2, "--sizes is '': expected at least one"),
        (("gemm", "--dtypes", "f64"), 2, "dtype is 'f64': expected one of f32, bf16, int8"),
        (("gemm", "--dtypes", ","), 2, "--dtypes is ','"),
        (("gemm", "--peers", "jax"), 2, "peer is 'jax': expected one of numpy, torch"),
        (("gemm", "--peers", "volta"), 2, "peer is 'volta'"),
        (("gemm", "--threads", "0"), 2, "--threads is '0'"),
        (("gemm", "--threads", "two"), 2, "--threads is 'two'"),
        (("gemm", "--threads", "1000"), 2, "threads is 1000: expected 1 to 256"),
        (("gemm", "--rounds", "0"), 2, "rounds is 0: expected 1 to 1000"),
        (("gemm", "--seconds", "0"), 2, "seconds is 0.0"),
        (("gemm", "--seconds", "nan"), 2, "seconds is nan"),
        (("gemm", "--seed", "-1"), 2, "seed is -1: expected 0 or more"),
        (("gemm", "--rounds", "many"), 2, "--rounds"),
        (("gemm", "--fail-on-regression"), 2, "needs a baseline: give it with --compare"),
        (("gemm", "--json", "-", "--markdown"), 2, "expected one of them"),
        (("gemm", "--json", "{tmp}/a", "--csv", "{tmp}/a"), 2, "--csv is .*, like --json"),
        (("gemm", "--save", "-"), 2, "--save is -: expected the name of a file"),
        (("gemm", "--plot", "{tmp}/a.gif"), 2, "expected a name that ends in .png, .svg, .pdf"),
        (("gemm", "--json", "{tmp}/no/a.json"), 1, "a.json cannot be written: .* is no directory"),
        (("gemm", "--csv", "{tmp}"), 1, "cannot be written: it is a directory"),
        (("gemm", "--save", "{tmp}/garbage/a"), 1, "garbage is no directory"),
        (("gemm", "--compare", "{tmp}/nothing"), 1, "nothing cannot be read: No such file"),
        (("gemm", "--compare", "{tmp}"), 1, "cannot be read: Is a directory"),
        (("gemm", "--compare", "{tmp}/garbage"), 1, "garbage is not JSON"),
        (("gemm", "--compare", "{tmp}/foreign"), 1, "foreign has schema 'other/3': expected 'volta-bench/1'"),
        (("gemm", "--compare", "{tmp}/part"), 1, "part is not a whole result: machine is missing"),
        (("attention", "--seq-lens", "0"), 2, "--seq-lens is '0'"),
        (("attention", "--heads", "0"), 2, "heads is 0"),
        (("attention", "--width", "-3"), 2, "width is -3"),
        (("attention", "--seq-lens", "10000000"), 2, "too large"),
        (("ops", "--only", "cosine"), 2, "op is 'cosine': expected one of gelu_tanh"),
        (("ops", "--sizes", "8"), 2, "size is '8': expected ROWSxWIDTH"),
        (("ops", "--sizes", "1000000x1000000"), 2, "too large"),
        (("train", "--config", "huge"), 2, "given 'huge': expected one of micro"),
        (("train", "--batch", "0"), 2, "batch is 0"),
        (("train", "--steps", "0"), 2, "steps is 0: expected 1 to"),
        (("train", "--dtype", "int8"), 2, "dtype is '?int8"),
        (("train", "--threads", "-1"), 2, "--threads is '-1'"),
        (
            ("train", "--peers", "numpy"),
            2,
            "peer is 'numpy': expected one of torch, torch-compile, torch-bf16",
        ),
        (("infer", "--tokens", "0"), 2, "tokens is 0: expected 1 to"),
        (("infer", "--weights", "f16"), 2, "dtype is 'f16'"),
        (("infer", "--threads", "-1"), 2, "threads is -1"),
        (("roofline", "--isa", "neon"), 2, "isa is 'neon'"),
        (("roofline", "--seconds", "0"), 2, "seconds is 0.0"),
        (("bits", "--peers", "numpy"), 2, "peer is 'numpy': expected one of torch"),
        (("bits", "--json", "{tmp}/no/a"), 1, "cannot be written"),
        (("frobnicate",), 2, "No such command"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_every_mistake_gets_one_clear_line(
    bench: Bench, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """Before anything is measured: exit code 2 for usage, 1 for what is wrong with a file."""
    (tmp_path / "garbage").write_text("nonsense")
    (tmp_path / "foreign").write_text('{"schema": "other/3"}')
    (tmp_path / "part").write_text('{"schema": "volta-bench/1"}')
    done = bench(*(argument.format(tmp=tmp_path) for argument in arguments))
    assert done.returncode == code, done.stderr
    assert re.search(said, done.stderr), done.stderr
    assert done.stderr.startswith("volta: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["gemm", "attention", "ops", "train", "infer", "roofline", "bits"])
@pytest.mark.parametrize(
    ("variable", "value", "code"), [("VOLTA_ISA", "foo", 2), ("VOLTA_DEVICE", "cuda", 1)]
)
def test_a_pinned_device_that_is_not_there_is_an_error_of_every_command(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, command: str, variable: str, value: str, code: int
) -> None:
    """Never a fallback, and never after minutes of measuring."""
    monkeypatch.setenv(variable, value)
    done = bench(command)
    assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
    assert f"is '{value}'" in done.stderr


def test_a_baseline_of_another_suite_is_refused(bench: Bench, baseline: Path) -> None:
    done = bench("attention", "--compare", baseline)
    assert done.returncode == 1
    assert "holds 1 measurements of gemm: expected some of attention" in done.stderr


def test_without_matplotlib_a_picture_is_refused_in_one_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = bench("gemm", "--plot", tmp_path / "a.png")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--plot needs matplotlib" in done.stderr


def test_a_disk_that_fails_is_one_line(
    bench: Bench, local: LocalSides, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After the measurement: nothing half-written stays behind."""

    def full(descriptor: int, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("volta.storage.atomic.os.write", full)
    done = bench("gemm", *TINY, "--json", tmp_path / "a.json")
    assert done.returncode == 1
    assert "its disk is full" in done.stderr.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


# --- Ctrl-C ------------------------------------------------------------------------------------------


def processes_with(mark: str) -> set[int]:
    """Those whose environment holds it."""
    found = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            environment = (place / "environ").read_bytes()
        except OSError:  # it has ended, or is another's
            continue
        if mark.encode() in environment:
            found.add(int(place.name))
    return found


@pytest.mark.parametrize("group", [False, True], ids=["this process", "all in the terminal"])
def test_ctrl_c_ends_everything_and_leaves_nothing(tmp_path: Path, group: bool) -> None:
    """Exit code 130 and one line; no worker, no half-written file, no temporary directory."""
    mark = f"VOLTA_TEST_MARK={tmp_path.name}-{os.getpid()}-{group}"
    name, _, value = mark.partition("=")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    options = ("--sizes", "64", "--threads", "1", "--rounds", "1000", "--peers", "numpy")
    process = subprocess.Popen(
        [sys.executable, "-m", "volta", "bench", "gemm", *options, "--json", str(tmp_path / "a.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, name: value, "TMPDIR": str(scratch)},
        start_new_session=True,
    )
    assert process.stderr is not None
    while "f32 64x64x64" not in process.stderr.readline():
        assert process.poll() is None
    while len(processes_with(mark)) < 3:  # itself and two workers
        assert process.poll() is None
        time.sleep(0.01)
    (os.killpg if group else os.kill)(process.pid, signal.SIGINT)
    printed, said = process.communicate(timeout=60)
    assert (process.returncode, printed, said) == (130, "", "volta: interrupted\n")
    assert processes_with(mark) == set()
    assert list(scratch.iterdir()) == []
    assert list(tmp_path.iterdir()) == [scratch]


def test_the_parent_that_dies_takes_its_workers_along() -> None:
    """They read to the end of their input."""
    process = subprocess.Popen(
        [sys.executable, "-m", "volta.bench.worker", "volta", "1", "cases"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    printed, _ = process.communicate("", timeout=60)
    assert (process.returncode, printed) == (0, "")


def test_every_kind_of_worker_has_a_server() -> None:
    assert set(worker.SERVERS) == {"cases", "train"}
