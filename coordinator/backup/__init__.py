"""Copy a store: `muster backup` copies a live one, `muster restore` one as of a position or time.

Both copy the data files that one version of each table names, and write new commits for them, so a
copy has a single writer in its history, and no lease. Each file is checked against the commits, or
against the checksums of a backup, and the copy is verified before it is marked complete. This room
never changes the store that it copies.
"""

from __future__ import annotations

from coordinator.backup.backup import BackupResult, backup
from coordinator.backup.restore import RestoreResult, restore

__all__ = ["BackupResult", "RestoreResult", "backup", "restore"]
