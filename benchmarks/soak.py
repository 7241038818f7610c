"""The soak: hundreds of group epochs in a row, to see whether ranges stay long."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors import get_assignor
from benchmarks import groups
from benchmarks.groups import Members, Past, Topics
from benchmarks.measure import Bench, Figure, assign_ms
from benchmarks.report import Section, Table, number

TITLE = "Soak: 300 group epochs of 1 % churn"
GOAL = 10.0
"""Ranges a member after the soak."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a group, and how long a life."""

    members: int
    each: int  # partitions a member
    topics: int
    classes: int
    class_topics: int
    epochs: tuple[int, ...]  # where to look


FULL = Sizes(20_000, 100, 200, 100, 500, (1, 10, 30, 100, 200, 300))
SMOKE = Sizes(200, 100, 10, 5, 20, (1, 10))


@dataclass(frozen=True, slots=True)
class Life:
    """What was seen of a group: ranges a member and the most of one member, where looked at."""

    mean: list[float]
    most: list[int]
    cpu_ms: list[float]


def run(bench: Bench) -> Section:
    """Let groups live."""
    sizes = SMOKE if bench.smoke else FULL
    total, epochs = sizes.members * sizes.each, sizes.epochs
    same = groups.equal(total, sizes.topics)
    mixed = groups.classes(total, sizes.class_topics, sizes.classes, more=20)
    cases = {
        "equal": (same, 0.0),
        "equal, number of members jittering by 1 %": (same, 0.01),
        "classes": (mixed, 0.0),
        "classes, number of members jittering by 1 %": (mixed, 0.01),
    }
    figures, rows = [], []
    for name, (topics, jitter) in cases.items():
        bench.say(f"soak: {name}")
        life = _live(topics, sizes, jitter)
        figures.append(Figure.of(f"ranges a member, {name}", life.mean[-1:], "ranges", GOAL))
        figures.append(Figure.of(f"one assignment, {name}", life.cpu_ms))
        seen = [f"{number(a)} ({b})" for a, b in zip(life.mean, life.most, strict=True)]
        ms = figures[-1].median
        rows.append([name, *seen, number(ms), number(ms / bench.sort.unit_ms)])
    head = ["group", *[f"after {at}" for at in epochs], "CPU ms an epoch", "sorts"]
    return Section(TITLE, _text(sizes), figures, [Table("", head, rows)])


def _live(topics: Topics, sizes: Sizes, jitter: float) -> Life:
    """Assign again and again, each time after 1 % of the members left and others joined."""
    assignor, rng = get_assignor("uniform"), np.random.default_rng(1)
    members = groups.spread_over(sizes.members, len(topics.subscriptions))
    past = Past(members, assignor.assign(groups.group_of(topics, members)))
    life = Life([], [], [])
    for epoch in range(1, sizes.epochs[-1] + 1):
        now = _next(past.members, sizes.members, jitter, rng)
        target, samples = assign_ms(assignor, groups.group_of(topics, now, past), 0.0, least=1)
        past = Past(now, target)
        life.cpu_ms.extend(samples)
        if epoch in sizes.epochs:
            ranges = np.bincount(target.member, minlength=len(now))
            life.mean.append(float(ranges.mean()))
            life.most.append(int(ranges.max()))
    return life


def _next(members: Members, usual: int, jitter: float, rng: np.random.Generator) -> Members:
    """Let 1 % leave, and so many join that the group has its usual size, or nearly."""
    leave = max(len(members) // 100, 1)
    wanted = usual + int(rng.integers(-1, 2) * jitter * usual)
    join = wanted - (len(members) - leave)
    return members.churned(leave, max(join, 0), rng)


def _text(sizes: Sizes) -> str:
    return f"""\
Uniform, {sizes.members:,} members, {sizes.members * sizes.each:,} partitions. In each group epoch
1 % of the members leave and others join; where the number of members jitters, it is in each epoch
1 % more than usual, as usual, or 1 % less, so that everybody's share changes all the time. Ranges a
member, mean (most of one member):
"""
