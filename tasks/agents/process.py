"""Runs an agent's command under limits and, however that ends, ends everything that it started.

Between the harness and the agent stands a keeper: this file again, as a process of one thread. It is a child
subreaper, so the kernel keeps below it whatever the agent starts: what daemonises, what leaves its session,
what clears its environment. It ends its children until the kernel says that it has none: that is the proof
that nothing is left. It does so too when the harness is gone, by SIGKILL as well, since the channel between
the two closes then. Each run has a keeper of its own, so runs in threads beside each other, and the harness's
other children, are never ended or reaped by a run that is not theirs.

Out of reach: what somebody else starts for the agent (cron, systemd, a container's daemon), what another user
owns (sudo), and where the agent kills its keeper what has cleared its environment; all else is found by its
mark then. In a PID namespace (`sandbox`) the keeper is out of its sight. Where there is no Linux there are no
subreapers: the agent's process group is ended and no more.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import resource
import secrets
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Any, BinaryIO

MARK = "VOLTA_AGENT_RUN"  # in the agent's environment: a token of the run's own
GRACE_S = 3.0  # from SIGTERM to SIGKILL
LAST_S = 10.0  # after the grace: for what the kernel is slow to end
TICK_S, WATCH_S, STOP_S, DISK_S = 0.1, 0.3, 0.5, 2.0  # between: looks at limits, told lines, stop(), samples
CHUNK, UNFINISHED, TAIL = 1 << 16, 1 << 13, 1 << 16  # bytes: of a read, of a line without an end, of a log
WIDTH, LOOKS = 200, 40  # characters of a line that is shown; lines in which one is looked for
ENTRIES = 100_000  # files of a tree that one sample of its size looks at
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
ENDS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT})  # to a keeper: end


class Ending(StrEnum):
    """Why a run is over. FINISHED: the agent ended by itself, well or badly. MISSING: it never began."""

    FINISHED = auto()
    MISSING = auto()
    TIMED_OUT = auto()
    IDLE = auto()
    FLOODED = auto()
    DISK_FULL = auto()
    STOPPED = auto()


SAID = {
    Ending.TIMED_OUT: "it still ran after {wall_s:g} s",
    Ending.IDLE: "it printed nothing for {idle_s:g} s",
    Ending.FLOODED: "it printed more than {output_bytes} bytes",
    Ending.DISK_FULL: "its directory grew by {disk_bytes} bytes or more",
    Ending.STOPPED: "it was stopped",
}


@dataclass(frozen=True, slots=True)
class Limits:
    """wall_s: of the whole run. idle_s: without any output. output_bytes: kept in the log. disk_bytes: what
    the working directory may not grow by, and no single file may grow to."""

    wall_s: float
    idle_s: float
    output_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class Ended:
    """code: of the agent's first process, -N where signal N ended it; None only where it never began; its
    keeper's, never 0, where that ended first. seconds: until all was gone. output_bytes: in the log.
    said: one line that explains it."""

    ending: Ending
    code: int | None
    seconds: float
    output_bytes: int
    said: str


def unwatched(_: str) -> None:
    """For a run that nobody watches."""


def unstopped() -> bool:
    """For a run that nobody stops."""
    return False


def run(
    command: Sequence[str],
    cwd: Path,
    environment: Mapping[str, str],
    stdin: str,
    log: Path,
    limits: Limits,
    watch: Callable[[str], None] = unwatched,
    stop: Callable[[], bool] = unstopped,
    grace_s: float = GRACE_S,
) -> Ended:
    """Without a shell; a program without a slash is looked for on the PATH of its own environment.

    log: made anew; both streams, as they come. watch: told the last whole line as plain text, a few times a
    second. stop: asked twice a second. What these two raise comes through once everything is ended, and so
    does KeyboardInterrupt. Raises OSError where cwd is no directory or the log cannot be written.
    """
    if not command:
        raise ValueError("[process] the command is empty: expected a program and its arguments")
    begin = time.monotonic()
    disk = Disk(cwd, limits.disk_bytes)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        output = Output(file, limits.output_bytes, watch)
        agent = Agent(command, cwd, environment, stdin, output, limits.disk_bytes, grace_s)
        try:
            ending = until(agent, begin, output, disk, limits, stop)
        finally:
            agent.end()
        output.finish()
    if agent.missing:
        ending = Ending.MISSING
    elif ending is Ending.FINISHED and output.flooded:
        ending = Ending.FLOODED
    elif ending is Ending.FINISHED and disk.grown() >= limits.disk_bytes:
        ending = Ending.DISK_FULL
    said = SAID[ending].format_map(asdict(limits)) if ending in SAID else agent.how()
    left = "; some of its processes may be left" if agent.left else ""
    return Ended(ending, agent.code, time.monotonic() - begin, output.kept, said + left)


def until(
    agent: Agent, begin: float, output: Output, disk: Disk, limits: Limits, stop: Callable[[], bool]
) -> Ending:
    """FINISHED where the agent has ended or never began, else the limit for which it has to end."""
    asked = begin
    while True:
        agent.pump(TICK_S)
        now = time.monotonic()
        if output.broken:
            raise output.broken
        if output.flooded:
            return Ending.FLOODED
        if not agent.runs:
            return Ending.FINISHED
        if now - begin > limits.wall_s:
            return Ending.TIMED_OUT
        if agent.heard is not None and now - agent.heard > limits.idle_s:
            return Ending.IDLE
        if now - asked >= STOP_S:
            asked = now
            if stop():
                return Ending.STOPPED
        if disk.full(now):
            return Ending.DISK_FULL
        output.tell(now)


# --- what it leaves ----------------------------------------------------------------------------------------


def tail(log: Path, lines: int = 40) -> str:
    """The last lines that say anything, as plain text."""
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
        shown = [plain(line) for line in file.read().splitlines()]
    return "\n".join([line for line in shown if line][-lines:])


def plain(line: bytes) -> str:
    """At most WIDTH characters, none of which does anything to a terminal."""
    text = ESCAPES.sub("", line.decode("utf-8", "replace")).replace("\t", " ")
    return "".join(filter(str.isprintable, text)).strip()[:WIDTH]


class Output:
    """What is printed: into the log as it comes, up to a limit; what is beyond is read and dropped."""

    def __init__(self, log: BinaryIO, most: int, watch: Callable[[str], None]) -> None:
        self._log, self._most, self._watch = log, most, watch
        self._unfinished, self._line, self._told = b"", "", 0.0
        self.kept, self.flooded = 0, False
        self.broken: OSError | None = None  # of the log: raised when the agent is ended, not before

    def take(self, data: bytes) -> None:
        kept = data[: self._most - self.kept]
        self.flooded |= len(kept) < len(data)
        try:
            self._log.write(kept)
            self._log.flush()
        except OSError as error:
            self.broken = self.broken or error
        self.kept += len(kept)
        lines = (self._unfinished + kept).splitlines(keepends=True)
        whole = not lines or lines[-1].endswith((b"\n", b"\r"))
        self._unfinished = b"" if whole else lines.pop()[:UNFINISHED]
        self._line = next(filter(None, map(plain, reversed(lines[-LOOKS:]))), self._line)

    def tell(self, now: float) -> None:
        if self._line and now - self._told >= WATCH_S:
            line, self._line, self._told = self._line, "", now
            self._watch(line)

    def finish(self) -> None:
        """No more will come: the last line is whole."""
        if self.broken:
            raise self.broken
        self._line, self._told = plain(self._unfinished) or self._line, 0.0
        self.tell(time.monotonic())


class Disk:
    """What a directory has grown by, in bytes on the disk. It does not see what is deleted but still open,
    what may not be read, and what lies beyond ENTRIES files."""

    def __init__(self, root: Path, most: int) -> None:
        self._root, self._most = root, most
        self._before, self._next = tree_bytes(root), time.monotonic() + DISK_S

    def grown(self) -> int:
        return tree_bytes(self._root) - self._before

    def full(self, now: float) -> bool:
        """False between samples, which take a tenth of the time at most."""
        if now < self._next:
            return False
        full = self.grown() >= self._most
        after = time.monotonic()
        self._next = after + max(DISK_S, 10 * (after - now))
        return full


def tree_bytes(root: Path) -> int:
    """Of the first ENTRIES files below it: no link is followed, a file with two names is counted once."""
    total = seen = 0
    linked: set[tuple[int, int]] = set()
    waiting = [str(root)]
    while waiting and seen < ENTRIES:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                seen += 1
                with contextlib.suppress(OSError):  # it is gone again
                    found = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif found.st_nlink > 1:
                        if (found.st_dev, found.st_ino) in linked:
                            continue
                        linked.add((found.st_dev, found.st_ino))
                    total += found.st_blocks * 512  # POSIX, whatever the blocks of the file system are
                if seen >= ENTRIES:
                    break
    return total


# --- the harness's side ------------------------------------------------------------------------------------


class Agent:
    """A keeper's process and the pipes to it: the agent's input, its output, and the channel."""

    def __init__(
        self,
        command: Sequence[str],
        cwd: Path,
        environment: Mapping[str, str],
        stdin: str,
        output: Output,
        file_bytes: int,
        grace_s: float,
    ) -> None:
        self._program, self._output, self._grace_s = command[0], output, grace_s
        self._mark = secrets.token_hex(16)
        self._unsaid = memoryview(stdin.encode("utf-8", "replace"))
        self._news = b""
        self.code: int | None = None
        self.missing = ""
        self.heard: float | None = None  # when it printed last, or began
        self.gone = self.lost = self.left = False  # the keeper; before the agent; maybe some of it
        wanted = {
            "command": list(command),
            "environment": {**environment, MARK: self._mark},
            "file_bytes": file_bytes,
            "grace_s": grace_s,
        }
        with contextlib.ExitStack() as failing:
            self._channel, theirs = map(failing.enter_context, socket.socketpair())
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, str(theirs.fileno())],
                cwd=cwd,
                env={key: os.environ[key] for key in ("LD_LIBRARY_PATH",) if key in os.environ},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                bufsize=0,
                start_new_session=True,
                pass_fds=[theirs.fileno()],
            )
            failing.pop_all()
        theirs.close()
        with contextlib.suppress(OSError):  # the keeper is gone, which the channel will say
            self._channel.sendall(json.dumps(wanted).encode() + b"\n")
        self._selector = selectors.DefaultSelector()
        self._expect(self._keeper.stdout, selectors.EVENT_READ, self._hear)
        self._expect(self._keeper.stdin, selectors.EVENT_WRITE, self._feed)
        self._expect(self._channel, selectors.EVENT_READ, self._learn)

    def _expect(self, file: Any, event: int, then: Callable[[], object]) -> None:
        os.set_blocking(file.fileno(), False)
        self._selector.register(file, event, then)

    @property
    def runs(self) -> bool:
        return self.code is None and not self.missing and not self.gone

    def pump(self, most_s: float) -> None:
        """Moves what there is to move, or waits for some."""
        for key, _ in self._selector.select(most_s):
            key.data()

    def _hear(self) -> bool:
        """Whether there may be more."""
        stdout: Any = self._keeper.stdout
        try:
            data = os.read(stdout.fileno(), CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.heard = time.monotonic()
            self._output.take(data)
        elif stdout in self._selector.get_map():
            self._selector.unregister(stdout)
        return bool(data)

    def _feed(self) -> None:
        stdin: Any = self._keeper.stdin
        try:
            self._unsaid = self._unsaid[os.write(stdin.fileno(), self._unsaid[:CHUNK]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not want to hear the rest
            self._unsaid = self._unsaid[:0]
        if not self._unsaid:
            self._selector.unregister(stdin)
            stdin.close()

    def _learn(self) -> None:
        """A line of JSON for each piece of news."""
        try:
            data = self._channel.recv(CHUNK)
        except OSError:
            data = b""
        *lines, self._news = (self._news + data).split(b"\n")
        for line in lines:
            news = json.loads(line)
            self.code = news.get("code", self.code)
            self.missing = news.get("missing", self.missing)
            self.heard = self.heard or time.monotonic()
        if not data:
            self.gone = True
            self._selector.unregister(self._channel)

    def end(self) -> None:
        """Asks for the end of all that still runs and waits for it. Interrupted, the keeper does it alone."""
        with contextlib.suppress(OSError):  # it is gone
            self._channel.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + self._grace_s + LAST_S
        self._keeper.send_signal(signal.SIGCONT)  # an agent may have stopped it
        while not self.gone and time.monotonic() < deadline:
            self.pump(TICK_S)
        try:
            self._keeper.wait(max(TICK_S, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self.left = not sweep(self._mark) or self._keeper.returncode != 0
        if self.code is None and not self.missing:
            self.lost, self.code = True, self._keeper.returncode or 1
        while not self._output.flooded and self._hear():
            pass
        self._selector.close()
        for file in (self._keeper.stdin, self._keeper.stdout, self._channel):
            if file is not None:
                file.close()

    def how(self) -> str:
        """It ended, or why it did not begin."""
        if self.code is None:
            return f"{self._program}: {self.missing}"
        code = self.code
        by = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"
        return f"its keeper ended before it did: {by}" if self.lost else by


def sweep(mark: str) -> bool:
    """SIGKILL to all with a mark: there are some only where the keeper was killed. Whether none is left."""
    wanted = f"{MARK}={mark}".encode()
    deadline = time.monotonic() + LAST_S
    while [pid for pid in processes() if killed(pid, wanted)]:
        if time.monotonic() > deadline:
            return False
        time.sleep(TICK_S)
    return True


def killed(pid: int, mark: bytes) -> bool:
    """Whether it had the mark. The pidfd comes first, so that whoever gets its number next is not meant."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(OSError):  # it is gone, or somebody else's
        file = os.pidfd_open(pid)
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                signal.pidfd_send_signal(file, signal.SIGKILL)
                return True
        finally:
            os.close(file)
    return False


def processes() -> Iterator[int]:
    """None where there is no /proc."""
    return (int(one.name) for one in Path("/proc").glob("[1-9]*"))


# --- the keeper's side: a process of its own, with one thread ----------------------------------------------


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


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as mine:
        keep(mine)
