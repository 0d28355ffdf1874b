"""A program that writes the tuned table; test_table.py starts several and kills some.

table_writer.py NAME COUNT    adds the entries that `entry(NAME, 0)`, `entry(NAME, 1)`, ... give; COUNT 0:
                              until somebody kills it. Prints each number once `add` has returned.
"""

from __future__ import annotations

import itertools
import sys

from volta.backends.cpu import tuned
from volta.backends.cpu.tuned import Blocks


def entry(name: int, number: int) -> tuple[str, Blocks]:
    """A key that no other name or number gives, and blocks that tell which it is."""
    key = f"f32 x f32 {name + 1}x{number + 1}x8 a rows/8 b rows/{number + 1} avx2 1 threads"
    return key, Blocks(kc=32 * (number % 50 + 1), nc=name)


if __name__ == "__main__":
    name, count = int(sys.argv[1]), int(sys.argv[2])
    for number in itertools.count() if count == 0 else range(count):
        key, blocks = entry(name, number)
        tuned.add({key: blocks})
        sys.stdout.write(f"{number}\n")
        sys.stdout.flush()
