"""An agent that leaves somebody behind: `leave.py HOW FILE`. Who stays writes its number to FILE.

stay: nobody, but it ignores SIGTERM itself. child: a child that does. daemon: one that has forked twice, in a
session of its own, without our files. cleared: and with an empty environment. hopping: and that changes its
number all the time.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path


def stay(file: Path, hops: bool) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    unfinished = file.with_suffix(".new")
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(file)
    while hops:
        if os.fork():
            os._exit(0)
    time.sleep(1000)


def leave(file: Path, how: str) -> None:
    if os.fork():
        while not file.exists():
            time.sleep(0.02)
        return
    if how != "child":
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
    if how == "cleared":
        os.execve(sys.executable, [sys.executable, "-I", "-S", __file__, "stay", str(file)], {})
    stay(file, how == "hopping")


if __name__ == "__main__":
    if sys.argv[1] == "stay":
        stay(Path(sys.argv[2]), hops=False)
    else:
        leave(Path(sys.argv[2]), sys.argv[1])
