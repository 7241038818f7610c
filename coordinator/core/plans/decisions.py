"""What becomes of a plan. The views read these, and import nothing that decides."""

from __future__ import annotations

APPLIED, REJECTED, EXPIRED, SUPERSEDED = "applied", "rejected", "expired", "superseded"
