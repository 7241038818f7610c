"""Refuse to empty an assignment, or to drop much of one, unless allowed.

Both mostly mean that an input is broken, and both are wanted now and then: then the user says so.
"""

from __future__ import annotations

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
        A group without members, whose assignment is empty.
    max_forgotten
        How much of the previous assignment may be of topics or partitions that no longer exist:
        partitions, or a share such as "20%".

    Raises
    ------
    SpecError
        `max_forgotten` is neither.
    """

    allow_empty: bool = False
    max_forgotten: str = MAX_FORGOTTEN

    def __post_init__(self) -> None:
        """Refuse what is neither a number nor a share."""
        parse_imbalance(self.max_forgotten, "max_forgotten")

    def check_members(self, members: int) -> None:
        """Refuse a group without members.

        Raises
        ------
        SpecError
            It has none, and that is not allowed.
        """
        if not members and not self.allow_empty:
            raise SpecError(
                "members is empty, and so would be the assignment: look at the table, or give "
                "--allow-empty"
            )

    def check_forgotten(self, forgotten: int, partitions: int) -> None:
        """Refuse to forget too much.

        Parameters
        ----------
        forgotten, partitions
            Of the previous assignment: partitions that no longer exist, and all.

        Raises
        ------
        SpecError
            Says how many, and which option allows them.
        """
        most = parse_imbalance(self.max_forgotten, "max_forgotten")
        if isinstance(most, Fraction):
            most = int(most * partitions)
        if forgotten > most:
            raise SpecError(
                f"{forgotten:,} of {partitions:,} partitions of the previous assignment are not in "
                f"topics any more, {most:,} may be forgotten ({self.max_forgotten}): "
                f"look at topics, or give --max-forgotten {forgotten}"
            )
