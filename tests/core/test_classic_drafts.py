"""A step changes a draft of a classic group, at a cost of what it changes."""

from __future__ import annotations

from random import Random

import pytest

from coordinator.config import Config
from coordinator.core.classic.draft_dict import DraftDict
from coordinator.core.classic.events import JoinGroup, Protocol
from coordinator.core.replay import keep_classic
from coordinator.core.state import State, fingerprint
from coordinator.core.state_machine import step

NAMES = "abcdefgh"


@pytest.mark.parametrize("seed", range(20))
def test_a_draft_is_the_dict_that_it_becomes(seed):
    random = Random(seed)
    base = {name: 0 for name in NAMES if random.random() < 0.5}
    wanted, before = dict(base), dict(base)
    draft = DraftDict(base)
    for number in range(random.randrange(12)):
        name = random.choice(NAMES)
        if random.random() < 0.5:
            draft[name] = wanted[name] = number
        else:
            assert draft.pop(name, None) == wanted.pop(name, None)
        assert (list(draft.items()), len(draft)) == (list(wanted.items()), len(wanted))
        assert [name in draft for name in NAMES] == [name in wanted for name in NAMES]
    assert base == before, "until it is applied nothing changes"
    assert list(draft.apply().items()) == list(wanted.items())


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
