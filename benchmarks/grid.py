"""The grid: ordinary groups of every size, from nothing and when one member joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from assignors import get_assignor
from benchmarks import groups
from benchmarks.measure import Bench, Figure, assign_ms
from benchmarks.report import Section, Table, number

TITLE = "Grid: 100 to 100,000 members"
TEXT = """\
Medians *from nothing / one member joins*, in CPU ms and in sorts. Topics are of equal size, with at
least one partition; the member that joins is in the middle of the member order. Kafka's figures are
those of Kafka 4.4.0's own server-side assignors on one core of this class of machine
(`tests/golden/kafka-4.4.0/README.md`).
"""
ASSIGNORS = ("range", "uniform", "sticky")
SHAPES = {
    "equal subscriptions": groups.equal,
    "five disjoint fifths": groups.fifths,
    "half of the members all topics, half the first half": groups.halves,
}
EQUAL, FIFTHS, HALVES = SHAPES
KAFKA_HAS = ("range", "uniform")
HEAD = (
    *("members", "topics", "partitions a member"),
    *("range, ms", "sorts", "Kafka, ms"),
    *("uniform, ms", "sorts", "Kafka, ms"),
    *("sticky, ms", "sorts"),
)
EVENTS = ("from nothing", "one joins")

KAFKA: dict[tuple[str, int, int, int], dict[str, str]] = {
    (EQUAL, 1_000, 100, 10): {"range": "0.77 / 0.76", "uniform": "0.39 / 0.18"},
    (HALVES, 1_000, 1000, 10): {"range": "44 / 42", "uniform": "184 / 120"},
    (EQUAL, 10_000, 1000, 10): {"range": "39 / 39", "uniform": "4.5 / 2.7"},
    (FIFTHS, 10_000, 1000, 10): {"range": "110 / 107", "uniform": "354 / 305"},
    (HALVES, 10_000, 1000, 10): {"range": "419 / 407", "uniform": "1784 / 1528"},
    (EQUAL, 100_000, 1000, 10): {"range": "660 / 668", "uniform": "43 / 24"},
    (FIFTHS, 100_000, 1000, 10): {"range": "1233 / 1247", "uniform": "2854 / 2679"},
}
"""Kafka's median CPU ms, by (shape, members, topics, partitions a member)."""

GOALS = {
    (EQUAL, 10_000, 1000, 10, "uniform", "one joins"): 1.5,
    (HALVES, 10_000, 1000, 10, "uniform", "from nothing"): 12.0,
    (HALVES, 10_000, 1000, 10, "uniform", "one joins"): 12.0,
    (HALVES, 10_000, 1000, 10, "sticky", "from nothing"): 12.0,
    (HALVES, 10_000, 1000, 10, "sticky", "one joins"): 12.0,
    (HALVES, 10_000, 1000, 10, "range", "from nothing"): 40.0,
    (HALVES, 10_000, 1000, 10, "range", "one joins"): 40.0,
    (FIFTHS, 100_000, 1000, 10, "uniform", "from nothing"): 50.0,
    (FIFTHS, 100_000, 1000, 10, "uniform", "one joins"): 50.0,
}


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the grid is spanned by, and how long each point is measured."""

    members: tuple[int, ...]
    topics: tuple[int, ...]
    each: tuple[int, ...]  # partitions a member
    budget_s: float


FULL = Sizes((100, 1_000, 10_000, 100_000), (10, 100, 1000), (1, 10, 50), 0.1)
SMOKE = Sizes((100,), (10, 100), (10,), 0.0)


def run(bench: Bench) -> Section:
    """Measure the grid."""
    sizes = SMOKE if bench.smoke else FULL
    figures: list[Figure] = []
    tables = []
    for shape in SHAPES:
        rows = []
        for members, topics, each in product(sizes.members, sizes.topics, sizes.each):
            bench.say(f"grid: {shape}, {members:,} members, {topics} topics, {each} a member")
            point = list(_point(shape, members, topics, each, sizes.budget_s))
            figures += point
            kafka = KAFKA.get((shape, members, topics, each), {})
            size = [f"{members:,}", str(topics), str(each)]
            rows.append([*size, *_cells(point, kafka, bench.sort.unit_ms)])
        tables.append(Table(shape[0].upper() + shape[1:], HEAD, rows))
    return Section(TITLE, TEXT, figures, tables)


def _point(shape: str, members: int, topics: int, each: int, budget_s: float) -> Iterator[Figure]:
    """Measure all assignors on one group, from nothing and after one member joined."""
    parts = SHAPES[shape](members * each, topics)
    members_all = groups.spread_over(members, len(parts.subscriptions))
    before = members_all.without(np.array([members // 2]))
    fresh, smaller = groups.group_of(parts, members_all), groups.group_of(parts, before)
    for name in ASSIGNORS:
        assignor = get_assignor(name)
        past = groups.Past(before, assignor.assign(smaller))
        joined = groups.group_of(parts, members_all, past)
        for event, group in zip(EVENTS, (fresh, joined), strict=True):
            _, samples = assign_ms(assignor, group, budget_s)
            label = f"{name}, {members:,} members, {topics} topics, {each} partitions a member"
            goal = GOALS.get((shape, members, topics, each, name, event))
            yield Figure.of(f"{label}, {shape}, {event}", samples, goal=goal)


def _cells(point: list[Figure], kafka: dict[str, str], sort_ms: float) -> Iterator[str]:
    """Write one row: ms and sorts of each assignor, Kafka's beside them."""
    for at, name in enumerate(ASSIGNORS):
        pair = [figure.median for figure in point[2 * at : 2 * at + 2]]
        yield " / ".join(number(ms) for ms in pair)
        yield " / ".join(number(ms / sort_ms) for ms in pair)
        if name in KAFKA_HAS:
            yield kafka.get(name, "")
