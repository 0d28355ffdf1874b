"""volta doctor: what this machine can do, and whether it computes Volta's bits."""

from __future__ import annotations

import ctypes.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from volta import __version__
from volta.cli import output
from volta.errors import DeviceError, UsageError
from volta.runtime import gateway, policy
from volta.train import bits as bits_of

NAME = "doctor"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. needed: without it Volta does not run; remedy: how to get what is missing."""

    name: str
    value: str
    ok: bool = True
    needed: bool = False
    remedy: str = ""


def command(
    bits: Annotated[
        bool,
        typer.Option("--bits", help="Train a few steps and compare the weights' hash with the committed one"),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON")] = False,
) -> None:
    """Report CPU, instruction sets, caches, threads, devices and compiler; --bits proves the arithmetic."""
    if bits:
        prove(json)
        return
    found = findings()
    missing = [finding for finding in found if not finding.ok and finding.needed]
    if json:
        output.print_json({"ok": not missing, "findings": [_plain(finding) for finding in found]})
    else:
        table = Table(show_header=False)
        for finding in found:
            mark = (
                "[green]ok[/]" if finding.ok else "[red]missing[/]" if finding.needed else "[yellow]absent[/]"
            )
            table.add_row(
                mark, finding.name, escape(finding.value + (f"\n{finding.remedy}" if finding.remedy else ""))
            )
        output.out.print(table)
    raise typer.Exit(1 if missing else 0)


def findings() -> list[Finding]:
    """Everything worth knowing, in order of importance."""
    return [
        Finding(
            "volta",
            f"{__version__} on Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        ),
        *_kernels(),
        _memory(),
        _policy(),
        _compiler(),
        _headers(),
        _opencl(),
        _cuda(),
    ]


def _kernels() -> list[Finding]:
    try:
        info = gateway.cpu_info()
    except DeviceError as error:
        return [Finding("kernels", str(error), False, True)]
    first, second, third = (output.bytes_text(count) if count else "unknown" for count in info.cache_bytes)
    return [
        Finding("cpu", info.model),
        Finding("instruction sets", f"{', '.join(info.isas)}; auto uses {info.isas[-1]}"),
        Finding("caches", f"L1 {first}, L2 {second}, L3 {third}"),
        Finding("threads", f"{info.cpus} usable (affinity and quota) of {os.cpu_count()} CPUs"),
    ]


def _memory() -> Finding:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Finding("memory", output.bytes_text(total))


def _policy() -> Finding:
    try:
        chosen = policy.current()
        gateway.resolve(chosen)
    except (DeviceError, UsageError) as error:
        return Finding("runtime", str(error), False, True, "unset the VOLTA_ variable that asks for it")
    return Finding(
        "runtime",
        f"device {chosen.device}, isa {chosen.isa}, threads {chosen.threads or 'all'}, "
        f"determinism {chosen.determinism}",
    )


def _compiler() -> Finding:
    compiler = ((os.environ.get("CC") or "").split() or ["gcc"])[0]
    path = shutil.which(compiler)
    if path is None:
        return Finding(
            "compiler", f"{compiler} not found", False, False, "only needed to build: apt install gcc"
        )
    shown = subprocess.run(
        [path, "--version"], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    return Finding("compiler", shown[0] if shown else path)


def _headers() -> Finding:
    header = Path(sysconfig.get_path("include"), "Python.h")
    if header.is_file():
        return Finding("python headers", str(header))
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
    return Finding(
        "python headers", f"{header} not found", False, False, f"only needed to build: apt install {package}"
    )


def _opencl() -> Finding:
    if find_spec("pyopencl") is None:
        return Finding("opencl", "pyopencl is not installed; this version computes on the CPU", False)
    return Finding("opencl", "pyopencl is installed; this version has no OpenCL backend yet", False)


def _cuda() -> Finding:
    if ctypes.util.find_library("cuda") is None:
        return Finding("cuda", "CUDA driver not detected; this version computes on the CPU", False)
    return Finding("cuda", "a CUDA driver is here; this version has no CUDA backend yet", False)


def _plain(finding: Finding) -> dict[str, Any]:
    return {
        "name": finding.name,
        "value": finding.value,
        "ok": finding.ok,
        "needed": finding.needed,
        "remedy": finding.remedy,
    }


def prove(json: bool) -> None:
    """Trains the committed cases under the current policy; exit code 1 where a bit differs."""
    expected = bits_of.committed()
    results = [
        {
            "case": name,
            "weights_sha256": digest,
            "expected": expected[name],
            "equal": digest == expected[name],
            "loss": loss,
        }
        for name, digest, loss in bits_of.measure()
    ]
    equal = all(result["equal"] for result in results)
    chosen = policy.current()
    signature = gateway.resolve(chosen).target.signature
    if json:
        output.print_json({"equal": equal, "target": signature, "cases": results})
    else:
        for result in results:
            output.out.print(
                f"{'equal' if result['equal'] else 'DIFFERENT'}  {result['case']}  "
                f"{result['weights_sha256']}",
                style="green" if result["equal"] else "red",
            )
        verdict = (
            "this machine computes Volta's bits" if equal else "this machine does NOT compute Volta's bits"
        )
        output.out.print(f"{verdict} ({signature})")
    raise typer.Exit(0 if equal else 1)
