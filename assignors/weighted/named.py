"""Rules that name members, pins and exclusions: which partitions and members they are about.

Partitions in the same rules have one mark. A few marks and members become rows and columns of the
table of what is allowed; of many, what differs is kept as lists of members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assignors.arrays import (
    Bools,
    Longs,
    expand_runs,
    label_lists,
    offsets_of,
    sort_distinct,
    take_lists,
)
from assignors.loads.constraints import PIN
from assignors.loads.load_spec import Constraint


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Partitions by the rules they are in.

    Attributes
    ----------
    mark
        int64 (partitions,).
    offsets, rules
        The rules of mark m are rules[offsets[m]:offsets[m + 1]], ascending.
    """

    mark: Longs
    offsets: Longs
    rules: Longs

    @classmethod
    def of(cls, rules: Sequence[Constraint], place: Longs) -> Marks:
        """Mark places: edges of rules cut the line into pieces, and a piece is in the same ones."""
        rule, first, end = list_runs(rules)
        cuts = sort_distinct(np.concatenate([np.zeros(1, dtype=np.int64), first, end]))
        low = np.searchsorted(cuts, first)
        wide = np.searchsorted(cuts, end) - low
        piece, rule = expand_runs(low, wide), np.repeat(rule, wide)
        order = np.lexsort((rule, piece))
        offsets = offsets_of(np.bincount(piece, minlength=len(cuts)))
        labels, heads = label_lists(offsets, rule[order])
        mark = labels[np.searchsorted(cuts, place, side="right") - 1]
        return cls(mark, *take_lists(offsets, rule[order], heads))

    def join(self, unit: Longs) -> Marks:
        """Mark partitions by the rules that any partition of their unit is in."""
        units = int(unit.max(initial=-1)) + 1
        about = np.flatnonzero(np.diff(self.offsets)[self.mark] > 0)
        offsets, rules = take_lists(self.offsets, self.rules, self.mark[about])
        size = int(rules.max(initial=0)) + 1
        pairs = sort_distinct(np.repeat(unit[about], np.diff(offsets)) * size + rules)
        offsets = offsets_of(np.bincount(pairs // size, minlength=units))
        labels, heads = label_lists(offsets, pairs % size)
        return Marks(labels[unit], *take_lists(offsets, pairs % size, heads))


def list_runs(rules: Sequence[Constraint]) -> tuple[Longs, Longs, Longs]:
    """Return the runs of places of all rules: which rule, first place, and end."""
    none = np.zeros(0, dtype=np.int64)
    first = np.concatenate([none, *(rule.first for rule in rules)])
    count = np.concatenate([none, *(rule.count for rule in rules)])
    rule = np.repeat(np.arange(len(rules)), [len(rule.first) for rule in rules])
    return rule, first, first + count


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """Which members each mark names, and whether only they, or all others, may have its units.

    Attributes
    ----------
    only
        bool (marks,): a pin says that only members of the list may.
    offsets, members
        The list of mark m is members[offsets[m]:offsets[m + 1]], ascending.
    size
        How many members there are.
    """

    only: Bools
    offsets: Longs
    members: Longs
    size: int

    @classmethod
    def of(cls, rules: Sequence[Constraint], marks: Marks, active: Bools) -> tuple[Choices, Longs]:
        """Work out the list of each mark; also return the mark of each partition.

        Marks that come to the same are one. With several pins, members are those of all of them;
        an exclusion takes members from a pin. Only active members count.
        """
        size, total = len(active), len(marks.offsets) - 1
        named = [rule.members for rule in rules]
        starts = offsets_of(np.array([len(one) for one in named], dtype=np.int64))
        counts = np.diff(starts)[marks.rules]
        mark = np.repeat(np.arange(total), np.diff(marks.offsets))
        who = np.concatenate([np.zeros(0, dtype=np.int64), *named])
        who = who[expand_runs(starts[:-1][marks.rules], counts)]
        pin = np.array([rule.kind == PIN for rule in rules], dtype=np.bool_)[marks.rules]
        pins = np.bincount(mark[pin], minlength=total)
        keys, asked = np.repeat(mark, counts) * size + who, np.repeat(pin, counts)
        keys, asked = keys[active[who]], asked[active[who]]
        wanted, times = np.unique(keys[asked], return_counts=True)
        wanted = wanted[times == pins[wanted // max(size, 1)]]
        barred = sort_distinct(keys[~asked])
        keys = np.concatenate(
            [wanted[~np.isin(wanted, barred)], barred[pins[barred // max(size, 1)] == 0]]
        )
        keys.sort()
        offsets = offsets_of(np.bincount(keys // max(size, 1), minlength=total))
        members = keys % max(size, 1)
        labels, heads = label_lists(offsets, members, (pins > 0).astype(np.int64))
        found = cls((pins > 0)[heads], *take_lists(offsets, members, heads), size)
        return found, labels[marks.mark]

    def find_homes(self) -> Longs:
        """Return for each mark the one member that may have it; −1 where others may too."""
        alone = self.only & (np.diff(self.offsets) == 1)
        out = np.full(len(self.only), -1, dtype=np.int64)
        out[alone] = self.members[self.offsets[:-1][alone]]
        return out

    def label_members(self, mark: Bools) -> Longs:
        """Return a label for each member, (members,): those that the same marks name share one.

        Parameters
        ----------
        mark
            bool (marks,): which marks count.
        """
        rows = np.repeat(np.arange(len(mark)), np.diff(self.offsets))
        some = mark[rows]
        order = np.lexsort((rows[some], self.members[some]))
        offsets = offsets_of(np.bincount(self.members[some], minlength=self.size))
        return label_lists(offsets, rows[some][order])[0]

    def leave(self, mark: Longs, type_: Longs, allowed: Bools, cell: Longs, total: Longs) -> Bools:
        """Tell for pairs of a mark and a type whether any member may have the units.

        Parameters
        ----------
        allowed, cell
            As in `WeightedProblem`.
        total
            int64 (types,): members that may have each type, lists aside.
        """
        offsets, members = take_lists(self.offsets, self.members, mark)
        pair = np.repeat(np.arange(len(mark)), np.diff(offsets))
        fit = (cell[members] >= 0) & allowed[type_[pair], cell[members]]
        listed = np.bincount(pair[fit], minlength=len(mark))
        return np.asarray(np.where(self.only[mark], listed, total[type_] - listed) > 0)

    def admit(self, mark: Longs, member: Longs) -> Bools:
        """Tell for pairs whether the mark's units may be on the member."""
        if not len(self.members):
            return ~self.only[mark]
        rows = np.repeat(np.arange(len(self.only)), np.diff(self.offsets))
        keys = rows * self.size + self.members
        wanted = mark * self.size + member
        found = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted
        return np.asarray(found == self.only[mark])


@dataclass(frozen=True, slots=True, eq=False)
class NamedUnits:
    """Units whose members a list names, beside what their type says.

    Attributes
    ----------
    mark
        int64 (units,): −1 for those without a list.
    home
        int64 (units,): the one member that may have it, −1 where others may too.
    choices
        The lists.
    """

    mark: Longs
    home: Longs
    choices: Choices

    def admit(self, unit: Longs, member: Longs) -> Bools:
        """Tell for pairs, which broadcast, whether the list of the unit lets the member have it."""
        mark, member = np.broadcast_arrays(self.mark[unit], member)
        out = np.ones(mark.shape, dtype=np.bool_)
        rows = mark >= 0
        out[rows] = self.choices.admit(mark[rows], member[rows])
        return out
