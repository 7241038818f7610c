"""Rules that contradict each other for any members: refused by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs
from assignors.errors import SpecError
from assignors.loads.constraints import ANTI_AFFINITY, COLOCATE, name_partition
from assignors.loads.load_spec import Constraint

_NAMED = 4


def refuse_two_labels(
    topics: pa.StringArray, counts: Longs, places: Longs, rules: Sequence[Constraint]
) -> None:
    """Refuse a partition that has two labels of anti_affinity.

    Parameters
    ----------
    topics, counts
        All topics by name, and how many partitions each has.
    places
        int64: places on the line, each as often as it has labels, ascending.
    """
    twice = np.flatnonzero(np.diff(places) == 0)
    if len(twice):
        place = int(places[twice[0]])
        raise SpecError(
            f"{name_partition(topics, counts, place)} has two labels of anti_affinity: "
            f"{_name_rules(rules, (ANTI_AFFINITY,), (place,))}: give it one, the same for all that "
            "should be apart"
        )


def refuse_joined_labels(
    topics: pa.StringArray,
    counts: Longs,
    places: Longs,
    unit: Longs,
    label: Longs,
    rules: Sequence[Constraint],
) -> None:
    """Refuse partitions of one unit that must be apart, or from two labels.

    Parameters
    ----------
    places, unit, label
        int64: each partition that has a label, by place.
    """
    order = np.lexsort((places, label, unit))
    places, unit, label = places[order], unit[order], label[order]
    same, again = np.diff(unit) == 0, np.diff(label) == 0
    for bad, template in (
        (same & again, "must be together and apart: {}: drop one of the rules"),
        (same & ~again, "must be together, with two labels of anti_affinity: {}: give them one"),
    ):
        at = np.flatnonzero(bad)
        if len(at):
            some = places[at[0] : at[0] + 2].tolist()
            named = " and ".join(name_partition(topics, counts, place) for place in some)
            causes = _name_rules(rules, (COLOCATE, ANTI_AFFINITY), some)
            raise SpecError(f"{named} {template.format(causes)}")


def _name_rules(rules: Sequence[Constraint], kinds: Sequence[str], places: Sequence[int]) -> str:
    """Name rules of some kinds that are about one of a few places."""
    names = [
        rule.name
        for rule in rules
        if rule.kind in kinds and any(rule.is_about(place) for place in places)
    ]
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return "; ".join(names[:_NAMED] + more)
