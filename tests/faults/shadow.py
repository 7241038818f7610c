"""The state that the log alone says, followed from outside; no coordinator is asked."""

from __future__ import annotations

import os

from coordinator.core.state.groups import State
from coordinator.core.state.replay import replay
from coordinator.core.state.replay import set_whole_target as load
from coordinator.core.state.target_assignment import NOT_READ
from coordinator.storage import target_table
from coordinator.storage.delta_log import read_log
from tests.support import invariants


class Shadow:
    """Replays what was written since the last look, and checks all that must always hold."""

    def __init__(self, store: str | os.PathLike[str]) -> None:
        self._store = store
        self.state = State()
        self.position = 0
        self.claims: list[int] = []

    def follow(self) -> None:
        """Look: one owner a partition, epochs in order, one writer at a time, no gap."""
        for batch in read_log(self._store, after=self.position):
            rows = len(batch.records) or 1
            assert batch.position == self.position + rows, f"a gap after {self.position}: {batch}"
            self.position = batch.position
            newest = self.claims[-1] if self.claims else 0
            assert batch.epoch >= newest, f"epoch {batch.epoch} wrote after {newest} had claimed"
            if not batch.records:
                assert batch.epoch == newest + 1, f"claim {batch.epoch} follows {newest}"
                self.claims.append(batch.epoch)
            before = invariants.epochs(self.state)
            for record in batch.records:
                replay(self.state, record)
            self._read_targets()
            invariants.check(self.state)
            invariants.check_rising(before, invariants.epochs(self.state))

    def _read_targets(self) -> None:
        """A record that installs a whole target names its rows: they are there, all of them."""
        for group in self.state.groups.values():
            if group.targets.whole is NOT_READ:
                assert group.installed is not None
                load(group, target_table.load_target(self._store, group.installed.stored))
