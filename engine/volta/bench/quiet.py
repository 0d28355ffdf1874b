"""Waits until this process's other threads sleep, so that they slow nobody who is timed next.

A library's threads spin for a while after their work, OpenBLAS's for a tenth of a second, and take a
processor from the next side all that time. A thread that spins is runnable even while another has its
processor: the state tells more than the time used.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path

LOOK_SECONDS = 0.001
LONGEST_SECONDS = 1.0
TASKS = Path("/proc/self/task")


def wait() -> bool:
    """Whether they came to rest within a second."""
    end = time.perf_counter() + LONGEST_SECONDS
    while running():
        if time.perf_counter() > end:
            return False
        time.sleep(LOOK_SECONDS)
    return True


def running() -> bool:
    """Whether a thread but this one is running or waits for a processor (proc(5), state R)."""
    own = str(threading.get_native_id())
    for task in TASKS.iterdir():
        with suppress(OSError):  # it has ended
            if task.name != own and (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False
