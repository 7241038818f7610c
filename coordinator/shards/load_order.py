"""Which of a node's shards is loaded next: those that clients wait for come first."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class LoadOrder:
    """Lets shards be loaded a few at a time: those asked for in that order, then by number.

    Threads share one interpreter, so several loads at once would all be late, the one that is
    waited for among them.

    Parameters
    ----------
    at_once
        How many: more than one where loads wait for the answers of a store.
    """

    def __init__(self, at_once: int) -> None:
        self._room = at_once
        self._turns = threading.Condition()
        self._waiting: set[int] = set()
        self._asked: dict[int, int] = {}
        """Shards that were asked for and had no turn since, each with its place among them."""
        self._places = 0

    def ask(self, shard: int) -> None:
        """Have a shard loaded before those that were not asked for."""
        if shard in self._asked:
            return
        with self._turns:
            self._places += 1
            self._asked.setdefault(shard, self._places)

    @contextmanager
    def turn(self, shard: int) -> Iterator[None]:
        """Wait for the turn of a shard, which lasts as long as the block."""
        with self._turns:
            self._waiting.add(shard)
            while self._room == 0 or shard != self._next():
                self._turns.wait()
            self._waiting.discard(shard)
            self._room -= 1
        try:
            yield
        finally:
            with self._turns:
                self._room += 1
                self._asked.pop(shard, None)
                self._turns.notify_all()

    def _next(self) -> int:
        last = self._places + 1
        return min(self._waiting, key=lambda shard: (self._asked.get(shard, last), shard))
