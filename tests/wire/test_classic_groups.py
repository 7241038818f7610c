"""Lives of classic groups in messages, decided by a coordinator in memory."""

from __future__ import annotations

import pytest

from coordinator.errors import ErrorCode
from coordinator.wire.codec import Api
from tests.support.classic_side import BEAT, JOIN, SYNC, WORDS, Classic
from tests.support.wire_side import NONE


@pytest.mark.parametrize("join", range(10))
def test_two_members_join_sync_beat_and_leave(join):
    """With the versions of the other APIs that clients of this JoinGroup send, or some of them."""
    side = Classic(clicks=4)
    sync, beat, leave = min(join, 5), min(join, 4), min(join, 5)

    def enter(member_id):
        found = side.say(Api.JOIN_GROUP, join, **JOIN | {"member_id": member_id})
        if not isinstance(found, int) and int(found.error_code) == ErrorCode.MEMBER_ID_REQUIRED:
            assert join >= 4
            found = side.say(Api.JOIN_GROUP, join, **JOIN | {"member_id": found.member_id})
        return found

    first = enter("")
    side.processor.tick()  # the initial delay of 0 ms
    alone = side.hear()[first]
    assert (int(alone.error_code), alone.generation_id, alone.protocol_name) == (NONE, 1, "range")
    assert (alone.leader, len(alone.members)) == (alone.member_id, 1)
    words = SYNC | {"member_id": alone.member_id, "generation_id": 1}
    done = side.say(
        Api.SYNC_GROUP, sync,
        **words | {"assignments": [{"member_id": alone.member_id, "assignment": b"all"}]},
    )  # fmt: skip
    assert (int(done.error_code), done.assignment) == (NONE, b"all")

    second = enter("")
    words = BEAT | {"member_id": alone.member_id, "generation_id": 1}
    assert int(side.say(Api.HEARTBEAT, beat, **words).error_code) == ErrorCode.REBALANCE_IN_PROGRESS
    leader = enter(alone.member_id)
    follower = side.hear()[second]
    assert leader.leader == follower.leader == leader.member_id == alone.member_id
    assert [one.member_id for one in leader.members] == [leader.member_id, follower.member_id]
    assert (follower.generation_id, follower.members) == (2, ())

    words = SYNC | {"generation_id": 2}
    waits = side.say(Api.SYNC_GROUP, sync, **words | {"member_id": follower.member_id})
    given = [{"member_id": follower.member_id, "assignment": b"half"}]
    led = side.say(
        Api.SYNC_GROUP, sync, **words | {"member_id": leader.member_id, "assignments": given}
    )
    assert (led.assignment, side.hear()[waits].assignment) == (b"", b"half")

    (group,) = side.say(Api.DESCRIBE_GROUPS, 6, **WORDS[Api.DESCRIBE_GROUPS]).groups
    assert (group.group_state, group.protocol_type, group.protocol_data) == (
        "Stable", "consumer", "range",
    )  # fmt: skip
    assert {one.member_id: one.member_assignment for one in group.members} == {
        leader.member_id: b"", follower.member_id: b"half",
    }  # fmt: skip
    for member in (leader.member_id, follower.member_id):
        words = {"group_id": "g", "member_id": member, "members": [{"member_id": member}]}
        assert int(side.say(Api.LEAVE_GROUP, leave, **words).error_code) == NONE
    again = side.say(Api.LEAVE_GROUP, leave, **words)
    code = again.members[0].error_code if leave >= 3 else again.error_code
    assert int(code) == ErrorCode.UNKNOWN_MEMBER_ID


def test_classic_groups_are_listed_by_state_and_type():
    side = Classic(clicks=4)
    side.join("m1", "clicks")  # g, a consumer group
    side.say(Api.JOIN_GROUP, 3, **JOIN | {"group_id": "c", "member_id": ""})

    def listed(version, **words):
        found = side.ask(Api.LIST_GROUPS, version, **words).groups
        return [(one.group_id, one.protocol_type, getattr(one, "group_type", "")) for one in found]

    classic, consumer = ("c", "consumer", "classic"), ("g", "consumer", "consumer")
    assert listed(5) == [classic, consumer]
    assert listed(5, types_filter=["Classic"]) == [classic]
    assert listed(5, types_filter=["consumer"]) == [consumer]
    assert [one[0] for one in listed(4, states_filter=["preparingrebalance"])] == ["c"]
    assert listed(5, states_filter=["Stable"], types_filter=["classic"]) == []
    words = WORDS[Api.DESCRIBE_GROUPS] | {"groups": ["c"]}
    (group,) = side.say(Api.DESCRIBE_GROUPS, 6, **words).groups
    assert (group.group_state, group.protocol_data, len(group.members)) == (
        "PreparingRebalance", "", 1,
    )  # fmt: skip


def test_who_waits_is_answered_when_another_takes_the_store_over():
    side = Classic(clicks=4)
    first = side.say(Api.JOIN_GROUP, 2, **JOIN | {"member_id": ""})
    side.processor.fence("by another")
    found = side.hear()[first]
    assert int(found.error_code) == ErrorCode.NOT_COORDINATOR
