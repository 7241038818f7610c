"""`muster watch` on a real Kafka 4.4.0, beside its clients; `make test-kafka` only."""

from __future__ import annotations

import os

import pytest
from confluent_kafka.admin import AdminClient

from tests.clients.kafka_broker import Kafka, KafkaMissingError

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
COUNT = 6


@pytest.fixture(scope="module")
def kafka(tmp_path_factory):
    try:
        with Kafka(tmp_path_factory.mktemp("clients"), {"clicks": COUNT}) as found:
            yield found
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


def test_the_demo_shows_a_group_that_comes_and_goes(muster, kafka, tmp_path):
    told = muster("demo", "--kafka", f"kafka://{kafka.address}", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    for said in ("member joined", "member left", "coordinates these groups", "muster history"):
        assert said in told.stdout.decode()
    admin = AdminClient({"bootstrap.servers": kafka.address})
    assert "clicks" in admin.list_topics(timeout=30).topics
    left = [*admin.list_topics(timeout=30).topics, *names(admin)]
    assert not [one for one in left if one.startswith("muster-demo")]


def names(admin):
    return [one.group_id for one in admin.list_consumer_groups().result(30).valid]
