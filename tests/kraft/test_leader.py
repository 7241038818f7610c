"""A node leads what the metadata says: it loads, serves, keeps who is in sync, and ends."""

import asyncio
import time
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from coordinator.clock import monotonic_ms
from coordinator.config import Config, ConfigError
from coordinator.core.java_hash import place_of
from coordinator.errors import ErrorCode as Code
from coordinator.errors import GroupError
from coordinator.kraft.batch_writer import Change, KeyValue, write_batch
from coordinator.kraft.image_catalog import read_topics
from coordinator.kraft.leader import LeaderOf
from coordinator.kraft.leading import Standing
from coordinator.kraft.metadata_image import TOPIC as TOPICS
from coordinator.kraft.metadata_image import Endpoint
from coordinator.kraft.partition_log import Accepted
from coordinator.kraft.registration import list_protocols
from coordinator.kraft.replicas import Replicas
from coordinator.kraft.served import read_listeners
from coordinator.watcher.record_batches import split_batches

from .test_membership import NODE, TOPIC, give
from .test_replicas import Leader as OtherLeader

PATIENCE_S = 10


def until(holds):
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.005)


class Node:
    """A node that may lead, as its loop has it."""

    def __init__(self, folder, image, config=Config(), store=None):  # noqa: B008 - frozen
        folder.mkdir()
        self.image, self.replicas = image, Replicas(str(folder), NODE, OtherLeader())
        self.standing = Standing(60_000)
        self.standing.hear(monotonic_ms(), is_fenced=False)
        for _ in range(2):
            self.standing.hear_metadata()
        self.leader = LeaderOf(
            NODE, config, self.standing, commit_s=0.1, patience_s=0.1, store=store
        )

    def see(self, number=0, **changes):
        """See the metadata change."""
        given = {"leader": NODE, "leader_epoch": 9, "isr": (NODE,), "replicas": (NODE, 1)}
        partitions = self.image.topic(TOPIC).partitions
        partitions[number] = partitions[number]._replace(**given | changes)
        self.leader.end_others(self.image)
        self.replicas.update(self.image)
        self.leader.begin_ours(self.image, self.replicas.held)

    def group(self, number=0):
        """A group whose partition it is."""
        count = len(self.image.topic(TOPIC).partitions)
        return next(f"g{n}" for n in range(99) if place_of(f"g{n}", count) == number)

    def code(self, number=0):
        """The error by which a group's requests are refused; None where they are served."""
        found = self.leader.find(self.group(number))
        return found.code if isinstance(found, GroupError) else None


@pytest.fixture
def node(tmp_path, image):
    one = Node(tmp_path / "logs", image)
    yield one
    one.leader.close()


def beat(coordinator, node, epoch, **given):
    return coordinator.consumer_group_heartbeat(
        group_id=node.group(), member_id="m", member_epoch=epoch, **given
    ).member_epoch


def test_groups_are_served_from_an_election_to_the_next(node):
    node.see()
    until(lambda: node.code() is None)
    assert node.code(1) == Code.NOT_COORDINATOR
    coordinator = node.leader.find(node.group())
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
    epoch = beat(coordinator, node, 0, topic_partitions={}, **joins)
    assert epoch > 0
    node.see(leader_epoch=10)  # elected again: its groups are loaded again
    until(lambda: node.code() is None)
    assert node.leader.find(node.group()) is not coordinator
    with pytest.raises(GroupError):
        beat(coordinator, node, epoch)
    assert beat(node.leader.find(node.group()), node, epoch) == epoch
    node.see(leader=-1, leader_epoch=11, isr=(1, NODE))
    assert node.code() == Code.NOT_COORDINATOR
    assert not node.leader.must_step_down


def test_groups_have_the_settings_that_the_cluster_has_of_them(node):
    name, key = node.group(), "consumer.session.timeout.ms"
    node.image.settings[32, name] = {key: "50000", "share.auto.offset.reset": "latest"}
    node.see()
    until(lambda: node.code() is None)
    coordinator = node.leader.find(name)
    assert coordinator.describe_group_config(name)[key] == "50000"
    node.image.settings[32, name] = {key: "55000"}
    node.see()
    until(lambda: coordinator.describe_group_config(name)[key] == "55000")
    del node.image.settings[32, name]
    node.see()
    until(lambda: key not in coordinator.describe_group_config(name))
    node.image.settings[32, name] = {key: "1"}
    node.see()
    assert key not in coordinator.describe_group_config(name)


def test_what_no_follower_has_is_not_served(node):
    node.image.settings[TOPICS, TOPIC] = {"min.insync.replicas": "2"}
    node.see()
    time.sleep(0.3)
    assert node.code() == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert not node.leader.must_step_down  # no broker could do better


@pytest.mark.parametrize(("least", "steps_down"), [("2", True), ("3", False)])
def test_a_broker_leads_where_it_can_do_what_fails_here(node, least, steps_down):
    node.see(replicas=(NODE, 1, 2), partition_epoch=1)
    until(lambda: node.code() is None)
    coordinator = node.leader.find(node.group())
    node.image.settings[TOPICS, TOPIC] = {"min.insync.replicas": least}
    node.see(replicas=(NODE, 1, 2), isr=(NODE, 1), partition_epoch=2)
    joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
    with pytest.raises(GroupError):  # broker 1 does not fetch
        beat(coordinator, node, 0, topic_partitions={}, **joins)
    until(lambda: coordinator.status == "failed")
    assert not node.leader.must_step_down
    time.sleep(0.2)
    assert node.leader.must_step_down is steps_down


def test_a_log_that_cannot_be_read_is_left_to_brokers(node):
    node.see(leader=-1, leader_epoch=8, isr=(1, NODE))
    raw = write_batch([Change([KeyValue(b"\0\3\0\1g", b"\0\0\1")], 5)], 0, 8)
    node.replicas.held[0].file.append(Accepted(list(split_batches(raw)), None))
    node.see()
    until(lambda: node.leader.must_step_down)
    assert node.code() == Code.COORDINATOR_LOAD_IN_PROGRESS
    node.see(leader=-1, leader_epoch=10, isr=(1, NODE))
    assert not node.leader.must_step_down


class Control:
    """The controller, which decides what it is asked for."""

    def __init__(self, node):
        self.node, self.asked, self.code = node, [], ErrorCode.none

    async def ask(self, _api, **fields):
        (topic,) = fields["topics"]
        (part,) = topic["partitions"]
        isr = [one["broker_id"] for one in part["new_isr_with_epochs"]]
        self.asked.append(isr)
        found = SimpleNamespace(
            partition_index=0, error_code=self.code, leader_epoch=part["leader_epoch"], isr=isr,
            partition_epoch=part["partition_epoch"] + 1,
        )  # fmt: skip
        topics = [SimpleNamespace(partitions=[found])]
        return SimpleNamespace(error_code=ErrorCode.none, topics=topics)


def test_a_follower_that_has_all_gets_in_sync(node):
    node.see()
    until(lambda: node.code() is None)
    led, control = node.leader.leaders.led[0], Control(node)

    async def keep():
        task = asyncio.create_task(node.leader.keep_isr(control, lambda: node.image, 7))
        await asyncio.sleep(0.25)
        assert control.asked == []
        led.note_fetch(1, node.image.brokers[1].epoch, led.end, 9, -1)
        await asyncio.to_thread(until, lambda: led.isr == (1, NODE))
        task.cancel()

    asyncio.run(keep())
    assert control.asked == [[1, NODE]]


def test_a_change_that_is_refused_is_asked_again_a_little_later(node):
    node.see()
    until(lambda: node.code() is None)
    led, control = node.leader.leaders.led[0], Control(node)
    led.note_fetch(1, node.image.brokers[1].epoch, led.end, 9, -1)

    async def keep():
        control.code = ErrorCode.invalid_update_version
        task = asyncio.create_task(node.leader.keep_isr(control, lambda: node.image, 7))
        await asyncio.sleep(0.5)
        assert len(control.asked) == 1
        control.code = ErrorCode.none
        await asyncio.to_thread(until, lambda: led.isr == (1, NODE))
        task.cancel()

    asyncio.run(keep())


def test_topics_have_the_racks_of_their_replicas(image):
    image.brokers[1] = image.brokers[1]._replace(rack="b")
    image.brokers[2] = image.brokers[2]._replace(rack="a")
    give(image, TOPIC, 0, (1, 2, NODE))
    assert read_topics(image)[TOPIC].racks[0] == ("a", "b")


def test_listeners_are_those_of_the_cluster(image):
    for number in (1, 2):
        ends = (Endpoint("IN", "h", 1, 0), Endpoint("OUT", "h", 2, 0))
        image.brokers[number] = image.brokers[number]._replace(endpoints=ends)
    given = "IN=127.0.0.1:7,OUT=127.0.0.1:8"
    assert read_listeners(image, given, NODE) == {
        "IN": ("127.0.0.1", 7),
        "OUT": ("127.0.0.1", 8),
    }
    with pytest.raises(ConfigError, match="name one that brokers and clients reach"):
        read_listeners(image, "0.0.0.0:7", NODE)
    with pytest.raises(ConfigError, match=r"the listeners IN, OUT: give each as NAME=host:port"):
        read_listeners(image, "127.0.0.1:7", NODE)
    follows = Endpoint("MUSTER", "h", 9, 0)  # of a node that only follows
    image.brokers[1002] = image.brokers[1]._replace(node_id=1002, endpoints=(follows,))
    image.brokers[2] = image.brokers[2]._replace(endpoints=(Endpoint("OUT", "h", 2, 3),))
    assert read_listeners(image, given, NODE).keys() == {"IN", "OUT"}
    assert list_protocols(image, 2) == {"IN": 0, "OUT": 0}
    assert list_protocols(image, 1) == {"OUT": 3}
