"""Runs an agent's command under limits and, however that ends, ends everything that it started.

Between the harness and the agent stands a keeper (keeper.py), which ends all that is left. It does so too
when the harness is gone, by SIGKILL as well, since the channel between the two closes then. Each run has a
keeper of its own, so runs in threads beside each other, and the harness's other children, are never ended or
reaped by a run that is not theirs.

Out of reach: what somebody else starts for the agent (cron, systemd, a container's daemon), what another user
owns (sudo), and where the agent kills its keeper what has cleared its environment; all else is found by its
mark then. In a PID namespace (`sandbox`) the keeper is out of its sight. Where there is no Linux there are no
subreapers: the agent's process group is ended and no more.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Any

from tasks.agents import keeper
from tasks.agents.keeper import LAST_S, TICK_S, processes
from tasks.agents.output import CHUNK, Disk, Output

MARK = "VOLTA_AGENT_RUN"  # in the agent's environment: a token of the run's own
GRACE_S = 3.0  # from SIGTERM to SIGKILL
STOP_S = 0.5  # between questions whether to stop


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
                [sys.executable, "-I", "-S", keeper.__file__, str(theirs.fileno())],
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
