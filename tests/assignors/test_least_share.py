"""Members that have far less than others get a share, though the makespan does not ask for it."""

from __future__ import annotations

import random

import pytest

from assignors import GroupSpec, SpecError, get_assignor
from tests.assignors.test_weighted import makespan, weights_of

JOINED = "m9"


def equal(weights=None):
    members = {
        f"m{at}": {"subscribed": ["t"], "owned": {"t": list(range(8 * at, 8 * at + 8))}}
        for at in range(8)
    }
    more = {} if weights is None else {"weights": {"t": weights}}
    return {"topics": {"t": 64}, "members": members | {JOINED: {"subscribed": ["t"]}}} | more


def loads(spec, **options):
    group = GroupSpec.from_dict(spec)
    ranges = get_assignor("weighted", **options).assign(group)
    rows = ranges.to_dict()
    weight = spec.get("weights", {"t": [1.0] * spec["topics"]["t"]})["t"]
    return {member: sum(weight[at] for at in own.get("t", ())) for member, own in rows.items()}


def test_a_member_that_joins_equal_ones_has_its_share():
    assert loads(equal())[JOINED] == 0
    found = loads(equal(), least_share="80%")
    assert found[JOINED] == 7
    assert max(found.values()) == 8


@pytest.mark.parametrize("part", [30, 60, 90])
def test_a_member_that_joins_has_the_share_that_was_asked_for(part):
    weights = [20 + 1 / (1 + at) for at in range(64)]
    spec = equal(weights)
    fair = sum(weights) / 9
    before, found = loads(spec), loads(spec, least_share=f"{part}%")
    assert before[JOINED] == 0
    assert part / 100 * fair <= found[JOINED] <= part / 100 * fair + 21.5
    assert max(found.values()) <= max(before.values())
    assert sum(found[member] < before[member] for member in before) <= 8


def test_partitions_that_are_larger_than_a_share_stay():
    spec = {
        "topics": {"t": 2},
        "weights": {"t": [10, 9]},
        "members": {
            "m1": {"subscribed": ["t"], "owned": {"t": [0]}},
            "m2": {"subscribed": ["t"], "owned": {"t": [1]}},
            "m3": {"subscribed": ["t"]},
        },
    }
    assert loads(spec, least_share="100%") == {"m1": 10, "m2": 9, "m3": 0}


@pytest.mark.parametrize("seed", range(60))
def test_the_makespan_does_not_rise_and_assigning_again_moves_nothing(seed):
    draw = random.Random(seed)
    sizes = [draw.choice([1, 1, 2, 3, 5, 10, 0.5]) for _ in range(draw.randint(10, 60))]
    names = [f"m{at}" for at in range(draw.randint(3, 9))]
    spec = {"topics": {"t": len(sizes)}, "weights": {"t": sizes}}
    members = {name: {"subscribed": ["t"], "capacity": draw.choice([1, 1, 2, 4])} for name in names}
    some = spec | {"members": {name: members[name] for name in names[1:]}}
    owned = get_assignor("weighted").assign(GroupSpec.from_dict(some)).to_dict()
    spec["members"] = {name: one | {"owned": owned.get(name, {})} for name, one in members.items()}
    group = GroupSpec.from_dict(spec)
    plain = get_assignor("weighted").assign(group).to_dict()
    found = get_assignor("weighted", least_share="80%").assign(group).to_dict()
    weights = weights_of(group)
    level = [makespan(spec, one, weights) for one in (plain, found)]
    assert level[1] <= level[0] * (1 + 1e-9)
    spec["members"] = {name: one | {"owned": found[name]} for name, one in members.items()}
    again = get_assignor("weighted", least_share="80%").assign(GroupSpec.from_dict(spec))
    assert again.to_dict() == found


def test_a_share_above_all_is_refused():
    with pytest.raises(SpecError, match="least_share is '101%': give at most 100%"):
        get_assignor("weighted", least_share="101%")
