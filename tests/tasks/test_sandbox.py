"""The sandbox: an agent writes where it may and nowhere else, sees nobody, and leaves nobody behind."""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tasks.agents.process import Ending, Limits, run
from tasks.agents.sandbox import available, environment, wrapped
from tasks.errors import TaskError

from tasks.agents import sandbox

LEAVE = Path(__file__).parent / "agents" / "leave.py"
WAIT_S = 60.0
works = pytest.mark.skipif(bool(available()), reason=f"no sandbox here: {available()}")


class Place:
    """A directory that may be written, beside a repository that may not."""

    def __init__(self, root: Path) -> None:
        self.root, self.work, self.beside = root, root / "work", root / "repository"
        self.work.mkdir()
        self.beside.mkdir()
        (self.beside / "file").write_text("as it was")

    def run(
        self,
        command: str | Sequence[str],
        writable: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
        network: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        words = ["/bin/sh", "-c", command] if isinstance(command, str) else command
        words = wrapped(words, [self.work, *writable], hidden, network)
        return subprocess.run(words, cwd=self.work, capture_output=True, text=True, timeout=WAIT_S)

    def python(self, text: str, network: bool = True) -> str:
        done = self.run([sys.executable, "-I", "-S", "-c", text], network=network)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()


@pytest.fixture(params=["/tmp", "/var/tmp"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Below what the sandbox has for itself, and where it is the machine's."""
    root = Path(tempfile.mkdtemp(prefix="volta-sandbox-", dir=request.param))
    yield Place(root)
    shutil.rmtree(root)


# --- files -------------------------------------------------------------------------------------------------


@works
def test_its_own_directory_can_be_written_and_is_where_it_begins(place: Place) -> None:
    done = place.run("pwd; echo it > here && mkdir -p a/b && mv here a/b && cat a/b/here")
    assert (done.returncode, done.stdout) == (0, f"{place.work}\nit\n")
    assert (place.work / "a/b/here").read_text() == "it\n"


@works
def test_the_repository_beside_it_cannot_be_written(place: Place) -> None:
    file = place.beside / "file"
    for command in (f"echo x > {file}", f"rm {file}", f"chmod 777 {file}", f"mv {place.beside} .",
                    f"touch {place.root}/x", f"ln {file} hard && echo x > hard",
                    f"ln -s {file} soft && echo x > soft"):  # fmt: skip
        place.run(command)
    assert file.read_text() == "as it was"
    assert file.stat().st_mode & 0o777 != 0o777
    assert sorted(one.name for one in place.root.iterdir()) == ["repository", "work"]


@works
@pytest.mark.parametrize(
    "where", ["/", "/etc", "/usr/bin", "/var/tmp", "/sys/fs", str(Path.home()), str(LEAVE.parent)]
)
def test_the_machine_cannot_be_written(place: Place, where: str) -> None:
    file = Path(where) / f"volta-sandbox-{os.getpid()}"
    place.run(f"touch {file}")
    was_written = file.exists()
    file.unlink(missing_ok=True)
    assert not was_written


@works
def test_what_is_writable_beyond_its_directory_is_so(place: Place) -> None:
    more = place.root / "more"
    more.mkdir()
    alone = place.root / "alone"
    alone.write_text("before")
    assert place.run(f"echo it > {more}/here; echo it > {alone}", [more, alone]).returncode == 0
    assert (more / "here").read_text() == alone.read_text() == "it\n"


@works
def test_tmp_and_run_are_private(place: Place) -> None:
    with tempfile.NamedTemporaryFile(dir="/tmp", prefix="volta-ours-") as ours:
        theirs = Path("/tmp") / f"volta-theirs-{os.getpid()}"
        done = place.run(f"test ! -e {ours.name} && echo it > {theirs} && cat {theirs}; ls -A /run")
        assert (done.returncode, done.stdout) == (0, "it\n")
    assert not theirs.exists()


@works
def test_hidden_files_and_directories_are_empty(place: Place) -> None:
    secret, directory = place.work / "secret", place.work / "secrets"
    secret.write_text("the key")
    directory.mkdir()
    (directory / "one").write_text("the key")
    link = place.work / "link"
    link.symlink_to(secret)
    done = place.run(
        "cat secrets/one; ls -A secrets; rm -f secret; echo x > secret; >secrets/x; cat secret link",
        hidden=[link, directory, place.work / "not there"],
    )
    assert (done.returncode, done.stdout) == (0, "")  # to be read, and empty
    assert (secret.read_text(), (directory / "one").read_text()) == ("the key", "the key")
    assert not (directory / "x").exists()


@works
def test_of_places_in_each_other_the_inner_one_counts(place: Place) -> None:
    inner = place.beside / "secrets" / "open"
    inner.mkdir(parents=True)
    (inner.parent / "key").write_text("the key")
    command = f"cat {inner.parent}/key; echo it > {inner}/it; echo no > {place.beside}/it; ls {inner.parent}"
    done = place.run(command, writable=[inner], hidden=[inner.parent])
    assert done.stdout == "open\n"
    assert (inner / "it").read_text() == "it\n"
    assert not (place.beside / "it").exists()
    both = place.run(f"cat {inner}/it", writable=[inner], hidden=[inner])
    assert (both.returncode == 0, both.stdout) == (False, "")


@works
def test_what_it_needs_is_there_also_below_a_private_place(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = place.beside / "file"
    monkeypatch.setattr(sandbox, "NEEDED", (*sandbox.NEEDED, needed))
    done = place.run(f"cat {needed}; echo x > {needed}")
    assert (done.returncode == 0, done.stdout) == (False, "as it was")
    assert needed.read_text() == "as it was"


# --- power -------------------------------------------------------------------------------------------------


@works
def test_there_are_no_capabilities_and_no_way_to_write_again(place: Place) -> None:
    text = (
        "import os, re\n"
        "print(re.search(r'CapEff:\\s*(\\w+)', open('/proc/self/status').read())[1])\n"
        "try: os.close(os.open('/proc/sys/kernel/core_pattern', os.O_WRONLY))\n"
        "except OSError: print('refused')\n"
    )
    assert place.python(text).split() == ["0" * 16, "refused"]
    for command in ("mount -o remount,bind,rw /", "umount /tmp", "unshare -Urm mount -o remount,bind,rw /"):
        place.run(f"{command}; touch {place.beside}/x")
    assert not (place.beside / "x").exists()


@works
def test_nobody_outside_can_be_seen_or_signalled(place: Place) -> None:
    other = subprocess.Popen(["sleep", "1000"])
    try:
        text = (
            "import os\n"
            "print(len([one for one in os.listdir('/proc') if one.isdigit()]))\n"
            f"for target in ({other.pid}, {os.getpid()}):\n"
            "    try: os.kill(target, 0)\n"
            "    except ProcessLookupError: print('nobody')\n"
        )
        first, *others = place.python(text).split()
        assert int(first) <= 3  # bwrap and the agent
        assert others == ["nobody", "nobody"]
    finally:
        other.kill()
        other.wait()


# --- network -----------------------------------------------------------------------------------------------


@works
def test_a_network_that_is_off_has_no_route_and_none_of_our_services(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = place.python(connecting(server.getsockname()))
        gone = place.python(connecting(server.getsockname()), network=False)
    assert (there, gone) == ("0", str(errno.ECONNREFUSED))
    assert place.python(connecting(("192.0.2.1", 9)), network=False) == str(errno.ENETUNREACH)


def connecting(address: tuple[str, int]) -> str:
    return f"import socket; print(socket.socket().connect_ex({address!r}))"


# --- its end -----------------------------------------------------------------------------------------------


@works
@pytest.mark.parametrize("how", ["child", "daemon", "cleared", "hopping"])
@pytest.mark.parametrize("goes_on", [False, True])
def test_a_daemon_ends_with_the_sandbox(place: Place, how: str, goes_on: bool) -> None:
    file = place.work / "pid"
    shutil.copy(LEAVE, place.work)
    command = [sys.executable, "-I", "-S", str(place.work / "leave.py"), how, str(file)]
    then = "sleep 1000" if goes_on else "exit 3"
    ended = run(
        wrapped(["/bin/sh", "-c", f'"$@"; {then}', "sh", *command], [place.work]),
        place.work,
        environment([]),
        "",
        place.root / "log",
        Limits(WAIT_S, WAIT_S, 1 << 20, 1 << 26),
        stop=lambda: goes_on and file.exists(),
        grace_s=0.3,
    )
    assert file.exists()
    assert ended.ending is (Ending.STOPPED if goes_on else Ending.FINISHED)
    assert goes_on or (ended.code, ended.said) == (3, "exit code 3")
    here = [one for one in Path("/proc").glob("[1-9]*/cwd") if at(one, place.work)]
    assert here == []


def at(link: Path, place: Path) -> bool:
    try:
        return link.readlink() == place
    except OSError:
        return False


@works
def test_the_exit_code_and_the_streams_are_the_commands(place: Place) -> None:
    done = place.run("cat; echo out; echo error >&2; exit 7")
    assert (done.returncode, done.stdout, done.stderr) == (7, "out\n", "error\n")
    assert place.run("kill -9 $$").returncode == 128 + 9


# --- whether there is one ----------------------------------------------------------------------------------


def test_that_there_is_none_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried = available.__wrapped__
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no bwrap" in tried()
    with pytest.raises(TaskError, match="no bwrap"):
        wrapped(["true"], [])
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho first >&2\necho 'bwrap: not allowed' >&2\nexit 1\n")
    fake.chmod(0o755)
    assert tried() == "bwrap: not allowed"
    fake.write_text("#!/bin/sh\nexit 9\n")
    assert tried() == "bwrap ended with exit code 9"
    fake.write_text("#!/nowhere\n")
    assert "\n" not in tried() != ""
    fake.write_text("#!/bin/sh\nexit 0\n")
    assert tried() == ""


def test_what_shall_be_writable_and_is_not_there_is_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "bwrap").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TaskError, match=r"one.*, .*two"):
        wrapped(["true"], [tmp_path, tmp_path / "one", tmp_path / "two"])


# --- the environment ---------------------------------------------------------------------------------------


def test_the_environment_has_what_is_listed_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {
        "PATH": "/bin", "HOME": "/home/me", "LANG": "C", "LC_ALL": "C", "LC_TIME": "C", "TZ": "UTC",
        "TERM": "xterm", "TMPDIR": "/tmp/mine", "SOME_TOKEN": "secret", "SSH_AUTH_SOCK": "/tmp/agent",
        "PYTHONPATH": "/mine", "LD_PRELOAD": "/mine.so", "AGENT_KEY": "theirs",
    }  # fmt: skip
    for name in os.environ:
        monkeypatch.delenv(name)
    for name, value in ours.items():
        monkeypatch.setenv(name, value)
    listed = {name: ours[name] for name in ("PATH", "HOME", "LANG", "LC_ALL", "LC_TIME", "TZ")}
    assert environment([]) == {**listed, "TERM": "dumb"}
    allowed = environment(["AGENT_KEY", "NOT_SET"], {"PWD": "/there", "LANG": "C.UTF-8"})
    assert allowed == {
        **listed,
        "TERM": "dumb",
        "AGENT_KEY": "theirs",
        "PWD": "/there",
        "LANG": "C.UTF-8",
    }


def test_without_a_path_the_systems_default_is_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PATH")
    assert environment([])["PATH"] == os.defpath
