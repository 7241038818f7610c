"""Groups of real clients: librdkafka consumers in processes of their own, `muster serve` in its own.

Every life ends in `tests.clients.checker`: no partition had two owners, no acknowledged offset was lost,
no epoch fell. `make test` plays the shorter lives, `make test-clients` (MUSTER_LONG=1) all.
"""

from __future__ import annotations

import re

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from tests.clients.world import Coordinators, Group, free_port, partitions, until
from tests.support.longer import longer

long = longer("make test-clients")
TOPICS = {"clicks": 8, "orders": 3}
CLICKS, ORDERS = partitions("clicks", 8), partitions("orders", 3)


@pytest.fixture(scope="module")
def coordinators(tmp_path_factory):
    """One coordinator for all lives that do it no harm."""
    with Coordinators(tmp_path_factory.mktemp("served"), TOPICS) as served:
        yield served


@pytest.fixture
def group(coordinators, request, tmp_path):
    name = re.sub(r"\W", "-", request.node.name)
    with Group(tmp_path, name, [coordinators.address]) as group:
        yield group


@pytest.fixture
def own(tmp_path):
    """Coordinators of a test that kills them, or changes their topics."""
    with Coordinators(tmp_path, TOPICS) as served:
        yield served


def test_members_come_and_go_and_one_is_killed(group):
    first = group.join("m0")
    group.settled(["m0"], CLICKS)
    group.join("m1")
    group.join("m2")
    group.settled(["m0", "m1", "m2"], CLICKS)
    group.works(["m0", "m1", "m2"])
    first.leave()
    assert first.did("revoke")
    group.settled(["m1", "m2"], CLICKS)
    group.members["m1"].kill()
    group.settled(["m2"], CLICKS)
    group.works(["m2"])
    assert not any(member.did("lost") for member in group.members.values())


def test_a_member_past_its_session_timeout_is_fenced_and_rejoins(group):
    sleeper, other = group.join("m0"), group.join("m1")
    group.settled(["m0", "m1"], CLICKS)
    group.works(["m0", "m1"])
    sleeper.stop()
    until(lambda: len(group.held()["m1"]) == 8, group.held)
    group.works(["m1"])
    assert sleeper.process.poll() is None
    assert len(group.held()["m0"]) == 4  # so it believes
    sleeper.wake()
    group.settled(["m0", "m1"], CLICKS)
    group.works(["m0", "m1"])
    assert sleeper.did("lost")
    assert not other.did("lost")


def test_a_static_member_finds_its_partitions_after_a_restart(group):
    static = group.join("m0", group_instance_id="i0")
    group.join("m1", group_instance_id="i1")
    group.settled(["m0", "m1"], CLICKS)
    group.works(["m0", "m1"])
    had, epoch, changes = group.held()["m0"], group.seen[-1].group_epoch, group.changes()["m1"]
    static.leave()  # for a while: its instance id is kept for it
    group.join("m0-again", group_instance_id="i0")
    group.settled(["m0-again", "m1"], CLICKS)
    group.works(["m0-again"])
    assert group.held()["m0-again"] == had
    assert group.seen[-1].group_epoch == epoch
    assert group.changes()["m1"] == changes


def test_members_stay_when_another_process_takes_over(own, tmp_path):
    with Group(tmp_path, "g", [own.address]) as group:
        names = ["m0", "m1", "m2"]
        for name in names:
            group.join(name)
        group.settled(names, CLICKS)
        group.works(names)
        epoch, changes = group.seen[-1].group_epoch, group.changes()
        own.serve()  # stands by
        own.servers[0].kill()
        group.works(names)
        assert group.seen[-1].group_epoch == epoch
        assert group.changes() == changes
        group.join("m3")
        group.settled([*names, "m3"], CLICKS)


def test_an_admin_sees_and_changes_groups(coordinators, group):
    admin = AdminClient({"bootstrap.servers": coordinators.address})
    group.join("m0")
    group.settled(["m0"], CLICKS)
    group.works(["m0"])
    listed = admin.list_consumer_groups().result()
    assert (group.name, ConsumerGroupState.STABLE, ConsumerGroupType.CONSUMER) in [
        (one.group_id, one.state, one.type) for one in listed.valid
    ]
    found = done(admin.describe_consumer_groups([group.name]))[group.name]
    (member,) = found.members
    assert (found.partition_assignor, member.client_id, member.host) == (
        "uniform", "m0", "/127.0.0.1",
    )  # fmt: skip
    assert keys(member.assignment) == keys(member.target_assignment) == CLICKS
    nobody = done(admin.describe_consumer_groups(["nobody"]))["nobody"]
    assert nobody.state is ConsumerGroupState.DEAD
    with pytest.raises(KafkaException, match="not empty"):
        done(admin.delete_consumer_groups([group.name]))
    group.members["m0"].leave()
    offsets = committed(admin, group.name)
    assert set(offsets) == set(CLICKS)
    assert min(offsets.values()) > 0
    assert done(admin.delete_consumer_groups([group.name])) == {group.name: None}
    assert committed(admin, group.name) == {}


def test_an_admin_sets_offsets_that_members_resume_from(coordinators, group):
    admin = AdminClient({"bootstrap.servers": coordinators.address})
    group.begins = {"clicks/3": 4711, "clicks/4": 1}
    asked = [TopicPartition("clicks", 3, 4711), TopicPartition("clicks", 4, 1)]
    done(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group.name, asked)]))
    assert committed(admin, group.name) == group.begins
    member = group.join("m0", ["clicks"])
    group.settled(["m0"], CLICKS)
    group.works(["m0"])
    resumed = {x["partition"]: x["offset"] for x in member.lines() if x["what"] == "resume"}
    assert resumed == dict.fromkeys(CLICKS, 0) | group.begins


def test_an_admin_sets_a_group_to_another_time(coordinators):
    admin = AdminClient({"bootstrap.servers": coordinators.address})
    timeout = "consumer.session.timeout.ms"

    def set_and_read(operation, value):
        entry = ConfigEntry(timeout, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.GROUP, "set", incremental_configs=[entry])
        done(admin.incremental_alter_configs([resource]))
        (found,) = done(admin.describe_configs([resource])).values()
        return found[timeout].value

    assert set_and_read(AlterConfigOpType.SET, "1800") == "1800"
    with pytest.raises(KafkaException, match="is '7': give 1000 to 60000"):
        set_and_read(AlterConfigOpType.SET, "7")
    assert set_and_read(AlterConfigOpType.DELETE, None) == "6000"


def done(futures):
    """Wait for what an admin asked; the first failure is raised."""
    return {key: future.result() for key, future in futures.items()}


def keys(assignment):
    return sorted(f"{one.topic}/{one.partition}" for one in assignment.topic_partitions)


def committed(admin, group):
    found = done(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]))[group]
    return {f"{one.topic}/{one.partition}": one.offset for one in found.topic_partitions}


# The longer lives --------------------------------------------------------------------------------


@long
def test_twelve_members_under_constant_change(group):
    names = [f"m{number}" for number in range(12)]
    for name in names:
        group.join(name, ["clicks", "orders"])
    group.settled(names, CLICKS + ORDERS)  # eleven partitions: one member has none
    busy = [name for name, held in group.held().items() if held]
    group.works(busy)
    for name in ("m0", "m1"):
        group.members[name].kill()
    group.members["m2"].stop()
    group.members["m3"].leave()
    group.join("m12", ["orders"])
    group.join("m13", ["clicks"])
    until(lambda: not group.seen or len(group.seen[-1].members) == 10, lambda: group.seen[-1])
    group.members["m2"].wake()
    left = ["m2", *names[4:], "m12", "m13"]
    until(lambda: len(group.seen[-1].members) == len(left), lambda: group.seen[-1])
    until(lambda: spread(group, left) == sorted(CLICKS + ORDERS), group.held)


def spread(group, names):
    return sorted(partition for name in names for partition in group.held()[name])


@long
def test_a_regex_follows_topics_that_come(own, tmp_path):
    with Group(tmp_path, "g", [own.address]) as group:
        group.join("m0", ["^cl.*"])
        group.join("m1", ["clicks", "^or.*"])
        until(lambda: spread(group, ["m0", "m1"]) == sorted(CLICKS + ORDERS), group.held)
        assert group.held()["m1"] >= set(ORDERS)
        own.write_topics(TOPICS | {"clones": 4, "other": 9})
        clones = partitions("clones", 4)  # resolved ten seconds after the last time at the earliest
        until(lambda: spread(group, ["m0", "m1"]) == sorted(CLICKS + ORDERS + clones), group.held)
        assert group.held()["m0"] >= set(clones)


@long
def test_a_topic_grows(own, tmp_path):
    with Group(tmp_path, "g", [own.address]) as group:
        for name in ("m0", "m1", "m2"):
            group.join(name)
        group.settled(["m0", "m1", "m2"], CLICKS)
        own.write_topics({"clicks": 20})
        group.settled(["m0", "m1", "m2"], partitions("clicks", 20))
        group.works(["m0", "m1", "m2"])


@long
def test_a_successor_at_another_address(own, tmp_path):
    """Clients know both; the first coordinator ends as it should, its successor waits for that."""
    elsewhere = f"127.0.0.1:{free_port()}"
    with Group(tmp_path, "g", [own.address, elsewhere]) as group:
        for name in ("m0", "m1"):
            group.join(name)
        group.settled(["m0", "m1"], CLICKS)
        own.serve(elsewhere)
        changes = group.changes()
        own.servers[0].leave()
        own.await_served(elsewhere)
        group.works(["m0", "m1"])
        assert group.changes() == changes
        group.join("m2")
        group.settled(["m0", "m1", "m2"], CLICKS)


@long
def test_coordinators_are_killed_again_and_again(own, tmp_path):
    names = [f"m{number}" for number in range(6)]
    with Group(tmp_path, "g", [own.address]) as group:
        for name in names:
            group.join(name, ["clicks", "orders"])
        group.settled(names, CLICKS + ORDERS)
        for turn in range(4):
            own.serve()
            group.works(names)
            group.join(f"late{turn}", ["clicks", "orders"])  # killed while this one comes
            own.servers[-2].kill()
            names = [*names[1:], f"late{turn}"]
            group.members[f"m{turn}"].kill()
            group.settled(names, CLICKS + ORDERS)
