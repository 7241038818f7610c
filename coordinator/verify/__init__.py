"""Check that a store is sound: its files, its rows, and the state they replay to; `muster verify`.

This room writes, locks and claims nothing, so a live coordinator is not disturbed. Where it can, it
checks without the code that wrote the store: it reads the commits itself (commit_files.py), checks
files and rows column by column, and recounts owners and epochs (invariants.py). It compares
snapshots with the replayed log, and targets with the digests in the log.
"""

from __future__ import annotations

from coordinator.verify.store import VerifyResult, verify

__all__ = ["VerifyResult", "verify"]
