"""The next plan of a very large group: continued from the last one, and from nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from assignors import GroupSpec, PartitionRanges, get_assignor
from assignors.incremental.changes import GroupChanges, SubscribedMembers, change_group
from assignors.incremental.planned_group import PlannedGroup
from benchmarks import groups
from benchmarks.measure import Bench, Figure, cpu_ms
from benchmarks.report import Section

TITLE = "The next plan: 1,000,000 members, 10,000,000 partitions"
TEXT = """\
CPU ms of `uniform`, 1,000 topics; all members subscribe alike, or each to one topic, or there are
lists of topics that *share* some: each topic is in one of them, and three more of each list are
drawn. *Continued* is `PlannedGroup.after`, which looks at what moves; *from tables* reads the group
again and plans it from nothing, which gives the same rows. *Aged*: after 1,000 plans in which one
member left or joined. *Drift*: of `weighted`, other weights of 100 of 1,000,000 lognormal ones on
10,000 members.
"""
APART = "one joins, a subscription for each topic"
SHARED = (
    "one joins, {} lists that share topics",
    "one changes its list, {} lists that share topics",
    "one changes to a new list, {} lists that share topics",
)
DRIFT = "weights drift"
GOALS = {"one joins": 1.0, "one leaves": 1.0, "many join": 60.0, APART: 20.0, DRIFT: 20.0}
"""A hundredth of the members is many."""
DRIFTING = 100
"""So many weights change."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a group, and how old."""

    members: int
    each: int  # partitions a member
    topics: int
    plans: int
    shared: tuple[int, ...]  # how many lists of topics


FULL = Sizes(1_000_000, 10, 1_000, 1_000, (100, 1_000))
SMOKE = Sizes(1_000, 10, 10, 10, (5,))


def run(bench: Bench) -> Section:
    """Measure plans that follow one another."""
    figures: list[Figure] = []
    for figure in _all(SMOKE if bench.smoke else FULL):
        bench.say(f"next plan: {figure.name}: {figure.median:.2f} ms")
        figures.append(figure)
    return Section(TITLE, TEXT, figures)


def _all(sizes: Sizes) -> Iterator[Figure]:
    topics = groups.equal(sizes.members * sizes.each, sizes.topics)
    group = groups.group_of(topics, groups.spread_over(sizes.members, 1))
    planned, rng = (
        PlannedGroup.plan(group, get_assignor("uniform", long_ranges=0)),
        np.random.default_rng(1),
    )
    names, subscribed = group.member_ids, group.topics.to_pylist()
    changes = {
        "one joins": _join(names, subscribed, 1, rng),
        "one leaves": GroupChanges(left=[names[len(names) // 2].as_py()]),
        "many join": _join(names, subscribed, sizes.members // 100, rng),
    }
    for what, change in changes.items():
        yield _continued(what, planned, change)
    before = (planned.group(), planned.assignment())
    for what, change in changes.items():
        _, samples = cpu_ms(partial(_from_tables, planned, before, change), 0.0, least=1)
        yield Figure.of(f"{what}, from tables", samples)
    del before
    samples = []
    for at in range(sizes.plans):
        change = _join(names, subscribed, 1, rng)
        if at % 2:
            change = GroupChanges(left=[names[at * len(names) // sizes.plans].as_py()])
        done, took = cpu_ms(partial(planned.after, change), budget_s=0.0, least=1)
        planned = done.planned
        samples += took
    yield Figure.of("one leaves or joins, aged", samples, goal=1.0)
    del planned, done
    yield from _apart(sizes, rng)
    yield from _drift(sizes, rng)


def _drift(sizes: Sizes, rng: np.random.Generator) -> Iterator[Figure]:
    """Measure a group with weights, a few of which change."""
    members, each = max(sizes.members // 100, 10), 100
    topics = groups.equal(members * each, sizes.topics)
    weights = rng.lognormal(0, 1, int(topics.partitions.sum()))
    group = groups.group_of(topics, groups.spread_over(members, 1), weights=weights)
    planned = PlannedGroup.plan(group, get_assignor("weighted"))
    size = int(topics.partitions[0])
    at = rng.choice(len(weights), min(DRIFTING, len(weights) // 10), replace=False).tolist()
    names, drift = group.topics.to_pylist(), dict[str, dict[int, float]]()
    for place in at:
        new = float(weights[place] * rng.uniform(0.9, 1.1))
        drift.setdefault(names[place // size], {})[place % size] = new
    change = GroupChanges(weights=drift)
    yield _continued(DRIFT, planned, change)
    before = planned.group(), planned.assignment()
    _, samples = cpu_ms(partial(_from_tables, planned, before, change), 0.0, least=3)
    yield Figure.of(f"{DRIFT}, from tables", samples)


def _apart(sizes: Sizes, rng: np.random.Generator) -> Iterator[Figure]:
    """Measure a group with a subscription for each topic."""
    topics = groups.apart(sizes.members * sizes.each, sizes.topics, sizes.topics)
    group = groups.group_of(topics, groups.spread_over(sizes.members, sizes.topics))
    planned = PlannedGroup.plan(group, get_assignor("uniform", long_ranges=0))
    one = _join(group.member_ids, group.topics[:1].to_pylist(), 1, rng)
    yield _continued(APART, planned, one)
    before = planned.group(), planned.assignment()
    _, samples = cpu_ms(partial(_from_tables, planned, before, one), 0.0, least=1)
    yield Figure.of(f"{APART}, from tables", samples)
    del planned, before
    for lists in sizes.shared:
        yield from _shared(sizes, lists, rng)


def _shared(sizes: Sizes, lists: int, rng: np.random.Generator) -> Iterator[Figure]:
    """Measure a group whose lists of topics have some in common."""
    topics = groups.classes(sizes.members * sizes.each, sizes.topics, lists, more=3)
    group = groups.group_of(topics, groups.spread_over(sizes.members, lists))
    planned = PlannedGroup.plan(group, get_assignor("uniform", long_ranges=0))
    named = [group.topics.take(pa.array(at)).to_pylist() for at in topics.subscriptions]
    one = group.member_ids[sizes.members // 2].as_py()
    changes = (
        _join(group.member_ids, named[0], 1, rng),
        GroupChanges(resubscribed=[SubscribedMembers.of(one, subscribed=named[1])]),
        GroupChanges(resubscribed=[SubscribedMembers.of(one, subscribed=named[0][:1])]),
    )
    for what, change in zip(SHARED, changes, strict=True):
        yield _continued(what.format(f"{lists:,}"), planned, change)
    before = planned.group(), planned.assignment()
    what = SHARED[1].format(f"{lists:,}")
    _, samples = cpu_ms(partial(_from_tables, planned, before, changes[1]), 0.0, least=1)
    yield Figure.of(f"{what}, from tables", samples)


def _continued(what: str, planned: PlannedGroup, change: GroupChanges) -> Figure:
    done, samples = cpu_ms(lambda: planned.after(change), least=5)
    assert done.planned.full is None, done.planned.full
    return Figure.of(f"{what}, continued", samples, goal=GOALS.get(what))


def _from_tables(
    planned: PlannedGroup, before: tuple[GroupSpec, PartitionRanges], change: GroupChanges
) -> PartitionRanges:
    return planned.assignor.assign(change_group(*before, change))


def _join(
    names: pa.StringArray, subscribed: list[str], count: int, rng: np.random.Generator
) -> GroupChanges:
    """Let members join whose names are spread among those that are there."""
    like = names.take(pa.array(rng.choice(len(names), count, replace=False))).to_pylist()
    ids = pa.array([f"{name}x{rng.integers(10**9)}" for name in like], pa.string())
    return GroupChanges(joined=[SubscribedMembers(ids, subscribed)])
