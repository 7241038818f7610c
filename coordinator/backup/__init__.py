"""Copies of a store: `muster backup` of a live one, `muster restore` as of a position or a time.

Both copy the data files that a version of each table names, and write commits of their own: a copy
has one writer's past, and no lease. What is copied is checked against the commits, or against the
check sums of a backup; the copy is verified before it is called whole.
"""

from __future__ import annotations

from coordinator.backup.backup import BackupResult, backup
from coordinator.backup.restore import RestoreResult, restore

__all__ = ["BackupResult", "RestoreResult", "backup", "restore"]
