"""A node of a cluster whose controller is a fake."""

import pytest

from .fake_kafka import FakeKafka
from .nodes import PLAINTEXT, SASL_PLAINTEXT, start_node


@pytest.fixture
def kafka():
    with FakeKafka() as one:
        yield one


@pytest.fixture
def secured(tmp_path, image, kafka):
    """A node of a cluster whose one listener has logins, with an authorizer."""
    yield from start_node(tmp_path, image, kafka, SASL_PLAINTEXT, super_users=("User:admin",))


@pytest.fixture
def plain(tmp_path, image, kafka):
    """A node of a cluster without logins."""
    yield from start_node(tmp_path, image, kafka, PLAINTEXT)
