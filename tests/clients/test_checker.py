"""The checker of client lives finds each forbidden event, and accepts every allowed one."""

from __future__ import annotations

import pytest

from tests.clients.checker import Seen, check, held_now


def assign(at, *partitions, **more):
    return {"at": at, "what": "assign", "partitions": list(partitions)} | more


def revoke(at, *partitions):
    return {"at": at, "what": "revoke", "partitions": list(partitions)}


def lost(at, *partitions):
    return {"at": at, "what": "lost", "partitions": list(partitions)}


def commit(at, partition, offset, began=None):
    """The lines of a commit that was acknowledged."""
    began = at if began is None else began
    offsets = {partition: offset}
    tried = {"at": began, "what": "try", "offsets": offsets}
    return [tried, {"at": at, "what": "commit", "began": began, "offsets": offsets}]


def resume(at, partition, offset):
    return {"at": at, "what": "resume", "partition": partition, "offset": offset}


KILLED = {"at": 5, "what": "killed"}
FINE = {
    "handed over": {"a": [assign(1, "t/0"), revoke(2, "t/0")], "b": [assign(3, "t/0")]},
    "killed": {"a": [assign(1, "t/0"), KILLED], "b": [assign(6, "t/0")]},
    "slept": {"a": [assign(1, "t/0"), lost(9, "t/0")], "b": [assign(6, "t/0")]},
    "resumed": {
        "a": [assign(1, "t/0"), *commit(2, "t/0", 7), revoke(3, "t/0")],
        "b": [assign(4, "t/0"), resume(5, "t/0", 7)],
    },
    "killed before the answer": {
        "a": [assign(1, "t/0"), commit(4, "t/0", 7)[0], KILLED],
        "b": [assign(6, "t/0"), resume(7, "t/0", 7)],
    },
}
WRONG = {
    "in two hands": {"a": [assign(1, "t/0"), revoke(3, "t/0")], "b": [assign(2, "t/0")]},
    "in two hands: without end": {"a": [assign(1, "t/0")], "b": [assign(2, "t/0")]},
    "is given t/0 twice": {"a": [assign(1, "t/0"), assign(2, "t/0")]},
    "in two hands: a zombie is heard": {
        "a": [assign(1, "t/0"), *commit(7, "t/0", 1), lost(9, "t/0")],
        "b": [assign(6, "t/0")],
    },
    "acknowledged 7": {
        "a": [assign(1, "t/0"), *commit(2, "t/0", 7), revoke(3, "t/0")],
        "b": [assign(4, "t/0"), resume(5, "t/0", 6)],
    },
    "without holding it": {"a": [assign(1, "t/0"), revoke(2, "t/0"), *commit(3, "t/0", 1)]},
    "a: [3, 2]": {"a": [assign(1, epoch=3), assign(2, epoch=2)]},
}


@pytest.mark.parametrize("logs", FINE.values(), ids=FINE)
def test_what_may_be(logs):
    check(logs, [], {})


@pytest.mark.parametrize(("words", "logs"), WRONG.items(), ids=WRONG)
def test_what_must_not_be(words, logs):
    with pytest.raises(AssertionError) as found:
        check(logs, [], {})
    assert words.split(": ")[0] in str(found.value)


@pytest.mark.parametrize(
    ("words", "seen"),
    [
        ("the group epoch falls", [Seen(3, 2, {}), Seen(2, 2, {})]),
        ("Seen(group_epoch=3, assignment_epoch=1", [Seen(3, 2, {}), Seen(3, 1, {})]),
        ("m falls to 1", [Seen(3, 2, {"m": 2}), Seen(3, 2, {}), Seen(3, 2, {"m": 1})]),
        ("m is ahead", [Seen(3, 2, {"m": 3})]),
    ],
)
def test_epochs_never_fall(words, seen):
    check({}, [Seen(3, 2, {"m": -2}), Seen(3, 2, {"n": 2}), Seen(4, 4, {"m": 4})], {})
    with pytest.raises(AssertionError) as found:
        check({}, seen, {})
    assert words in str(found.value)


def test_who_holds_what_at_the_end():
    assert held_now([assign(1, "t/0", "t/1"), revoke(2, "t/0")]) == {"t/1"}
    assert held_now([assign(1, "t/0"), KILLED]) == set()
