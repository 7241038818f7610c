"""Refuse to empty an assignment, or to drop much of one, unless the user allows it.

Both usually mean that an input is broken, but both are sometimes intended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from assignors import SpecError
from assignors.sticky import parse_imbalance

MAX_FORGOTTEN = "20%"


@dataclass(frozen=True, slots=True)
class Safeguards:
    """What the user allows.

    Attributes
    ----------
    allow_empty
        Whether a group may have no members, and so an empty assignment.
    max_forgotten
        How many partitions of the previous assignment may no longer exist: a number, or a share
        such as "20%".

    Raises
    ------
    SpecError
        `max_forgotten` is neither.
    """

    allow_empty: bool = False
    max_forgotten: str = MAX_FORGOTTEN

    def __post_init__(self) -> None:
        """Refuse a `max_forgotten` that is neither a number nor a share."""
        parse_imbalance(self.max_forgotten, "max_forgotten")

    def check_members(self, members: int) -> None:
        """Refuse a group without members.

        Raises
        ------
        SpecError
            It has none, and `allow_empty` is false.
        """
        if not members and not self.allow_empty:
            raise SpecError(
                "members is empty, so the assignment would be empty too: check the table, or give "
                "--allow-empty"
            )

    def check_groups(self, without_members: Sequence[str]) -> None:
        """Refuse groups without members.

        Raises
        ------
        SpecError
            There are some, and `allow_empty` is false.
        """
        if without_members and not self.allow_empty:
            others = len(without_members) - 1
            more = f" (and {others:,} more)" if others else ""
            raise SpecError(
                f"group {without_members[0]!r}{more} has no members, so its partitions would "
                "have no owner: check the tables, or give --allow-empty"
            )

    def check_forgotten(self, forgotten: int, partitions: int) -> None:
        """Refuse to drop too much of the previous assignment.

        Parameters
        ----------
        forgotten, partitions
            How many partitions of the previous assignment no longer exist, and how many it has.

        Raises
        ------
        SpecError
            The message says how many, and which option allows them.
        """
        most = parse_imbalance(self.max_forgotten, "max_forgotten")
        if isinstance(most, Fraction):
            most = int(most * partitions)
        if forgotten > most:
            raise SpecError(
                f"{forgotten:,} of {partitions:,} partitions of the previous assignment are no "
                f"longer in topics, but only {most:,} may be dropped ({self.max_forgotten}): "
                f"check topics, or give --max-forgotten {forgotten}"
            )
