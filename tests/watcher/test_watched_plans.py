"""What Muster's assignors would do for groups that Kafka coordinates: shown, and never applied."""

import json
from uuid import UUID

import pytest

from coordinator.core.events import CatalogTopic
from coordinator.core.state.embedded import (
    Assignment,
    Subscription,
    write_assignment,
    write_subscription,
)
from coordinator.core.state.records import KafkaWatched
from coordinator.watcher.watch import watch
from coordinator.watcher.watched_store import WatchedStore

from .recorded import FOLDER
from .test_watched_store import rows
from .written import MEMBER, batch, current, held, offset_of, record

CLUSTER = KafkaWatched("cluster-1", "records", 1)
TOPIC = 1
ID = "AAAAAAAAAAAAAAAAAAAAAQ"
LOADS = {0: 9, 1: 1, 2: 1, 3: 1}


def consumer_group(group_id):
    """Two members: the first has partitions 0 to 2 of four, and all but one of the weight."""
    key, owned = {"group_id": group_id}, {"m1": [0, 1, 2], "m2": [3]}
    found = [record(5, {**key, "member_id": one}, MEMBER) for one in owned]
    found.append(record(3, key, {"epoch": 2}))
    for one, partitions in owned.items():
        topics = {"topic_partitions": held(TOPIC, partitions)}
        found.append(record(7, {**key, "member_id": one}, topics))
    found.append(record(6, key, {"assignment_epoch": 2, "assignment_timestamp": 1}))
    for one, partitions in owned.items():
        found.append(record(8, {**key, "member_id": one}, current(2, held(TOPIC, partitions))))
    return found


def classic_group(group_id, protocol_type="consumer"):
    owned = {"m1": [0, 1, 2], "m2": [3]}
    members = [
        {
            "member_id": one,
            "instance_id": None,
            "client_id": "c",
            "client_host": "/h",
            "rebalance_timeout": 1,
            "session_timeout": 1,
            "subscription": write_subscription(Subscription(1, ["t"])),
            "assignment": write_assignment(Assignment(1, {"t": partitions})),
        }
        for one, partitions in owned.items()
    ]
    value = {
        "protocol_type": protocol_type,
        "generation": 3,
        "protocol": "range",
        "leader": "m1",
        "current_state_timestamp": 1,
        "members": members
        if protocol_type == "consumer"
        else [{**members[0], "subscription": b""}],
    }
    return [record(2, {"group_id": group_id}, value, version=3)]


@pytest.fixture
def folder(tmp_path):
    """A store that is no longer watched, and weights beside it."""
    with WatchedStore.open(tmp_path / "store", CLUSTER, is_live=False) as store:
        store.report_topics({"t": CatalogTopic(ID, 4)}, 1)
        at = 0
        for some in (
            consumer_group("g"), classic_group("c"), classic_group("connect", "connect"),
            [offset_of("g")],
        ):  # fmt: skip
            moved = [one._replace(offset=at + n) for n, one in enumerate(some)]
            store.take(0, [batch(moved)])
            at += len(some)
        store.flush()
    lines = [f"t,{partition},{weight}" for partition, weight in LOADS.items()]
    (tmp_path / "weights.csv").write_text("\n".join(["topic,partition,weight", *lines]) + "\n")
    return tmp_path


@pytest.fixture
def plan(folder, muster_here):
    """Show a plan: its moves, and what is said of it."""

    def run(*options):
        done = muster_here("plan", *options, "--store", folder / "store", "--json")
        assert done.returncode == 0, done.stderr.decode()
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[:-1], lines[-1]

    return run


def test_the_topic_has_the_id_that_kafka_writes():
    assert UUID(int=TOPIC).bytes.hex().endswith("01")


@pytest.mark.parametrize("group", ["g", "c"])
def test_weights_are_given_for_one_plan(folder, plan, group):
    before = rows(folder / "store")
    moves, summary = plan(group, "--weights", str(folder / "weights.csv"))
    assert (summary["makespan_before"], summary["makespan_after"], summary["lower_bound"]) == (
        11,
        9,
        9,
    )
    assert summary["overloaded"] == [{"member_id": "m1", "load": 11.0}]
    assert {(one["from_member_id"], one["to_member_id"]) for one in moves} == {("m1", "m2")}
    assert "not the Kafka cluster cluster-1, with the weights given" in summary["supposes"]
    assert summary["assignor"] == "weighted"
    assert rows(folder / "store") == before


@pytest.mark.parametrize("group", ["g", "c"])
def test_what_a_new_member_would_get(plan, group):
    moves, summary = plan(group, "--add", "1", "--assignor", "uniform")
    assert {one["to_member_id"] for one in moves} == {"added-1"}
    assert (summary["members"], summary["makespan_after"]) == (3, 2)


def test_a_plan_is_not_applied(folder, plan, muster_here):
    file, store = str(folder / "plan.json"), str(folder / "store")
    plan("g", "--assignor", "uniform", "-o", file)
    before = rows(folder / "store")
    for command in (["apply", file], ["approve", "g", "x"], ["reject", "g", "x"]):
        done = muster_here(*command, "--store", store)
        assert done.returncode == 2
        assert b"cluster-1 coordinates the groups" in done.stderr
    assert rows(folder / "store") == before


def test_a_group_of_another_protocol_type_has_no_plan(folder, muster_here):
    done = muster_here("plan", "connect", "--store", folder / "store")
    assert done.returncode == 2
    assert b"plans are for groups of consumers" in done.stderr


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A recorded topic of Kafka's as a store."""
    path = tmp_path_factory.mktemp("recorded") / "store"
    with watch(FOLDER / "wide-02.jsonl", path) as watched:
        watched.wait(60)
    return path


def test_plans_for_a_recorded_group(recorded, muster_here):
    """Nobody has less than must be, what moves is counted, and a new member gets what it says."""

    def plan(*options):
        done = muster_here("plan", "g", *options, "--store", recorded, "--json")
        assert done.returncode == 0, done.stderr.decode()
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return lines[:-1], lines[-1]

    for options in (("--assignor", "weighted"), ("--add", "2")):
        moves, summary = plan(*options)
        assert summary["makespan_after"] >= summary["lower_bound"]
        assert summary["makespan_before"] >= summary["makespan_after"] or summary["placed"]
        taken = [one for one in moves if one["from_member_id"]]
        assert sum(one["partition_count"] for one in taken) == summary["moved"]
        assert all(one["load"] > summary["lower_bound"] for one in summary["overloaded"])
        assert "not the Kafka cluster" in summary["supposes"]
    new = {one["to_member_id"] for one in moves} & {"added-1", "added-2"}
    assert new, "what a new member would get"
    assert summary["supposes"].endswith("with 2 more members")


def test_a_plan_says_which_partitions_no_member_keeps(recorded, muster_here):
    done = muster_here("plan", "g", "--store", recorded, "--json")
    summary = json.loads(done.stdout.splitlines()[-1])
    found = {one["finding"]: one for one in summary["findings"]}
    assert "flapping_partitions" in found
    for one in found.values():
        assert one["total"] >= len(one["rows"]) > 0
        assert {row["group_id"] for row in one["rows"]} == {"g"}
    done = muster_here("doctor", "g", "--store", recorded, "--only", "flapping_partitions")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["moves"] for row in rows[:10]] == [
        row["moves"] for row in found["flapping_partitions"]["rows"]
    ]
    # At rest, as in the first moment, nothing is said.
    done = muster_here("plan", "g", "--store", recorded, "--as-of", "40", "--json")
    assert "findings" not in json.loads(done.stdout.splitlines()[-1])
