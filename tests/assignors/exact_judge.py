"""A judge of small weighted groups: all assignments, one by one, and what each is worth.

It shares no code with the product: it reads the spec as a user writes it. Arrays have a row for
each assignment of all partitions to all members; a rule is a test of rows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np

Spec = dict[str, Any]
Assignment = dict[str, dict[str, list[int]]]
KINDS = ("pin", "exclude", "colocate", "anti_affinity", "max_partitions", "drain")
EXACT = 1e-9


def draw_spec(seed: int) -> Spec:
    """Draw a group of at most four members and six partitions, often with rules and idle weights."""
    draw = random.Random(seed)
    members = [f"m{at}" for at in range(draw.randint(1, 4))]
    topics = {"a": draw.randint(1, 4)} | ({"b": draw.randint(1, 2)} if draw.random() < 0.5 else {})
    few = draw.choice([[0], [1], [0, 1], [0, 0, 5], [1, 1.5, 2, 3], [0, 1, 2, 30], [1, 2, 2.5, 4]])
    plain = draw.random() < 0.2  # members are alike, and no rule says other
    spec: Spec = {"topics": topics, "members": {}}
    spec["weights"] = {t: [draw.choice(few) for _ in range(n)] for t, n in topics.items()}
    for member in members:
        some = [t for t in topics if draw.random() < 0.85] or ["a"]
        fields: dict[str, Any] = {"subscribed": some, "owned": {}}
        if draw.random() < 0.3 and not plain:
            fields["capacity"] = draw.choice([1, 2, 0.5])
        if draw.random() < 0.05 and not plain:
            fields["state"] = "draining"
        if draw.random() < 0.5:
            fields["rack"] = draw.choice(["r", "s"])
        spec["members"][member] = fields
    owned = draw.choice([0, 0.7, 1, 1])
    for topic, count in topics.items():
        may = [m for m in members if topic in spec["members"][m]["subscribed"]]
        for at in range(count if may else 0):
            if draw.random() < owned:
                spec["members"][draw.choice(may)]["owned"].setdefault(topic, []).append(at)
    if draw.random() < 0.25 and not plain:
        some = [[], ["r"], ["s"], ["r", "s"]]
        spec["racks"] = {t: [draw.choice(some) for _ in range(n)] for t, n in topics.items()}
    rules = 0 if plain else draw.choice([0, 1, 1, 2, 3])
    spec["constraints"] = [_draw_rule(draw, spec) for _ in range(rules)]
    return spec


def _draw_rule(draw: random.Random, spec: Spec) -> dict[str, Any]:
    topic, member = draw.choice(sorted(spec["topics"])), draw.choice(sorted(spec["members"]))
    first = draw.randrange(spec["topics"][topic])
    last = draw.randrange(first, spec["topics"][topic])
    where = draw.choice([topic, f"{topic}/{first}", f"{topic}/{first}-{last}"])
    kind, hard = draw.choice(KINDS), draw.random() < 0.35
    if kind == "drain":
        return {"kind": kind, "selector": member, "hard": hard}
    if kind == "max_partitions":
        who = draw.choice([member, "*"])
        return {"kind": kind, "selector": who, "value": str(draw.randint(0, 4)), "hard": hard}
    value = member if kind in ("pin", "exclude") else draw.choice(["x", "x", "y{partition}"])
    return {"kind": kind, "selector": where, "value": value, "hard": hard}


def draw_options(seed: int) -> dict[str, Any]:
    """Draw options of `weighted`."""
    draw = random.Random(seed * 7 + 1)
    return {
        "tolerance": draw.choice(["1%", "1%", "0%", "10%"]),
        "improvement": draw.choice(["5%", "0%", "50%"]),
        "rack": draw.choice(["prefer", "prefer", "require", "ignore"]),
    }


def share(text: str) -> Fraction:
    """Read a percentage."""
    return Fraction(text.removesuffix("%")) / 100


@dataclass(frozen=True, eq=False)
class Judge:
    """All assignments of a group.

    Attributes
    ----------
    partitions
        Those with subscribers.
    every
        int (assignments, partitions): the member of each.
    before
        int (partitions,): who owned it; −1 for no owner.
    """

    spec: Spec
    rack: str
    members: list[str]
    partitions: list[tuple[str, int]]
    every: np.ndarray
    before: np.ndarray
    weight: np.ndarray
    capacity: np.ndarray

    @classmethod
    def of(cls, spec: Spec, rack: str) -> Judge:
        """List all assignments."""
        members = sorted(spec["members"])
        fields = [spec["members"][m] for m in members]
        partitions = [
            (t, at)
            for t in sorted(spec["topics"])
            for at in range(spec["topics"][t])
            if any(t in one["subscribed"] for one in fields)
        ]
        shape = (len(members),) * len(partitions)
        every = np.indices(shape).reshape(len(partitions), -1).T
        owner = {
            (t, at): m for m, one in enumerate(fields) for t, n in one["owned"].items() for at in n
        }
        before = np.array([owner.get(one, -1) for one in partitions], dtype=int)
        weight = np.array([float(spec["weights"][t][at]) for t, at in partitions])
        capacity = np.array([float(one.get("capacity", 1)) for one in fields])
        return cls(spec, rack, members, partitions, every, before, weight, capacity)

    def rows_of(self, assignment: Assignment) -> np.ndarray:
        """Return an assignment as the one row of its kind; −1 for what has no owner."""
        owner = {
            (t, at): self.members.index(m)
            for m, topics in assignment.items()
            for t, numbers in topics.items()
            for at in numbers
        }
        return np.array([[owner.get(one, -1) for one in self.partitions]])

    def selected(self, selector: str) -> list[int]:
        """Return the columns of a selector."""
        topic, _, numbers = selector.partition("/")
        low, _, high = numbers.partition("-")
        span = range(int(low or 0), int(high or low or 10**6) + 1)
        return [at for at, (t, n) in enumerate(self.partitions) if t == topic and n in span]

    def labels(self, kind: str, *, hard: bool | None) -> Iterator[list[int]]:
        """Yield the columns of each label."""
        found: dict[str, set[int]] = {}
        for rule in self._rules(hard):
            if rule["kind"] == kind:
                for at in self.selected(rule["selector"]):
                    name = rule["value"].replace("{partition}", f"#{self.partitions[at][1]}")
                    found.setdefault(name, set()).add(at)
        yield from (sorted(columns) for columns in found.values())

    def _rules(self, hard: bool | None) -> list[dict[str, Any]]:  # noqa: FBT001 - of this file
        return [one for one in self.spec["constraints"] if hard in (None, one["hard"])]

    def holds(self, rows: np.ndarray, *, soft: bool = False) -> np.ndarray:
        """Tell which rows are assignments in which hard rules hold, or soft ones as well."""
        good = (rows >= 0).all(axis=1)
        for at, (topic, number) in enumerate(self.partitions):
            for m, member in enumerate(self.members):
                fields = self.spec["members"][member]
                near = self.spec.get("racks", {}).get(topic, [[]] * (number + 1))[number]
                far = self.rack == "require" and near and fields.get("rack") not in near
                if topic not in fields["subscribed"] or far or fields.get("state"):
                    good &= rows[:, at] != m
        hard = None if soft else True
        for rule in self._rules(hard):
            good &= self._keeps(rule, rows)
        for columns in self.labels("colocate", hard=hard):
            good &= (rows[:, columns] == rows[:, columns[:1]]).all(axis=1)
        for columns in self.labels("anti_affinity", hard=hard):
            for one, other in combinations(columns, 2):
                good &= rows[:, one] != rows[:, other]
        return good

    def _keeps(self, rule: dict[str, Any], rows: np.ndarray) -> np.ndarray:
        kind, selector = rule["kind"], rule["selector"]
        good = np.ones(len(rows), dtype=bool)
        if kind in ("pin", "exclude"):
            there = rows[:, self.selected(selector)] == self.members.index(rule["value"])
            return (there if kind == "pin" else ~there).all(axis=1)
        for m, member in enumerate(self.members):
            if kind in ("drain", "max_partitions") and selector in (member, "*"):
                good &= (rows == m).sum(axis=1) <= int(rule.get("value") or 0)
        return good

    def makespan(self, rows: np.ndarray) -> np.ndarray:
        """Return the greatest load by capacity of each row."""
        loads = [((rows == m) * self.weight).sum(axis=1) for m in range(len(self.members))]
        return (np.array(loads).T / self.capacity).max(axis=1)

    def moves(self, rows: np.ndarray) -> np.ndarray:
        """Return how many owned partitions have another owner in each row."""
        return ((rows != self.before) & (self.before >= 0)).sum(axis=1)

    def moved_weight(self, rows: np.ndarray) -> np.ndarray:
        """Return what these weigh."""
        return ((rows != self.before) & (self.before >= 0)) @ self.weight

    def idle(self) -> np.ndarray:
        """Return the columns of what weighs nothing."""
        return np.flatnonzero(self.weight == 0)

    def crowd(self, rows: np.ndarray, whose: np.ndarray) -> np.ndarray:
        """Return the most partitions without weight by capacity of some members, in each row."""
        own = rows[:, self.idle()]
        counts = np.array([(own == m).sum(axis=1) for m in range(len(self.members))])
        return (counts.T / self.capacity)[:, whose].max(axis=1, initial=0)

    def distant(self, rows: np.ndarray) -> np.ndarray:
        """Return the weight that is in none of its racks."""
        out = np.zeros(len(rows))
        for at, (topic, number) in enumerate(self.partitions):
            near = self.spec.get("racks", {}).get(topic, [[]] * (number + 1))[number]
            for m, member in enumerate(self.members):
                if near and self.spec["members"][member].get("rack") not in near:
                    out += (rows[:, at] == m) * self.weight[at]
        return out

    def two_labels(self, *, hard: bool | None) -> bool:
        """Tell whether some partition has two labels of anti_affinity, also by what it is with."""
        joined = np.arange(len(self.partitions))
        for _ in self.partitions:
            for columns in self.labels("colocate", hard=hard):
                joined[columns] = joined[columns].min()
        labels = [set(joined[columns]) for columns in self.labels("anti_affinity", hard=hard)]
        return any(one & other for one, other in combinations(labels, 2))

    def is_tied(self) -> bool:
        """Tell whether moves depend on each other: rules on numbers or on partitions apart."""
        return any(
            rule["kind"] in ("max_partitions", "anti_affinity") for rule in self._rules(True)
        )
