"""Random groups with weights, capacities, racks and rules; exact answers by HiGHS; obvious checks."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from tests.support import twins

Spec = dict[str, Any]


def random_spec(seed: int, *, rules: bool = True, racks: bool = True, **size: int) -> Spec:
    """Draw a group whose members and partitions differ; some with rules on where they may be."""
    draw = random.Random(seed)
    spec = twins.random_spec(seed, **({"members": 5, "topics": 3, "partitions": 5} | size))
    heavy = draw.choice([1, 3, 30])
    spec["weights"] = {
        topic: [draw.choice([None, 0, 1, 2, 3, heavy, draw.random() * 9]) for _ in range(count)]
        for topic, count in spec["topics"].items()
    }
    for fields in spec["members"].values():
        fields["capacity"] = draw.choice([1, 1, 2, 4, 0.5])
        fields["rack"] = draw.choice(["a", "b", None])
        if rules and draw.random() < 0.1:
            fields["state"] = draw.choice(["draining", "standby"])
    if racks and draw.random() < 0.5:
        spec["racks"] = {
            topic: [draw.choice([[], ["a"], ["b", "a"]]) for _ in range(count)]
            for topic, count in spec["topics"].items()
        }
    spec["constraints"] = [_rule(spec, draw) for _ in range(draw.choice([0, 0, 1, 2, 4]) * rules)]
    return spec


def _rule(spec: Spec, draw: random.Random) -> dict[str, Any]:
    topic = draw.choice(sorted(spec["topics"]))
    member = draw.choice(sorted(spec["members"]))
    last = max(spec["topics"][topic] - 1, 0)
    first = draw.randint(0, last)
    where = draw.choice([topic, f"{topic}/{first}", f"{topic}/{first}-{draw.randint(first, last)}"])
    kind = draw.choice(
        ["pin", "exclude", "exclude", "colocate", "anti_affinity", "max_partitions", "drain"]
    )
    if kind in ("max_partitions", "drain"):
        value = str(draw.randint(0, 9)) if kind == "max_partitions" else None
        return {"kind": kind, "selector": member, "value": value}
    value = member if kind in ("pin", "exclude") else draw.choice(["x", "x", "y{partition}"])
    return {"kind": kind, "selector": where, "value": value}


def selected(spec: Spec, selector: str) -> set[tuple[str, int]]:
    """Return the partitions of a selector."""
    topic, _, numbers = selector.partition("/")
    count = spec["topics"][topic]
    if not numbers:
        return {(topic, at) for at in range(count)}
    first, _, last = numbers.partition("-")
    return {(topic, at) for at in range(int(first), min(int(last or first), count - 1) + 1)}


def labels(spec: Spec, kind: str) -> dict[str, set[tuple[str, int]]]:
    """Return the partitions of each label."""
    out: dict[str, set[tuple[str, int]]] = {}
    for rule in spec.get("constraints") or []:
        if rule["kind"] == kind:
            for topic, at in selected(spec, rule["selector"]):
                name = rule["value"].replace("{partition}", f"#{at}")
                out.setdefault(name, set()).add((topic, at))
    return out


def may_have(spec: Spec, member: str, partition: tuple[str, int], rack: str = "prefer") -> bool:
    """Tell whether rules on this member and this partition let them meet."""
    fields = spec["members"][member]
    if partition[0] not in fields["subscribed"] or fields.get("state", "active") != "active":
        return False
    if rack == "require" and distant(spec, member, partition):
        return False
    for rule in spec.get("constraints") or []:
        kind = rule["kind"]
        if kind == "drain" and rule["selector"] == member:
            return False
        names = kind in ("pin", "exclude") and partition in selected(spec, rule["selector"])
        if names and (rule["value"] == member) != (kind == "pin"):
            return False
    return True


def distant(spec: Spec, member: str, partition: tuple[str, int]) -> bool:
    """Tell whether a partition has replicas in known racks, and none in the member's."""
    racks = spec.get("racks", {}).get(partition[0], [[]] * (partition[1] + 1))[partition[1]]
    return bool(racks) and spec["members"][member].get("rack") not in racks


def most(spec: Spec, member: str) -> int:
    """Return how many partitions a member may have."""
    limits = [
        int(rule["value"])
        for rule in spec.get("constraints") or []
        if rule["kind"] == "max_partitions" and rule["selector"] in (member, "*")
    ]
    return min(limits, default=10**6)


def broken_rules(spec: Spec, assignment: Any, rack: str = "prefer") -> list[str]:
    """Say which rules an assignment breaks."""
    owner = {(t, p): m for m, ts in assignment.items() for t, ps in ts.items() for p in ps}
    out = [f"{p} on {m}" for p, m in owner.items() if not may_have(spec, m, p, rack)]
    for member, count in Counter(owner.values()).items():
        if count > most(spec, member):
            out.append(f"{member} has {count}")
    for name, group in labels(spec, "colocate").items():
        if len({owner[p] for p in group if p in owner}) > 1:
            out.append(f"{name} is not together")
    for name, group in labels(spec, "anti_affinity").items():
        members = [owner[p] for p in group if p in owner]
        if len(set(members)) < len(members):
            out.append(f"{name} is not apart")
    return out


def exact_makespan(spec: Spec, weights: dict[tuple[str, int], float], rack: str) -> float | None:
    """Return the least makespan of any assignment that breaks no rule; None where there is none."""
    partitions, members = twins.partitions_of(spec), sorted(spec["members"])
    size, across = len(partitions) * len(members), len(members)
    if not partitions:
        return 0.0
    at = {p: row for row, p in enumerate(partitions)}
    upper = np.array([may_have(spec, m, p, rack) for p in partitions for m in members], dtype=float)
    rows, low, high = [], [], []

    def add(row: np.ndarray, least: float, greatest: float) -> None:
        rows.append(row)
        low.append(least)
        high.append(greatest)

    for place in range(len(partitions)):
        row = np.zeros(size + 1)
        row[place * across : (place + 1) * across] = 1
        add(row, 1, 1)
    for column, member in enumerate(members):
        row = np.zeros(size + 1)
        row[column:size:across] = [weights[p] for p in partitions]
        row[size] = -float(spec["members"][member].get("capacity") or 1)
        add(row, -np.inf, 0)
        row = np.zeros(size + 1)
        row[column:size:across] = 1
        add(row, 0, most(spec, member))
        for group in labels(spec, "anti_affinity").values():
            row = np.zeros(size + 1)
            for partition in group & set(partitions):
                row[at[partition] * across + column] = 1
            add(row, 0, 1)
        for group in labels(spec, "colocate").values():
            first, *others = sorted(group & set(partitions)) or [None]
            for other in others:
                row = np.zeros(size + 1)
                row[at[first] * across + column] = 1
                row[at[other] * across + column] = -1
                add(row, 0, 0)
    cost = np.zeros(size + 1)
    cost[size] = 1
    found = milp(
        cost,
        constraints=LinearConstraint(np.array(rows), low, high),
        integrality=np.append(np.ones(size), 0),
        bounds=Bounds(np.zeros(size + 1), np.append(upper, np.inf)),
    )
    return None if found.x is None else float(found.x[size])
