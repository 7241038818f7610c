"""Replicas follow the leaders that the metadata names, into files, and leave nothing behind."""

from __future__ import annotations

import asyncio
import os
import time
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from coordinator.kraft.metadata_image import Endpoint
from coordinator.kraft.replicas import Replicas, find_address
from coordinator.member.client_settings import ClientSettings
from coordinator.wire.codec import Api

from .recorded import OFFSETS, answer, split
from .test_membership import NODE, TOPIC, give

END = split(OFFSETS)[-1][1] + 1
SETTINGS = ClientSettings([("127.0.0.1", 31_092)], None, None, "c")
PATIENCE_S = 10


class Leader:
    """Links to a broker that leads partition 0 and has what Kafka wrote, from an offset on."""

    def __init__(self, start=0):
        self.settings, self.start, self.asked = SETTINGS, start, []
        self.meanwhile = lambda: None

    async def ask(self, _address, api, **fields):
        self.asked.append(api)
        await asyncio.sleep(0)
        self.meanwhile()
        if api == Api.LIST_OFFSETS:
            (asked,) = fields["topics"][0]["partitions"]
            offset = self.start if asked["timestamp"] == -2 else END
            part = SimpleNamespace(error_code=ErrorCode.none, offset=offset)
            return SimpleNamespace(topics=[SimpleNamespace(partitions=[part])])
        found = []
        for asked in fields["topics"][0]["partitions"]:
            at = asked["fetch_offset"]
            some = b"".join(one[2] for one in split(OFFSETS) if one[1] >= max(at, self.start))
            code = ErrorCode.offset_out_of_range if at < self.start else ErrorCode.none
            found.append(
                answer(
                    some[:4_000], END, error_code=code, partition_index=asked["partition"],
                    log_start_offset=self.start,
                )
            )  # fmt: skip
        topic = SimpleNamespace(partitions=found)
        return SimpleNamespace(error_code=ErrorCode.none, responses=[topic])

    async def close(self):
        pass


def hold(image, numbers=(0,), **changes):
    """Make the node a replica of partitions that broker 1 leads in the last epoch."""
    for number in numbers:
        given = {"leader": 1, "leader_epoch": 9, "isr": (1,)} | changes
        give(image, TOPIC, number, (1, NODE), **given)


def follow(folder, image, leader, holds):
    """Run replicas until something holds of them; return the replicas, closed."""

    async def run():
        replicas = Replicas(str(folder), NODE, leader)
        replicas.broker_epoch = 7
        replicas.update(image)
        until = time.monotonic() + PATIENCE_S
        try:
            while not holds(replicas):
                assert time.monotonic() < until, "it does not come"
                await asyncio.sleep(0.005)
            return {number: one.file.log for number, one in replicas.held.items()}
        finally:
            await replicas.close()

    os.makedirs(folder, exist_ok=True)
    return asyncio.run(run())


def at_end(replicas):
    return replicas.held and all(one.file.log.end == END for one in replicas.held.values())


def data_of(folder, number=0):
    with open(f"{folder}/{TOPIC}-{number}/batches.log", "rb") as file:
        return file.read()


def test_a_replica_gets_what_its_leader_has(tmp_path, image):
    hold(image, (0, 2))
    logs = follow(tmp_path, image, Leader(), at_end)
    assert data_of(tmp_path, 0) == data_of(tmp_path, 2) == OFFSETS
    assert logs[0].high_watermark == END


def test_a_log_that_was_cleaned_is_followed_from_its_start(tmp_path, image):
    hold(image)
    start = split(OFFSETS)[40][0]
    leader = Leader(start)
    logs = follow(tmp_path, image, leader, at_end)
    assert (logs[0].start, logs[0].end) == (start, END)
    assert leader.asked[:3] == [Api.FETCH, Api.LIST_OFFSETS, Api.LIST_OFFSETS]
    again = follow(tmp_path, image, Leader(start), at_end)
    assert again[0].start == start


def test_a_log_goes_with_its_replica(tmp_path, image):
    """While the node runs, and where that happened while it did not."""
    hold(image, (0, 1, 2))
    follow(tmp_path, image, Leader(), at_end)
    give(image, TOPIC, 1, (1, 2))
    follow(tmp_path, image, Leader(), at_end)
    assert sorted(os.listdir(tmp_path)) == [f"{TOPIC}-0", f"{TOPIC}-2"]

    def leaves(replicas):
        give(image, TOPIC, 0, (1, 2))
        replicas.update(image)
        return True

    follow(tmp_path, image, Leader(), leaves)
    assert os.listdir(tmp_path) == [f"{TOPIC}-2"]
    del image.topic_ids[TOPIC]
    follow(tmp_path, image, Leader(), lambda _: True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "lost"),
    [({"isr": (1, NODE)}, True), ({"eligible_leaders": (NODE,)}, True), ({}, False)],
)
def test_what_the_cluster_counts_on_and_is_not_there_is_a_loss(tmp_path, image, changes, lost):
    hold(image)
    follow(tmp_path, image, Leader(), at_end)
    hold(image, **changes)

    def has_lost(found):
        return follow(tmp_path, image, Leader(), lambda one: found.append(one.has_lost) or True)

    found = []
    has_lost(found)
    os.unlink(tmp_path / f"{TOPIC}-0/marks.json")
    has_lost(found)
    assert found == [False, lost]


def test_an_answer_of_an_earlier_epoch_counts_no_longer(tmp_path, image):
    """Another leader may have other records at these offsets."""
    hold(image)
    leader, running, ends = Leader(), [], []

    def moves():
        (replicas,) = running
        ends.append(replicas.held[0].file.log.end)
        if len(ends) == 1:
            hold(image, leader_epoch=10)
            replicas.update(image)

    def holds(replicas):
        running[:] = [replicas]
        return at_end(replicas)

    leader.meanwhile = moves
    follow(tmp_path, image, leader, holds)
    assert ends[:2] == [0, 0] < ends[2:3]


def test_a_broker_is_reached_where_the_client_speaks_its_protocol(image):
    links = SimpleNamespace(settings=SETTINGS)
    assert find_address(image, 1, links) == ("127.0.0.1", 31_092)
    ends = (
        Endpoint("A", "a", 1, 0), Endpoint("B", "b", 2, 0), Endpoint("S", "s", 3, 3),
    )  # fmt: skip
    image.brokers[1] = image.brokers[1]._replace(endpoints=ends)
    assert find_address(image, 1, links) == ("a", 1)
    links.settings = SETTINGS._replace(servers=[("b", 2)])
    assert find_address(image, 1, links) == ("b", 2)
    links.settings = SETTINGS._replace(tls=object(), login=("PLAIN", "u", "p"))
    assert find_address(image, 1, links) == ("s", 3)
    links.settings = SETTINGS._replace(tls=object())
    assert find_address(image, 1, links) is None
