"""Whether a store is sound: its files, its rows, and what they come to; `muster verify`.

Nothing is written, locked or claimed, so a live coordinator does not notice. What can be checked
without the code that wrote the store is: the commits are read by commit_files.py, the files and
rows are checked by column, owners and epochs counted anew (invariants.py). Snapshots are compared
with what the log makes, targets with the digests that it says.
"""

from __future__ import annotations

from coordinator.verify.store import VerifyResult, verify

__all__ = ["VerifyResult", "verify"]
