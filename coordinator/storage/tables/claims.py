"""Which claims a log has had, as numbers that its table keeps for good, for each coordinator epoch.

A claim has an id that no other claim has. One process wrote what follows a claim up to the next
one, in one order: so a snapshot that knows the id of the claim in force at its position was made of
this log, and not of another copy of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from deltalake import DeltaTable

from coordinator.storage.tables.commit_writer import APP
from coordinator.storage.tables.newest_version import read_number

_NAME = "muster.claim.{}.{}"


class Claim(NamedTuple):
    """A claim of a log.

    Attributes
    ----------
    position
        Of its row.
    claim_id
        Of no other claim, of this log or any other.
    """

    position: int
    claim_id: int


def draw_claim_id() -> int:
    """Return an id for a claim."""
    return secrets.randbits(62) + 1


def note_claim(epoch: int, claim: Claim) -> dict[str, int]:
    """Return the numbers by which a table keeps a claim."""
    return {_NAME.format(epoch, name): value for name, value in claim._asdict().items()}


class Claims:
    """The claims of a log by coordinator epoch, each looked up when it is first asked for.

    A log may have had very many, and each look-up reads the log of a table.

    Parameters
    ----------
    number_of
        Returns a number that the log's table keeps, by its name.
    """

    def __init__(self, number_of: Callable[[str], int | None]) -> None:
        self._number_of = number_of
        self._newest: int | None = None
        self._found: dict[int, Claim | None] = {}

    @property
    def newest_epoch(self) -> int:
        """Of the log; 0 without a claim."""
        if self._newest is None:
            self._newest = self._number_of(APP) or 0
        return self._newest

    def get(self, epoch: int) -> Claim | None:
        """Return the claim of an epoch; None without one, or for one of an older Muster."""
        if epoch > self.newest_epoch:  # of a successor, whose log is not ours
            return None
        if epoch not in self._found:
            place, claim_id = (self._number_of(_NAME.format(epoch, one)) for one in Claim._fields)
            known = None if place is None or claim_id is None else Claim(place, claim_id)
            self._found[epoch] = known
        return self._found[epoch]

    def add(self, epoch: int, claim: Claim) -> None:
        """Add a claim that is newer than all."""
        self._newest, self._found[epoch] = epoch, claim

    def after(self, epoch: int) -> Claim | None:
        """Return the next claim after that of an epoch."""
        later = map(self.get, range(epoch + 1, self.newest_epoch + 1))
        return next((claim for claim in later if claim is not None), None)

    def all(self) -> dict[int, Claim]:
        """Return all of them: a look-up for each."""
        epochs = range(1, self.newest_epoch + 1)
        return {epoch: claim for epoch in epochs if (claim := self.get(epoch)) is not None}


def numbers_of(path: str, load: Callable[[], DeltaTable]) -> Callable[[str], int | None]:
    """Return what looks up the numbers that a log's table keeps, in the table as it is loaded.

    It raises as `read_number` does.
    """

    def number_of(name: str) -> int | None:
        return read_number(path, load(), name)

    return number_of


def has_history(claims: Claims, epoch: int, claim: Claim | None, position: int) -> bool:
    """Whether a log has what the maker of a claim had up to a position.

    It has the claim, so all that was before it; and what followed, up to the next claim: those
    after that one have higher positions still.
    """
    if claim is None or claim != claims.get(epoch):
        return False
    later = claims.after(epoch)
    return later is None or position < later.position
