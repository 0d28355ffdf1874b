"""The thread pool: it grows, survives fork, is shared politely, and leaves signals to Python."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from volta.backends.cpu import native
from volta.backends.cpu.native import NativeProgram, Operand, Step, run_kernel
from volta.dtypes import float32

LINUX = sys.platform == "linux"
COUNT = 20_000


def doubled(x: npt.NDArray[np.float32], threads: int) -> npt.NDArray[np.float32]:
    y = np.zeros_like(x)
    run_kernel("chain", [y, x], 1, code=[("add", 0, (1, 1), ())], threads=threads)
    return y


def numbers(seed: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(COUNT).astype(np.float32)


def long_program(steps: int, threads: int) -> NativeProgram:
    """y = x, again and again, with a barrier before each: nearly all of its time is barriers."""
    x, y = (Operand(buffer, float32, 0, (64,), (1,)) for buffer in (1, 2))
    copies = [Step("copy", (y, x), 1)] * steps
    return NativeProgram(copies, n_buffers=3, arena_bytes=0, isa="ref", threads=threads)


def workers() -> int:
    _, lib = native.library()
    return int(lib.volta_pool_workers())


def test_the_pool_grows_to_what_was_asked_and_keeps_its_workers() -> None:
    x = numbers(0)
    for threads in (1, 2, 5, 3, 9, 1):
        assert (doubled(x, threads) == x + x).all()
        assert workers() >= threads - 1
    assert workers() >= 8


def test_many_short_runs_of_changing_width_all_finish() -> None:
    x = numbers(1)[:64]
    expected = x + x
    programs = {threads: long_program(3, threads) for threads in (1, 2, 3, 4, 6)}
    y = np.zeros_like(x)
    for turn in range(2000):
        y[:] = 0
        programs[(1, 2, 3, 4, 6)[turn % 5]].run([x, y])
        assert (y == x).all()
    assert (doubled(x, 4) == expected).all()


def test_more_threads_than_cpus_finish_in_reasonable_time() -> None:
    """A barrier must not spin when its threads have to share a CPU."""
    program = long_program(300, 4 * (os.cpu_count() or 1))
    x, y = np.ones(64, np.float32), np.zeros(64, np.float32)
    start = time.perf_counter()
    program.run([x, y])
    assert time.perf_counter() - start < 10
    assert (y == 1).all()


def test_two_python_threads_may_run_programs_at_once() -> None:
    failures: list[str] = []

    def work(seed: int) -> None:
        x = numbers(seed)
        widths = [1 + (seed + turn) % 4 for turn in range(60)]
        failures.extend(f"seed {seed}" for threads in widths if not (doubled(x, threads) == x + x).all())

    running = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert failures == []


def test_two_python_threads_may_run_the_same_program_at_once() -> None:
    program = long_program(20, 3)
    x = np.arange(64, dtype=np.float32)
    failures: list[int] = []

    def work() -> None:
        for turn in range(100):
            y = np.zeros_like(x)
            program.run([x, y])
            if not (y == x).all():
                failures.append(turn)

    running = [threading.Thread(target=work) for _ in range(3)]
    for one in running:
        one.start()
    for one in running:
        one.join()
    assert failures == []


def in_child(channel: Any, x: npt.NDArray[np.float32]) -> None:
    before = workers()
    y = doubled(x, 3)
    channel.send((before, workers(), bool((y == x + x).all())))


@pytest.mark.skipif(not LINUX, reason="fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_a_forked_child_makes_its_own_workers_even_while_the_parent_runs() -> None:
    x = numbers(3)
    doubled(x, 4)
    stop = threading.Event()

    def keep_running() -> None:
        while not stop.is_set():
            doubled(x, 3)

    busy = threading.Thread(target=keep_running)
    busy.start()
    context = multiprocessing.get_context("fork")
    try:
        for _ in range(5):
            here, there = context.Pipe(duplex=False)
            child = context.Process(target=in_child, args=(there, x))
            child.start()
            there.close()
            assert here.poll(30), "the child hangs"
            before, after, same = here.recv()
            child.join(30)
            assert (before, after, same) == (0, 2, True)
            assert child.exitcode == 0
    finally:
        stop.set()
        busy.join()
    assert (doubled(x, 4) == x + x).all()


@pytest.mark.skipif(not LINUX, reason="sched_setaffinity")
def test_the_default_thread_count_honours_the_affinity_mask() -> None:
    allowed = os.sched_getaffinity(0)
    assert 1 <= native.default_threads() <= len(allowed)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert native.default_threads() == 1
        assert (doubled(numbers(4), 2) == numbers(4) * 2).all()
    finally:
        os.sched_setaffinity(0, allowed)


@pytest.mark.skipif(not LINUX, reason="/proc")
def test_workers_block_every_signal() -> None:
    before = {int(path.name) for path in Path("/proc/self/task").iterdir()}
    doubled(numbers(5), workers() + 3)
    created = [path for path in Path("/proc/self/task").iterdir() if int(path.name) not in before]
    assert len(created) == 2
    for path in created:
        (line,) = (row for row in (path / "status").read_text().splitlines() if row.startswith("SigBlk"))
        blocked = int(line.split()[1], 16)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1):
            assert blocked >> (number - 1) & 1


INTERRUPTED = """
import numpy as np, sys
from volta.backends.cpu.native import run_kernel
x = np.ones(1 << 20, np.float32)
y = np.zeros_like(x)
print("running", flush=True)
try:
    while True:
        run_kernel("chain", [y, x], 1, code=[("exp", 0, (1,), ())], threads=3)
except KeyboardInterrupt:
    run_kernel("chain", [y, x], 1, code=[("add", 0, (1, 1), ())], threads=3)
    sys.exit(7 if (y == 2).all() else 8)
"""


@pytest.mark.skipif(not LINUX, reason="signals")
def test_ctrl_c_becomes_keyboard_interrupt_and_the_pool_still_works() -> None:
    with subprocess.Popen([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"running\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 7


OUT_OF_THREADS = """
import numpy as np, resource, sys
from volta.backends.cpu.native import run_kernel
from volta.errors import DeviceError
x = np.ones(4096, np.float32)
y = np.zeros_like(x)
code = [("add", 0, (1, 1), ())]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (40 << 20), resource.getrlimit(resource.RLIMIT_AS)[1]))
try:
    run_kernel("chain", [y, x], 1, code=code, threads=200)
except DeviceError as error:
    assert (y == 0).all()
    run_kernel("chain", [y, x], 1, code=code, threads=2)
    print(error)
    sys.exit(7 if (y == 2).all() else 8)
"""


@pytest.mark.skipif(not LINUX, reason="RLIMIT_AS")
def test_threads_that_cannot_be_created_are_an_error_and_fewer_still_work() -> None:
    done = subprocess.run([sys.executable, "-c", OUT_OF_THREADS], capture_output=True, text=True, timeout=60)
    assert done.returncode == 7, done.stderr
    assert "[program] 200 threads were asked for and could not be created" in done.stdout
