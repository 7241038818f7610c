"""One socket of a node: followers and members are answered, all else goes to a broker that is alive."""

import socket
import struct
import threading

import pytest

from coordinator.kraft.metadata_image import Endpoint
from coordinator.kraft.served import NodeFront
from coordinator.runtime.coordinator import Coordinator
from coordinator.wire.codec import Api
from coordinator.wire.listener import parse_address, serve
from tests.support.wire_client import Client

from .test_leader import Node, until
from .test_membership import NODE

GROUP_LIST = {"states_filter": (), "types_filter": ()}


@pytest.fixture
def served(tmp_path, image):
    """A node that leads partition 0, and a broker: another server, with a topic of its own."""
    with (
        Coordinator.open(None, topics={"behind": 3}) as behind,
        serve(behind, "127.0.0.1:0") as broker,
    ):
        at = Endpoint("PLAINTEXT", *parse_address(broker.listens, "it"), 0)
        gone = Endpoint("PLAINTEXT", "127.0.0.1", closed_port(), 0)
        image.brokers[1] = image.brokers[1]._replace(endpoints=(at,), is_fenced=False)
        image.brokers[2] = image.brokers[2]._replace(endpoints=(gone,), is_fenced=False)
        node = Node(tmp_path / "logs", image)
        front = NodeFront(node.leader, {"PLAINTEXT": ("127.0.0.1", 0)}, lambda: node.image, NODE)
        with serve(node.leader, "127.0.0.1:0", front=front) as running:
            node.address = running.listens
            assert front.listeners == {"PLAINTEXT": parse_address(running.listens, "it")}
            node.see()
            until(lambda: node.code() is None)
            yield node
        node.leader.close()


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def fetch(client, node, offset, **given):
    topic_id = node.leader.leaders.topic_id
    part = {
        "partition": 0, "current_leader_epoch": 9, "fetch_offset": offset,
        "last_fetched_epoch": -1, "log_start_offset": 0, "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    found = client.ask(
        Api.FETCH, 18, replica_state={"replica_id": 1, "replica_epoch": 5}, max_wait=5_000,
        min_bytes=1, max_bytes=1 << 20, rack_id="", forgotten_topics_data=(),
        topics=[{"topic_id": topic_id, "partitions": [part | given]}],
    )  # fmt: skip
    return found.responses[0].partitions[0]


def test_a_follower_fetches_what_a_member_makes_happen(served):
    with Client(served.address) as follower, Client(served.address) as member:
        found = []
        waits = threading.Thread(target=lambda: found.append(fetch(follower, served, 0)))
        waits.start()
        answer = member.ask(
            Api.CONSUMER_GROUP_HEARTBEAT, 1, group_id=served.group(), member_id="m",
            member_epoch=0, instance_id=None, rack_id=None, rebalance_timeout=60_000,
            subscribed_topic_names=["orders"], subscribed_topic_regex=None, server_assignor=None,
            topic_partitions=(),
        )  # fmt: skip
        assert (int(answer.error_code), answer.member_epoch > 0) == (0, True)
        waits.join()
        assert found[0].records == served.replicas.held[0].file.read(0, 1 << 20)
        listed = member.ask(Api.LIST_GROUPS, 5, **GROUP_LIST)
        assert [one.group_id for one in listed.groups] == [served.group()]
        assert int(fetch(follower, served, 0, current_leader_epoch=8).error_code) == 74


def test_what_is_not_about_groups_goes_to_a_broker(served):
    for _ in range(4):  # whichever broker is tried first
        with Client(served.address) as client:
            found = client.ask(
                Api.METADATA, 12, topics=None, allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )  # fmt: skip
            assert [topic.name for topic in found.topics] == ["behind"]
            offers = client.ask(
                Api.API_VERSIONS, 3, client_software_name="t", client_software_version="1"
            )
            versions = {one.api_key: one.max_version for one in offers.api_keys}
            assert versions[Api.FETCH] == 18
            assert versions[Api.CONSUMER_GROUP_HEARTBEAT] == 1
            assert 28 not in versions  # offsets in transactions


def test_without_a_broker_a_connection_ends_as_that_broker_would(served):
    for number in (1, 2):
        one = served.image.brokers[number]
        served.image.brokers[number] = one._replace(is_fenced=True)
    with Client(served.address) as client, pytest.raises((OSError, struct.error)):
        client.ask(
            Api.METADATA, 12, topics=None, allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        )  # fmt: skip
