"""What members of blocks give up: the plan's drops, shared out by the driver.

Each rule takes from a first part of a total order of all members. In each block that is a first
part of its own members, so a block only needs to know how much of it is its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assignors.arrays import Bools, Longs, rank_in_runs
from assignors.blocks.member_blocks import Kinds, KnownGroup
from assignors.compressed_problem import Cells
from assignors.group_spec import GroupSpec
from assignors.ownership import MemberTypes, Ownership
from assignors.relinquish import (
    ClassEntries,
    Relinquishment,
    TypeDrops,
    level_classes,
    relinquish_above_level,
    relinquish_below_low,
    relinquish_crossing,
    relinquish_of_types,
)
from assignors.water_level import WaterLevel


@dataclass(frozen=True, slots=True)
class BlockLevels:
    """A level for each class.

    Attributes
    ----------
    height
        (C,) what members are lowered or lifted to.
    first
        (B, C) how many of the first members of each block get one more.
    """

    height: Longs
    first: Longs

    def of(self, block: int) -> WaterLevel:
        """Return the level of a block."""
        return WaterLevel(self.height, self.first[block])


@dataclass(frozen=True, slots=True)
class ClassDrops:
    """What classes that were planned without types give up.

    Attributes
    ----------
    cut
        (C,) which they are.
    fullest, last
        (B, P) per pair, what the fullest members of a block give, and then the last ones.
    level, lowered
        To what members of the classes flagged are lowered after that; None before it is known.
    """

    cut: Bools
    fullest: Longs
    last: Longs
    level: BlockLevels | None = None
    lowered: Bools | None = None


@dataclass(frozen=True, slots=True)
class BlockDrops:
    """What members of blocks give up.

    Attributes
    ----------
    cells
        The plan's.
    level, lowered
        To what members of classes alone in their cells are lowered, and which classes are.
    types
        What types that give something up lose.
    starts, type, before
        Kind k of block b has row starts[b] + k: the type that its members are of, or -1, and how
        many members of that are in the blocks before.
    below
        (B, P) per pair, what members at or below low give; None for nothing.
    classes
        What classes without types give; None for nothing.
    """

    cells: Cells
    level: BlockLevels
    lowered: Bools
    types: TypeDrops | None
    starts: Longs
    type: Longs
    before: Longs
    below: Longs | None = None
    classes: ClassDrops | None = None

    def relinquish(
        self, at: int, group: GroupSpec, known: KnownGroup
    ) -> tuple[Relinquishment, Relinquishment, Longs]:
        """Say what the members of a block give up.

        Returns
        -------
        drops, of_classes, back
            All of it; what classes without types give to others; and what they give, per entry of
            that, but get back as a class.
        """
        holdings = Ownership(group, self.cells)
        parts = [relinquish_crossing(holdings)]
        if self.lowered.any():
            parts.append(relinquish_above_level(holdings, self.level.of(at), self.lowered))
        if self.types is not None:
            parts.append(self._relinquish_types(at, self.types, group, known))
        if self.below is not None:
            parts.append(relinquish_below_low(holdings, self.below[at]))
        of_classes, back = Relinquishment.joined([]), np.zeros(0, dtype=np.int64)
        if self.classes is not None:
            of_classes, back = _relinquish_classes(at, self.classes, holdings)
            parts.append(
                Relinquishment(
                    of_classes.member, of_classes.topic_class, of_classes.owned,
                    of_classes.amount + back,
                )
            )  # fmt: skip
        return Relinquishment.joined(parts), of_classes, back

    def _relinquish_types(
        self, at: int, types: TypeDrops, group: GroupSpec, known: KnownGroup
    ) -> Relinquishment:
        mine = slice(int(self.starts[at]), int(self.starts[at + 1]))
        type_of, before = self.type[mine], self.before[mine]
        if not (type_of >= 0).any():
            return Relinquishment.joined([])
        kinds = Kinds.of(group, known)
        some = np.flatnonzero(type_of[kinds.label] >= 0)
        member, label = kinds.member[some], kinds.label[some]
        type_ = type_of[label]
        order = np.argsort(type_, kind="stable")
        rank = np.empty_like(type_)
        rank[order] = rank_in_runs(type_[order])
        none = np.zeros(0, dtype=np.int64)
        return relinquish_of_types(
            types, MemberTypes(member, type_, rank + before[label], none, none, none, none)
        )


def _relinquish_classes(
    at: int, drops: ClassDrops, holdings: Ownership
) -> tuple[Relinquishment, Longs]:
    entries = ClassEntries.of(holdings, drops.cut)
    given = entries.take(holdings, drops.fullest[at], drops.last[at])
    if drops.level is None or drops.lowered is None:
        return given, np.zeros_like(given.amount)
    return given, level_classes(holdings, given, drops.level.of(at), drops.lowered)
