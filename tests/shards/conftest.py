"""What the tests of nodes start from."""

from __future__ import annotations

import pytest

from coordinator.config import Config
from coordinator.storage.shards import make_shards

SHARDS = 4


@pytest.fixture
def store(tmp_path):
    """A store of shards without groups."""
    root = str(tmp_path / "store")
    make_shards(root, SHARDS, Config())
    return root
