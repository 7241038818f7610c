"""The state that a log says, as far as it was read."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from coordinator.core.state.groups import State
from coordinator.core.state.replay import replay_all
from coordinator.storage.record_log import Batch

MANY_RECORDS = 10_000


@dataclass(slots=True)
class LoadedState:
    """A state, and what was read for it.

    Attributes
    ----------
    began
        The position where reading began.
    position
        Where it ended.
    count
        How many records were read.
    """

    state: State = field(default_factory=State)
    began: int = 0
    position: int = 0
    count: int = 0

    def read(self, batches: Iterable[Batch]) -> None:
        """Read on."""
        before = self.count
        with _rest.during() as rest:
            for batch in batches:
                replay_all(self.state, batch.records)
                self.count += len(batch.records)
                self.began = self.began or batch.position
                self.position = batch.position
            rest.came(self.count - before)
        if self.count - before >= MANY_RECORDS:  # Arrow keeps for itself what files were read into
            pa.default_memory_pool().release_unused()


class CollectorRest:
    """Lets the garbage collector rest while states are loaded, in any threads of the process.

    A million members are millions of objects without a cycle among them: the garbage collector
    would look at all of them again and again while they come, and ever after. So it rests meanwhile
    and, once there are many, never looks at them again; few are left to it, for what is frozen with
    them is never collected. Many shards of few members each are as many objects.

    Parameters
    ----------
    many
        After so many records it looks at them no more.
    """

    def __init__(self, many: int = MANY_RECORDS) -> None:
        self._many = many
        self._lock = threading.Lock()
        self._loads = 0
        self._collects = False
        """Whether it did before the first of the loads under way."""
        self._records = 0
        """Those that came since the last were frozen."""

    @contextmanager
    def during(self) -> Iterator[CollectorRest]:
        """Rest during a load."""
        with self._lock:
            if self._loads == 0:
                self._collects = gc.isenabled()
                gc.disable()
            self._loads += 1
        try:
            yield self
        finally:
            with self._lock:
                self._loads -= 1
                if self._loads == 0 and self._collects:
                    gc.enable()

    def came(self, records: int) -> None:
        """Count records that were loaded."""
        with self._lock:
            self._records += records
            if self._records >= self._many:
                self._records = 0
                gc.freeze()


_rest = CollectorRest()
