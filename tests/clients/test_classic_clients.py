"""The classic protocol by every client for Python, each member a process of its own.

Every client lives the same lives, and each ends in `tests.clients.checker`. `make test-clients` only:
kafka-python and aiokafka are fetched once.
"""

from __future__ import annotations

import os
import re

import pytest

from tests.clients.python_clients import ClientMissingError, member_of
from tests.clients.world import MEMBER, Coordinators, Group, partitions, until

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_LONG"), reason="make test-clients")
TOPICS = {"clicks": 8}
CLICKS = partitions("clicks", 8)
SOON = {"heartbeat_interval_ms": 500}
SHORT = {"session_timeout_ms": 6000}
"""The shortest that a broker allows, where a session is to end; all else is the client's default."""
CLIENTS = {
    "librdkafka": (None, {"group_protocol": "classic"}),
    "librdkafka-cooperative": (
        None,
        {"group_protocol": "classic", "partition_assignment_strategy": "cooperative-sticky"},
    ),
    "kafka-python": ("kafka_python.py", {"reconnect_backoff_max_ms": 1000}),  # else half a minute
    "aiokafka": ("aiokafka_member.py", {}),
}


@pytest.fixture(scope="module", params=CLIENTS)
def client(request):
    """The command and the settings of a member."""
    file, settings = CLIENTS[request.param]
    try:
        return {"command": member_of(file) if file else MEMBER} | SOON | settings
    except ClientMissingError as missing:
        pytest.fail(str(missing), pytrace=False)


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


def test_members_come_and_go_and_resume_where_others_stopped(group, client):
    joined(group, client | SHORT, ["m0", "m1", "m2"])
    group.members["m0"].leave()
    group.settled(["m1", "m2"], CLICKS)
    group.works(["m1", "m2"])
    group.members["m1"].kill()
    group.settled(["m2"], CLICKS)
    group.works(["m2"])
    group.members["m2"].leave()  # nobody is left; the offsets are
    last = group.join("m3", **client)
    group.settled(["m3"], CLICKS)
    group.works(["m3"])
    resumed = [line["offset"] for line in last.lines() if line["what"] == "resume"]
    assert len(resumed) == 8
    assert min(resumed) > 0


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


def test_members_stay_when_another_process_takes_over(client, tmp_path):
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
        assert group.changes() == changes
        group.join("m3", **client)
        group.settled([*names, "m3"], CLICKS)
        group.works([*names, "m3"])


def test_a_member_past_its_session_timeout_rejoins(group, client, request):
    if "aiokafka" in request.node.name:
        pytest.skip("aiokafka does not tell its user that partitions were lost")
    joined(group, client | SHORT, ["m0", "m1"])
    group.members["m0"].stop()
    until(lambda: len(group.held()["m1"]) == 8, group.held)
    group.works(["m1"])
    group.members["m0"].wake()
    group.settled(["m0", "m1"], CLICKS)
    group.works(["m0", "m1"])
