"""Records of very many members, checked as columns: as one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.state.member_rows import CurrentRows
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MemberState,
    TopicChanged,
)
from coordinator.core.state.state_records import StateRecords
from coordinator.storage.record_encoder import encode_records
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.state_loader import load_state
from coordinator.verify import verify
from coordinator.verify.decoding import decode_runs
from coordinator.verify.invariants import Contradiction, InvariantChecker
from tests.support.lives import FOO, claimed

TOPICS = [TopicKey("a", "1"), TopicKey("b", "2")]


def start(epoch, members):
    checker = InvariantChecker()
    checker.check(GroupMetadata("g", epoch, 0))
    for number in range(members):
        checker.check(MemberMetadata("g", f"m{number}"))
    return checker


def spans(draw, most):
    found = []
    for key in TOPICS:
        at = draw.randint(0, most)
        for _ in range(draw.randint(0, 2)):
            end = at + draw.randint(1, 2)
            found.append((key, at, end, 1))
            at = end + draw.randint(0, 3)
    return tuple(found)


def draw_records(draw):
    most = draw.choice([5, 200])
    names = [f"m{number}" for number in range(8)]
    names = draw.choices(names, k=4) if draw.random() < 0.3 else draw.sample(names, 4)
    return [
        CurrentMember("g", name, draw.choice([1, 2, 2, 9, -1, -2, -3]) if draw.random() < 0.2
                      else 2, 1, MemberState.STABLE, spans(draw, most), spans(draw, most))
        for name in names
    ]  # fmt: skip


def one_by_one(checker, records):
    """Check records in order; return what contradicts."""
    try:
        for record in records:
            checker.check(record)
    except Contradiction as error:
        return str(error)
    return None


@given(seed=st.integers(0, 2**32))
def test_rows_are_refused_or_checked_as_their_records(seed):
    draw = random.Random(seed)
    epoch, members = draw.choice([2, 9]), draw.choice([5, 8, 8, 8])
    rows, single = start(epoch, members), start(epoch, members)
    for _ in range(3):
        records = draw_records(draw)
        (found,) = decode_runs(encode_records(records, 1, 1, 1), "a file", long=1)
        assert isinstance(found, CurrentRows)
        before = one_by_one(single, records)
        if rows.check_rows(found):
            assert before is None
        else:
            assert one_by_one(rows, records) == before
        if before is not None:
            return


def test_rows_of_members_that_had_nothing_are_checked_at_once():
    checker = start(2, 3)
    records = [
        CurrentMember("g", f"m{at}", 2, 1, MemberState.STABLE, ((TOPICS[0], at, at + 1, 1),), ())
        for at in range(3)
    ]
    (found,) = decode_runs(encode_records(records, 1, 1, 1), "a file", long=1)
    assert checker.check_rows(found)
    assert not checker.check_rows(found)  # they have something now
    taken = CurrentMember("g", "m2", 2, 1, MemberState.STABLE, ((TOPICS[0], 0, 1, 1),), ())
    with pytest.raises(Contradiction, match="partition 0 of topic 'a' has two owners"):
        checker.check(taken)
    assert one_by_one(checker, records) is None  # what they had is known still


def crowd(epoch, wrong=None):
    """Records of 1,200 members, each with a partition; of one, with that of the next, too."""
    members = [f"m{number:04}" for number in range(1_200)]
    ends = {number: 2 if number == wrong else 1 for number in range(1_200)}
    metas = [MemberMetadata("g", name, subscribed_topic_names=("foo",)) for name in members]
    currents = [
        CurrentMember("g", name, epoch, 0, MemberState.STABLE, ((FOO, at, at + ends[at], 1),))
        for at, name in enumerate(members)
    ]
    return metas, [GroupMetadata("g", 1, 1)], currents


def test_a_large_group_is_checked_with_its_snapshot(tmp_path):
    log = claimed(tmp_path)
    log.append([TopicChanged("foo", FOO.topic_id, 2_000)], 1)
    for at, records in enumerate(crowd(1), 2):
        log.append(records, at)
    state, _, position = load_state(log)
    log.snapshot(StateRecords(state), position, 9)
    found = verify(tmp_path)
    assert (found.members, found.snapshots, found.position) == (1_200, 1, position)


@pytest.mark.parametrize("wrong", [0, 1_000])
def test_a_partition_with_two_owners_in_a_large_group_is_named(tmp_path, wrong):
    log = claimed(tmp_path)
    log.append([TopicChanged("foo", FOO.topic_id, 2_000)], 1)
    for at, records in enumerate(crowd(1, wrong), 2):
        log.append(records, at)
    position = log.position - 1_200 + wrong + 2
    with pytest.raises(CorruptLog, match=f"position {position}: partition {wrong + 1} of topic"):
        verify(tmp_path)


def test_a_member_epoch_ahead_in_a_large_group_is_named(tmp_path):
    log = claimed(tmp_path)
    for at, records in enumerate(crowd(2), 2):
        log.append(records, at)
    with pytest.raises(CorruptLog, match=r"the epoch of member 'm0000' .* is 2, ahead of"):
        verify(tmp_path)
