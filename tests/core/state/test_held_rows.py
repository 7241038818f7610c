"""Members of a loaded group who advance together: one by one, or in columns, they are the same."""

from __future__ import annotations

import random
from functools import partial
from itertools import product
from unittest.mock import patch

import pytest

from coordinator.config import Config
from coordinator.core.consumer.steady_heartbeat import answer_steady_heartbeat
from coordinator.core.events import Heartbeat
from coordinator.core.state import replay as replaying
from coordinator.core.state.groups import State
from coordinator.core.state.partition_spans import TopicKey
from coordinator.core.state.records import (
    ClassicMemberMetadata,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    MembersAdvanced,
    MemberState,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.state.replay import replay, replay_all
from coordinator.core.state.row_dict import RowDict
from coordinator.core.state.rows.held_rules import advance_rows
from tests.support.fingerprint import fingerprint
from tests.support.invariants import replay_as_rows

STATES = (MemberState.STABLE, MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS)
KEY = TopicKey("a", "a-id")


def loaded(choice):
    """A group whose members are rows, but for one that came later, and one that is gone."""
    names = [f"m{number}" for number in range(9)]
    metas = [MemberMetadata("g", name, subscribed_topic_names=("a",)) for name in names]
    has = [
        CurrentMember("g", name, choice.randint(1, 3), 1, choice.choice(STATES), ((KEY, at, at + 1, 1),))
        for at, name in enumerate(names[:7])
    ]  # fmt: skip
    state = State()
    replay_as_rows(state, [GroupMetadata("g", 3, 0), *metas, *has])
    replay(state, MemberMetadata("g", "m9", subscribed_topic_names=("a",)))
    gone = [Tombstone(of.kind, "g", "m1") for of in (CurrentMember, MemberMetadata)]
    for record in gone:
        replay(state, record)
    return state


@pytest.mark.parametrize("seed", range(60))
def test_members_who_advance_one_by_one_are_as_if_all_advanced_at_once(seed):
    found = []
    for few in (0, 100):
        choice = random.Random(seed)
        state = loaded(choice)
        assert isinstance(state.groups["g"].members, RowDict)
        with patch.object(replaying, "advance_rows", partial(advance_rows, few=few)):
            for epoch in (3, 4, 5):
                ids = tuple(choice.choices([f"m{n}" for n in range(11)], k=choice.randint(0, 5)))
                replay(state, MembersAdvanced("g", epoch, ids))
        assert not few or set(state.groups["g"].members.own) == {"m9"}, "rows stay rows"
        found.append((fingerprint(state), dict(state.groups["g"].stable_at)))
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(4))
def test_a_heartbeat_of_a_row_is_answered_as_that_of_an_object(seed):
    choice = random.Random(seed)
    names = [f"m{number}" for number in range(6)]
    classic = ClassicMemberMetadata(10_000)
    metas = [
        MemberMetadata(
            "g", name, client_id=choice.choice(["", "c"]), client_host=choice.choice(["", "h"]),
            instance_id=choice.choice([None, f"i-{name}"]), subscribed_topic_names=("a",),
            classic_member_metadata=choice.choice([None, None, classic]),
        )
        for name in names
    ]  # fmt: skip
    has = [
        CurrentMember("g", name, choice.randint(1, 2), 1, choice.choice(STATES)) for name in names
    ]
    metas[0] = MemberMetadata("g", "m0", client_id="c", subscribed_topic_names=("a",))
    has[0] = CurrentMember("g", "m0", 2)
    records = [GroupMetadata("g", 2, 0), TargetMetadata("g", 2, 0, "uniform"), *metas, *has]
    states = State(), State()
    replay_all(states[0], records)
    replay_as_rows(states[1], records)
    rests = 0
    for values in product([*names, "m9"], [1, 2, 3], [None, "i-m1"], ["", "c"], ["", "h"]):
        member_id, epoch, instance_id, client_id, client_host = values
        event = Heartbeat(
            "g", member_id, epoch, instance_id=instance_id, client_id=client_id,
            client_host=client_host,
        )  # fmt: skip
        answers = [answer_steady_heartbeat(state, Config(), event) for state in states]
        assert answers[0] == answers[1], event
        rests += answers[0] is not None
    assert rests >= 2
