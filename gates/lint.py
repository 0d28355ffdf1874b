"""lint: ruff, clang-tidy, import edges, flags that break the contract, kernel names, generated files."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gates.context import JUDGE, Context
from gates.evidence.verdict import Finding, Outcome, judged
from gates.tools import c_files, tool

# What reassociates, contracts or flushes: clause N0 forbids it in every file that reaches a compiler.
N0 = "N0: it changes values"
FMA = "N0: fma only where a clause writes it"
FLAGS = "flags are the build's, for all files the same"
FORBIDDEN = {
    r"-f(fast-math|unsafe-math-optimizations|associative-math|reciprocal-math|finite-math-only)\b": N0,
    r"-f(no-signed-zeros|cx-limited-range|single-precision-constant)\b": N0,
    r"-Ofast\b": N0,
    r"-ffp-contract=(fast|on)\b": FMA,
    r"#\s*pragma\s+STDC\s+FP_CONTRACT\s+(ON|DEFAULT)\b": FMA,
    r"#\s*pragma\s+clang\s+fp\s+(contract\s*\(\s*(on|fast)|reassociate|reciprocal)": N0,
    r"-march=native\b": "one binary serves every x86-64: target attributes choose the ISA",
    r"#\s*pragma\s+(GCC|clang)\s+optimize\b(?!\s*\(\"no-)": FLAGS,
    r"__attribute__\s*\(\(\s*optimize": FLAGS,
    r"_MM_SET_(FLUSH_ZERO|DENORMALS_ZERO)_MODE|_mm_setcsr\s*\(": "N0: subnormals are kept",
    r"-cl-(fast-relaxed-math|mad-enable|unsafe-math-optimizations|finite-math-only)\b": N0,
    r"-cl-denorms-are-zero\b": "N0: subnormals are kept",
    r"--(use_fast_math|fmad=true|ftz=true|prec-div=false|prec-sqrt=false)\b": N0,
}
# Where one of them is what a clause asks for.
ALLOWED = {
    ("engine/csrc/pool.c", "_mm_setcsr"): "sets N0's environment in every thread, whatever the caller's is",
    ("engine/csrc/cpu/matmul.c", "_mm_setcsr"): "N9 flushes, inside a product of bf16 only",
    ("engine/csrc/cpu/avx512/matmul_dot.c", "_mm_setcsr"): "N9 flushes, inside a product of bf16 only",
    ("engine/csrc/vmath.h", "-ffast-math"): "refuses it",
    ("engine/csrc/vmath.h", "never -cl-fast-relaxed-math"): "says so",
}
FLAG_FILES = ("*.py", "*.c", "*.h", "*.def", "*.cl", "*.cu", "*.toml", "*.cfg", "*.ini")
KERNEL_LINE = re.compile(r"^VOLTA_KERNEL\((\w+), (\w+)\)")
# An external function: a definition at the margin that is not static.
EXTERNAL = re.compile(
    r"^(?!static\b|typedef\b|return\b|else\b|#)[A-Za-z_][\w \*]*?\b\*?(\w+)\(", re.MULTILINE
)
GRAMMAR = re.compile(r"^volta_[a-z0-9]+(_[a-z0-9]+)*$|^VOLTA_[A-Z_]+$")


def check(context: Context) -> Outcome:
    findings: list[Finding] = []
    findings += ruff(context)
    findings += imports(context)
    findings += list(forbidden(context.head.path))
    findings += list(names(context.head.path))
    findings += clang_tidy(context)
    findings += drift(context)
    return judged(findings, "ruff, clang-tidy, import edges, flags, kernel names, generated files")


def ruff(context: Context) -> list[Finding]:
    done = context.run(
        (tool("ruff"), "check", "--no-cache", "--no-respect-gitignore", "--output-format=concise", ".")
    )
    found = [finding for line in done.output.splitlines() if (finding := located(line))]
    return found or ([Finding(f"ruff: {done.tail(1)}")] if done.code else [])


def drift(context: Context) -> list[Finding]:
    """PRD.md and what else follows from queue and ledger; and the ledger, which only grows."""
    if not (context.head.path / "tasks" / "queue").is_dir():
        return []
    done = context.run(
        (
            sys.executable, "-P", "-m", "tasks", "drift", context.head.path, "--before", context.base.path,
            "--commit", context.head.tree.commit or "HEAD", "--repository", context.repository.root,
        ),
        context.evidence,
        {**context.environment(context.head), "PYTHONPATH": str(JUDGE)},
    )  # fmt: skip
    found = [
        Finding(match[3], match[1], int(match[2] or 0))
        for line in done.output.splitlines()
        if (match := re.match(r"^([\w./-]+):(?:(\d+):)? (.*)$", line))
    ]
    return found or ([Finding(f"tasks drift: {done.tail(1)}")] if done.code else [])


def located(line: str) -> Finding | None:
    """`path:line:column: message`."""
    match = re.match(r"^([^\s:]+):(\d+):(?:\d+:)? (.*)$", line)
    return Finding(match[3], match[1], int(match[2])) if match else None


def imports(context: Context) -> list[Finding]:
    done = context.run(
        (tool("lint-imports"), "--no-logo", "--no-cache", "--config", "pyproject.toml"),
        env=context.environment(context.head),
    )
    if not done.code:
        return []
    edges = [line.strip(" -") for line in done.output.splitlines() if "->" in line]
    return [Finding(f"import edge: {edge}") for edge in edges] or [Finding(f"import-linter: {done.tail(1)}")]


def forbidden(root: Path) -> Iterator[Finding]:
    """Only what compiles or configures a compiler; this file and the tests name flags to refuse them."""
    files = [root / "setup.py", root / "pyproject.toml", root / "noxfile.py"]
    files += [path for pattern in FLAG_FILES for path in sorted((root / "engine").rglob(pattern))]
    for path in files:
        if not path.is_file() or path.is_symlink():
            continue
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            for pattern, reason in FORBIDDEN.items():
                match = re.search(pattern, line)
                if match and not allowed(str(path.relative_to(root)), line):
                    yield Finding(f"{match[0]}: {reason}", str(path.relative_to(root)), number)


def allowed(path: str, line: str) -> bool:
    return any(path == place and name in line for place, name in ALLOWED)


def names(root: Path) -> Iterator[Finding]:
    """The grammar volta_<op>[_<tile>]_<isa>: a family is one line of the manifest, twice the same name."""
    manifest = root / "engine/csrc/kernels.def"
    for number, line in enumerate(manifest.read_text().splitlines(), 1) if manifest.is_file() else ():
        match = KERNEL_LINE.match(line)
        if match and match[1].lower() != match[2]:
            yield Finding(f"kernel {match[1]} is named {match[2]}", "engine/csrc/kernels.def", number)
    for name in c_files(root):
        if not name.startswith("engine/csrc/") or not name.endswith(".c"):
            continue
        text = (root / name).read_text(errors="replace")
        for found in EXTERNAL.finditer(text):
            if not GRAMMAR.match(found[1]):
                at = text.count("\n", 0, found.start()) + 1
                yield Finding(f"{found[1]} is external: expected a name like volta_softmax_avx2", name, at)


def clang_tidy(context: Context) -> list[Finding]:
    """Each source by itself, as the build compiles it."""
    root = context.head.path
    sources = [name for name in c_files(root) if name.startswith("engine/csrc/") and name.endswith(".c")]
    command = (tool("clang-tidy"), "--quiet", f"--config-file={context.base.path / '.clang-tidy'}")
    if not (context.base.path / ".clang-tidy").is_file():
        command = (*command[:2], f"--config-file={root / '.clang-tidy'}")

    def one(source: str) -> list[Finding]:
        done = context.run((*command, source, "--", "-std=c11", "-pthread", "-Iengine/csrc"), cwd=root)
        lines = [line.replace(f"{root}/", "") for line in done.output.splitlines()]
        found = [
            finding
            for line in lines
            if re.search(r": (error|warning): ", line) and (finding := located(line))
        ]
        return found or ([Finding(f"clang-tidy: {done.tail(1)}", source)] if done.code else [])

    with ThreadPoolExecutor(2) as workers:
        return sorted({found for each in workers.map(one, sources) for found in each}, key=str)
