"""How many ranges a leaver adds at least: by all fair assignments, and in long lives."""

from __future__ import annotations

import random
from itertools import product

import pytest

from assignors import GroupSpec, get_assignor
from benchmarks.soak import count_getters, least_ranges
from tests.support.longer import EVERY


def ranges_of(owners):
    """Return how many runs of one owner a topic has."""
    return sum(at == 0 or owner != owners[at - 1] for at, owner in enumerate(owners))


def draw_fair(draw, members, partitions):
    """Return who owns each partition of a topic: fair, and cut anyhow."""
    low, high = divmod(partitions, members)
    loads = [low + (at < high) for at in range(members)]
    owners = [at for at, load in enumerate(loads) for _ in range(load)]
    for _ in range(draw.randint(0, partitions)):
        a, b = draw.randrange(partitions), draw.randrange(partitions)
        owners[a], owners[b] = owners[b], owners[a]
    return owners


def all_fair(owners, gone, members):
    """Return who may own what when one member leaves, and what others have does not move."""
    low, high = divmod(len(owners), members - 1)
    free = [at for at, owner in enumerate(owners) if owner == gone]
    others = [one for one in range(members) if one != gone]
    for takers in product(others, repeat=len(free)):
        after = [*owners]
        for at, taker in zip(free, takers, strict=True):
            after[at] = taker
        loads = [after.count(one) for one in others]
        if sorted(loads) == [low] * (members - 1 - high) + [low + 1] * high:
            yield after, len(set(takers))


@pytest.mark.parametrize("seed", range(300 if EVERY else 25))
def test_no_fair_assignment_adds_fewer_ranges(seed):
    draw = random.Random(seed)
    members = draw.randint(2, 5)
    owners = draw_fair(draw, members, draw.randint(members, 5 * members))
    gone = draw.randrange(members)
    runs = sum(
        owner == gone and (at == 0 or owners[at - 1] != gone) for at, owner in enumerate(owners)
    )
    found = list(all_fair(owners, gone, members))
    assert found
    for after, getters in found:
        assert ranges_of(after) - ranges_of(owners) >= getters - 3 * runs
        assert getters >= count_getters(len(owners), members)


@pytest.mark.parametrize("seed", range(40 if EVERY else 4))
def test_a_leaver_adds_no_fewer_ranges_in_a_long_life(seed):
    draw, assignor = random.Random(seed), get_assignor("uniform")
    topics = {"a": 90, "b": 50}
    spec = {f"m{at:03}": {} for at in range(draw.randint(8, 40))}
    for epoch in range(60):
        names = sorted(spec)
        gone = draw.choice(names) if draw.random() < 0.6 and len(names) > 3 else None
        had = spec.pop(gone) if gone else None
        if gone is None:
            spec[f"m{900 - epoch:03}"] = {}
        before = sum(map(count_ranges, spec.values()))
        members = {name: {"subscribed": ["a", "b"], "owned": own} for name, own in spec.items()}
        group = GroupSpec.from_dict({"topics": topics, "members": members})
        after = assignor.assign(group).to_dict(lists=False)
        if had:
            assert all(covers(after[name], own) for name, own in spec.items()), "none moves"
            getters = sum(load(after[name]) > load(own) for name, own in spec.items())
            runs = count_ranges(had)
            assert sum(map(count_ranges, after.values())) >= before + getters - 2 * runs
        spec = after


def count_ranges(own):
    return sum(map(len, own.values()))


def load(own):
    return sum(count for ranges in own.values() for _, count in ranges)


def covers(after, own):
    """Tell whether a member still has what it had."""
    had, has = (
        {(topic, first + at) for topic, ranges in one.items() for first, count in ranges
         for at in range(count)}
        for one in (own, after)
    )  # fmt: skip
    return had <= has


def test_the_least_of_a_group_that_shrinks_is_as_the_page_has_it():
    shown = {(100, 64): 7.4, (100, 50): 10.3}
    found = {pair: least_ranges(2_000, *pair) for pair in shown}
    assert {pair: round(value, 1) for pair, value in found.items()} == shown
    assert least_ranges(12, 3, 2) == 1.0, "both neighbours get half of what was between them"
