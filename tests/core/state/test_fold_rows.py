"""Members who rest become rows again; who has something to do, or a number too large, does not."""

from __future__ import annotations

import numpy as np
import pytest

from coordinator.core.state.groups import State
from coordinator.core.state.member_rows import HeldRows
from coordinator.core.state.partition_spans import MANY, TopicKey
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MemberState,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay
from coordinator.core.state.rows import fold_rows
from coordinator.core.state.rows.fold_rows import (
    RowFolder,
    count_objects,
    fold_group,
    is_worth_it,
)
from coordinator.core.state.rows.member_table import copy_members, count_all_owned
from coordinator.core.state.span_columns import SpanRows
from tests.core.state.test_walks_in_rows import FoldedWalk
from tests.support.fingerprint import fingerprint
from tests.support.invariants import replay_as_rows

KEY, OTHER = TopicKey("a", "a-id"), TopicKey("b", "b-id")
STABLE, UNREVOKED = MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS
COUNT = 6


def meta(at, **fields):
    return MemberMetadata("g", f"m{at}", subscribed_topic_names=("a",), **fields)


def has(at, epoch=1, first=None, state=STABLE, **fields):
    first = at * 9 if first is None else first
    return CurrentMember("g", f"m{at}", epoch, 0, state, ((KEY, first, first + 1, 1),), **fields)


def loaded():
    """A group of members that are rows, with a target each."""
    state = State()
    targets = [TargetMember("g", f"m{at}", ((KEY, at * 9, at * 9 + 1),)) for at in range(COUNT)]
    head = [GroupMetadata("g", 1, 0), TargetMetadata("g", 1, 0, "uniform")]
    everyone = range(COUNT)
    records = [*map(meta, everyone), *head, *targets, *map(has, everyone)]
    replay_as_rows(state, records)
    return state, state.groups["g"]


def test_who_rests_becomes_a_row_again_and_who_does_not_stays_an_object():
    state, group = loaded()
    long = tuple((KEY, 1_000 + 2 * at, 1_001 + 2 * at, 2) for at in range(MANY))
    for record in (
        has(0, epoch=2, first=200),
        has(1, epoch=2, state=UNREVOKED, pending=((OTHER, 3, 4, 2),)),
        CurrentMember("g", "m2", 2, 1, STABLE, long),
        meta(3, rack_id="elsewhere"),
        meta(4),
        TargetMember("g", "m0", ((KEY, 200, 201), (OTHER, 0, 3))),
        TargetMember("g", "m5", tuple(span[:3] for span in long)),
    ):
        replay(state, record)
    before = fingerprint(state)
    owned = sorted(count_all_owned(group.members))
    fold_group(group)
    assert set(group.members.own) == {"m1", "m2", "m3"}
    assert set(group.metas.own) == {"m3"}
    assert dict(group.targets.list_changed()).keys() == {"m5"}
    assert fingerprint(state) == before
    assert sorted(count_all_owned(group.members)) == owned


def test_a_member_that_went_and_came_again_is_no_row():
    state, group = loaded()
    for of in (TargetMember, CurrentMember, MemberMetadata):
        replay(state, Tombstone(of.kind, "g", "m1"))
    for record in (meta(1), TargetMember("g", "m1", ((KEY, 5, 6),)), has(1)):
        replay(state, record)
    before, order = fingerprint(state), list(group.members)
    fold_group(group)
    assert (fingerprint(state), list(group.members)) == (before, order)
    assert (list(group.members.own), order[-1]) == (["m1"], "m1")


def test_numbers_of_more_than_32_bits_stay_objects():
    state, group = loaded()
    replay(state, has(0, epoch=2**31))
    replay(state, TargetMember("g", "m1", ((KEY, 2**31, 2**31 + 1),)))
    before = fingerprint(state)
    fold_group(group)
    assert fingerprint(state) == before
    assert count_objects(group) == 2


def test_copies_see_nothing_of_it_and_rows_are_compacted():
    state, group = loaded()
    members, targets = copy_members(group.members), group.targets.copy()
    kept = {key: one.current for key, one in members.items()}, dict(targets)
    for turn in range(2, 12):
        for at in range(COUNT):
            replay(state, has(at, epoch=turn, first=1_000 * turn + at))
            replay(state, TargetMember("g", f"m{at}", ((OTHER, turn, turn + at + 1),)))
        before = fingerprint(state)
        fold_group(group)
        assert fingerprint(state) == before
        assert count_objects(group) == 0
        assert len(group.members.rows.held.assigned) <= 3 * COUNT
    assert kept == ({key: one.current for key, one in members.items()}, dict(targets))
    assert group.targets.rows() == COUNT


def test_a_pass_begins_once_objects_are_many_and_most_members_stable():
    state, group = loaded()
    for at in range(COUNT):
        replay(state, has(at, epoch=2))
    assert count_objects(group) == COUNT
    assert not is_worth_it(group, 0), "so few are not worth it"
    asked = []
    folder = RowFolder(lambda group, left: bool(asked.append(left)) or count_objects(group) > left)
    assert not folder.fold(state), "no one noted that the group changed"
    folder.note("g")
    folder.note("gone")
    while folder.fold(state):
        pass
    assert count_objects(group) == 0
    replay(state, has(1, epoch=3, state=UNREVOKED, pending=((OTHER, 3, 4, 2),)))
    for _ in range(2):  # the second time, what the first pass left is no reason for another
        folder.note("g")
        while folder.fold(state):
            pass
    assert asked == [0, 0, 0, 0, 1], "after a pass that left some, are new rows due?"


@pytest.mark.parametrize("count", [8_192, 100_000])
def test_what_is_worth_a_pass(count):
    _, group = loaded()
    own = {f"n{at}": None for at in range(max(4_096, count // 8) + 1)}
    group.members.own.update(own)
    group.members._size = count
    group.stable_at[1] = count
    assert is_worth_it(group, 0)
    assert not is_worth_it(group, 1)
    group.stable_at[1] = count * 9 // 10 if count > 8_192 else count // 2
    assert not is_worth_it(group, 0), "who is not stable would be left"


@pytest.mark.parametrize("keys", [[], [KEY], [KEY, OTHER]])
def test_rows_of_spans_are_appended_as_extended(keys):
    none = np.zeros(0, np.int32)
    some = [[], [(OTHER, 1, 2), (KEY, 3, 4)], [(KEY, 5, 6)]]
    rows = SpanRows(keys, none, none, (none, none))
    rows.append([[(KEY, 0, 1)]])
    copy = rows.copy()
    rows.append(some)
    copy.append([[(TopicKey("c", "c-id"), 7, 8)], [(OTHER, 8, 9)]])
    rows.append(some)
    assert [list(rows.spans(at)) for at in range(len(rows))] == [[(KEY, 0, 1)], *some, *some]
    assert [list(copy.spans(at)) for at in range(len(copy))] == [
        [(KEY, 0, 1)], [(TopicKey("c", "c-id"), 7, 8)], [(OTHER, 8, 9)]
    ]  # fmt: skip
    with pytest.raises(OverflowError):
        rows.append([[(TopicKey("d", "d-id"), 0, 2**31)]])
    assert [list(rows.spans(at)) for at in range(len(rows))] == [[(KEY, 0, 1)], *some, *some]


@pytest.mark.parametrize("bug", ["what is still to be revoked is lost", "an epoch goes back"])
def test_a_walk_finds_a_planted_bug(monkeypatch, bug):
    have = HeldRows.have

    def have_before(self, found):
        have(self, found)
        for row, record in found:
            self.numbers[0][row] = record.previous_member_epoch

    if bug == "an epoch goes back":
        monkeypatch.setattr(HeldRows, "have", have_before)
    else:
        monkeypatch.setattr(fold_rows, "_rests", lambda _: True)
    walk = FoldedWalk(0)
    with pytest.raises(AssertionError):
        walk.go(150)
