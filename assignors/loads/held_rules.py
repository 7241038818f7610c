"""Which constraints an assignment keeps, worked out for all rules of a kind at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assignors.arrays import Bools, Longs, count_by, expand_runs, offsets_of, sum_by
from assignors.loads.constraints import (
    ANTI_AFFINITY,
    COLOCATE,
    DRAIN,
    EXCLUDE,
    MAX_PARTITIONS,
    PIN,
)
from assignors.loads.load_spec import Constraint


def find_held(rules: Sequence[Constraint], owner: Longs, members: int) -> Bools:
    """Whether each rule holds; partitions that no member may own do not count.

    A label means the same in every rule: a hard rule is judged among hard ones, a soft one among
    all of them.

    Parameters
    ----------
    owner
        int64 (partitions,): on the line of all topics; −1 for no owner.
    members
        How many there are.
    """
    out = np.ones(len(rules), dtype=np.bool_)
    about = [at for at, rule in enumerate(rules) if rule.kind in (PIN, EXCLUDE)]
    if about:
        given, named = _count_named([rules[at] for at in about], owner)
        pins = np.array([rules[at].kind == PIN for at in about])
        out[about] = named == np.where(pins, given, 0)
    for kind in (COLOCATE, ANTI_AFFINITY):
        own = _Rows.of(rules, kind, owner)
        hard = np.array([rule.hard for rule in rules], dtype=np.bool_)[own.rule]
        for some, judged in ((hard, hard), (np.ones_like(hard), ~hard)):
            find = _are_parted if kind == COLOCATE else _share_owners
            broken = own.rule[some][find(own.take(some)) & judged[some]]
            out[broken] = False
    total = count_by(owner[owner >= 0], members)
    for at, rule in enumerate(rules):
        if rule.kind in (DRAIN, MAX_PARTITIONS):
            out[at] = (total[rule.members] <= rule.limit).all()
    return out


def find_owned(rules: Sequence[Constraint], owner: Longs, members: Longs) -> Bools:
    """Tell for each member and rule whether it owns a partition that the rule is about.

    Returns
    -------
    bool (members, rules)
    """
    out = np.zeros((len(members), len(rules)), dtype=np.bool_)
    if not out.size:
        return out
    rule = np.repeat(np.arange(len(rules)), [len(one.first) for one in rules])
    first = np.concatenate([one.first for one in rules])
    end = first + np.concatenate([one.count for one in rules])
    for row, member in enumerate(members.tolist()):
        before = offsets_of((owner == member).astype(np.int64))
        out[row, rule[before[end] > before[first]]] = True
    return out


@dataclass(frozen=True, slots=True)
class _Rows:
    """A row for each owned partition of each rule of a kind.

    Attributes
    ----------
    rule
        Index of the rule.
    place, owner, label
        Where the partition is on the line, who owns it, and its label in this rule.
    """

    rule: Longs
    place: Longs
    owner: Longs
    label: Longs

    @classmethod
    def of(cls, rules: Sequence[Constraint], kind: str, owner: Longs) -> _Rows:
        about = [at for at, rule in enumerate(rules) if rule.kind == kind]
        none = np.zeros(0, dtype=np.int64)
        place = np.concatenate([none, *(rules[at].partitions for at in about)])
        label = np.concatenate([none, *(rules[at].label for at in about)])
        lengths = np.array([len(rules[at].partitions) for at in about], dtype=np.int64)
        rule = np.repeat(np.array(about, dtype=np.int64), lengths)
        given = owner[place] >= 0
        label = label[given] if len(label) else rule[given]
        return cls(rule[given], place[given], owner[place[given]], label)

    def take(self, some: Bools) -> _Rows:
        return _Rows(self.rule[some], self.place[some], self.owner[some], self.label[some])


def _count_named(rules: Sequence[Constraint], owner: Longs) -> tuple[Longs, Longs]:
    """Count for each rule the owned partitions, and those that a named member owns."""
    rule = np.repeat(np.arange(len(rules)), [len(one.first) for one in rules])
    first = np.concatenate([one.first for one in rules])
    end = first + np.concatenate([one.count for one in rules])
    held = offsets_of((owner >= 0).astype(np.int64))
    given = sum_by(rule, held[end] - held[first], len(rules))
    # a row for each member of each run
    sizes = np.array([len(one.members) for one in rules])[rule]
    starts = offsets_of(np.array([len(one.members) for one in rules]))[:-1]
    run = np.repeat(np.arange(len(rule)), sizes)
    member = np.concatenate([one.members for one in rules])[expand_runs(starts[rule], sizes)]
    place = np.flatnonzero(owner >= 0)
    keys = owner[place] * len(owner) + place
    keys.sort()
    low, high = (np.searchsorted(keys, member * len(owner) + at[run]) for at in (first, end))
    return given, sum_by(rule[run], high - low, len(rules))


def _are_parted(rows: _Rows) -> Bools:
    """Tell for each row whether not all of its label have one owner."""
    labels, label = np.unique(rows.label, return_inverse=True)
    low = np.full(len(labels), np.iinfo(np.int64).max)
    high = np.full(len(labels), -1, dtype=np.int64)
    np.minimum.at(low, label, rows.owner)
    np.maximum.at(high, label, rows.owner)
    return np.asarray((low < high)[label])


def _share_owners(rows: _Rows) -> Bools:
    """Tell for each row whether its owner has another partition of its label."""
    order = np.lexsort((rows.place, rows.owner, rows.label))
    label, owner, place = rows.label[order], rows.owner[order], rows.place[order]
    alike = (label[1:] == label[:-1]) & (owner[1:] == owner[:-1])
    begins = np.append(True, ~alike) if len(order) else np.zeros(0, dtype=np.bool_)
    differs = np.append(False, alike & (place[1:] != place[:-1]))[: len(order)]
    run = np.cumsum(begins) - 1
    several = np.bincount(run[differs], minlength=len(order)) > 0
    out = np.zeros(len(order), dtype=np.bool_)
    out[order] = several[run]
    return out
