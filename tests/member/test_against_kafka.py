"""The same member, unchanged, on a real Kafka 4.4.0: `make test-kafka` only, as it needs its jars."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest
from confluent_kafka import Producer

from coordinator import Fenced, GroupError, Member
from coordinator.errors import ErrorCode
from coordinator.runtime.plan_tasks.kafka_weights import (
    GroupPosition,
    KafkaOffsets,
    KafkaWeights,
)
from coordinator.runtime.plan_tasks.record_sizes import RECORDS, KafkaRecordSizes
from tests.clients.kafka_broker import Kafka
from tests.member.runs import Diary, Running, until
from tests.member.test_processes import Worker

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
PATIENCE_S = 120


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    with Kafka(tmp_path_factory.mktemp("kafka"), {"clicks": 2}) as kafka:
        yield kafka.address


def test_work_moves_in_order_from_one_member_to_another(address):
    diary = Diary()
    ann = Member(address, group_id="moves", topics="clicks", **diary.callbacks("ann"))
    with Running(ann, diary.work("ann")):
        assert until(lambda: diary.when("ann", "begins", "clicks-1"), PATIENCE_S)
        with Member(address, group_id="moves", pattern="cl.*") as bob:
            (moved,) = bob.wait_for_change(PATIENCE_S).added
            bob.commit({moved: (7, "note")})
            assert bob.committed(moved) == 7
            with pytest.raises(Fenced):
                ann.commit({moved: 8})
        assert until(lambda: diary.of("ann").count(("begins", str(moved))) == 2, PATIENCE_S)
        assert ann._driver.membership.session_ms == 6_000
    of_it = [
        words[0] for words in diary.of("ann") if str(moved) in words and words[0] != "assigned"
    ]
    assert of_it == ["begins", "ends", "revoked", "begins", "ends", "revoked"]


def test_a_static_member_finds_its_partitions_again(address):
    static = {"group_id": "static", "topics": "clicks", "instance_id": "i"}
    member = Member(address, **static).open()
    first = member.wait_for_change(PATIENCE_S)
    member.leave(for_a_while=True)
    with Member(address, **static) as again:
        assert again.wait_for_change(PATIENCE_S).owned == first.owned


def test_lag_and_records_of_a_cluster_weigh_partitions(address):
    """coordinator.runtime.plan_tasks, which asks a cluster as an admin, and as a reader."""
    producer = Producer({"bootstrap.servers": address})
    offsets = KafkaOffsets({"bootstrap.servers": address})

    def ends():
        with suppress(OSError):  # a topic that was just made has no leader yet
            return offsets.find([("clicks", 0), ("clicks", 1)], first=False)

    before = until(ends, PATIENCE_S)
    for _ in range(10):
        producer.produce("clicks", b"row", partition=1)
    producer.flush()
    after = offsets.find([("clicks", 0), ("clicks", 1), ("clicks", 9), ("none", 0)], first=False)
    assert after == {("clicks", 0): before["clicks", 0], ("clicks", 1): before["clicks", 1] + 10}
    committed = {("clicks", 0): after["clicks", 0], ("clicks", 1): after["clicks", 1] - 4}
    found = KafkaWeights(offsets, "lag").read({"g": GroupPosition({"clicks": 2}, committed)})
    assert found.partitions["weight"].to_pylist() == [0.0, 4.0]
    large = Producer({"bootstrap.servers": address, "compression.type": "gzip"})
    for size in [5000, *range(1, RECORDS + 1)]:  # only the newest ones are read, with their keys
        large.produce("clicks", b"x" * size, key=b"key", partition=0)
    large.flush()
    ends = offsets.find([("clicks", 0), ("clicks", 1), ("clicks", 9)], first=False)
    found = KafkaRecordSizes({"bootstrap.servers": address}).measure(ends)
    assert found == {("clicks", 0): 3 + (RECORDS + 1) / 2, ("clicks", 1): 3.0}


def test_a_refusal_for_good_is_raised(address):
    member = Member(address, group_id="refused", pattern="[")
    with member, pytest.raises(GroupError) as refused:
        member.run(lambda *_: None)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_the_example_runs_unchanged(address, tmp_path):
    """As it does on Muster, in test_processes.py: one leaves, one is killed, the third has all."""
    crew = [Worker.example(name, tmp_path, address) for name in ("ann", "bob")]
    try:
        ann, bob = crew
        assert until(lambda: all(w.works_on(1) and len(w.said()) > 4 for w in crew), 60)
        ann.process.send_signal(signal.SIGTERM)
        assert ann.process.wait(PATIENCE_S) == 0
        assert until(lambda: bob.works_on(2), PATIENCE_S)
        bob.process.send_signal(signal.SIGKILL)
        crew.append(cid := Worker.example("cid", tmp_path, address))
        assert until(lambda: cid.works_on(2), 60)
        assert min(offset for _, _, offset in cid.said()) > 4, "it goes on from the last commit"
    finally:
        for worker in crew:
            worker.end()
