"""sanitizers: kernels under AddressSanitizer, UndefinedBehaviorSanitizer and memcheck report nothing.

The calls are those of parity, fewer of each. Memcheck alone sees reads of memory that nobody wrote; it knows
no AVX-512, so there the reference and AVX2 run. Leaks are the gate memory's: what a library keeps until its
process ends is none.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from gates import operations
from gates.context import JUDGE, Context, Done
from gates.errors import GateError
from gates.evidence.verdict import Finding, Outcome, Verdict, judged
from gates.trees.checkout import LIBRARY, compile_kernels

CALLS, CALLS_IN_VALGRIND = 4, 1  # of each operation
FLAGS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1"
REPORT = re.compile(r"(ERROR: AddressSanitizer: .*|runtime error: .*|SUMMARY: \S+Sanitizer: .*)")
NATIVE = "_native"  # of a frame: errors of Python itself are not ours


def check(context: Context) -> Outcome:
    sanitized = context.evidence / "sanitized"
    shutil.rmtree(sanitized, ignore_errors=True)
    shutil.copytree(context.head.path / "engine", sanitized / "engine", symlinks=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(context.head.path / name, sanitized)
    library = sanitized / LIBRARY
    library.unlink(missing_ok=True)
    scratch = context.evidence / "objects"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    compile_kernels(sanitized, scratch, library, CFLAGS=FLAGS, LDFLAGS="-fsanitize=address,undefined")
    findings = list(reports(ask(context, sanitized / "engine", "all", CALLS, preload=runtime_library())))
    missing = []
    if platform.machine() == "x86_64" and shutil.which("valgrind"):
        context.build(context.head)
        findings += memcheck(context)
    else:
        missing.append("valgrind is not installed, or knows this processor too little")
    figure = f"{len(operations.MAKERS)} operations, {CALLS} calls each, every ISA"
    if missing and not findings:
        return Outcome(Verdict.UNPROVEN, f"{missing[0]}; {figure}")
    return judged(findings, figure)


def runtime_library() -> str:
    """The sanitizer's own library, which must be loaded before Python's."""
    compiler = (os.environ.get("CC") or "gcc").split()[0]
    done = subprocess.run(
        [compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=False, timeout=60
    )
    path = Path(done.stdout.strip())
    if done.returncode or not path.is_absolute():
        raise GateError(f"[sanitizers] {compiler} has no libasan.so: install its sanitizers")
    return str(path)


def ask(context: Context, engine: Path, settings: Any, calls: int, preload: str = "", *wrapper: str) -> Done:
    """The parity worker on an engine directory, under a wrapper."""
    jobs = [[op, index, context.seed] for op in operations.MAKERS for index in range(calls)]
    environment = context.environment(context.head)
    environment["PYTHONPATH"] = os.pathsep.join((str(engine), str(JUDGE)))
    environment["PYTHONMALLOC"] = "malloc"  # so that an overrun of an array is seen, too
    if preload:
        environment |= {"LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0:halt_on_error=1"}
    command = (*wrapper, sys.executable, "-P", "-m", "gates.parity_worker")
    request = json.dumps({"calls": jobs, "settings": settings})
    return context.run(command, context.evidence, environment, request)


def reports(done: Done) -> Iterator[Finding]:
    found = list(dict.fromkeys(REPORT.findall(done.output)))
    for line in found:
        where = re.search(r"engine/csrc/[\w/.]+:\d+", done.output)
        path, _, number = where[0].partition(":") if where else ("", "", "0")
        yield Finding(line.strip()[:200], path, int(number))
    if done.code and not found:
        yield Finding(f"the sanitized worker ended with exit code {done.code}: {done.tail(1)}")


def memcheck(context: Context) -> list[Finding]:
    report = context.evidence / "memcheck.xml"
    settings = [{"isa": isa, "threads": threads} for isa in ("ref", "avx2") for threads in (1, 2)]
    done = ask(
        context, context.head.path / "engine", settings, CALLS_IN_VALGRIND, "",
        "valgrind", "--quiet", "--xml=yes", f"--xml-file={report}", "--error-limit=no", "--leak-check=no",
    )  # fmt: skip
    if done.code:
        return [Finding(f"under valgrind the worker ended with exit code {done.code}: {done.tail(1)}")]
    return errors(report)


def errors(report: Path) -> list[Finding]:
    """Those with a frame of the kernels; none of leaks, of which the XML tells whether asked or not."""
    found = {}
    for error in ElementTree.parse(report).iter("error"):
        kind = error.findtext("kind") or ""
        frames = [frame for frame in error.iter("frame") if NATIVE in (frame.findtext("obj") or "")]
        if frames and not kind.startswith("Leak"):
            where = frames[0].findtext("fn") or "a kernel"
            found[f"{kind} in {where}"] = frames[0].findtext("file") or ""
    return [Finding(f"memcheck: {said}", path) for said, path in found.items()]
