"""Which claims a log has had, as numbers that its table keeps for good, for each coordinator epoch.

A claim has an id that no other claim has. One process wrote what follows a claim up to the next
one, in one order: so a snapshot that knows the id of the claim in force at its position was made of
this log, and not of another copy of it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from deltalake import DeltaTable

from coordinator.storage.tables.commit_writer import APP

Claims: TypeAlias = "dict[int, Claim]"
"""The claims of a log, by coordinator epoch."""
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


def read_claim(table: DeltaTable, epoch: int) -> Claim | None:
    """Return the claim of an epoch; None where the table has none, or one of an older Muster."""
    return _find_claim(table.transaction_version, epoch)


def read_claims(table: DeltaTable) -> Claims:
    """Return the claims of a log by epoch, but for those of an older Muster."""
    return find_claims(table.transaction_version)


def find_claims(number_of: Callable[[str], int | None]) -> Claims:
    """Return the claims of a log by epoch, of the numbers that its table keeps."""
    epochs = range(1, (number_of(APP) or 0) + 1)
    return {one: claim for one in epochs if (claim := _find_claim(number_of, one)) is not None}


def _find_claim(number_of: Callable[[str], int | None], epoch: int) -> Claim | None:
    position, claim_id = (number_of(_NAME.format(epoch, name)) for name in Claim._fields)
    return None if position is None or claim_id is None else Claim(position, claim_id)


def has_history(claims: Claims, epoch: int, claim: Claim | None, position: int) -> bool:
    """Whether a log has what the maker of a claim had up to a position.

    It has the claim, so all that was before it; and what followed, up to the next claim.
    """
    if claim is None or claim != claims.get(epoch):
        return False
    return all(position < later.position for at, later in claims.items() if at > epoch)
