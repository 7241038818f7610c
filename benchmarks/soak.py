"""The soak: hundreds of group epochs in a row, to see whether ranges stay long."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType

import numpy as np

from assignors import get_assignor
from assignors.arrays import Ints
from benchmarks import groups
from benchmarks.groups import Past, Topics
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
SMOKE = Sizes(200, 100, 10, 5, 20, (1, 3))


@dataclass(frozen=True, slots=True)
class Small:
    """A group whose members leave and join one at a time, as each came."""

    name: str
    least: int
    most: int
    each: int  # partitions for each of the usual members
    classes: int
    goal: float  # ranges a member at the end
    epochs: tuple[int, ...]


LOOKED = (100, 500, 1_000, 2_000)
SMALL = (
    Small("50 to 150 members, all alike", 50, 150, 20, 1, 4.0, LOOKED),
    Small("900 to 1,100 members, 72 subscriptions", 900, 1_100, 100, 72, 10.0, LOOKED),
)
SMALL_SMOKE = (Small("5 to 15 members, all alike", 5, 15, 20, 1, 4.0, (1, 3)),)

Churn = Callable[[int, int, np.random.Generator], tuple[int, int]]
"""From members now and usual members to how many leave and how many join."""


@dataclass(frozen=True, slots=True)
class Life:
    """What was seen of a group: ranges a member, mean, most and median, where looked at."""

    mean: list[float]
    most: list[int]
    half: list[float]
    cpu_ms: list[float]

    def look(self, ranges: Ints) -> None:
        """Note how many ranges members have."""
        self.mean.append(float(ranges.mean()))
        self.most.append(int(ranges.max()))
        self.half.append(float(np.median(ranges)))


def run(bench: Bench) -> Section:
    """Let groups live."""
    sizes = SMOKE if bench.smoke else FULL
    total, epochs = sizes.members * sizes.each, sizes.epochs
    shapes = {
        "equal": groups.equal(total, sizes.topics),
        "classes": groups.classes(total, sizes.class_topics, sizes.classes, more=20),
    }
    figures, rows = [], []
    for (shape, topics), (size, churn) in product(shapes.items(), CHURNS.items()):
        name = f"{shape}, {size}"
        bench.say(f"soak: {name}")
        life = _live(topics, sizes.members, sizes.epochs, churn)
        figures.append(Figure.of(f"ranges a member, {name}", life.mean[-1:], "ranges", GOAL))
        figures.append(Figure.of(f"one assignment, {name}", life.cpu_ms))
        seen = [f"{number(a)} ({b})" for a, b in zip(life.mean, life.most, strict=True)]
        ms = figures[-1].median
        cost = [number(ms), number(ms / bench.sort.unit_ms)]
        rows.append([name, *seen, number(life.half[-1]), *cost])
    looked = [f"after {at}" for at in epochs]
    head = ["group", *looked, "median at the end", "CPU ms an epoch", "sorts"]
    tables = [Table("", head, rows), _run_small(bench, figures)]
    return Section(TITLE, _text(sizes), figures, tables)


def _run_small(bench: Bench, figures: list[Figure]) -> Table:
    """Let small groups live, with ranges kept long and by order alone."""
    rows = []
    some = SMALL_SMOKE if bench.smoke else SMALL
    for small, (how, options) in product(some, RULES.items()):
        bench.say(f"soak: {small.name}, {how}")
        life = _live_one_by_one(small, options)
        if not options:
            name = f"ranges a member, {small.name}"
            figures.append(Figure.of(name, life.mean[-1:], "ranges", small.goal))
        ms = Figure.of("", life.cpu_ms).median
        seen = [f"{number(a)} ({b})" for a, b in zip(life.mean, life.most, strict=True)]
        rows.append([f"{small.name}, {how}", *seen, number(life.half[-1]), number(ms)])
    looked = [f"after {at}" for at in some[0].epochs]
    head = ["group", *looked, "median at the end", "CPU ms an epoch"]
    return Table("Small groups, one member at a time", head, rows)


RULES: dict[str, dict[str, int]] = {"long ranges": {}, "by order": {"long_ranges": 0}}


def _live_one_by_one(small: Small, options: dict[str, int]) -> Life:
    """Let one member leave or join at a time, by chance, within the bounds of a group."""
    usual = (small.least + small.most) // 2

    def churn(now: int, usual: int, rng: np.random.Generator) -> tuple[int, int]:  # noqa: ARG001
        joins = now <= small.least or (now < small.most and bool(rng.integers(2)))
        return int(not joins), int(joins)

    topics = groups.apart(usual * small.each, 4 * small.classes, small.classes)
    return _live(topics, usual, small.epochs, churn, options)


def _live(
    topics: Topics,
    usual: int,
    epochs: Sequence[int],
    churn: Churn,
    options: Mapping[str, int] = MappingProxyType({}),
) -> Life:
    """Assign again and again, each time after some members left and others joined."""
    assignor, rng = get_assignor("uniform", **options), np.random.default_rng(1)
    members = groups.spread_over(usual, len(topics.subscriptions))
    past = Past(members, assignor.assign(groups.group_of(topics, members)))
    life = Life([], [], [], [])
    for epoch in range(1, epochs[-1] + 1):
        leave, join = churn(len(past.members), usual, rng)
        now = past.members.churned(leave, join, rng)
        target, samples = assign_ms(assignor, groups.group_of(topics, now, past), 0.0, least=1)
        past = Past(now, target)
        life.cpu_ms.extend(samples)
        if epoch in epochs:
            life.look(np.bincount(target.member, minlength=len(now)))
    return life


def _steady(now: int, usual: int, rng: np.random.Generator) -> tuple[int, int]:  # noqa: ARG001
    """1 % leave, as many join."""
    return usual // 100, usual // 100


def _by_chance(now: int, usual: int, rng: np.random.Generator) -> tuple[int, int]:
    """Each member leaves with a chance of 1 %, and others join at the same rate."""
    return int(rng.binomial(now, 0.01)), int(rng.poisson(usual * 0.01))


def _swinging(now: int, usual: int, rng: np.random.Generator) -> tuple[int, int]:
    """1 % leave, and so many join that the group is 1 % too large, as usual or 1 % too small."""
    leave, wanted = now // 100, usual + int(rng.integers(-1, 2)) * usual // 100
    return leave, max(wanted - (now - leave), 0)


CHURNS: dict[str, Churn] = {
    "as many join": _steady,
    "size varies by chance": _by_chance,
    "size swings by 1 %": _swinging,
}


def _text(sizes: Sizes) -> str:
    return f"""\
Uniform, {sizes.members:,} members, {sizes.members * sizes.each:,} partitions. In each group epoch
1 % of the members leave, and others join: as many (*as many join*), each at random (*size varies
by chance*), or so many that the group has 1 % more members than usual, then the usual number, then
1 % fewer (*size swings by 1 %*). The table has the mean number of ranges per member, and in
brackets the largest.

If as many join, they take over what the others left, and ranges stay as they were. If the size of
the group changes, fair loads require that {sizes.each} single partitions move for each member more
or fewer: a new member gets single partitions of many others, or many members get one partition
each of a member that left. With several classes, the size of every class changes too. `sticky`
with an imbalance of 5 % reduces the mean by a third for classes, and not at all for equal
subscriptions, because the partitions of members that left are still distributed evenly.

[Ranges of small groups are kept long](algorithm.md#ranges-stay-long): of choices that move equally
much, neighbours decide. The groups above are too large for that; the second table has groups of
which one member leaves or joins at a time, with that rule and with `plan.long_ranges` = 0.
"""
