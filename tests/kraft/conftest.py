"""A cluster as its metadata has it, with a node."""

from __future__ import annotations

from uuid import UUID

import pytest

from coordinator.kraft.metadata_image import Broker
from coordinator.kraft.metadata_log import MetadataLog

from .recorded import METADATA, answer

NODE = 1001
HERE = UUID(int=900)
"""The node's log directory."""


@pytest.fixture
def image():
    """Brokers 1 and 2, and the node, which is alive and has no replica."""
    log = MetadataLog()
    log.take(answer(METADATA, 1 << 40))
    found = log.image
    found.brokers[NODE] = Broker(NODE, 7, None, (), None, {}, False, False, (HERE,), (HERE,))
    return found
