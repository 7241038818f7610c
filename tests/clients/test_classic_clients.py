"""The classic protocol by every client, each member a process of its own.

Every client lives the same lives, and each ends in `tests.clients.checker`. `make test-clients` has the
clients for Python, `make test-foreign` those for Go and JavaScript, `make test-java` Java's.
"""

from __future__ import annotations

import os
import re

import pytest

from spark_jobs.jars import JarsMissingError
from tests.clients.foreign import ClientMissingError, go_member, node_member, python_member
from tests.clients.java import JavaMissingError, compiled
from tests.clients.world import (
    MEMBER,
    Coordinators,
    Group,
    await_named,
    free_port,
    partitions,
    until,
)

TOPICS = {"clicks": 8}
CLICKS = partitions("clicks", 8)
SOON = {"heartbeat_interval_ms": 500}
SHORT = {"session_timeout_ms": 6000}
"""The shortest that a broker allows, where a session is to end; all else is the client's default."""
CLASSIC = {"group_protocol": "classic"}
CLIENTS = {
    "librdkafka": ("MUSTER_LONG", lambda _: MEMBER, CLASSIC),
    "librdkafka-cooperative": (
        "MUSTER_LONG",
        lambda _: MEMBER,
        CLASSIC | {"partition_assignment_strategy": "cooperative-sticky"},
    ),
    "kafka-python": (
        "MUSTER_LONG",
        lambda _: python_member("kafka_python.py"),
        {"reconnect_backoff_max_ms": 1000},  # else half a minute
    ),
    "aiokafka": ("MUSTER_LONG", lambda _: python_member("aiokafka_member.py"), {}),
    "java": ("MUSTER_JAVA", compiled, CLASSIC),
    "java-cooperative": (
        "MUSTER_JAVA",
        compiled,
        CLASSIC
        | {
            "partition_assignment_strategy": (
                "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
            )
        },
    ),
    "kafkajs": ("MUSTER_FOREIGN", lambda _: node_member(), {}),
    "sarama": ("MUSTER_FOREIGN", lambda _: go_member("sarama"), {}),
    "franz-go": ("MUSTER_FOREIGN", lambda _: go_member("franz-go"), {}),
    "kafka-go": ("MUSTER_FOREIGN", lambda _: go_member("kafka-go"), {}),
}
"""By client: the switch that its tests need, what makes its command, its settings."""
MAKE = {
    "MUSTER_LONG": "make test-clients",
    "MUSTER_JAVA": "make test-java",
    "MUSTER_FOREIGN": "make test-foreign",
}
NOT_STATIC = {"kafkajs", "kafka-go"}
REJOIN = {"kafkajs", "sarama", "franz-go", "kafka-go"}
"""They let go of everything when they cannot reach their coordinator, and join again."""
REJOIN_BY_METADATA = {"kafka-python"}
"""Its leader may assign before its own picture of the topics is there, and joins again as soon as it
hears of them, which it does from a second server sooner or later."""
BLIND_TO_LOSS = {"aiokafka", "sarama", "kafka-go"}
"""They call back alike whether partitions were taken or lost: the checker would see two owners."""


def clients_but(*left_out, among=CLIENTS):
    """Return the parameters of a test of all clients, each with its switch."""
    return pytest.mark.parametrize(
        "client",
        [
            pytest.param(
                name, marks=pytest.mark.skipif(not os.environ.get(switch), reason=MAKE[switch])
            )
            for name, (switch, _, _) in among.items()
            if name not in left_out
        ],
        indirect=True,
    )


@pytest.fixture(scope="module")
def client(request, tmp_path_factory):
    """The command and the settings of a member."""
    return SOON | make_client(CLIENTS[request.param], tmp_path_factory.mktemp("member"))


def make_client(found, folder):
    """Return what a member of a client is started with, or fail where the client is missing."""
    _, command, settings = found
    try:
        made = command(folder)
    except (ClientMissingError, JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)
    return {"command": made} | settings


@pytest.fixture(scope="module")
def coordinators(tmp_path_factory):
    with Coordinators(tmp_path_factory.mktemp("served"), TOPICS) as served:
        yield served


@pytest.fixture
def group(coordinators, request, tmp_path):
    name = re.sub(r"\W", "-", request.node.name)
    with Group(tmp_path, name, [coordinators.address]) as group:
        yield group


def joined(group, client, names):
    for name in names:
        group.join(name, **client)
    group.settled(names, CLICKS)
    group.works(names)


@clients_but()
def test_members_come_and_go_and_resume_where_others_stopped(group, client):
    joined(group, client | SHORT, ["m0", "m1", "m2"])
    group.members["m0"].leave()
    group.settled(["m1", "m2"], CLICKS)
    group.works(["m1", "m2"])
    group.members["m1"].kill()
    group.settled(["m2"], CLICKS)
    group.works(["m2"])
    group.members["m2"].leave()  # no member is left; the offsets are
    last = group.join("m3", **client)
    group.settled(["m3"], CLICKS)
    group.works(["m3"])
    resumed = [line["offset"] for line in last.lines() if line["what"] == "resume"]
    assert len(resumed) == 8
    assert min(resumed) > 0


@clients_but(*NOT_STATIC)
def test_a_static_member_finds_its_partitions_after_a_restart(group, client):
    for number in (0, 1):
        group.join(f"m{number}", group_instance_id=f"i{number}", **client)
    group.settled(["m0", "m1"], CLICKS)
    group.works(["m0", "m1"])
    had, changes = group.held()["m0"], group.changes()["m1"]
    group.members["m0"].leave()
    group.join("m0-again", group_instance_id="i0", **client)
    group.settled(["m0-again", "m1"], CLICKS)
    group.works(["m0-again", "m1"])
    assert group.held()["m0-again"] == had
    assert group.changes()["m1"] == changes


@clients_but()
def test_members_stay_when_another_process_takes_over(client, tmp_path, request):
    with (
        Coordinators(tmp_path, TOPICS) as own,
        Group(tmp_path, "g", [own.address]) as group,
    ):
        names = ["m0", "m1", "m2"]
        joined(group, client, names)
        changes = group.changes()
        own.serve()  # stands by
        own.servers[0].kill()
        group.works(names)
        if not any(f"[{name}]" in request.node.name for name in REJOIN):
            assert group.changes() == changes
        group.settled(names, CLICKS)
        group.join("m3", **client)
        group.settled([*names, "m3"], CLICKS)
        group.works([*names, "m3"])


@clients_but()
def test_members_go_on_at_the_address_of_a_stand_by(client, tmp_path, request):
    """A client that knows only one address would learn the other from it."""
    elsewhere = f"127.0.0.1:{free_port()}"
    with (
        Coordinators(tmp_path, TOPICS) as own,
        Group(tmp_path, "g", [own.address, elsewhere]) as group,
    ):
        own.serve(elsewhere)  # stands by
        await_named(own.address, 2)
        names = ["m0", "m1", "m2"]
        joined(group, client, names)
        changes = group.changes()
        own.servers[0].kill()
        group.works(names)
        if not any(f"[{name}]" in request.node.name for name in REJOIN | REJOIN_BY_METADATA):
            assert group.changes() == changes
        group.settled(names, CLICKS)
        group.join("m3", **client)
        group.settled([*names, "m3"], CLICKS)
        group.works([*names, "m3"])


@clients_but(*BLIND_TO_LOSS)
def test_a_member_past_its_session_timeout_rejoins(group, client):
    joined(group, client | SHORT, ["m0", "m1"])
    group.members["m0"].stop()
    until(lambda: len(group.held()["m1"]) == 8, group.held)
    group.works(["m1"])
    group.members["m0"].wake()
    group.settled(["m0", "m1"], CLICKS)
    group.works(["m0", "m1"])
