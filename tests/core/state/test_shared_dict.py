"""Dicts that share what did not change: each is as a plain one, and so are its copies."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.core.state.shared_dict import SHARED_LEAST, SharedDict, share
from coordinator.core.state.target_assignment import Targets


def same(one, plain):
    assert list(one.items()) == list(plain.items())
    assert list(one) == list(plain)
    assert list(one.values()) == list(plain.values())
    assert len(one) == len(plain)
    assert all(
        one.get(key) == plain.get(key) and (key in one) == (key in plain) for key in range(40)
    )


@given(seed=st.integers(0, 2**32), most=st.integers(0, 6))
def test_it_is_as_a_dict_is_and_copies_stay_as_they_are(seed, most):
    draw = random.Random(seed)
    plain = {draw.randrange(40): 0 for _ in range(draw.randint(0, 20))}
    pairs = [(SharedDict(dict(plain), most), plain)]
    for step in range(40):
        shared, plain = draw.choice(pairs)
        what, key = draw.randrange(6), draw.randrange(40)
        if what < 2:
            shared[key] = plain[key] = step
        elif what == 2 and plain:
            gone = draw.choice(list(plain))
            del shared[gone], plain[gone]
        elif what == 3:
            more = {draw.randrange(40): step for _ in range(draw.randint(0, 5))}
            shared.update(more.items())
            plain.update(more)
        elif what == 4:
            pairs.append((shared.copy(), dict(plain)))
        elif draw.random() < 0.1:
            shared.clear()
            plain.clear()
        for one in pairs:
            same(*one)


def test_what_is_not_there_cannot_be_removed():
    shared = SharedDict({1: 2})
    copied = shared.copy()
    for one in (shared, copied):
        with pytest.raises(KeyError):
            del one[3]
        with pytest.raises(KeyError):
            one[3]


def test_a_small_dict_stays_what_it_is():
    small, large = {1: 2}, dict.fromkeys(range(SHARED_LEAST))
    assert share(small) is small
    shared = share(large)
    assert isinstance(shared, SharedDict)
    assert share(shared) is shared


def test_a_copy_of_many_targets_has_what_changed_only():
    targets = Targets()
    targets.update((f"m{number}", ()) for number in range(SHARED_LEAST))
    before = targets.copy()
    targets["m1"] = (("t", 0, 1),)
    targets.end("m2")
    assert before["m1"] == ()
    assert "m2" in before
    assert "m2" not in targets
    assert before._own._base is targets._own._base
    assert len(targets._own._new) + len(targets._own._gone) == 2


def test_ranges_are_counted_as_they_change():
    targets, draw = Targets(), random.Random(1)
    span = ("t", 0, 1)
    for step in range(200):
        member_id, spans = f"m{draw.randrange(9)}", (span,) * draw.randrange(4)
        if step % 5 == 0:
            targets.end(member_id)
        elif step % 5 == 1:
            targets.update([(member_id, spans), ("m0", ())])
        else:
            targets[member_id] = spans
        assert targets.rows() == sum(map(len, targets.values()))
        assert targets.copy().rows() == targets.rows()
