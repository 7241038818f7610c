"""Building a GroupSpec: what it costs to read a group before it is assigned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from assignors import GroupSpec
from benchmarks import groups
from benchmarks.groups import Past, Topics
from benchmarks.large import aged
from benchmarks.measure import Bench, Figure, cpu_ms, ranges_a_member
from benchmarks.report import Section

TITLE = "Building a GroupSpec"
TEXT = """\
CPU ms to read and check a group, without assigning it: equal subscriptions to 10 topics, after 1 %
churn. In a dict, owned partitions are listed one by one or as [first, count] pairs. A dict holds
each of them as Python objects, so use Arrow for large groups.
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Members of the groups read from a dict, and from Arrow tables, with ranges a member."""

    dicts: tuple[tuple[int, int], ...]
    tables: tuple[tuple[int, int], ...]
    topics: int
    budget_s: float


EACH = 100  # partitions a member

FULL = Sizes(
    dicts=((10_000, 1), (10_000, 10), (100_000, 1)),
    tables=((10_000, 1), (10_000, 10), (100_000, 1), (1_000_000, 1), (1_000_000, 10)),
    topics=10,
    budget_s=2.0,
)
SMOKE = Sizes(((100, 1),), ((100, 1), (100, 10)), 10, 0.0)


def run(bench: Bench) -> Section:
    """Measure the readers."""
    sizes = SMOKE if bench.smoke else FULL
    figures: list[Figure] = []
    for figure in _all(sizes):
        bench.say(f"build: {figure.name}: {figure.median:.0f} ms")
        figures.append(figure)
    return Section(TITLE, TEXT, figures)


def _all(sizes: Sizes) -> Iterator[Figure]:
    for members, pieces in sizes.tables:
        tables = _churned(groups.equal(members * EACH, sizes.topics), members, pieces).to_arrow()
        _, samples = cpu_ms(lambda tables=tables: GroupSpec.from_arrow(*tables), sizes.budget_s)
        yield Figure.of(f"from Arrow, {_label(members, pieces)}", samples)
    for members, pieces in sizes.dicts:
        group = _churned(groups.equal(members * EACH, sizes.topics), members, pieces)
        for lists, form in ((True, "lists"), (False, "pairs")):
            spec = _dict_of(group, lists=lists)
            _, samples = cpu_ms(lambda spec=spec: GroupSpec.from_dict(spec), sizes.budget_s)
            yield Figure.of(f"from a dict of {form}, {_label(members, pieces)}", samples)


def _churned(topics: Topics, members: int, pieces: int) -> GroupSpec:
    """Return a group of which 1 % of the members are new."""
    past: Past = aged(topics, groups.spread_over(members, 1), pieces)
    gone = max(members // 100, 1)
    now = past.members.churned(gone, gone, np.random.default_rng(members))
    return groups.group_of(topics, now, past)


def _dict_of(group: GroupSpec, *, lists: bool) -> dict[str, Any]:
    """Write a group with equal subscriptions as the object that `from_dict` reads."""
    names = group.topics.to_pylist()
    owned = group.owned().to_dict(lists=lists)
    return {
        "topics": dict(zip(names, group.partitions.tolist(), strict=True)),
        "members": {m: {"subscribed": names, "owned": held} for m, held in owned.items()},
    }


def _label(members: int, pieces: int) -> str:
    return f"{members:,} members, {members * EACH:,} partitions, {ranges_a_member(pieces)}"
