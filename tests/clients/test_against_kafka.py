"""The same lives on a real Kafka 4.4.0 and on Muster: clients see the same.

That is what they are called back with, in which generation, and which errors they get. `make test-kafka`
only: it needs Java and Maven, and the jars of Kafka once.
"""

from __future__ import annotations

import os

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.clients.kafka_broker import Kafka, KafkaMissingError
from tests.clients.test_classic_clients import CLICKS, CLIENTS, NOT_STATIC, SHORT, SOON
from tests.clients.world import Coordinators, Group, until

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_KAFKA"), reason="make test-kafka")
TOPICS = {"clicks": 8}
NAMES = [
    name
    for name, (switch, _, _) in CLIENTS.items()
    if (switch == "MUSTER_LONG" or os.environ.get(switch)) and name != "kafkajs"
]
"""Python's; the others where their switches are set, too.

kafkajs cannot work on a Kafka whose topics are empty: it finds its offsets out of range there, and
commits the end of each partition in their place.
"""

RESTLESS = ("kafka-python",)
"""Clients that on a busy machine join once more than they need to, now on Kafka, now on Muster."""


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """The addresses of both."""
    folder = tmp_path_factory.mktemp("servers")
    try:
        with Kafka(folder, TOPICS) as kafka, Coordinators(folder, TOPICS) as muster:
            yield {"kafka": kafka.address, "muster": muster.address}
    except KafkaMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture(scope="module", params=NAMES)
def client(request, tmp_path_factory):
    _, command, settings = CLIENTS[request.param]
    return {"command": command(tmp_path_factory.mktemp("member"))} | SOON | settings


def called_back(group):
    """Return what each member was called back with: in order, and in which generation."""
    kinds = {"assign", "revoke", "lost"}
    return {
        name: [
            (line["what"], sorted(line["partitions"]), line.get("epoch"))
            for line in lines
            if line["what"] in kinds and line["partitions"]
        ]
        for name, lines in group.logs().items()
    }


def without_repeats(callbacks):
    """Leave out generations, and rounds after which a member has what it had before."""
    found = []
    for what, partitions, _ in callbacks:
        again = what == "assign" and found[-2:] == [("assign", partitions), ("revoke", partitions)]
        if again:
            found.pop()
        else:
            found.append((what, partitions))
    return found


def compared(servers, tmp_path, life, request):
    """Live a life on both; return what members were called back with on Kafka, and on Muster."""
    seen = {}
    restless = any(f"[{name}" in request.node.name for name in RESTLESS)
    for server, address in servers.items():
        folder = tmp_path / server
        folder.mkdir()
        with Group(folder, tmp_path.name, [address]) as group:
            life(group)
            seen[server] = called_back(group)
            if restless:
                found = seen[server].items()
                seen[server] = {name: without_repeats(calls) for name, calls in found}
    return seen


def test_members_come_and_go(servers, client, tmp_path, request):
    def life(group):
        names = []
        for name in ("m0", "m1", "m2"):
            names.append(name)
            group.join(name, **client, **SHORT)
            group.settled(names, CLICKS)
            group.works(names)
        group.members["m0"].leave()
        group.settled(["m1", "m2"], CLICKS)
        group.works(["m1", "m2"])
        group.members["m1"].kill()
        group.settled(["m2"], CLICKS)
        group.works(["m2"])
        group.members["m2"].leave()

    seen = compared(servers, tmp_path, life, request)
    assert seen["muster"] == seen["kafka"]


@pytest.mark.parametrize("away_s", [0, 8], ids=["at-once", "too-late"])
def test_a_static_member_comes_back(servers, client, tmp_path, request, away_s):
    if any(f"[{name}" in request.node.name for name in NOT_STATIC):
        pytest.skip("the client has no static members")

    def life(group):
        for number in (0, 1):
            group.join(f"m{number}", group_instance_id=f"i{number}", **client, **SHORT)
            group.settled([f"m{one}" for one in range(number + 1)], CLICKS)
        group.works(["m0", "m1"])
        group.members["m0"].leave()
        if away_s:
            until(lambda: len(group.held()["m1"]) == 8, group.held)
        group.join("m0-again", group_instance_id="i0", **client, **SHORT)
        group.settled(["m0-again", "m1"], CLICKS)
        group.works(["m0-again", "m1"])

    seen = compared(servers, tmp_path, life, request)
    assert seen["muster"] == seen["kafka"]


def refusal(call):
    """Return the name of the error of a call, or None."""
    try:
        call()
    except KafkaException as error:
        return error.args[0].name()
    return None


def waited(futures):
    for future in futures.values():
        done = future.result(20)
        for one in getattr(done, "topic_partitions", []):
            if one.error:
                raise KafkaException(one.error)


def errors_of(address, folder):
    """Return which errors clients of one server get."""
    admin = AdminClient({"bootstrap.servers": address})
    one = [TopicPartition("clicks", 0, 5)]

    def consumer(group, callbacks=None, **config):
        return Consumer(
            {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False}
            | {key.replace("_", "."): value for key, value in config.items()},
            **(callbacks or {}),
        )

    def joining(group, **config):
        """Return the first error that a consumer gets as it joins."""
        errors = []
        failed = consumer(group, {"error_cb": errors.append}, **config)
        failed.subscribe(["clicks"])

        def heard():
            message = failed.poll(0.1)
            if message is not None and message.error():
                errors.append(message.error())
            return errors

        until(heard, lambda: f"no error of {config}")
        failed.close()
        return errors[0].name()

    with Group(folder, "errors", [address]) as group:
        group.join("m0", group_protocol="classic", group_instance_id="i0", **SOON)
        group.settled(["m0"], CLICKS)
        outsider = consumer("errors")
        nothing = consumer("empty")
        offsets = [ConsumerGroupTopicPartitions("errors", one)]
        found = {
            "delete a group with members": refusal(
                lambda: waited(admin.delete_consumer_groups(["errors"]))
            ),
            "delete no group": refusal(lambda: waited(admin.delete_consumer_groups(["none"]))),
            "alter offsets of members": refusal(
                lambda: waited(admin.alter_consumer_group_offsets(offsets))
            ),
            "commit without joining": refusal(
                lambda: outsider.commit(offsets=one, asynchronous=False)
            ),
            "commit to an empty group": refusal(
                lambda: nothing.commit(offsets=one, asynchronous=False)
            ),
            "describe no group": admin.describe_consumer_groups(["none"])["none"]
            .result(20)
            .state.name,
            "join with no assignor in common": joining(
                "errors", partition_assignment_strategy="cooperative-sticky"
            ),
            "join with too short a session": joining("short", session_timeout_ms=1000),
        }
        outsider.close()
        nothing.close()
    return found


def test_errors(servers, tmp_path):
    found = {}
    for server, address in servers.items():
        (tmp_path / server).mkdir()
        found[server] = errors_of(address, tmp_path / server)
    assert found["muster"] == found["kafka"]
    assert [name for name, error in found["kafka"].items() if error is None] == [
        "commit to an empty group"
    ]
