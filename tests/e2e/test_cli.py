"""The command line as a user meets it: results, JSON, and one clear line for every mistake."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.e2e.conftest import Volta

SMALL = ("--config", "micro", "--batch", "2", "--warmup", "0", "--evaluate-every", "0")


@pytest.fixture(scope="module")
def run(volta: Volta, text_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cli") / "run"
    done = volta("train", "--text", text_file, "--out", directory, "--steps", 6, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "sha256 of the weights" in done.stdout
    return directory


def test_train_reports_json_and_resumes_to_the_same_bits(
    volta: Volta, text_file: Path, tmp_path: Path
) -> None:
    whole = volta(
        "train",
        "--text",
        text_file,
        "--out",
        tmp_path / "a",
        "--steps",
        6,
        "--schedule",
        "constant",
        *SMALL,
        "--json",
    )
    first = volta(
        "train",
        "--text",
        text_file,
        "--out",
        tmp_path / "b",
        "--steps",
        4,
        "--schedule",
        "constant",
        *SMALL,
        "--json",
    )
    rest = volta("train", "--resume", tmp_path / "b", "--steps", 6, "--json")
    documents = [json.loads(done.stdout) for done in (whole, first, rest)]
    assert documents[0]["weights_sha256"] == documents[2]["weights_sha256"] != documents[1]["weights_sha256"]
    assert documents[0]["planned_arena_bytes"] == documents[0]["measured_arena_bytes"]


def test_info_agrees_with_the_run(volta: Volta, run: Path) -> None:
    document = json.loads(volta("info", run, "--json").stdout)
    assert document["step"] == 6
    assert document["config"]["width"] == 64
    assert document["weights_sha256"] in volta("info", run).stdout.replace("\n", "").replace(" ", "").replace(
        "│", ""
    )


def test_generate_gives_the_same_text_for_the_same_seed(volta: Volta, run: Path) -> None:
    options = ("generate", run, "--prompt", "def ", "--tokens", 20, "--top-k", 40, "--top-p", 0.95)
    one, two, other = (volta(*options, "--seed", seed) for seed in (7, 7, 8))
    assert one.returncode == 0, one.stderr
    assert one.stdout == two.stdout != other.stdout
    assert one.stdout.startswith("def ")


def test_generate_batches_and_reports_json(volta: Volta, run: Path) -> None:
    done = volta("generate", run, "--prompt", "def ", "--tokens", 5, "--batch", 3, "--json")
    document = json.loads(done.stdout)
    assert len(document["texts"]) == 3
    alone = json.loads(volta("generate", run, "--prompt", "def ", "--tokens", 5, "--json").stdout)
    assert document["tokens"][0] == alone["tokens"][0]


@pytest.mark.parametrize("options", [(), ("--train",)], ids=["generation", "training"])
def test_plan_shows_passes_steps_buffers_and_peak(volta: Volta, run: Path, options: tuple[str, ...]) -> None:
    shown = volta("plan", run, *options, "--graph")
    assert shown.returncode == 0, shown.stderr
    for word in ("passes", "steps", "buffers", "peak", "fingerprint", "matmul"):
        assert word in shown.stdout
    document = json.loads(volta("plan", run, *options, "--json").stdout)
    assert document["peak_bytes"] == sum(document["bytes"].values())
    assert all(0 <= b["first"] <= b["last"] for b in document["buffers"] if b["memory"] == "temporary")


def test_doctor_describes_the_machine(volta: Volta) -> None:
    done = volta("doctor", "--json")
    document = json.loads(done.stdout)
    assert done.returncode == 0
    assert document["ok"]
    assert {"cpu", "instruction sets", "caches", "threads", "compiler"} <= {
        f["name"] for f in document["findings"]
    }
    assert "instruction sets" in volta("doctor").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("train",), 2, "neither --out nor --resume"),
        (("train", "--out", "{tmp}/x", "--config", "huge"), 2, "expected one of"),
        (("train", "--out", "{tmp}/x", "--steps", "0", "--text", "{text}"), 2, "steps"),
        (("train", "--out", "{tmp}/x", "--batch", "0", "--text", "{text}"), 2, "batch"),
        (("train", "--out", "{tmp}/x", "--schedule", "zigzag"), 2, "schedule"),
        (("train", "--out", "{tmp}/x", "--optimizer", "lion"), 2, "optimizer"),
        (("train", "--out", "{tmp}/x", "--text", "{tmp}/nothing"), 1, "is not there"),
        (("train", "--out", "{tmp}/x", "--text", "{tmp}/empty"), 1, "empty"),
        (("train", "--out", "{tmp}/x", "--text", "{tmp}/short"), 1, "expected"),
        (("train", "--out", "{tmp}/short/x", "--text", "{text}"), 1, "checkpoint"),
        (("train", "--resume", "{tmp}/nothing"), 1, "is not there"),
        (("info", "{tmp}/nothing"), 1, "is not there"),
        (("info", "{tmp}/short"), 1, "checkpoint"),
        (("generate", "{run}", "--prompt", "x" * 100), 2, "the context holds 64"),
        (("generate", "{run}", "--tokens", "100"), 2, "room for"),
        (("generate", "{run}", "--temperature", "-1"), 2, "temperature"),
        (("generate", "{run}", "--top-p", "0"), 2, "top_p"),
        (("generate", "{run}", "--batch", "0"), 2, "batch"),
        (("generate", "{run}", "--prompt", ""), 2, "empty"),
        (("generate", "{tmp}/damaged"), 1, "sha256|checksum|damaged"),
        (("generate", "{tmp}/truncated"), 1, "truncated|bytes"),
        (("plan", "{tmp}/nothing"), 1, "is not there"),
        (("frobnicate",), 2, "No such command"),
        (("train", "--steps", "many"), 2, "(not a |Input should be a )valid"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, tuple) else "",
)
def test_every_mistake_gets_one_clear_line(
    volta: Volta, run: Path, text_file: Path, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    """Exit code 2 for usage, 1 for failure; no traceback."""
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "short").write_bytes(b"too short")
    good = next(run.glob("*.safetensors")).read_bytes()
    (tmp_path / "damaged").write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    (tmp_path / "truncated").write_bytes(good[:-10])
    places = {"tmp": str(tmp_path), "run": str(run), "text": str(text_file)}
    done = volta(*(argument.format(**places) for argument in arguments))
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert re.search(said, done.stderr), done.stderr
    assert done.stderr.startswith("volta: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("variable", "value", "code", "said"),
    [
        ("VOLTA_DEVICE", "cuda", 1, "device is 'cuda'"),
        ("VOLTA_DEVICE", "tpu", 2, "device is 'tpu'"),
        ("VOLTA_ISA", "neon", 2, "isa is 'neon'"),
        ("VOLTA_NUM_THREADS", "two", 2, "VOLTA_NUM_THREADS"),
        ("VOLTA_NUM_THREADS", "99999", 2, "threads"),
        ("VOLTA_DETERMINISM", "mostly", 2, "determinism"),
    ],
)
def test_a_pinned_device_that_is_not_there_is_an_error(
    volta: Volta, run: Path, variable: str, value: str, code: int, said: str
) -> None:
    """Never a fallback."""
    done = volta("generate", run, "--tokens", 1, env={variable: value})
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_debug_shows_the_traceback(volta: Volta) -> None:
    done = volta("info", "/nothing/there", "--debug")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


@pytest.mark.parametrize("delay", [0.0, 0.11, 0.23, 0.37])
def test_ctrl_c_saves_a_checkpoint_that_resumes_to_the_same_bits(
    volta: Volta, text_file: Path, tmp_path: Path, delay: float
) -> None:
    """Whenever the signal comes: the saved weights are those of the step the checkpoint names."""
    command = [sys.executable, "-m", "volta", "train", "--text", str(text_file), "--out"]
    command += [
        str(tmp_path / "run"),
        "--steps",
        "100000",
        "--schedule",
        "constant",
        "--save-every",
        "0",
        *SMALL,
    ]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "step" in process.stderr.readline()  # the first line of progress: it trains
    time.sleep(delay)
    process.send_signal(signal.SIGTERM if delay == 0.11 else signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "--resume" in said
    assert "Traceback" not in said
    saved = json.loads(volta("info", tmp_path / "run", "--json").stdout)
    options = ("--text", text_file, "--out", tmp_path / "whole", "--schedule", "constant", *SMALL, "--json")
    whole = volta("train", "--steps", saved["step"], *options)
    assert json.loads(whole.stdout)["weights_sha256"] == saved["weights_sha256"]


def test_a_resumed_run_refuses_what_would_change_it(volta: Volta, run: Path, text_file: Path) -> None:
    done = volta("train", "--resume", run, "--rate", "5", "--seed", "9", "--steps", "9")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "--rate, --seed" in done.stderr or "--seed, --rate" in done.stderr
    assert "has done 6 already" in volta("train", "--resume", run, "--steps", "6").stderr


def test_an_older_checkpoint_can_be_continued_elsewhere(volta: Volta, run: Path, tmp_path: Path) -> None:
    """What to do when the newest one is damaged."""
    file = next(run.glob("*.safetensors"))
    done = volta("train", "--resume", file, "--out", tmp_path / "on", "--steps", "8", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoint"].startswith(str(tmp_path / "on"))


def test_a_full_disk_is_one_line_and_keeps_the_last_checkpoint(
    run: Path, text_file: Path, tmp_path: Path, volta: Volta
) -> None:
    """The file size limit stands in for the disk's end: the system call fails in the same place."""
    shutil.copytree(run, tmp_path / "run")
    before = json.loads(volta("info", tmp_path / "run", "--json").stdout)
    command = [
        sys.executable,
        "-m",
        "volta",
        "train",
        "--resume",
        str(tmp_path / "run"),
        "--steps",
        "8",
        "--text",
        str(text_file),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "checkpoint" in done.stderr.splitlines()[-1]
    assert json.loads(volta("info", tmp_path / "run", "--json").stdout) == before


def test_quickstart_proves_its_bits(volta: Volta, text_file: Path) -> None:
    """The same command a newcomer runs, on a small text."""
    done = volta("quickstart", "--short", "--text", text_file, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["bits_equal"]
    assert document["last_loss"] < document["first_loss"] - 1
    assert document["planned_arena_bytes"] == document["measured_arena_bytes"]
