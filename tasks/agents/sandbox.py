"""A sandbox of bubblewrap's, where it is there and works, and the environment that an agent gets.

All of the machine can be read, only what is named can be written, and no process outside can be seen or
signalled. /tmp and /run are private, so the sockets of sessions and of most daemons are out of reach. There
are no capabilities, for root neither, and /proc/sys is read-only: root could name a program there that the
kernel runs outside. When bwrap ends, at once on SIGTERM, the kernel ends all that is in its PID namespace.

It does not stop: reading what is not hidden, or what is by another hard link; a network that is left on, with
this machine's own services and abstract sockets; the use of memory, of which /tmp and /dev/shm may each take
half; and what others run later from a place that could be written, such as a repository's hooks.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tasks.errors import TaskError

NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts")
ENDS_WITH_US = ("--die-with-parent", "--new-session")  # nor is there a terminal of ours to type into
POWERLESS = ("--cap-drop", "ALL")
PRIVATE = (
    (Path("/dev"), ("--dev",)),
    (Path("/proc"), ("--proc",)),
    (Path("/proc/sys"), ("--ro-bind", "/proc/sys")),
    (Path("/tmp"), ("--tmpfs",)),
    (Path("/run"), ("--tmpfs",)),
)
NEEDED = (  # also where it lies in a private place
    Path("/etc/resolv.conf"),  # systemd has it in /run
    Path(sys.base_prefix),
    Path(sys.prefix),
    Path(__file__).parents[2],  # for agents that are modules of ours
)
SECRETS = (  # below the home directory: what programs keep there to be let in elsewhere
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".git-credentials", ".npmrc", ".pypirc",
    ".config/gh", ".config/gcloud",
)  # fmt: skip
PASSED = ("PATH", "HOME", "LANG", "TZ")
TRIAL_S = 20.0


@functools.cache
def available() -> str:
    """Empty where a command runs in a sandbox, else why none does, in one line. Tried once."""
    try:
        command = wrapped(["true"], [])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TRIAL_S)
    except (TaskError, OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode(errors="replace").split("\n")
    last = next(filter(None, reversed(said)), f"bwrap ended with exit code {done.returncode}")
    return last if done.returncode else ""


def wrapped(
    command: Sequence[str], writable: Sequence[Path], hidden: Sequence[Path] = (), network: bool = True
) -> list[str]:
    """The command in a sandbox, in the directory that it is started in. Its exit code is the command's:
    128 + N where signal N ended it, 1 where it is not there.

    writable: directories or files that are there; a single file can be written, but not replaced by another
    as many programs do. hidden: an empty directory or file is in their place; what is not there is passed
    over. Of places in each other the inner one counts, of one place that it is hidden. Raises TaskError where
    bwrap, or what shall be writable, is missing.
    """
    program = shutil.which("bwrap")
    if program is None:
        raise TaskError("[sandbox] there is no bwrap on the PATH: expected bubblewrap to be installed")
    if gone := [str(path) for path in writable if found(path) is None]:
        raise TaskError(f"[sandbox] {', '.join(gone)}: expected what shall be writable to be there")
    open_to = [path.resolve() for path in writable]
    mounts = [
        *PRIVATE,
        *((path, ("--ro-bind", str(path))) for path in map(found, NEEDED) if path and lost(path, open_to)),
        *((path, ("--bind", str(path))) for path in open_to),
        *((path, empty(path)) for path in map(found, hidden) if path),
    ]
    mounts.sort(key=lambda mount: len(mount[0].parts))  # the inner ones later, and so over the outer ones
    return [
        *(program, "--ro-bind", "/", "/"),
        *(part for path, options in mounts for part in (*options, str(path))),
        *(*NAMESPACES, *ENDS_WITH_US, *POWERLESS),
        *(() if network else ("--unshare-net",)),
        *("--", *command),
    ]


def found(path: Path) -> Path | None:
    """Where it really is; None where it is not, or where we, and so the agent, may not look."""
    with contextlib.suppress(OSError):
        return path.resolve(strict=True)
    return None


def lost(path: Path, open_to: Sequence[Path]) -> bool:
    """In a private place, and in none that shows it all the same."""
    return any(place in path.parents for place, _ in PRIVATE) and not any(
        place in path.parents for place in open_to
    )


def empty(path: Path) -> tuple[str, ...]:
    """What covers it. A device: what bwrap binds otherwise of /dev/null cannot be opened."""
    return ("--tmpfs",) if path.is_dir() else ("--dev-bind", "/dev/null")


def environment(allowed: Sequence[str], more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Of our own only what is listed here, and what is allowed, where it is set; then more."""
    names = {*PASSED, *allowed, *(name for name in os.environ if name.startswith("LC_"))}
    kept = {name: os.environ[name] for name in sorted(names) if name in os.environ}
    return {"PATH": os.defpath, "TERM": "dumb", **kept, **(more or {})}
