"""Kafka's own command-line tools (4.3.1) against a coordinator: what each of them prints.

`make test-java` only: it needs Java, and Maven Central once. B2 was that most of them failed.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from coordinator.wire.apis.list_offsets_api import END
from spark_jobs.jars import JarsMissingError
from tests.clients.java import JavaMissingError, tools
from tests.clients.world import Coordinators, Group, partitions

pytestmark = pytest.mark.skipif(not os.environ.get("MUSTER_JAVA"), reason="make test-java")
TOPICS = {"clicks": 4, "orders": 2}
EVERY = partitions("clicks", 4) + partitions("orders", 2)
TOOL = "org.apache.kafka.tools."
TIMEOUT = "consumer.session.timeout.ms"


class Tools:
    """Kafka's tools, with the address of one coordinator."""

    def __init__(self, command, address):
        self._command = command
        self._server = ("--bootstrap-server", address)

    def __call__(self, tool, *words, server_first=True):
        """Run a tool; return what it printed as rows of words."""
        at, after = (self._server, ()) if server_first else ((), self._server)
        done = subprocess.run(
            [*self._command, tool, *at, *words, *after],
            check=False, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        said = f"{done.stdout}\n{done.stderr}"
        for failure in ("Unsupported", "NoClassDef", "\tat "):
            assert failure not in said, said
        rows = [line.split() for line in said.splitlines() if not line.startswith("SLF4J")]
        return [row for row in rows if row]

    def topics(self, *words):
        return self(f"{TOOL}TopicCommand", *words)

    def configs(self, *words):
        return self("kafka.admin.ConfigCommand", *words)

    def groups(self, *words):
        return self(f"{TOOL}consumer.group.ConsumerGroupCommand", *words)

    def offsets(self, *words):
        return sorted(one for (one,) in self(f"{TOOL}GetOffsetShell", *words))

    def reset(self, *words):
        """Reset offsets; return them by partition."""
        said = self.groups("--reset-offsets", "--group", "reset", *words)
        head = said.index(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"])
        return {f"{topic}/{number}": int(offset) for _, topic, number, offset in said[head + 1 :]}

    def committed(self, group):
        """Return what a group has committed, by partition."""
        return self._column(group, "CURRENT-OFFSET")

    def lag(self, group):
        """Return what a group has not read yet, by partition."""
        return self._column(group, "LAG")

    def _column(self, group, name):
        head, *rows = self.groups("--describe", "--group", group, "--offsets")
        at = head.index(name)
        return {f"{row[1]}/{row[2]}": int(row[at]) for row in rows if row[0] == group}


@pytest.fixture(scope="module")
def coordinators(tmp_path_factory):
    with Coordinators(tmp_path_factory.mktemp("served"), TOPICS) as served:
        yield served


@pytest.fixture(scope="module")
def run(coordinators):
    try:
        return Tools(tools(), coordinators.address)
    except (JavaMissingError, JarsMissingError) as missing:
        pytest.fail(str(missing), pytrace=False)


def test_topics_are_listed_and_described(run):
    assert run.topics("--list") == [["clicks"], ["orders"]]
    described = run.topics("--describe")
    heads = [row for row in described if row[0] == "Topic:" and "PartitionCount:" in row]
    assert [(row[1], row[row.index("PartitionCount:") + 1]) for row in heads] == [
        ("clicks", "4"), ("orders", "2")
    ]  # fmt: skip
    lines = [row for row in described if row not in heads]
    assert [f"{row[1]}/{row[3]}" for row in lines] == EVERY
    assert all(row[4:10] == ["Leader:", "1", "Replicas:", "1", "Isr:", "1"] for row in lines)
    assert run.topics("--describe", "--at-min-isr-partitions") == lines
    for nothing in ("--under-min-isr-partitions", "--unavailable-partitions"):
        assert run.topics("--describe", nothing) == []
    (unknown,) = run.topics("--describe", "--topic", "nowhere")
    assert " ".join(unknown).endswith("Topic 'nowhere' does not exist as expected")


def test_settings_of_topics_and_brokers_are_described(run):
    entity = "--describe", "--entity-type"
    assert [row[4] for row in run.configs(*entity, "topics")] == ["clicks", "orders"]
    _, setting = run.configs(*entity, "topics", "--entity-name", "clicks", "--all")
    assert setting[0] == "min.insync.replicas=1"
    heads = [" ".join(row) for row in run.configs(*entity, "brokers")]
    assert heads == [
        "Dynamic configs for broker 1 are:",
        "Default configs for brokers in the cluster are:",
    ]
    _, *settings = run.configs(*entity, "brokers", "--entity-name", "1", "--all")
    heartbeat = [row for row in settings if row[0] == "group.consumer.heartbeat.interval.ms=400"]
    assert "STATIC_BROKER_CONFIG" in heartbeat[0][2]
    assert run.configs(*entity, "client-metrics") == []
    (head,) = run.configs(*entity, "broker-loggers", "--entity-name", "1")
    assert head[3:] == ["broker-logger", "1", "are:"]


def test_settings_of_groups_are_altered_and_described(run):
    of_group = "--entity-type", "groups", "--entity-name", "set"
    done = [["Completed", "updating", "config", "for", "group", "set."]]
    assert run.configs("--alter", *of_group, "--add-config", f"{TIMEOUT}=1800") == done
    head = ["Dynamic", "configs", "for", "group", "set", "are:"]
    for asked in (of_group, of_group[:2]):  # of one, of all
        said = run.configs("--describe", *asked)
        assert said[said.index(head) + 1][0] == f"{TIMEOUT}=1800"
    assert run.configs("--alter", *of_group, "--delete-config", TIMEOUT) == done
    assert head not in run.configs("--describe", *of_group[:2])


def test_a_group_with_members_is_shown_and_left_alone(run, coordinators, tmp_path):
    with Group(tmp_path, "g", [coordinators.address]) as group:
        group.join("m0", ["clicks", "orders"])
        group.settled(["m0"], EVERY)
        group.works(["m0"])
        assert ["g", "Stable"] in run.groups("--list", "--state")
        assert ["g", "Consumer"] in run.groups("--list", "--type")
        assert ["g", "Consumer", "consumer"] in run(f"{TOOL}GroupsCommand", "--list")
        head, *rows = run.groups("--describe", "--group", "g", "--offsets", "--verbose")
        column = {name: number for number, name in enumerate(head)}
        assert [f"{row[1]}/{row[2]}" for row in rows] == EVERY
        assert {row[column["CLIENT-ID"]] for row in rows} == {"m0"}
        assert all(int(row[column["CURRENT-OFFSET"]]) > 0 for row in rows)
        _, (_, _, host, name, count, *_) = run.groups("--describe", "--group", "g", "--members")
        assert (host, name, count) == ("/127.0.0.1", "m0", "6")
        _, member = run.groups("--describe", "--group", "g", "--members", "--verbose")
        assert "clicks:0,1,2,3;orders:0,1" in member
        _, state = run.groups("--describe", "--group", "g", "--state", "--verbose")
        assert state[3:5] + state[-1:] == ["uniform", "Stable", "1"]
        for why, *words in (
            ["GroupNotEmptyException", "--delete"],
            ["subscribed", "--delete-offsets", "--topic", "clicks"],
            ["inactive,", "--reset-offsets", "--topic", "clicks", "--to-latest", "--execute"],
        ):
            said = run.groups(*words, "--group", "g")
            assert any(why in word for row in said for word in row), said
        group.members["m0"].leave()


def test_a_classic_group_is_shown_left_alone_reset_and_deleted(run, coordinators, tmp_path):
    classic = {"group_protocol": "classic", "heartbeat_interval_ms": 500}
    with Group(tmp_path, "old", [coordinators.address]) as group:
        group.join("m0", ["clicks", "orders"], **classic)
        group.settled(["m0"], EVERY)
        group.works(["m0"])
        assert ["old", "Stable"] in run.groups("--list", "--state", "stable")
        assert ["old", "Classic"] in run.groups("--list", "--type", "classic")
        assert ["old", "Classic", "consumer"] in run(f"{TOOL}GroupsCommand", "--list")
        head, *rows = run.groups("--describe", "--group", "old", "--offsets")
        column = {name: number for number, name in enumerate(head)}
        assert [f"{row[1]}/{row[2]}" for row in rows] == EVERY
        assert {row[column["CLIENT-ID"]] for row in rows} == {"m0"}
        assert all(int(row[column["CURRENT-OFFSET"]]) > 0 for row in rows)
        _, member = run.groups("--describe", "--group", "old", "--members", "--verbose")
        assert (member[2], member[3], member[4]) == ("/127.0.0.1", "m0", "6")
        assert "clicks:0,1,2,3;orders:0,1" in member
        _, state = run.groups("--describe", "--group", "old", "--state")
        assert state[-3:] == ["range", "Stable", "1"]
        for why, *words in (
            ["GroupNotEmptyException", "--delete"],
            ["subscribed", "--delete-offsets", "--topic", "clicks"],
            ["inactive,", "--reset-offsets", "--topic", "clicks", "--to-latest", "--execute"],
        ):
            said = run.groups(*words, "--group", "old")
            assert any(why in word for row in said for word in row), said
        group.members["m0"].leave()
    said = run.groups(
        *("--reset-offsets", "--group", "old", "--all-topics", "--to-offset", "7", "--execute")
    )
    head = said.index(["GROUP", "TOPIC", "PARTITION", "NEW-OFFSET"])
    assert sorted((f"{row[1]}/{row[2]}", row[3]) for row in said[head + 1 :]) == [
        (one, "7") for one in EVERY
    ]
    assert run.committed("old") == dict.fromkeys(EVERY, 7)
    assert ["old", "Empty"] in run.groups("--list", "--state", "empty")
    (said,) = run.groups("--delete", "--group", "old")
    assert " ".join(said) == "Deletion of requested consumer groups ('old') was successful."
    assert ["old"] not in run.groups("--list")


def test_offsets_are_reset_in_every_way_and_deleted(run, tmp_path):
    """A group of nothing but offsets is a classic one without members."""

    def clicks(offset):
        return dict.fromkeys(partitions("clicks", 4), offset)

    for offset in (555, 2**53, 555):
        asked = "--to-offset", str(offset)
        assert run.reset("--topic", "clicks", *asked, "--execute") == clicks(offset)
        assert run.committed("reset") == clicks(offset)
    for way, offset in (
        (["--shift-by", "45"], 600),
        (["--to-current"], 600),
        (["--shift-by", "-100"], 500),
    ):
        assert run.reset("--topic", "clicks", *way, "--execute") == clicks(offset)
        assert run.committed("reset") == clicks(offset)
    for way in (
        ["--to-latest"],
        ["--to-datetime", "2026-01-01T00:00:00.000"],
        ["--by-duration", "PT1H"],
    ):
        said = run.groups("--reset-offsets", "--group", "reset", "--all-topics", *way, "--execute")
        assert any("OffsetOutOfRangeException" in word for row in said for word in row), said
        assert run.committed("reset") == clicks(500)
    exported = run.groups(
        "--reset-offsets", "--group", "reset", "--topic", "clicks", "--to-current", "--export",
        "--dry-run",
    )  # fmt: skip
    assert sorted(exported) == [[f"clicks,{number},500"] for number in range(4)]
    assert run.reset("--topic", "clicks", "--to-earliest", "--execute") == clicks(0)
    file = tmp_path / "plan.csv"
    file.write_text("clicks,1,77\n")
    assert run.reset("--topic", "clicks", "--from-file", str(file), "--execute") == {"clicks/1": 77}
    assert run.committed("reset") == clicks(0) | {"clicks/1": 77}
    rows = run.groups("--describe", "--all-groups", "--state")
    assert [row[-2:] for row in rows if row[0] == "reset"] == [["Empty", "0"]]
    *_, deleted = run.groups("--delete-offsets", "--group", "reset", "--topic", "clicks:0")
    assert deleted == ["clicks", "0", "Successful"]
    assert list(run.committed("reset")) == partitions("clicks", 4)[1:]
    (said,) = run.groups("--delete", "--group", "reset")
    assert " ".join(said) == "Deletion of requested consumer groups ('reset') was successful."
    assert ["reset"] not in run.groups("--list")


def test_partitions_begin_at_0_and_have_no_known_end_and_no_record_has_a_time(run):
    """B3: the Java client threw where an offset came beside timestamp -1."""
    for time, offset in (("latest", END), ("earliest", 0), ("earliest-local", 0)):
        every = [f"{one.replace('/', ':')}:{offset}" for one in EVERY]
        assert run.offsets("--time", time) == every
    for time in ("max-timestamp", "latest-tiered", "earliest-pending-upload", "1700000000000"):
        assert run.offsets("--time", time) == []


def test_other_tools_find_this_node_and_nothing_else(run):
    (cluster,) = run(f"{TOOL}ClusterTool", "cluster-id", server_first=False)
    assert cluster == ["Cluster", "ID:", "muster"]
    status = dict(row[:2] for row in run(f"{TOOL}MetadataQuorumCommand", "describe", "--status"))
    assert (status["LeaderId:"], status["MaxFollowerLag:"]) == ("1", "0")
    *_, found = run(f"{TOOL}LogDirsCommand", "--describe")
    (broker,) = json.loads("".join(found))["brokers"]
    assert broker["logDirs"] == [{"partitions": [], "error": None, "logDir": "none"}]
    (head,) = run(f"{TOOL}TransactionsCommand", "list")
    assert head[0] == "TransactionalId"
    said = run(f"{TOOL}reassign.ReassignPartitionsCommand", "--list")
    assert ["No", "partition", "reassignments", "found."] in said, said
    versions = run(f"{TOOL}BrokerApiVersionsCommand")
    assert ["DescribeConfigs(32):", "1", "to", "4", "[usable:", "4],"] in versions
    for share_or_streams in ("consumer.group.ShareGroupCommand", "streams.StreamsGroupCommand"):
        assert run(f"{TOOL}{share_or_streams}", "--list") == []
