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
    goal: float  # ranges a member in the second half of a life
    epochs: tuple[int, ...]
    lives: int = 1


LOOKED = (100, 500, 1_000, 2_000)
SMALL = (
    Small("50 to 150 members, all alike", 50, 150, 20, 1, 4.0, LOOKED, lives=8),
    Small("900 to 1,100 members, 72 subscriptions", 900, 1_100, 100, 72, 10.0, LOOKED),
)
SMALL_SMOKE = (Small("5 to 15 members, all alike", 5, 15, 20, 1, 4.0, (1, 3), lives=2),)
SHRINKING = ((100, 64), (100, 50), (150, 100), (150, 50))
"""Members at first, and at last, of a group that only shrinks."""

Churn = Callable[[int, int, np.random.Generator], tuple[int, int]]
"""From members now and usual members to how many leave and how many join."""


@dataclass(frozen=True, slots=True)
class Life:
    """What was seen of a group: ranges a member, mean, most and median, where looked at.

    And the mean after each epoch of the second half.
    """

    mean: list[float]
    most: list[int]
    half: list[float]
    cpu_ms: list[float]
    later: list[float]

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
    tables = [Table("", head, rows), _run_small(bench, figures), _run_shrinking(bench)]
    return Section(TITLE, _text(sizes), figures, tables)


def _run_small(bench: Bench, figures: list[Figure]) -> Table:
    """Let small groups live: with ranges kept long, by order alone, and with moves for that."""
    rows = []
    some = SMALL_SMOKE if bench.smoke else SMALL
    for small, (how, options) in product(some, RULES.items()):
        bench.say(f"soak: {small.name}, {how}")
        life = _live_one_by_one(small, options)
        if options in ({}, {"defragment": 20}):
            name = f"ranges a member, {small.name}{', ' + how if options else ''}"
            more = [_live_one_by_one(small, options, seed) for seed in range(2, small.lives + 1)]
            means = [float(np.mean(one.later)) for one in (life, *more)]
            figures.append(Figure.of(name, means, "ranges", small.goal))
        ms = Figure.of("", life.cpu_ms).median
        seen = [f"{number(a)} ({b})" for a, b in zip(life.mean, life.most, strict=True)]
        rows.append([f"{small.name}, {how}", *seen, number(life.half[-1]), number(ms)])
    looked = [f"after {at}" for at in some[0].epochs]
    head = ["group", *looked, "median at the end", "CPU ms an epoch"]
    return Table("Small groups, one member at a time", head, rows)


RULES: dict[str, dict[str, int]] = {
    "long ranges": {},
    "by order": {"long_ranges": 0},
    "4 moves more": {"defragment": 4},
    "20 moves more": {"defragment": 20},
}


def _run_shrinking(bench: Bench) -> Table:
    """Let one member leave at a time, and compare with the least that there can be."""
    rows = []
    for first, last in ((10, 6),) if bench.smoke else SHRINKING:
        bench.say(f"soak: from {first} to {last} members")
        total = 10 * first if bench.smoke else 2_000
        topics = groups.equal(total, 4)
        churn: Churn = lambda now, usual, rng: (1, 0)  # noqa: ARG005, E731
        life = _live(topics, first, (first - last,), churn)
        least = least_ranges(total, first, last)
        rows.append([f"from {first} to {last} members", number(life.mean[-1]), number(least)])
    head = ["group", "ranges a member", "the least that any rule can reach"]
    return Table("Small groups that shrink, one member at a time", head, rows)


def least_ranges(partitions: int, members: int, left: int) -> float:
    """Return how many ranges a member has at least once all but `left` members left, one by one.

    Each had one range at first, and who leaves is of the mean (algorithm.md#ranges-stay-long).
    """
    ranges = float(members)
    for now in range(members, left, -1):
        ranges += count_getters(partitions, now) - 3 * ranges / now
    return ranges / left


def count_getters(partitions: int, members: int) -> int:
    """Return how many members get something at least when one of them leaves."""
    (low, high), (low_then, _) = divmod(partitions, members), divmod(partitions, members - 1)
    found = []
    for more in {0, int(high > 0)}:  # whether the one who leaves has one more than others
        gone, low_now = low + more, members - 1 - (high - more)
        if low_then == low:
            found.append(gone)  # one each
        elif low_then == low + 1:
            found.append(max(low_now, gone - low_now))  # two at the most
        else:
            found.append(-(-gone // (low_then + 1 - low)))
    return min(found)


def _live_one_by_one(small: Small, options: dict[str, int], seed: int = 1) -> Life:
    """Let one member leave or join at a time, by chance, within the bounds of a group."""
    usual = (small.least + small.most) // 2

    def churn(now: int, usual: int, rng: np.random.Generator) -> tuple[int, int]:  # noqa: ARG001
        joins = now <= small.least or (now < small.most and bool(rng.integers(2)))
        return int(not joins), int(joins)

    topics = groups.apart(usual * small.each, 4 * small.classes, small.classes)
    return _live(topics, usual, small.epochs, churn, options, seed)


def _live(
    topics: Topics,
    usual: int,
    epochs: Sequence[int],
    churn: Churn,
    options: Mapping[str, int] = MappingProxyType({}),
    seed: int = 1,
) -> Life:
    """Assign again and again, each time after some members left and others joined."""
    assignor, rng = get_assignor("uniform", **options), np.random.default_rng(seed)
    members = groups.spread_over(usual, len(topics.subscriptions))
    past = Past(members, assignor.assign(groups.group_of(topics, members)))
    life = Life([], [], [], [], [])
    for epoch in range(1, epochs[-1] + 1):
        leave, join = churn(len(past.members), usual, rng)
        now = past.members.churned(leave, join, rng)
        target, samples = assign_ms(assignor, groups.group_of(topics, now, past), 0.0, least=1)
        past = Past(now, target)
        life.cpu_ms.extend(samples)
        if epoch > epochs[-1] // 2:
            life.later.append(len(target.member) / len(now))
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
which one member leaves or joins at a time, with that rule, with `plan.long_ranges` = 0, and with
[`defragment`](algorithm.md#defragment) = 4 and 20. Their
figure is the mean over the second half of a life; of "all alike", of eight lives, of which the
table has the first. It depends on how many members a life has: with few, each has more partitions,
and has got them one by one as others left. The third table has
[the least](algorithm.md#ranges-stay-long) for that, of groups whose members have a range each at
first.
"""
