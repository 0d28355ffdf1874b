"""Runs gates, each in a process of its own: one that crashes or hangs fails alone, within its time."""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from gates.context import Context, log
from gates.errors import GateError
from gates.evidence import record
from gates.evidence.record import Record
from gates.evidence.verdict import Finding, Outcome, Verdict
from gates.host import HELD
from gates.law.files import LawError, read
from gates.law.registers import WAIVERS, Waivers
from gates.registry import GATES, Row

TICK_S = 1.0  # between looks at a gate that runs
GRACE_S = 10.0  # between asking a hung gate to end and ending it
Watch = Callable[[str], None]


def run_gate(
    row: Row, context: Context, judge: Path, judge_tree: str, watch: Watch = lambda line: None
) -> Record:
    """Asks one gate, in a fresh process whose gate code is `judge`'s. Always gives a record. watch: is told
    the last line of the gate's log, now and then."""
    context.evidence.mkdir(parents=True, exist_ok=True)
    result, log_path = context.evidence / "record.json", context.evidence / "log.txt"
    result.unlink(missing_ok=True)
    started, begin = record.now(), time.monotonic()
    argv = [sys.executable, "-m", "gates.runner", row.name]
    environment = {**os.environ, HELD: "1", "PYTHONPATH": str(judge), "PYTHONDONTWRITEBYTECODE": "1"}
    with log_path.open("w") as log_file:
        process = subprocess.Popen(
            argv,
            cwd=judge,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=log_file,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        reason = ""
        try:
            await_end(process, context.to_json(row.limit_s), row.limit_s, lambda: watch(last_line(log_path)))
        except subprocess.TimeoutExpired:
            reason = f"it hung: ended after its {row.limit_s} s"
        finally:  # also on Ctrl-C: nothing that a gate started may stay
            end(process)
    seconds = time.monotonic() - begin
    outcome, commands = None, []
    if not reason:
        try:
            written = record.read(result)
            outcome, commands = written.outcome, list(written.commands)
        except (OSError, ValueError, KeyError, TypeError):
            reason = f"it crashed: exit code {process.returncode}, {last_line(log_path) or 'nothing printed'}"
    if outcome is None:
        outcome = Outcome(Verdict.FAIL, reason, [Finding(f"{row.name} gave no verdict: {reason}")])
    final = Record(
        row.name, row.version, judge_tree, outcome, context.base.tree, context.head.tree, context.seed,
        argv, commands, process.returncode, started, round(seconds, 3), record.machine(), str(log_path),
    )  # fmt: skip
    record.write(result, final.document())
    return final


def await_end(process: subprocess.Popen[str], text: str, limit_s: float, tick: Callable[[], None]) -> None:
    """Gives a process its question and waits for it. Raises TimeoutExpired."""
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError):  # it ended before it heard all
            process.stdin.write(text)
            process.stdin.close()
    deadline = time.monotonic() + limit_s
    while True:
        try:
            process.wait(TICK_S)
            return
        except subprocess.TimeoutExpired:
            if time.monotonic() > deadline:
                raise
            tick()


def end(process: subprocess.Popen[str]) -> None:
    """Ends a process and all that it started."""
    for sign, wait in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
        if process.poll() is None or sign == signal.SIGKILL:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, sign)
        try:
            process.wait(wait)
        except subprocess.TimeoutExpired:
            continue


def last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1].strip() if lines else ""


def inside(name: str, context: Context) -> None:
    """In the gate's process: asks it, and writes the record that run_gate reads."""
    row = GATES[name]
    check: Callable[[Context], Outcome] = importlib.import_module(row.module).check
    started, begin = record.now(), time.monotonic()
    try:
        outcome = waive(name, context, check(context))
    except GateError as error:
        outcome = Outcome(Verdict.FAIL, str(error), [Finding(str(error))])
    except subprocess.TimeoutExpired as error:
        outcome = Outcome(Verdict.FAIL, f"out of time in `{' '.join(map(str, error.cmd))[:200]}`")
    except Exception as error:  # noqa: BLE001 - a gate that crashes has a verdict: FAIL, with the reason
        log(traceback.format_exc())
        reason = f"it crashed: {type(error).__name__}: {error}"
        outcome = Outcome(Verdict.FAIL, reason, [Finding(reason)])
    done = Record(
        name, row.version, "", outcome, context.base.tree, context.head.tree, context.seed,
        sys.argv, context.commands, 0, started, time.monotonic() - begin,
    )  # fmt: skip
    record.write(context.evidence / "record.json", done.document())


def waive(name: str, context: Context, outcome: Outcome) -> Outcome:
    """Without the findings that a waiver of the base lets pass until its day; PASS where none is left."""
    if outcome.verdict != Verdict.FAIL or not outcome.findings:
        return outcome
    try:
        waivers = read(context.base.path, WAIVERS, Waivers)
    except LawError:
        return outcome
    today = datetime.now(UTC).date()
    used: dict[str, int] = {}
    left = []
    for finding in outcome.findings:
        waiver = waivers.covering(name, finding.path, today)
        if waiver is None:
            left.append(finding)
        else:
            used[waiver.id] = used.get(waiver.id, 0) + 1
    if not used:
        return outcome
    figure = f"{outcome.figure}; waived: {', '.join(f'{count} by {key}' for key, count in used.items())}"
    verdict = Verdict.FAIL if left else Verdict.PASS
    return replace(outcome, verdict=verdict, figure=figure, findings=left)


def main(arguments: Sequence[str]) -> None:
    inside(arguments[0], Context.from_json(sys.stdin.read()))


if __name__ == "__main__":
    main(sys.argv[1:])
