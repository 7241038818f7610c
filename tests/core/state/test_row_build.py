"""Members of a group that grew get rows, whatever happens to it while these are made."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.core.state.groups import State, exhaust
from coordinator.core.state.member_rows import HeldRows
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay
from coordinator.core.state.row_dict import TargetNumbers
from coordinator.core.state.rows import fold_rows
from coordinator.core.state.rows.fold_rows import RowFolder, count_objects, fold_group
from coordinator.core.state.rows.member_table import MemberDict, copy_members, count_all_owned
from coordinator.core.state.rows.row_build import RowBuild
from coordinator.core.state.state_records import records_of
from coordinator.errors import IllegalStateError
from tests.core.state.test_fold_rows import COUNT, KEY, OTHER, STABLE, UNREVOKED, has, loaded, meta
from tests.core.state.test_walks_in_rows import FoldedWalk
from tests.support import invariants
from tests.support.fingerprint import fingerprint
from tests.support.invariants import replayed


def grown():
    """The group of `loaded`, of members who came one by one."""
    state = State()
    replay_each(state, *records_of(loaded()[0]))
    assert not isinstance(state.groups["g"].members, MemberDict)
    return state, state.groups["g"]


def churned():
    """The same, of rows and of members who came later, left, changed, and came again."""
    state, group = loaded()
    replay_each(state, *leaves(1), meta(7, rack_id="r"), has(7, first=900), *leaves(2))
    replay_each(state, meta(2), has(2, first=950), meta(3, rack_id="r"), *leaves(0))
    return state, group


def replay_each(state, *records):
    for record in records:
        replay(state, record)


def leaves(at):
    kinds = TargetMember, CurrentMember, MemberMetadata
    return [Tombstone(kind.kind, "g", f"m{at}") for kind in kinds]


def seen(state):
    """All that can be seen of a group, in order."""
    group = state.groups["g"]
    return (
        fingerprint(state),
        [(key, one.meta, one.current, one.serial) for key, one in group.members.items()],
        list(group.metas.items()),
        dict(group.targets.own()),
        sorted(count_all_owned(group.members)),
    )


MEANWHILE = {
    "nothing": [],
    "one joins": [meta(8), has(8, first=800)],
    "one leaves": leaves(5),
    "one leaves and comes again": [*leaves(4), meta(4), has(4, first=700)],
    "one comes and leaves": [meta(8), *leaves(8)],
    "one comes, leaves and comes again": [meta(8), *leaves(8), meta(8)],
    "one changes what it is": [meta(4, rack_id="r")],
    "one changes, and back": [meta(4, rack_id="r"), meta(4)],
    "one has something else": [has(3, epoch=1, first=600)],
    "one is to revoke": [has(3, first=600, state=UNREVOKED, pending=((OTHER, 3, 4, 1),))],
    "targets are others": [TargetMember("g", f"m{at}", ((OTHER, at, at + 1),)) for at in (3, 4)],
    "a target ends": [Tombstone(TargetMember.kind, "g", "m5")],
    "one changes its topics": [MemberMetadata("g", "m4", subscribed_topic_names=("a", "b"))],
    "one is static": [meta(4, instance_id="i")],
}
STAY = {
    "one joins": {"m8"},
    "one leaves and comes again": {"m4"},
    "one comes, leaves and comes again": {"m8"},
    "one changes what it is": {"m4"},
    "one changes, and back": {"m4"},
    "one is to revoke": {"m3"},
    "one changes its topics": {"m4"},
    "one is static": {"m4"},
}
"""Who may be an object after a fold; all others are rows."""


@pytest.mark.parametrize("first", [loaded, grown, churned])
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("fold", [False, True], ids=["", "folded"])
def test_members_get_rows_whatever_happens_meanwhile(first, meanwhile, fold):
    for at in range(COUNT + 2):
        for done in range(len(MEANWHILE[meanwhile]) + 1):  # before that piece, the rest behind it
            state, group = first()
            build = RowBuild(group)
            for _ in range(at):
                build.add(1)
            replay_each(state, *MEANWHILE[meanwhile][:done])
            build.add(1)
            replay_each(state, *MEANWHILE[meanwhile][done:])
            if fold and isinstance(group.members, MemberDict):
                fold_group(group)
            while build.add(2):
                pass
            before = seen(state)
            members, metas, targets = group.members, group.copy_metas(), group.targets.copy()
            kept = copy_members(members)
            there = {key: one.current for key, one in kept.items()}, dict(metas), dict(targets)
            assert build.finish()
            assert (group.members is not members, seen(state)) == (True, before)
            fold_group(group)
            assert seen(state) == before
            objects = set(group.members.own)
            replay_each(state, has(3, epoch=1, first=5_000), *leaves(4), meta(4))
            fold_group(group)
            assert there == (
                {key: one.current for key, one in kept.items()}, dict(metas), dict(targets)
            )  # fmt: skip
            invariants.check(state)
            replayed(records_of(state))
            assert objects <= STAY.get(meanwhile, set())


@pytest.mark.parametrize("first", [grown, churned])
def test_rows_are_not_the_groups_where_its_changes_were_not_kept(first):
    state, group = first()
    build = RowBuild(group)
    while build.add(2):
        pass
    replay(state, Tombstone(TargetMetadata.kind, "g"))
    before, members = seen(state), group.members
    assert not build.finish()
    assert (group.members is members, seen(state)) == (True, before)
    fold_group(group, new_rows=True)
    assert seen(state) == before


def test_rows_of_a_group_that_ended_are_no_ones():
    state, group = grown()
    folder = RowFolder(lambda *_: True, at_once=2)
    folder.note("g")
    assert folder.fold(state)
    for at in range(COUNT):
        replay_each(state, *leaves(at))
    replay_each(state, Tombstone(GroupMetadata.kind, "g"), GroupMetadata("g", 1, 0), meta(1))
    before = seen(state)
    while folder.fold(state):
        pass
    assert (seen(state), state.groups["g"] is group) == (before, False)
    build = RowBuild(group)
    assert not build.add(1)
    assert not build.finish(), "no one is left"


def test_a_pass_gives_rows_to_a_group_that_grew_and_to_who_came_since():
    state, group = grown()
    folder = RowFolder(lambda group, left: count_objects(group) > left, at_once=2)

    def go():
        folder.note("g")
        count = 0
        while folder.fold(state):
            count += 1
        return count

    before = seen(state)
    assert go() > COUNT, "twice through all, two at a time"
    assert (count_objects(group), seen(state)) == (0, before)
    assert go() == 0
    replay_each(state, meta(8), has(8, first=800), has(1, epoch=1, first=900))
    before, rows = seen(state), group.members.rows
    assert go() > COUNT
    assert (count_objects(group), seen(state)) == (0, before)
    assert group.members.rows is not rows, "m8 had none"
    replay(state, has(1, epoch=1, first=950))
    rows = group.members.rows
    assert 0 < go() <= COUNT
    assert (count_objects(group), group.members.rows is rows) == (0, True)


def test_members_of_a_group_that_grew_to_thousands_become_rows_by_themselves():
    state, count = State(), 5_000
    metas = [MemberMetadata("g", f"m{at}", subscribed_topic_names=("a",)) for at in range(count)]
    head = [GroupMetadata("g", 1, 0), TargetMetadata("g", 1, 0, "uniform")]
    targets = [TargetMember("g", f"m{at}", ((KEY, at, at + 1),)) for at in range(count)]
    held = [
        CurrentMember("g", f"m{at}", 1, 0, STABLE, ((KEY, at, at + 1, 1),)) for at in range(count)
    ]
    folder = RowFolder()
    replay_each(state, *metas, *head, *targets, *held[: count // 2])
    folder.note("g")
    assert not folder.fold(state), "half of them have just come"
    replay_each(state, *held[count // 2 :])
    before = seen(state)
    folder.note("g")
    pieces = 0
    while folder.fold(state):
        pieces += 1
    assert 10 < pieces < 15, "1,024 members at a time, twice"
    assert (count_objects(state.groups["g"]), seen(state)) == (0, before)


class Blind(RowBuild):
    """Looks at no change."""

    def __init__(self, group):
        super().__init__(group)
        self._mark = type("NoChanges", (), {"until": lambda *_: []})()


def nothing_held(_, index, rows):
    held = HeldRows(index)
    held.grow(len(rows))
    return held


def no_targets(_, index, __, some):
    return TargetNumbers(index), np.ones(len(some), np.bool_)


BUGS = {
    "who left meanwhile is there again": (RowBuild, "_is_gone", lambda *_: False),
    "changes are not looked at": (fold_rows, "RowBuild", Blind),
    "what members have is not moved": (HeldRows, "on", nothing_held),
    "targets are not moved": (TargetNumbers, "move", no_targets),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_walk_finds_a_planted_bug(monkeypatch, bug):
    monkeypatch.setattr(*BUGS[bug])
    walks = [FoldedWalk(seed) for seed in range(6)]
    with pytest.raises((AssertionError, KeyError, IllegalStateError)):
        exhaust(walk.go(150) for walk in walks)
