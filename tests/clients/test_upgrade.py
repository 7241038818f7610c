"""A group of librdkafka's goes over to the consumer protocol and back, member by member, while it works.

What is checked is as in test_groups.py; `make test-clients`.
"""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupType
from confluent_kafka.admin import AdminClient

from tests.clients.world import Coordinators, Group, partitions
from tests.support.longer import longer

pytestmark = longer("make test-clients")
CLICKS = partitions("clicks", 8)
CLASSIC = {"group_protocol": "classic", "heartbeat_interval_ms": 500, "session_timeout_ms": 6000}
ASSIGNORS = ["range,roundrobin", "cooperative-sticky"]
"""librdkafka's default, and its other."""


@pytest.fixture(scope="module")
def coordinators(tmp_path_factory):
    with Coordinators(tmp_path_factory.mktemp("served"), {"clicks": 8}) as served:
        yield served


def kind_of(group):
    admin = AdminClient({"bootstrap.servers": group.addresses[0]})
    listed = admin.list_consumer_groups().result(10).valid
    return {one.group_id: one.type for one in listed}[group.name]


def replaced(group, names, config, end):
    """Replace each member by one of other settings, and wait each time until all work; return them."""
    for name in names:
        end(group.members[name])
        names = [*names[1:], f"{name}-"]
        group.join(names[-1], **config)
        group.settled(names, CLICKS)
        group.works(names)
    return names


@pytest.mark.parametrize("end", ["leave", "kill"])
@pytest.mark.parametrize("strategy", ASSIGNORS)
def test_a_live_group_is_upgraded_and_downgraded(coordinators, tmp_path, strategy, end):
    name = f"{strategy.partition('-')[0].partition(',')[0]}-{end}"
    classic = CLASSIC | {"partition_assignment_strategy": strategy}
    ended = {"leave": lambda one: one.leave(), "kill": lambda one: one.kill()}[end]
    with Group(tmp_path, name, [coordinators.address]) as group:
        names = ["m0", "m1", "m2"]
        for one in names:
            group.join(one, **classic)
        group.settled(names, CLICKS)
        group.works(names)
        assert kind_of(group) is ConsumerGroupType.CLASSIC
        names = replaced(group, names, {}, ended)
        assert kind_of(group) is ConsumerGroupType.CONSUMER
        names = replaced(group, names, classic, ended)
        assert kind_of(group) is ConsumerGroupType.CLASSIC


def test_static_members_are_upgraded_in_place(coordinators, tmp_path):
    """Each comes back under its instance id with the other protocol, and has what it had."""
    with Group(tmp_path, "static", [coordinators.address]) as group:
        for number in range(3):
            group.join(f"m{number}", group_instance_id=f"i{number}", **CLASSIC)
        names = ["m0", "m1", "m2"]
        group.settled(names, CLICKS)
        group.works(names)
        for config, end in (({}, "-"), (CLASSIC, "--")):
            for number in range(3):
                group.members[names[number]].leave()
                names[number] = f"m{number}{end}"
                group.join(names[number], group_instance_id=f"i{number}", **config)
                group.settled(names, CLICKS)
                group.works(names)
        assert kind_of(group) is ConsumerGroupType.CLASSIC


def test_the_coordinator_is_killed_amid_an_upgrade(tmp_path):
    with (
        Coordinators(tmp_path, {"clicks": 8}) as own,
        Group(tmp_path, "g", [own.address]) as group,
    ):
        classic = CLASSIC | {"session_timeout_ms": 45000}
        for name in ("m0", "m1", "m2"):
            group.join(name, **classic)
        group.settled(["m0", "m1", "m2"], CLICKS)
        group.works(["m0", "m1", "m2"])
        group.join("m3")
        group.settled(["m0", "m1", "m2", "m3"], CLICKS)
        group.works(["m0", "m1", "m2", "m3"])
        assert kind_of(group) is ConsumerGroupType.CONSUMER  # with members of both protocols
        own.serve()
        own.servers[0].kill()
        group.works(["m0", "m1", "m2", "m3"])
        group.members["m3"].leave()
        group.settled(["m0", "m1", "m2"], CLICKS)
        group.works(["m0", "m1", "m2"])
        assert kind_of(group) is ConsumerGroupType.CLASSIC
