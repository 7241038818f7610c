"""Deadlines of many members, checked together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, NamedTuple, TypeVar

import numpy as np

NEVER = np.iinfo(np.int64).max
K = TypeVar("K", bound=Hashable)


class Due(NamedTuple, Generic[K]):
    """A deadline that has passed."""

    key: K
    at_ms: int
    epoch: int


class Deadlines(Generic[K]):
    """Deadlines by key in one array: starting one again is one store, looking is one comparison.

    Those of the same instant fire in the order in which they were set.
    """

    def __init__(self) -> None:
        self._slots: dict[K, int] = {}
        self._keys: list[K | None] = []
        self._free: list[int] = []
        self._at = np.full(64, NEVER, dtype=np.int64)
        self._set = np.zeros(64, dtype=np.int64)
        self._epoch = np.zeros(64, dtype=np.int64)
        self._count = 0
        self._next = NEVER
        """No deadline is before this."""

    def __len__(self) -> int:
        return len(self._slots)

    def set(self, key: K, at_ms: int, epoch: int = 0) -> None:
        """Start a timer, or start it again."""
        slot = self._slots.get(key)
        if slot is None:
            slot = self._new_slot(key)
        self._count += 1
        self._at[slot] = at_ms
        self._set[slot] = self._count
        self._epoch[slot] = epoch
        self._next = min(self._next, at_ms)

    def set_many(self, keys: Sequence[K], at_ms: int) -> None:
        """Start timers, or start them again, all for the same instant, in their order."""
        known = self._slots
        slots = [known[key] if key in known else self._new_slot(key) for key in keys]
        self._at[slots] = at_ms
        self._set[slots] = np.arange(self._count + 1, self._count + 1 + len(slots))
        self._epoch[slots] = 0
        self._count += len(slots)
        self._next = min(self._next, at_ms)

    def cancel(self, key: K) -> None:
        """End a timer; one that does not run is no fault."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._at[slot] = NEVER
            self._keys[slot] = None
            self._free.append(slot)

    def pop_due(self, now_ms: int, most: int | None = None) -> list[Due[K]]:
        """Return and end the timers whose deadline has passed, in the order of their deadlines.

        Parameters
        ----------
        most
            How many to return; the others are due still.
        """
        if now_ms < self._next:
            return []
        slots = np.flatnonzero(self._at <= now_ms)
        slots = slots[np.lexsort((self._set[slots], self._at[slots]))][:most]
        due = []
        for slot in slots.tolist():
            key = self._keys[slot]
            assert key is not None
            due.append(Due(key, int(self._at[slot]), int(self._epoch[slot])))
            self.cancel(key)
        self._next = int(self._at.min())
        return due

    def next_at(self) -> int | None:
        """Return the next deadline."""
        self._next = int(self._at.min())
        return None if self._next == NEVER else self._next

    def all(self) -> list[Due[K]]:
        """Return what runs, in the order of the deadlines."""
        rows = [
            (int(self._at[slot]), int(self._set[slot]), slot, key)
            for key, slot in self._slots.items()
        ]
        return [
            Due(key, at, int(self._epoch[slot]))
            for at, _, slot, key in sorted(rows, key=lambda row: row[:2])
        ]

    def _new_slot(self, key: K) -> int:
        if self._free:
            slot = self._free.pop()
            self._keys[slot] = key
        else:
            slot = len(self._keys)
            self._keys.append(key)
            if slot == len(self._at):
                self._at = np.concatenate([self._at, np.full(slot, NEVER, dtype=np.int64)])
                self._set = np.concatenate([self._set, np.zeros(slot, dtype=np.int64)])
                self._epoch = np.concatenate([self._epoch, np.zeros(slot, dtype=np.int64)])
        self._slots[key] = slot
        return slot
