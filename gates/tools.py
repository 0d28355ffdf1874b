"""Where the tools are, and which files of a tree they take."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from gates.errors import GateError


def tool(name: str) -> str:
    """A command of this interpreter's environment, else of the machine."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise GateError(f"[tools] {name} is not installed: expected it beside {sys.executable}")
    return found


def c_files(root: Path) -> list[str]:
    """All C sources and headers of engine and tests; manifests (*.def) are tables, laid out by hand."""
    return sorted(
        str(path.relative_to(root))
        for place in ("engine/csrc", "tests")
        for ending in ("*.c", "*.h")
        for path in (root / place).rglob(ending)
        if not path.is_symlink()
    )
