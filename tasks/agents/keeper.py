"""Between the harness and an agent: a process of one thread that starts the agent and is the last to go.

It is a child subreaper, so the kernel keeps below it whatever the agent starts: what daemonises, what leaves
its session, what clears its environment. It ends its children until the kernel says that it has none: that is
the proof that nothing is left. Run as a file, so it imports nothing of the harness's.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

TICK_S = 0.1  # between looks
CHUNK = 1 << 16  # bytes of a read
LAST_S = 10.0  # after the grace: for what the kernel is slow to end
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
ENDS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})  # to a keeper: end


def keep(channel: socket.socket) -> None:
    """In comes one line, what to start; out go {"started"} or {"missing"}, then {"code"}. The channel ends
    when nothing is left; that the harness ends it, or a signal, asks for that."""
    line = channel.makefile("rb").readline()
    if not line.endswith(b"\n"):
        return  # the harness is gone
    wanted = json.loads(line)
    woken = wakened()
    if sys.platform == "linux":
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        prctl(PR_SET_PDEATHSIG, signal.SIGTERM)  # a fork of the harness may have the channel, too
    for which, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, wanted["file_bytes"])):
        _, hard = resource.getrlimit(which)
        least = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(which, (least, least))  # the agent inherits it
    try:
        agent = subprocess.Popen(wanted["command"], env=wanted["environment"], start_new_session=True)
    except (OSError, ValueError) as error:
        tell(channel, missing=getattr(error, "strerror", None) or str(error))
        return
    tell(channel, started=agent.pid)
    code, left = reap(agent.pid)
    while code is None and not asked_to_end(channel, woken):
        code, left = reap(agent.pid)
    if code is not None:
        tell(channel, code=code)
    if left:
        end_all(agent.pid, code is not None, channel, wanted["grace_s"])


def prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), f"this kernel refuses prctl({option}, {value})")


def wakened() -> int:
    """A file to select on, with a byte for each signal that came: SIGCHLD or one that asks for the end."""
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    for one in (signal.SIGCHLD, *ENDS):
        signal.signal(one, lambda *_: None)  # not SIG_IGN, which the agent would inherit
    return woken


def asked_to_end(channel: socket.socket, woken: int) -> bool:
    """Waits for a signal or the end of the channel."""
    ready, _, _ = select.select([channel.fileno(), woken], [], [])
    return channel.fileno() in ready or not ENDS.isdisjoint(os.read(woken, CHUNK))


def tell(channel: socket.socket, **news: object) -> None:
    with contextlib.suppress(OSError):  # the harness is gone
        channel.sendall(json.dumps(news).encode() + b"\n")


def reap(agent: int) -> tuple[int | None, bool]:
    """The agent's code, where it has ended since; whether there are children still."""
    code = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code, False
        if pid == 0:
            return code, True
        if pid == agent:
            code = os.waitstatus_to_exitcode(status)


def end_all(agent: int, reaped: bool, channel: socket.socket, grace_s: float) -> None:
    """SIGTERM to the agent's group and to each child, SIGKILL after the grace, until there is no child: those
    of a process that ends become the keeper's, so each has its turn. Only what is not reaped is signalled,
    whose number nobody else can have."""
    how, told = signal.SIGTERM, {agent}
    deadline = time.monotonic() + grace_s
    if not reaped:
        send(os.killpg, agent, how)
    while True:
        code, left = reap(agent)
        if code is not None and not reaped:
            reaped = True
            tell(channel, code=code)
        if not left:
            return
        if time.monotonic() > deadline:
            how, told = signal.SIGKILL, set()
            if not reaped:
                send(os.killpg, agent, how)
        for child in children():
            if child not in told:
                send(os.kill, child, how)
                told.add(child)
        time.sleep(0.001 if how == signal.SIGKILL else 0.01)


def send(by: Callable[[int, int], None], target: int, how: int) -> None:
    with contextlib.suppress(PermissionError):  # another user's: it ends when it wants to
        by(target, how)


def children() -> list[int]:
    """Of this process and its one thread. The file is quick, and needs CONFIG_PROC_CHILDREN."""
    me = os.getpid()
    try:
        return [int(one) for one in Path(f"/proc/self/task/{me}/children").read_text().split()]
    except OSError:
        return [pid for pid in processes() if parent(pid) == me]


def parent(pid: int) -> int:
    """0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def processes() -> Iterator[int]:
    """None where there is no /proc."""
    return (int(one.name) for one in Path("/proc").glob("[1-9]*"))


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as mine:
        keep(mine)
