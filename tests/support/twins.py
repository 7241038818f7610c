"""Obvious twins of the fast algorithms: slow, plain Python on sets of partitions, and a flow.

A spec is the object of docs/reference/formats.md#assignment-spec. Nothing here shares code with `assignors`.
"""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from fractions import Fraction
from typing import Any

from ortools.graph.python import min_cost_flow

Spec = dict[str, Any]
Partition = tuple[str, int]


def member_order(spec: Spec) -> list[str]:
    """Static members by instance id, then the others by member id."""

    def key(member: str) -> tuple[bool, str, str]:
        instance = spec["members"][member].get("instance_id")
        return (instance is None, instance or "", member)

    return sorted(spec["members"], key=key)


def partitions_of(spec: Spec) -> list[Partition]:
    """Partitions of subscribed topics."""
    wanted = {t for fields in spec["members"].values() for t in fields["subscribed"]}
    return [(t, p) for t in sorted(wanted) for p in range(spec["topics"][t])]


def owners(spec: Spec) -> dict[Partition, str]:
    """Who owns what: live, subscribed, and the first in member order where two claim it."""
    out: dict[Partition, str] = {}
    for member in member_order(spec):
        fields = spec["members"][member]
        for topic, owned in (fields.get("owned") or {}).items():
            for partition in owned:
                if topic in fields["subscribed"]:
                    out.setdefault((topic, partition), member)
    return out


def range_twin(spec: Spec) -> dict[str, dict[str, list[int]]]:
    """Range, topic by topic."""
    out: dict[str, dict[str, list[int]]] = {m: {} for m in spec["members"]}
    for topic, count in spec["topics"].items():
        subscribers = [m for m in member_order(spec) if topic in spec["members"][m]["subscribed"]]
        at = 0
        for place, member in enumerate(subscribers):
            take = count // len(subscribers) + (place < count % len(subscribers))
            if take:
                out[member][topic] = list(range(at, at + take))
            at += take
    return out


def fairest(spec: Spec) -> tuple[list[int], int]:
    """Return the fairest sorted loads and the fewest moves among them, by an independent flow.

    One unit a partition; the j-th partition of a member costs W·(2j + 1), so the sum of squares of
    loads is least first (a convex cost, hence max-min fair), then the number of moved partitions.
    """
    return _flow(spec, dict.fromkeys(spec["members"], (0, None)), squares=True)


def fewest_moves(spec: Spec, bounds: dict[str, tuple[int, int]]) -> int:
    """Return the fewest moves of any assignment with loads within bounds."""
    return _flow(spec, bounds, squares=False)[1]


def _flow(
    spec: Spec, bounds: dict[str, tuple[int, int | None]], *, squares: bool
) -> tuple[list[int], int]:
    partitions, owner, members = partitions_of(spec), owners(spec), sorted(spec["members"])
    total = len(partitions)
    if not total:
        return [0] * len(members), 0
    flow = min_cost_flow.SimpleMinCostFlow()
    sink, weight = total + len(members), 2 * total + 1
    for at, (topic, partition) in enumerate(partitions):
        flow.set_node_supply(at, 1)
        for place, member in enumerate(members):
            if topic in spec["members"][member]["subscribed"]:
                held = owner.get((topic, partition))
                flow.add_arc_with_capacity_and_unit_cost(
                    at, total + place, 1, int(held is not None and held != member)
                )
    arcs = []
    for place, member in enumerate(members):
        low, high = bounds[member]
        high = total if high is None else high
        for step in range(min(high, total)):
            cost = weight * (2 * step + 1) if squares else 0
            if not squares and step < low:
                cost = -weight * total  # must be used
            arcs.append(
                (place, flow.add_arc_with_capacity_and_unit_cost(total + place, sink, 1, cost))
            )
    flow.set_node_supply(sink, -total)
    assert flow.solve() == flow.OPTIMAL
    loads = [0] * len(members)
    for place, arc in arcs:
        loads[place] += flow.flow(arc)
    for member, load in zip(members, loads, strict=True):
        assert load >= bounds[member][0], "the bounds cannot be met"
    cost = flow.optimal_cost()
    if squares:
        cost -= weight * sum(load * load for load in loads)
    else:
        cost += weight * total * sum(bounds[m][0] for m in members)
    return sorted(loads), cost


def enumerate_fairest(spec: Spec) -> tuple[list[int], int]:
    """The same by trying every assignment; for tiny groups."""
    partitions, owner = partitions_of(spec), owners(spec)
    choices = [
        [m for m in spec["members"] if topic in spec["members"][m]["subscribed"]]
        for topic, _ in partitions
    ]
    best: tuple[list[int], int] | None = None
    for chosen in itertools.product(*choices):
        loads = dict.fromkeys(spec["members"], 0)
        moved = 0
        for partition, member in zip(partitions, chosen, strict=True):
            loads[member] += 1
            moved += partition in owner and owner[partition] != member
        found = (sorted(loads.values()), moved)
        if best is None or (found[0], -found[1]) > (best[0], -best[1]):
            best = found
    assert best is not None
    return best


def levels(spec: Spec) -> dict[str, Fraction]:
    """The max-min fair fractional load of each member, by trying every set of members.

    The set with the most partitions a member that only it subscribes to has that level; the others
    share the rest.
    """
    rest, out = set(spec["members"]), {}
    topics = {t: c for t, c in spec["topics"].items() if c}
    while rest:
        best: tuple[Fraction, int, tuple[str, ...]] | None = None
        for size in range(1, len(rest) + 1):
            for chosen in itertools.combinations(sorted(rest), size):
                own = 0
                for topic, count in topics.items():
                    subscribers = {m for m in rest if topic in spec["members"][m]["subscribed"]}
                    if subscribers and subscribers <= set(chosen):
                        own += count
                found = (Fraction(own, size), size, chosen)
                best = max(best, found) if best else found
        level, _, chosen = best
        for member in chosen:
            out[member] = level
        for topic in list(topics):
            subscribers = {m for m in rest if topic in spec["members"][m]["subscribed"]}
            if subscribers <= set(chosen):
                del topics[topic]
        rest -= set(chosen)
    return out


def moves(spec: Spec, assignment: dict[str, dict[str, list[int]]]) -> int:
    """Count owned partitions that changed hands."""
    now = {
        (topic, p): m
        for m, topics in assignment.items()
        for topic, ps in topics.items()
        for p in ps
    }
    return sum(now[partition] != member for partition, member in owners(spec).items())


def check_valid(spec: Spec, assignment: dict[str, dict[str, list[int]]]) -> None:
    """Each partition of a subscribed topic is owned once, by a subscriber."""
    seen: dict[Partition, str] = {}
    for member, topics in assignment.items():
        for topic, partitions in topics.items():
            assert topic in spec["members"][member]["subscribed"], (member, topic)
            assert partitions == sorted(partitions)
            for partition in partitions:
                assert (topic, partition) not in seen, (topic, partition)
                seen[topic, partition] = member
    assert sorted(seen) == sorted(partitions_of(spec))


def random_spec(seed: int, *, members: int = 7, topics: int = 5, partitions: int = 9) -> Spec:
    """Draw a group: equal or mixed subscriptions, fresh or owned, sometimes a broken world."""
    draw = random.Random(seed)
    names = [f"t{n:02d}" for n in range(draw.randint(1, topics))]
    counts = {t: draw.choice([draw.randint(0, partitions), draw.randint(1, 4)]) for t in names}
    pools = [draw.sample(names, draw.randint(0, len(names))) for _ in range(draw.randint(1, 4))]
    equal = draw.random() < 0.25
    spec: Spec = {"topics": counts, "members": {}}
    for n in range(draw.randint(1, members)):
        subscribed = pools[0] if equal else draw.choice(pools)
        spec["members"][f"m{draw.randint(0, 999):03d}-{n}"] = {
            "subscribed": sorted(subscribed),
            "instance_id": f"i{draw.randint(0, 99)}-{n}" if draw.random() < 0.2 else None,
        }
    claim(spec, draw)
    return spec


def claim(spec: Spec, draw: random.Random) -> None:
    """Give out partitions to members, mostly to subscribers, some to none, a few twice."""
    share = draw.choice([0, 0.5, 0.9, 1, 1])
    skew = draw.random() < 0.5
    twice = draw.random() < 0.1
    members = sorted(spec["members"])
    owned: dict[str, dict[str, list[int]]] = {m: defaultdict(list) for m in members}
    for topic, count in spec["topics"].items():
        eligible = [m for m in members if topic in spec["members"][m]["subscribed"]]
        if draw.random() < 0.1 or not eligible:
            eligible = members
        favourite = draw.sample(eligible, min(len(eligible), 2)) if skew else eligible
        for partition in range(count):
            if draw.random() < share:
                for member in {draw.choice(favourite)} | (
                    {draw.choice(members)} if twice else set()
                ):
                    owned[member][topic].append(partition)
    for member, topics in owned.items():
        spec["members"][member]["owned"] = {t: sorted(p) for t, p in topics.items()}


def fairest_equal(spec: Spec, imbalance: int) -> list[int]:
    """Sorted loads with the fewest moves within the imbalance, all subscriptions being equal.

    One partition at a time: the fullest gives while it must, then the emptiest gets.
    """
    total, members = len(partitions_of(spec)), len(spec["members"])
    level = Fraction(total, members)
    low = max(0, level.__floor__() - imbalance)
    high = level.__ceil__() + imbalance
    loads = dict.fromkeys(spec["members"], 0)
    for member in owners(spec).values():
        loads[member] += 1
    pool = total - sum(loads.values())
    while max(loads.values()) > high or pool < sum(max(0, low - x) for x in loads.values()):
        fullest = max(loads, key=lambda member: loads[member])
        loads[fullest] -= 1
        pool += 1
    for _ in range(pool):
        emptiest = min(loads, key=lambda member: loads[member])
        loads[emptiest] += 1
    return sorted(loads.values())
