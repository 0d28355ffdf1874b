"""`volta profile`: a table that adds up, a trace that tools open, and one clear line for every mistake."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.conftest import CONFIGS, Volta, settings

from volta.bench import roofline
from volta.bench.roofline import Level, Roofline
from volta.cli import main
from volta.train import checkpoint
from volta.train.loop import Trainer

MODES: dict[str, tuple[str, ...]] = {
    "generation": ("--batch", "2", "--position", "7"),
    "training": ("--train",),
}


@pytest.fixture(scope="module")
def run(text: bytes, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("profile") / "run"
    list(Trainer(settings(CONFIGS["gpt"], steps=1), text, directory).steps())
    return directory


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings that need not be measured, and two threads."""
    monkeypatch.setenv("VOLTA_NUM_THREADS", "2")

    def measure(threads: int, isa: str = "auto", seconds: float = 0.01) -> Roofline:
        level = Level("memory", float("inf"), 1, 1e10, 1e10, 1e10)
        return Roofline(threads, "any", {"fma": 1e11, "add": 5e10, "bf16": 2e11, "i8": 4e11}, (level,), 1e-6)

    monkeypatch.setattr(roofline, "measure", measure)


def profiled(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `volta profile ARGUMENTS` in this process."""
    with pytest.raises(SystemExit) as ended:
        main(["profile", *map(str, arguments)])
    captured = capfd.readouterr()
    code = ended.value.code
    assert isinstance(code, int)
    return code, captured.out, captured.err


# --- the whole command, in a fresh process ---------------------------------------------------------


def test_it_measures_this_machine_and_writes_both_documents(volta: Volta, run: Path, tmp_path: Path) -> None:
    """--json and --trace together, with the roofline measured here; no time is compared with any other."""
    path = tmp_path / "trace.json"
    options = ("--train", "--runs", 3, "--trace", path, "--json")
    done = volta("profile", run, *options, env={"VOLTA_NUM_THREADS": "2"})
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    check_document(document)
    assert document["roofline"]["threads"] == 2
    assert all(level["copy"] > 0 for level in document["roofline"]["levels"])
    check_trace(json.loads(path.read_text()), threads=2, steps=document["steps"])


def test_ctrl_c_ends_it_with_130(run: Path) -> None:
    command = [sys.executable, "-m", "volta", "profile", str(run), "--runs", "1000000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    while "running" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert said == "volta: interrupted\n"
    assert out == ""


# --- what it says ------------------------------------------------------------------------------------


def check_document(document: dict[str, Any]) -> None:
    """Times add up to the run; matmuls have work and rates; every step is in one group."""
    groups, seconds = document["groups"], document["seconds"]
    total = sum(group["seconds"] for group in groups) + document["waiting_seconds"]
    assert seconds > 0
    assert 1 - 1e-9 <= total / seconds < 1.5  # medians of steps need not be those of one run
    assert len({group["label"] for group in groups}) == len(groups)
    assert sum(group["calls"] for group in groups) == len(document["steps"])
    assert {step["label"] for step in document["steps"]} == {group["label"] for group in groups}
    matmuls = [group for group in groups if group["label"].startswith("matmul")]
    assert matmuls
    for group in matmuls:
        assert group["flops"] / group["seconds"] > 0
    for group in groups:
        assert group["seconds"] >= 0
        assert group["bytes"] > 0, group["label"]
        assert group["bound"] in ("arithmetic", "memory")


def check_trace(document: dict[str, Any], threads: int, steps: list[dict[str, Any]]) -> None:
    """Chrome's trace event format: complete events in microseconds, per thread one after the other."""
    assert document["displayTimeUnit"] in ("ms", "ns")
    rows: dict[int, list[dict[str, Any]]] = {}
    for event in document["traceEvents"]:
        assert event["ph"] in ("M", "X")
        assert (event["pid"], type(event["tid"]), type(event["name"])) == (1, int, str)
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            rows.setdefault(event["tid"], []).append(event)
    assert sorted(rows) == list(range(threads))
    for row in rows.values():
        assert [event["name"] for event in row] == [step["label"] for step in steps]
        assert [event["args"]["step"] for event in row] == [step["index"] for step in steps]
        assert all(event["args"]["node"].startswith("%") for event in row)
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in pairwise(row))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("quick")
def test_a_trace_has_the_steps_of_the_document(
    run: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], mode: str
) -> None:
    path = tmp_path / "trace.json"
    code, out, _ = profiled(capfd, run, *MODES[mode], "--runs", 3, "--trace", path, "--json")
    assert code == 0
    document = json.loads(out)
    check_document(document)
    check_trace(json.loads(path.read_text()), document["roofline"]["threads"], document["steps"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.usefixtures("quick")
def test_the_table_adds_up_to_a_hundred_percent(
    run: Path, capfd: pytest.CaptureFixture[str], mode: str
) -> None:
    code, out, _ = profiled(capfd, run, *MODES[mode], "--runs", 3, "--top", 1000)
    assert code == 0
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines() if "│" in line]
    shares = [float(row[3].removesuffix("%")) for row in rows if row[3].endswith("%")]
    assert len(shares) > 5
    assert 98 <= sum(shares) < 150
    assert shares[:-1] == sorted(shares[:-1], reverse=True)  # the last is what is spent at barriers
    for row in rows:
        if row[0].startswith("matmul") and row[1]:
            assert float(row[4].replace(",", "")) > 0
    assert "waiting" in out
    assert re.search(r"cpu/\S+/2 threads" if mode == "training" else r"cpu/\S+/\d threads", out)


@pytest.mark.usefixtures("quick")
def test_what_is_not_shown_is_summed_up(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for top, shown in ((0, 0), (2, 2)):
        code, out, _ = profiled(capfd, run, "--train", "--runs", 2, "--top", top)
        assert code == 0
        assert len(re.findall(r"[\d.]+% │ +[\d.,]+ │", out)) == shown
        assert "all others" in out


@pytest.mark.usefixtures("quick")
def test_a_batch_and_a_position_are_what_is_profiled(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """More rows give products of more rows; a later position more keys to attend to."""
    found = {}
    for batch, position in ((1, 0), (6, 0), (1, 47)):
        code, out, _ = profiled(capfd, run, "--batch", batch, "--position", position, "--runs", 1, "--json")
        assert code == 0
        groups = json.loads(out)["groups"]
        labels = {group["label"] for group in groups}
        assert any(label.startswith(f"matmul f32 {batch}x128x48") for label in labels)
        found[batch, position] = sum(g["flops"] for g in groups if g["label"].startswith("attention"))
    assert found[1, 47] > 10 * found[1, 0] > 0
    assert found[6, 0] == 6 * found[1, 0]


@pytest.mark.usefixtures("quick")
def test_a_bf16_run_shows_its_products_as_bf16(
    text: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = replace(CONFIGS["llama"], dtype="bf16", dropout=0.1)
    list(Trainer(settings(config, steps=1, shards=2), text, tmp_path / "run").steps())
    for options in ((), ("--train",)):
        code, out, _ = profiled(capfd, tmp_path / "run", *options, "--runs", 1, "--json")
        assert code == 0
        document = json.loads(out)
        check_document(document)
        labels = [group["label"] for group in document["groups"] if group["label"].startswith("matmul")]
        assert labels
        assert all(label.startswith("matmul bf16 ") for label in labels)


@pytest.mark.usefixtures("quick")
def test_profiling_changes_nothing_of_the_run(run: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    for options in ((), ("--train",)):
        assert profiled(capfd, run, *options, "--runs", 1)[0] == 0
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("{tmp}/nothing",), 1, "is not there"),
        (("{tmp}",), 1, "checkpoint"),
        (("{tmp}/text",), 1, "checkpoint"),
        (("{tmp}/nothing", "--train"), 1, "is not there"),
        (("{run}", "--runs", "0"), 2, r"\[profile\] runs is 0: expected at least 1"),
        (("{run}", "--top", "-1"), 2, r"\[profile\] top is -1: expected"),
        (("{run}", "--batch", "0"), 2, r"batch is 0: expected at least 1"),
        (("{run}", "--position", "48"), 2, r"\[profile\] position is 48: expected 0 to 47"),
        (("{run}", "--position", "-1"), 2, r"\[profile\] position is -1: expected 0 to 47"),
        (("{run}", "--trace", "{tmp}/no/where.json"), 1, r"\[profile\] \S+ cannot be written: No such file"),
        (("{run}", "--trace", "{tmp}"), 1, r"\[profile\] \S+ cannot be written: Is a directory"),
        (("{run}", "--train", "--trace", "{tmp}/text/x"), 1, r"\[profile\] \S+ cannot be written"),
        (("{run}", "--runs", "many"), 2, "not a valid|valid int"),
        ((), 2, "Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
@pytest.mark.usefixtures("quick")
def test_every_mistake_gets_one_clear_line(
    run: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """After the lines of progress, if it got so far; nothing on standard output."""
    (tmp_path / "text").write_text("no checkpoint")
    given = (argument.format(tmp=tmp_path, run=run) for argument in arguments)
    found, out, err = profiled(capfd, *given)
    assert found == code, err
    assert out == ""
    *progress, last = err.splitlines()
    assert re.match(rf"volta: .*({said})", last)
    assert all(re.match("measuring|running", line) for line in progress)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["text"]


def test_a_checkpoint_that_is_not_of_training_cannot_be_trained_on(
    text: bytes, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Settings of another version: one line, not a traceback."""
    trainer = Trainer(settings(CONFIGS["gpt"], steps=1), text, tmp_path)
    list(trainer.steps())
    checkpoint.save(tmp_path / "other", replace(trainer.snapshot(), data={}))
    code, _, err = profiled(capfd, tmp_path / "other", "--train")
    assert code == 1
    assert re.match(r"volta: \[resume\] .*no settings that this version knows", err)
