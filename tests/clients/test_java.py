"""Groups with members on the Java client (kafka-clients 4.4.0), alone and beside librdkafka's.

`make test-java` only: it needs a JDK, and Maven Central once. What is checked is as in test_clients.py.
"""

from __future__ import annotations

import os

import pytest

from spark_jobs.jars import JarsMissingError
from tests.clients.java import JavaMissingError, compiled
from tests.clients.world import PATIENCE_S, SETTINGS, Coordinators, Group, partitions, until

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_JAVA"), reason="make test-java")
TOPICS = {"clicks": 8, "orders": 3}
CLICKS = partitions("clicks", 8)


@pytest.fixture(scope="session")
def java(tmp_path_factory):
    """The command of a member."""
    try:
        return compiled(tmp_path_factory.mktemp("classes"))
    except (JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)


@pytest.fixture
def coordinators(tmp_path, java):
    with Coordinators(tmp_path, TOPICS) as served:
        yield served


@pytest.fixture
def group(coordinators, tmp_path):
    with Group(tmp_path, "g", [coordinators.address]) as group:
        yield group


def test_members_come_and_go_and_one_is_killed(group, java):
    first = group.join("j0", command=java)
    group.settled(["j0"], CLICKS)
    for name in ("j1", "j2"):
        group.join(name, command=java)
    group.settled(["j0", "j1", "j2"], CLICKS)
    group.works(["j0", "j1", "j2"])
    first.leave()
    group.settled(["j1", "j2"], CLICKS)
    group.members["j1"].kill()
    group.settled(["j2"], CLICKS)
    group.works(["j2"])


def test_members_on_both_clients_share_a_group(group, java):
    for name in ("j0", "j1", "j2"):
        group.join(name, command=java)
        group.join(name.replace("j", "m"))
    names = sorted(group.members)
    group.settled(names, CLICKS)
    group.works(names)
    for gone in ("j0", "m0"):
        group.members[gone].leave()
    left = [name for name in names if name not in {"j0", "m0"}]
    group.settled(left, CLICKS)
    group.works(left)


def test_a_member_past_its_session_timeout_is_fenced_and_rejoins(group, java):
    sleeper = group.join("j0", command=java)
    group.join("j1", command=java)
    group.settled(["j0", "j1"], CLICKS)
    group.works(["j0", "j1"])
    sleeper.stop()
    until(lambda: len(group.held()["j1"]) == 8, group.held)
    sleeper.wake()
    group.settled(["j0", "j1"], CLICKS)
    group.works(["j0", "j1"])
    assert sleeper.did("lost")


def test_a_static_member_finds_its_partitions_after_a_restart(group, java):
    static = group.join("j0", command=java, group_instance_id="i0")
    group.join("j1", command=java, group_instance_id="i1")
    group.settled(["j0", "j1"], CLICKS)
    group.works(["j0", "j1"])
    had, changes = group.held()["j0"], group.changes()["j1"]
    static.leave()
    group.join("j0-again", command=java, group_instance_id="i0")
    group.settled(["j0-again", "j1"], CLICKS)
    group.works(["j0-again"])
    assert group.held()["j0-again"] == had
    assert group.changes()["j1"] == changes


def test_a_regex_and_a_topic_that_grows(coordinators, group, java):
    for name in ("j0", "j1"):
        group.join(name, ["^cl.*"], command=java)
    group.settled(["j0", "j1"], CLICKS)
    coordinators.write_topics({"clicks": 20})
    group.settled(["j0", "j1"], partitions("clicks", 20))
    group.works(["j0", "j1"])


def test_members_stay_when_another_process_takes_over(coordinators, group, java):
    for name in ("j0", "j1", "j2"):
        group.join(name, command=java)
    group.settled(["j0", "j1", "j2"], CLICKS)
    group.works(["j0", "j1", "j2"])
    changes = group.changes()
    coordinators.serve()
    coordinators.servers[0].kill()
    group.works(["j0", "j1", "j2"])
    assert group.changes() == changes
    group.join("j3", command=java)
    group.settled(["j0", "j1", "j2", "j3"], CLICKS)


@pytest.mark.parametrize("subscribed", ["clicks", "^cl.*"])
def test_the_first_partitions_need_no_second_interval(tmp_path, java, subscribed):
    """B1: the second heartbeat, which follows at once, brought nothing to a pattern."""
    slow = SETTINGS.replace('heartbeat.interval.ms" = 400', 'heartbeat.interval.ms" = 600000')
    slow = slow.replace('assignment.interval.ms" = 100', 'assignment.interval.ms" = 1000')
    slow = slow.replace('session.timeout.ms" = 6000', 'session.timeout.ms" = 1200000')
    slow += '"group.consumer.max.heartbeat.interval.ms" = 600000\n'
    slow += '"group.consumer.max.session.timeout.ms" = 1200000\n'
    assert PATIENCE_S < 600
    with (
        Coordinators(tmp_path, TOPICS, slow) as served,
        Group(tmp_path, "g", [served.address]) as group,
    ):
        group.join("j0", [subscribed], command=java)
        group.settled(["j0"], CLICKS)
