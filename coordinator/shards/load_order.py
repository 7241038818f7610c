"""Which of a node's shards is loaded next: those that clients wait for come first."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

GATHER_S = 0.05
"""How long the first of many shards lets one come that was asked for: a node gets all at once."""


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
        self._room = self._at_once = at_once
        self._changing = threading.Lock()
        self._waiting: dict[int, threading.Event] = {}
        """What lets each of them go on: one is woken, not all of hundreds."""
        self._asked: dict[int, int] = {}
        """Shards that were asked for and had no turn since, each with its place among them."""
        self._places = 0
        self._gathers = False
        """Whether no shard has its turn, so that one that was asked for may come."""

    def ask(self, shard: int) -> None:
        """Have a shard loaded before those that were not asked for."""
        with self._changing:
            self._places += 1
            self._asked.setdefault(shard, self._places)

    @contextmanager
    def turn(self, shard: int) -> Iterator[None]:
        """Wait for the turn of a shard, which lasts as long as the block."""
        with self._changing:
            rests = self._room == self._at_once and not self._waiting
            mine = self._waiting[shard] = threading.Event()
            gathers = self._gathers = self._gathers or (rests and bool(self._asked))
            self._let_go_on()
        if rests and gathers:
            time.sleep(GATHER_S)
            with self._changing:
                self._gathers = False
                self._let_go_on()
        mine.wait()
        try:
            yield
        finally:
            with self._changing:
                self._room += 1
                self._asked.pop(shard, None)
                self._let_go_on()

    def _let_go_on(self) -> None:
        while self._room > 0 and self._waiting:
            first = self._next()
            if self._gathers and first not in self._asked:
                return
            self._waiting.pop(first).set()
            self._room -= 1

    def _next(self) -> int:
        last = self._places + 1
        return min(self._waiting, key=lambda shard: (self._asked.get(shard, last), shard))
