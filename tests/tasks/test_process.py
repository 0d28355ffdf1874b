"""Runs of agents: each limit ends one, and whatever way one ends, no process of it is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tasks.agents.process import Ended, Ending, Limits, run

from tasks.agents import keeper, process

ROOT = Path(__file__).parents[2]
LEAVE = Path(__file__).parent / "agents" / "leave.py"
PATH = os.environ.get("PATH", os.defpath)
WAIT_S = 60.0  # for what happens soon on a machine that is not busy
GENEROUS = Limits(wall_s=WAIT_S, idle_s=WAIT_S, output_bytes=1 << 20, disk_bytes=1 << 26)
LIMITS: dict[str, Any] = {name: getattr(GENEROUS, name) for name in Limits.__slots__}
SILENT = "sleep 1000"


def python(text: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", text]


def leaving(how: str, file: Path) -> list[str]:
    return [sys.executable, "-I", "-S", str(LEAVE), how, str(file)]


def after(command: list[str], then: str) -> list[str]:
    """A shell that runs both."""
    return ["/bin/sh", "-c", f'"$@"; {then}', "sh", *command]


def inside(place: Path) -> list[int]:
    """The processes that work below a directory."""
    found = []
    for one in Path("/proc").glob("[1-9]*"):
        try:
            if (one / "cwd").readlink().is_relative_to(place):
                found.append(int(one.name))
        except OSError:
            continue
    return found


def alive(pid: int) -> bool:
    """Neither gone nor a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Agents:
    """Runs in a directory of their own."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.log, self.pid = root, root / "work", root / "log", root / "work" / "pid"
        self.work.mkdir(parents=True)

    def run(self, command: str | list[str], stdin: str = "", grace_s: float = 0.3, **more: Any) -> Ended:
        """more: limits, watch, stop, environment."""
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        limits = Limits(**{**LIMITS, **{name: more.pop(name) for name in LIMITS if name in more}})
        environment = more.pop("environment", {"PATH": PATH})
        ended = run(words, self.work, environment, stdin, self.log, limits, grace_s=grace_s, **more)
        assert "\n" not in ended.said
        assert ended.output_bytes == self.log.stat().st_size <= limits.output_bytes
        return ended

    def started(self) -> bool:
        return self.pid.exists()


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Agents]:
    yield Agents(tmp_path / "it")
    assert inside(tmp_path) == []  # a process was left


# --- how it ended ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [
        ("exit 0", 0, "exit code 0"),
        ("exit 3", 3, "exit code 3"),
        ("kill -KILL $$", -signal.SIGKILL, "signal 9 (Killed)"),
        ("kill -TERM $$", -signal.SIGTERM, "signal 15 (Terminated)"),
    ],
)
def test_the_code_is_the_agents_own(agents: Agents, command: str, code: int, said: str) -> None:
    ended = agents.run(command)
    assert (ended.ending, ended.code, ended.said) == (Ending.FINISHED, code, said)


@pytest.mark.parametrize("kind", ["absent", "not on the path", "plain", "directory", "interpreter"])
def test_a_command_that_cannot_be_started_is_missing_and_is_named(agents: Agents, kind: str) -> None:
    it = agents.root / "agent"
    if kind == "plain":
        it.write_text("#!/bin/sh\n")
    elif kind == "directory":
        it.mkdir()
    elif kind == "interpreter":
        it.write_text("#!/nowhere/at/all\n")
        it.chmod(0o755)
    name = "no-such-agent" if kind == "not on the path" else str(it)
    ended = agents.run([name, "argument"])
    assert (ended.ending, ended.code, ended.output_bytes) == (Ending.MISSING, None, 0)
    assert ended.said.startswith(f"{name}: ")


def test_a_program_is_looked_for_on_the_path_of_its_own_environment(agents: Agents) -> None:
    it = agents.root / "bin" / "some-agent"
    it.parent.mkdir()
    it.write_text("#!/bin/sh\nexit 5\n")
    it.chmod(0o755)
    assert agents.run(["some-agent"], environment={"PATH": str(it.parent)}).code == 5


def test_what_cannot_be_asked_is_an_error(agents: Agents) -> None:
    with pytest.raises(ValueError, match="empty"):
        agents.run([])
    with pytest.raises(FileNotFoundError):
        run(["true"], agents.root / "nowhere", {"PATH": PATH}, "", agents.log, GENEROUS)


# --- what goes in and comes out ----------------------------------------------------------------------------


def test_output_is_in_the_log_while_the_agent_still_runs(agents: Agents) -> None:
    seen = []

    def watch(line: str) -> None:
        seen.append((line, agents.log.read_bytes()))
        (agents.work / "go").touch()

    ended = agents.run("echo one; while [ ! -e go ]; do sleep 0.05; done; echo two >&2", watch=watch)
    assert (ended.ending, ended.code) == (Ending.FINISHED, 0)
    assert seen == [("one", b"one\n"), ("two", b"one\ntwo\n")]


def test_lines_are_told_a_few_times_a_second_and_the_last_one_at_the_end(agents: Agents) -> None:
    seen: list[tuple[str, float]] = []
    command = "for i in $(seq 30); do echo line $i; sleep 0.04; done; printf unfinished"
    agents.run(command, watch=lambda line: seen.append((line, time.monotonic())))
    times = [one for _, one in seen[:-1]]
    assert all(later - one >= 0.25 for one, later in pairwise(times))
    assert len(times) > 1
    assert seen[-1][0] == "unfinished"


def test_bytes_are_kept_as_they_are(agents: Agents) -> None:
    ended = agents.run(python("import os; os.write(1, bytes(range(256)) * 700)"))
    assert agents.log.read_bytes() == bytes(range(256)) * 700
    assert ended.output_bytes == 256 * 700


def test_stdin_arrives_whole_and_ends(agents: Agents) -> None:
    text = "Grüße\n" * 200_000
    ended = agents.run("cksum; sleep 0.1", stdin=text)
    expected = subprocess.run(["cksum"], input=text.encode(), capture_output=True, check=True).stdout
    assert (ended.ending, ended.code, agents.log.read_bytes()) == (Ending.FINISHED, 0, expected)


@pytest.mark.parametrize("command", ["true", "exec <&-; sleep 0.3", "head -c 3 >/dev/null", "sleep 0.3"])
def test_an_agent_need_not_read_its_stdin(agents: Agents, command: str) -> None:
    ended = agents.run(command, stdin="x" * (1 << 20))
    assert (ended.ending, ended.code) == (Ending.FINISHED, 0)


def test_the_agent_gets_the_environment_that_is_given_and_a_mark(agents: Agents) -> None:
    agents.run(["env"], environment={"PATH": PATH, "ONE": "1"})
    given = dict(line.split("=", 1) for line in agents.log.read_text().splitlines())
    assert len(given.pop(process.MARK)) == 32
    assert given == {"PATH": PATH, "ONE": "1"}


def test_no_file_of_ours_is_open_in_the_agent(agents: Agents) -> None:
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    agents.run("ls -l /proc/self/fd")
    os.close(ours)
    os.close(theirs)
    numbers = [int(line.split(" -> ")[0].split()[-1]) for line in agents.log.read_text().splitlines()[1:]]
    assert sorted(numbers) == [0, 1, 2, 3]  # 3: the directory that ls reads


def test_no_core_is_dumped_and_no_file_can_grow_beyond_the_disk(agents: Agents) -> None:
    agents.run("ulimit -c; ulimit -H -c; ulimit -f", disk_bytes=1 << 20)
    assert agents.log.read_text().split() == ["0", "0", str((1 << 20) // 512)]


# --- limits ------------------------------------------------------------------------------------------------


def test_one_that_hangs_is_ended_though_it_prints(agents: Agents) -> None:
    ended = agents.run("while :; do echo still here; sleep 0.1; done", wall_s=1.5, idle_s=1.4)
    assert (ended.ending, ended.said) == (Ending.TIMED_OUT, "it still ran after 1.5 s")
    assert ended.seconds >= 1.5


def test_one_that_says_nothing_more_is_idle(agents: Agents) -> None:
    ended = agents.run(f"echo one; {SILENT}", idle_s=0.5)
    assert (ended.ending, ended.said) == (Ending.IDLE, "it printed nothing for 0.5 s")
    assert agents.log.read_text() == "one\n"


def test_one_that_prints_dots_is_not_idle(agents: Agents) -> None:
    ended = agents.run("for i in 1 2 3 4 5 6 7 8 9; do sleep 0.5; printf . >&2; done", idle_s=3.0)
    assert (ended.ending, agents.log.read_text()) == (Ending.FINISHED, "." * 9)


def test_one_that_floods_is_ended_and_the_limit_is_kept(agents: Agents) -> None:
    ended = agents.run("yes", output_bytes=100_001)
    assert (ended.ending, ended.output_bytes) == (Ending.FLOODED, 100_001)
    assert ended.said == "it printed more than 100001 bytes"


@pytest.mark.parametrize(("printed", "ending"), [(1000, Ending.FINISHED), (1001, Ending.FLOODED)])
def test_a_flood_begins_with_the_first_byte_too_many(agents: Agents, printed: int, ending: Ending) -> None:
    ended = agents.run(f"head -c {printed} /dev/zero", output_bytes=1000)
    assert (ended.ending, ended.output_bytes) == (ending, 1000)


def test_what_a_child_floods_after_the_agents_end_counts(agents: Agents) -> None:
    flood = "trap 'head -c 5000 /dev/zero; exit' TERM; echo > pid; while :; do sleep 0.05; done"
    ended = agents.run(
        f"({flood}) & while [ ! -e pid ]; do sleep 0.05; done", output_bytes=1000, grace_s=WAIT_S
    )
    assert (ended.ending, ended.code, ended.output_bytes) == (Ending.FLOODED, 0, 1000)


@pytest.mark.parametrize(
    "command",
    [
        "i=0; while :; do i=$((i+1)); head -c 65536 /dev/zero > file$i; done",
        "head -c 4194304 /dev/zero > file; exit 0",
        "for i in 1 2 3; do head -c 524288 /dev/zero > file$i; done",
    ],
    ids=["many files", "a large file", "before anybody looked"],
)
def test_one_that_fills_the_disk_is_ended(agents: Agents, command: str) -> None:
    ended = agents.run(command, disk_bytes=1 << 20)
    assert (ended.ending, ended.said) == (Ending.DISK_FULL, "its directory grew by 1048576 bytes or more")
    assert max(file.stat().st_size for file in agents.work.iterdir()) <= 1 << 20


def test_only_growth_counts_against_the_disk(agents: Agents) -> None:
    (agents.work / "old").write_bytes(bytes(1 << 21))
    write = "head -c 900000 /dev/zero"
    command = f"{write} > new; ln new again; ln -s old link; rm old; {write} > more"
    assert agents.run(command, disk_bytes=1 << 20).ending is Ending.FINISHED


def test_one_that_shall_stop_is_ended(agents: Agents) -> None:
    asked: list[float] = []

    def stop() -> bool:
        asked.append(time.monotonic())
        return len(asked) == 3

    ended = agents.run(SILENT, stop=stop)
    assert (ended.ending, ended.code, ended.said) == (Ending.STOPPED, -signal.SIGTERM, "it was stopped")
    assert len(asked) == 3
    assert asked[2] - asked[0] >= 0.8  # about twice a second, not at each look


# --- nothing is left ---------------------------------------------------------------------------------------


def test_one_that_cleans_up_on_sigterm_may(agents: Agents) -> None:
    command = "trap 'sleep 0.2; echo cleaned; exit 7' TERM; echo > pid; while :; do sleep 0.05; done"
    ended = agents.run(command, stop=agents.started, grace_s=WAIT_S)
    assert (ended.ending, ended.code) == (Ending.STOPPED, 7)
    assert agents.log.read_text().endswith("cleaned\n")


def test_one_that_ignores_sigterm_is_killed(agents: Agents) -> None:
    ended = agents.run(leaving("stay", agents.pid), stop=agents.started)
    assert (ended.ending, ended.code) == (Ending.STOPPED, -signal.SIGKILL)
    assert not alive(int(agents.pid.read_text()))


@pytest.mark.parametrize("how", ["child", "daemon", "cleared", "hopping"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_what_it_leaves_behind_is_ended_with_it(agents: Agents, how: str, goes_on: bool) -> None:
    """Also where the agent itself still runs when it is stopped."""
    if goes_on:
        ended = agents.run(after(leaving(how, agents.pid), SILENT), stop=agents.started)
        assert ended.ending is Ending.STOPPED
    else:
        ended = agents.run(leaving(how, agents.pid))
        assert (ended.ending, ended.code, ended.said) == (Ending.FINISHED, 0, "exit code 0")
    assert not alive(int(agents.pid.read_text()))


def test_a_stopped_process_is_ended_too(agents: Agents) -> None:
    ended = agents.run("sleep 1000 & kill -STOP $!; echo $! > pid")
    assert (ended.ending, ended.code) == (Ending.FINISHED, 0)
    assert not alive(int(agents.pid.read_text()))


def test_many_at_once_are_ended(agents: Agents) -> None:
    one = "(trap '' TERM; setsid sh -c 'sleep 1000 & sleep 1000') &"
    command = f"for i in $(seq 60); do {one} done; echo > pid; wait"
    assert agents.run(command, stop=agents.started).ending is Ending.STOPPED


def test_orphans_that_end_are_no_zombies_while_the_agent_runs(agents: Agents) -> None:
    """Where the keeper did not reap them, they would be its children for ever."""
    text = (
        "import os, pathlib, time\n"
        "for i in range(30):\n"
        "    if os.fork() == 0:\n"
        "        os.fork() or time.sleep(0.05)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "def beside_me():\n"
        "    for one in pathlib.Path('/proc').glob('[1-9]*'):\n"
        "        try: parent = (one / 'stat').read_text().rpartition(')')[2].split()[1]\n"
        "        except OSError: continue\n"
        "        if int(parent) == os.getppid() and int(one.name) != os.getpid(): yield one\n"
        "while list(beside_me()): time.sleep(0.05)\n"
    )
    ended = agents.run(python(text))
    assert (ended.ending, ended.code) == (Ending.FINISHED, 0)


class OurError(Exception):
    """Of a watcher."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, OurError])
@pytest.mark.parametrize("where", ["watch", "stop"])
def test_what_is_raised_in_us_ends_everything_and_comes_through(
    agents: Agents, kind: type[BaseException], where: str
) -> None:
    def fail(*_: object) -> bool:
        if agents.started():
            raise kind
        return False

    command = after(leaving("daemon", agents.pid), f"echo daemon; {SILENT}")
    with pytest.raises(kind):
        agents.run(command, **{where: fail})
    assert not alive(int(agents.pid.read_text()))


def test_a_log_that_cannot_be_written_ends_everything_and_is_an_error(agents: Agents) -> None:
    command = after(leaving("daemon", agents.pid), f"echo daemon; {SILENT}")
    looks = iter([False] * 40)
    with pytest.raises(OSError, match="No space left"):
        run(
            *(command, agents.work, {"PATH": PATH}, "", Path("/dev/full"), GENEROUS),
            stop=lambda: next(looks, True),
            grace_s=0.3,
        )
    assert next(looks, True) is False  # it was seen long before
    assert not alive(int(agents.pid.read_text()))


@pytest.mark.parametrize("forks", [False, True])
def test_when_the_harness_is_killed_its_agents_are_ended(agents: Agents, forks: bool) -> None:
    """Also where a fork of the harness has the harness's end of the channel and lives on."""
    command = after(leaving("cleared", agents.pid), f"echo daemon; {SILENT}")
    fork = agents.root / "fork"
    text = (
        "import os, sys, time; from pathlib import Path; from tasks.agents.process import Limits, run\n"
        "def watch(line):\n"
        "    pid = os.fork()\n"
        "    if pid == 0: os.chdir('/'); time.sleep(1000)\n"
        "    Path('fork').write_text(str(pid))\n"
        "run(sys.argv[3:], Path(sys.argv[1]), {'PATH': sys.argv[2]}, '', Path('log'),"
        f" Limits(99, 99, 1000, 1000000), grace_s=0.3{', watch=watch' if forks else ''})"
    )
    harness = subprocess.Popen(
        [sys.executable, "-c", text, str(agents.work), PATH, *command],
        cwd=agents.root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    wait_until(lambda: agents.started() and (not forks or (fork.exists() and fork.read_text() != "")))
    pid = int(agents.pid.read_text())
    assert alive(pid)
    harness.kill()
    harness.wait()
    try:
        wait_until(lambda: not alive(pid) and inside(agents.root) == [])
    finally:
        if forks:
            os.kill(int(fork.read_text()), signal.SIGKILL)


@pytest.mark.parametrize(("how", "code"), [("TERM", -signal.SIGTERM), ("KILL", -signal.SIGKILL)])
def test_an_agent_that_ends_its_keeper_ends_itself_and_all_with_the_mark(
    agents: Agents, how: str, code: int
) -> None:
    ended = agents.run(after(leaving("daemon", agents.pid), f"kill -{how} $PPID; {SILENT}"))
    assert (ended.ending, ended.code) == (Ending.FINISHED, code)
    assert ("keeper" in ended.said) == (how == "KILL")
    wait_until(lambda: not alive(int(agents.pid.read_text())) and inside(agents.root) == [])


def test_an_agent_that_stops_its_keeper_is_ended(agents: Agents) -> None:
    ended = agents.run("kill -STOP $PPID; echo > pid; sleep 1000", stop=agents.started)
    assert (ended.ending, ended.code) == (Ending.STOPPED, -signal.SIGTERM)


def test_a_run_leaves_the_runs_beside_it_and_our_other_children_alone(tmp_path: Path) -> None:
    one, other = Agents(tmp_path / "one"), Agents(tmp_path / "other")
    ended: dict[str, Ended] = {}
    mine = subprocess.Popen(["sleep", "1000"], cwd=tmp_path)
    enough = threading.Event()

    def first() -> None:
        ended["one"] = one.run(after(leaving("cleared", one.pid), SILENT), stop=enough.is_set)

    def second() -> None:
        wait = "while [ ! -e go ]; do sleep 0.05; done"
        ended["other"] = other.run(after(leaving("cleared", other.pid), wait))

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    try:
        for thread in threads:
            thread.start()
        wait_until(lambda: one.started() and other.started())
        enough.set()
        threads[0].join()
        assert ended["one"].ending is Ending.STOPPED
        assert not alive(int(one.pid.read_text()))
        assert alive(int(other.pid.read_text()))
        assert mine.poll() is None
        (other.work / "go").touch()
        threads[1].join()
        assert (ended["other"].ending, ended["other"].code) == (Ending.FINISHED, 0)
        assert not alive(int(other.pid.read_text()))
        assert mine.poll() is None
    finally:
        enough.set()
        (other.work / "go").touch()
        for thread in threads:
            thread.join()
        mine.kill()
        assert mine.wait() == -signal.SIGKILL  # and not 0: nobody else has reaped it
    assert inside(tmp_path) == []


# --- the parts ---------------------------------------------------------------------------------------------


def test_progress_that_returns_to_the_line_s_begin_is_lines(agents: Agents) -> None:
    seen: list[str] = []
    agents.run(r"printf '10%%\r20%%\r'", watch=seen.append)
    assert seen == ["20%"]


def test_both_ways_to_the_children_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    child = subprocess.Popen(["sleep", "1000"])
    try:
        assert keeper.parent(child.pid) == os.getpid()
        assert child.pid in keeper.children()
        quick = Path.read_text

        def without(path: Path, *rest: Any) -> str:
            if path.name == "children":
                raise FileNotFoundError(path)
            return quick(path, *rest)

        monkeypatch.setattr(Path, "read_text", without)
        assert child.pid in keeper.children()
    finally:
        child.kill()
        child.wait()
