"""Random walks of groups whose members become rows again at once: they decide as if none did."""

from __future__ import annotations

import pytest

from coordinator.core.consumer.steady_heartbeat import answer_steady_heartbeat
from coordinator.core.events import Heartbeat
from coordinator.core.state.groups import State
from coordinator.core.state.replay import note_waiting, replay, replay_all
from coordinator.core.state.rows.fold_rows import RowFolder, count_objects, fold_group
from coordinator.core.state.rows.member_table import MemberDict, copy_members
from coordinator.core.state.state_records import records_of
from tests.core.test_walks_in_columns import Walk
from tests.support import invariants
from tests.support.fingerprint import fingerprint
from tests.support.invariants import replay_as_rows


def listed(state):
    """All that a reader can see of members and targets, in order."""
    group = state.groups["g"]
    members = [(key, one.meta, one.current, one.serial) for key, one in group.members.items()]
    return members, list(group.metas.items()), dict(group.targets.own())


class FoldedWalk(Walk):
    """Three coordinators: as objects, as rows and objects, and as rows wherever that can be."""

    def __init__(self, seed):
        super().__init__(seed)
        self.states = [State(), State(), State()]
        self.folder = RowFolder(lambda *_: True, at_once=2)
        self.folded = 0

    def keep(self, record):
        for state in self.states:
            replay(state, record)

    def run(self, event):
        steady = [
            answer_steady_heartbeat(state, self.config, event)
            for state in self.states
            if isinstance(event, Heartbeat)
        ]
        assert all(one == steady[0] for one in steady)
        found = super().run(event)
        if isinstance(event, Heartbeat) and getattr(found, "records", None) == []:
            for state in self.states:
                note_waiting(state, event.group_id, event.member_id)
        if "g" in self.states[2].groups:
            self.fold()
        return found

    def fold(self):
        group = self.states[2].groups["g"]
        before, held = count_objects(group), copy_members(group.members)
        metas, targets = group.copy_metas(), group.targets.copy()
        kept = [(key, one.current) for key, one in held.items()], [*metas.items()], [*targets.own()]
        is_whole = self.choice.random() < 0.5
        if is_whole:
            fold_group(group, new_rows=self.choice.random() < 0.3)
        else:
            self.folder.note("g")
            for _ in range(self.choice.randint(1, 6)):  # a pass may go on behind the next event
                self.folder.fold(self.states[2])
        assert kept == (
            [(key, one.current) for key, one in held.items()], [*metas.items()], [*targets.own()]
        )  # fmt: skip
        assert metas == group.metas
        self.folded += before - count_objects(group)
        assert isinstance(group.members, MemberDict) or not group.members or not is_whole

    def go(self, turns):
        for _ in range(turns):
            self.turn()

    def turn(self):
        super().turn()
        if "g" not in self.plain.groups:
            return
        if self.choice.random() < 0.05:  # as after a fail-over
            records = list(records_of(self.states[2]))
            self.states = [State(), State(), State()]
            replay_all(self.plain, records)
            replay_as_rows(self.states[1], records)
            (replay_as_rows if self.choice.random() < 0.5 else replay_all)(self.states[2], records)
        plain, rows, folded = map(listed, self.states)
        assert plain == rows == folded
        kept = [sorted(records_of(one), key=repr) for one in self.states]  # rows come first
        assert kept[1:] == [kept[0]] * 2
        invariants.check(self.states[2])


@pytest.mark.parametrize("seed", range(12))
def test_a_walk_in_rows_is_the_walk_in_objects(seed):
    walk = FoldedWalk(seed)
    walk.go(150)
    assert fingerprint(walk.states[2]) == fingerprint(walk.plain)
    assert isinstance(walk.states[2].groups["g"].members, MemberDict)
    assert walk.folded > 10, "members became rows again"
