"""The state that a log says, as far as it was read."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import dataclass, field

from coordinator.core.state.groups import State
from coordinator.core.state.replay import replay_all
from coordinator.storage.record_log import Batch

MANY_RECORDS = 100_000


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
        """Read on.

        A million members are millions of objects without a cycle among them: the garbage collector
        would look at all of them again and again while they come, and ever after. So it rests
        meanwhile and, where there are many, never looks at them again; few are left to it, for what
        is frozen with them is never collected.
        """
        before = self.count
        collecting = gc.isenabled()
        gc.disable()
        try:
            for batch in batches:
                replay_all(self.state, batch.records)
                self.count += len(batch.records)
                self.began = self.began or batch.position
                self.position = batch.position
            if self.count - before >= MANY_RECORDS:
                gc.freeze()
        finally:
            if collecting:
                gc.enable()
