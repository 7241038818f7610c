"""What `make test` leaves to longer targets: to make test-spark, test-clients, sim and others."""

from __future__ import annotations

import os

import pytest

EVERY = bool(os.environ.get("MUSTER_LONG"))
"""Whether this is such a target."""


def longer(reason):
    """Return the mark of a test that only such a target runs: why, and which one."""
    return pytest.mark.skipif(not EVERY, reason=reason)
