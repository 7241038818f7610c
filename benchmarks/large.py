"""Large groups: a million members, a hundred million partitions, and a hundred thousand tastes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assignors import get_assignor
from benchmarks import groups
from benchmarks.groups import Members, Past, Topics
from benchmarks.measure import Bench, Figure, assign_ms, ranges_a_member
from benchmarks.report import Section

TITLE = "1,000,000 members, 100,000,000 partitions"
TEXT = """\
CPU ms. *Churn*: 1 % of the members have left and as many new ones joined; *churn and growth*: 0.1 %
more joined, so that everybody's share changes. With 10 and 50 ranges a member the group has had a
long life: what each member owns is in so many places. *Classes*: 1,000 subscriptions over 5,000
topics, about 25 topics each, overlapping at random. *Distinct*: 100,000 members, each with a
subscription of its own, 10 of 1,000 topics, 1,000,000 partitions.
"""
GROWTH_PIECES_MAX = 10
GOALS = {
    ("equal", "churn", 1): 300.0,
    ("classes", "from nothing", 0): 1500.0,
    ("classes", "churn", 1): 1500.0,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large, and how long ranges of the previous assignment."""

    members: int
    each: int  # partitions a member
    topics: int
    classes: int
    class_topics: int
    distinct: int
    pieces: tuple[int, ...]
    budget_s: float


FULL = Sizes(1_000_000, 100, 1_000, 1_000, 5_000, 100_000, (1, 10, 50), 1.0)
SMOKE = Sizes(1_000, 100, 10, 10, 50, 100, (1, 10), 0.0)


def run(bench: Bench) -> Section:
    """Measure large groups."""
    sizes = SMOKE if bench.smoke else FULL
    figures: list[Figure] = []
    for figure in _all(sizes):
        bench.say(f"large: {figure.name}: {figure.median:.0f} ms")
        figures.append(figure)
    return Section(TITLE, TEXT, figures)


def shapes(sizes: Sizes) -> dict[str, Topics]:
    """Return topics and subscriptions of the two large groups."""
    total = sizes.members * sizes.each
    return {
        "equal": groups.equal(total, sizes.topics),
        "classes": groups.classes(total, sizes.class_topics, sizes.classes, more=20),
    }


def aged(topics: Topics, members: Members, pieces: int) -> Past:
    """Return a balanced target in which each member has about so many ranges."""
    group = groups.group_of(topics, members)
    target = get_assignor("uniform").assign(group)
    return Past(members, groups.scattered(group, target, pieces) if pieces > 1 else target)


def _all(sizes: Sizes) -> Iterator[Figure]:
    for name, topics in shapes(sizes).items():
        members = groups.spread_over(sizes.members, len(topics.subscriptions))
        yield _fresh(name, topics, members, sizes.budget_s)
        for pieces in sizes.pieces:
            yield from _churns(name, topics, members, pieces, sizes.budget_s)
    count, kinds = sizes.distinct, min(10, sizes.topics)
    topics = _distinct(count, sizes.topics, kinds)
    members = groups.spread_over(count, count)
    yield _fresh("distinct", topics, members, sizes.budget_s)
    yield from _churns("distinct", topics, members, 1, sizes.budget_s)


def _fresh(name: str, topics: Topics, members: Members, budget_s: float) -> Figure:
    _, samples = assign_ms(get_assignor("uniform"), groups.group_of(topics, members), budget_s)
    goal = GOALS.get((name, "from nothing", 0))
    return Figure.of(f"uniform, {name}, from nothing", samples, goal=goal)


def _churns(
    name: str, topics: Topics, members: Members, pieces: int, budget_s: float
) -> Iterator[Figure]:
    """Measure the next group epoch, with as many members and, unless it is slow, with more."""
    past = aged(topics, members, pieces)
    leave, more = len(members) // 100, len(members) // 1000
    events = {"churn": leave, "churn and growth": leave + more}
    if pieces > GROWTH_PIECES_MAX:
        del events["churn and growth"]
    for event, join in events.items():
        now = members.churned(leave, join, np.random.default_rng(leave))
        group = groups.group_of(topics, now, past)
        goal = GOALS.get((name, event, pieces))
        label = f"{name}, {ranges_a_member(pieces)}, {event}"
        _, samples = assign_ms(get_assignor("uniform"), group, budget_s)
        yield Figure.of(f"uniform, {label}", samples, goal=goal)
        if pieces == 1 and event != "churn":
            _, samples = assign_ms(get_assignor("sticky", imbalance="5%"), group, budget_s)
            yield Figure.of(f"sticky 5%, {label}", samples)


def _distinct(members: int, topics: int, each: int) -> Topics:
    """Give every member a subscription of its own, all topics equally wanted."""
    rng = np.random.default_rng(members)
    lists = [np.sort(rng.choice(topics, each, replace=False)) for _ in range(members)]
    return Topics(groups.equal(members * 10, topics).partitions, lists)
