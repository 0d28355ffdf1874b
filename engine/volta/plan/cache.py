"""A bounded cache of compiled plans: least recently used goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class PlanCache(Generic[T]):
    """Keys are full fingerprints, so a hit is impossible when any flag differs.

    Holds at most `capacity` entries, and at most `max_bytes` by `size_of` beside the newest one.
    """

    def __init__(
        self, capacity: int = 512, max_bytes: int = 1 << 62, size_of: Callable[[T], int] = lambda entry: 0
    ) -> None:
        self.capacity = capacity
        self.max_bytes = max_bytes
        self._size_of = size_of
        self.hits = 0
        self.misses = 0
        self._entries: OrderedDict[object, T] = OrderedDict()
        self._lock = Lock()

    def get_or_make(self, key: object, make: Callable[[], T]) -> T:
        with self._lock:
            if key in self._entries:
                self.hits += 1
                self._entries.move_to_end(key)
                return self._entries[key]
            self.misses += 1
        entry = make()  # outside the lock: making a plan may take a while or fail
        with self._lock:
            entry = self._entries.setdefault(key, entry)
            self._entries.move_to_end(key)
            held = sum(map(self._size_of, self._entries.values()))
            while len(self._entries) > self.capacity or (held > self.max_bytes and len(self._entries) > 1):
                held -= self._size_of(self._entries.popitem(last=False)[1])
            return entry

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self.hits = self.misses = 0

    def __len__(self) -> int:
        return len(self._entries)
