"""Check the lease file of a store against its log."""

from __future__ import annotations

import os
from datetime import UTC, datetime

import msgspec

from coordinator.storage.lease import Holder
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.tables.store_files import files_at, refuse_silence

AHEAD_MAX_MS = 86_400_000
"""No lease lasts a day, even if a clock is some hours wrong."""
REMEDY = (
    "check that no coordinator uses the store, then remove the file: only the log decides who "
    "may write"
)


def read_lease(store: str) -> tuple[str, Holder] | None:
    """Return the path of the lease file and its holder, or None without a lease.

    Raises
    ------
    CorruptLog
        The file is not a lease.
    Unreachable
        An object store does not bring it now.
    """
    path = os.path.join(store, "_lease.json")
    try:
        content = files_at(path).read(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        refuse_silence(path, error)  # it may be the lease of a live coordinator
        raise CorruptLog(f"{path} cannot be read ({error}): {REMEDY}") from None
    try:
        return path, msgspec.json.decode(content, type=Holder)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptLog(f"{path} is damaged ({error}): {REMEDY}") from None


def check_lease(lease: tuple[str, Holder] | None, epoch: int, now_ms: int) -> None:
    """Refuse a lease that contradicts the log or the clock; it must be read before the log.

    Parameters
    ----------
    epoch
        The log's coordinator epoch.

    Raises
    ------
    CorruptLog
        Its coordinator never claimed the log, or it ends more than a day from now.
    """
    if lease is None:
        return
    path, holder = lease
    if holder.coordinator_epoch > epoch:
        raise CorruptLog(
            f"{path} has coordinator epoch {holder.coordinator_epoch}, but the log's last one is "
            f"{epoch}: it belongs to another store, or the log has lost rows; {REMEDY}"
        )
    if holder.expires_ms > now_ms + AHEAD_MAX_MS:
        try:
            until = str(datetime.fromtimestamp(holder.expires_ms / 1000, UTC))
        except (ValueError, OverflowError, OSError):
            until = f"{holder.expires_ms} ms"
        raise CorruptLog(f"{path} ends at {until}, more than a day from now: {REMEDY}")
