"""A core with a classic group, for the rules of the classic protocol."""

from __future__ import annotations

import pytest

from tests.support.classic_core import ClassicCore


@pytest.fixture
def core():
    """A core with the topics a (6 partitions) and b (2), and an initial delay of 0."""
    found = ClassicCore()
    found.topics(a=6, b=2)
    return found
