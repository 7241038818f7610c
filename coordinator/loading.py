"""loading: from a log to the state that it says."""

from __future__ import annotations

import gc

from coordinator.log import RecordLog
from coordinator.replay import replay
from coordinator.state import State

MANY_RECORDS = 100_000


def replayed(log: RecordLog) -> tuple[State, int, int]:
    """Return the state that a log says, where reading began, and where it ended.

    A million members are millions of objects without a cycle among them: the garbage collector
    would look at all of them again and again while they come, and ever after. So it rests meanwhile
    and, where there are many, never looks at them again; few are left to it, for what is frozen
    with them is never collected.
    """
    state, began, position, count = State(), 0, 0, 0
    collecting = gc.isenabled()
    gc.disable()
    try:
        for batch in log.replay():
            for record in batch.records:
                replay(state, record)
            count += len(batch.records)
            began = began or batch.position
            position = batch.position
        if count >= MANY_RECORDS:
            gc.freeze()
    finally:
        if collecting:
            gc.enable()
    return state, began, position
