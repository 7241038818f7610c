"""A step changes a draft of a classic group, at a cost of what it changes."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace

from coordinator.config import Config, QuotasConfig
from coordinator.core.classic_events import WAITING, JoinGroup, LeaveGroup, Leaver, Protocol
from coordinator.core.events import HEARTBEAT, TimerFired
from coordinator.core.state.classic_group import size_of
from coordinator.core.state.draft_dict import DraftDict, first_of
from coordinator.core.state.groups import State
from coordinator.core.state.replay import keep_classic, replay
from coordinator.core.state_machine import step
from coordinator.errors import ErrorCode, GroupError
from tests.support.fingerprint import fingerprint

NAMES = "abcdefgh"


@pytest.mark.parametrize("seed", range(20))
def test_a_draft_is_the_dict_that_it_becomes(seed):
    random = Random(seed)
    base = {name: 0 for name in NAMES if random.random() < 0.5}
    wanted, before = dict(base), dict(base)
    draft = DraftDict(base)
    for number in range(random.randrange(12)):
        name = random.choice(NAMES)
        match random.choice(("set", "set", "pop", "pop", "pop", "update", "clear")):
            case "set":
                draft[name] = wanted[name] = number
            case "pop":
                assert draft.pop(name, None) == wanted.pop(name, None)
            case "update":
                several = dict.fromkeys(random.sample(NAMES, 3), number)
                draft.update(several)
                wanted.update(several)
            case "clear":
                draft.clear()
                wanted.clear()
        assert first_of(draft) == first_of(wanted)
        assert (list(draft.items()), len(draft)) == (list(wanted.items()), len(wanted))
        assert list(draft.values()) == list(wanted.values())
        assert [name in draft for name in NAMES] == [name in wanted for name in NAMES]
    assert base == before, "until it is applied nothing changes"
    assert list(draft.apply().items()) == list(wanted.items())


class CountedDict(dict):
    """Counts the keys that were looked at."""

    looked = 0

    def __iter__(self):
        for key in super().__iter__():
            self.looked += 1
            yield key


def test_what_was_removed_is_skipped_once():
    """Each of 1,000 members that go may have been the leader."""
    base = CountedDict.fromkeys(range(1_000))
    draft = DraftDict(base)
    base.looked = 0
    for key in range(999):
        del draft[key]
        assert draft.first() == key + 1
    draft.clear()
    assert draft.first() is None
    assert base.looked <= 2_000


def test_a_draft_has_not_what_was_removed():
    draft = DraftDict({"a": 1})
    del draft["a"]
    with pytest.raises(KeyError):
        draft["a"]
    with pytest.raises(KeyError):
        del draft["a"]


def join(number, member_id=""):
    return JoinGroup(
        "g", member_id, "consumer", [Protocol("range", b""), Protocol("sticky", b"")],
        session_timeout_ms=10_000, rebalance_timeout_ms=60_000, request_id=number,
        drawn_id=f"m{number}", drawn_consumer_id="", knows_member_id=False,
    )  # fmt: skip


def test_a_join_costs_what_it_changes():
    """In a group of however many members: one of them, and what is counted of it."""
    state, config = State(), Config()
    for number in range(100):
        keep_classic(state, step(state, config, join(number), 0).classic)
    before = fingerprint(state)
    (newcomer,) = step(state, config, join(100), 0).classic
    (again,) = step(state, config, join(101, "m7"), 0).classic
    assert fingerprint(state) == before
    assert list(newcomer.members._new) == ["m100"]
    assert list(again.members._new) == ["m7"]
    assert again.members["m7"].protocols is state.classic["g"].members["m7"].protocols
    assert not again.supported._new, "what it tells is counted already"
    keep_classic(state, [newcomer])
    group = state.classic["g"]
    assert (len(group.members), group.parked_joins) == (101, 101)
    assert dict(group.supported) == {"range": 101, "sticky": 101}
    assert dict(group.preferences) == {("range", "sticky"): 101}
    assert dict(group.rebalance_timeouts) == {60_000: 101}


def test_members_may_take_up_so_much_memory_and_those_that_need_no_more_go_on():
    state, config = State(), Config(quotas=QuotasConfig(classic_bytes_max=10_000))

    def ask(event):
        result = step(state, config, event, 0)
        for record in result.records:
            replay(state, record)
        keep_classic(state, result.classic)
        return result

    offered = [Protocol("range", bytes(4_000))]
    first = ask(replace(join(1), protocols=offered))
    ask(replace(join(2), protocols=offered))
    for large in (
        replace(join(3), protocols=offered),
        replace(join(3), protocols=offered, group_id="other", knows_member_id=True),
        replace(join(4, "m1"), protocols=[Protocol("range", bytes(6_000))]),
    ):
        with pytest.raises(GroupError, match=r"quotas\.classic_bytes_max") as refused:
            ask(large)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert first.response is ask(replace(join(5, "m2"), protocols=offered)).response is WAITING
    handed = ask(replace(join(6), protocols=(), group_id="h", protocol_type="")).response
    assert handed.error_code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "no matter how little room"
    ask(LeaveGroup("g", [Leaver("m1")]))
    assert ask(replace(join(7), protocols=offered)).response is WAITING, "there is room again"
    assert state.classic_bytes == sum(one.size_bytes for one in state.classic.values()) > 8_000
    ask(LeaveGroup("g", [Leaver("m2"), Leaver("m7")]))
    assert state.classic_bytes == 0


def test_an_id_that_was_handed_out_takes_up_memory_until_it_joins_or_goes():
    state = State()
    for event, taken in (
        (replace(join(1), knows_member_id=True), size_of("m1")),
        (replace(join(2), knows_member_id=True), size_of("m1") + size_of("m2")),
        (join(3, "m1"), size_of("m2") + size_of("m1", "", join(3).protocols)),
        (TimerFired(HEARTBEAT, "g", "m2", 0), size_of("m1", "", join(3).protocols)),
    ):
        keep_classic(state, step(state, Config(), event, 0).classic)
        assert state.classic_bytes == taken
