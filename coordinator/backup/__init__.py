"""Copies of a store: `muster backup` of a live one, `muster restore` as of a position or a time.

Both copy the data files that a version of each table names, and write commits of their own: a copy
has one writer's past, and no lease. What is copied is checked against the commits, or against the
check sums of a backup; the copy is verified before it is called whole.
"""

from __future__ import annotations

from coordinator.backup.backup import BackedUp, backup
from coordinator.backup.restore import Restored, restore

__all__ = ["BackedUp", "Restored", "backup", "restore"]
