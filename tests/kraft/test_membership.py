"""What a node is given and gives back, what may be in its way, and as what it registers."""

from __future__ import annotations

from uuid import UUID

import pytest

from coordinator.cli.node import parse_partitions
from coordinator.config import ConfigError
from coordinator.kraft.membership import (
    BAD,
    OK,
    WARNING,
    Move,
    check_cluster,
    find_late,
    move_elsewhere,
    plan_join,
    plan_leave,
    plan_order,
    takes_replicas,
)
from coordinator.kraft.metadata_image import Endpoint
from coordinator.kraft.node import check_id_is_free
from coordinator.kraft.node_files import Identity
from coordinator.kraft.registration import (
    Place,
    choose_rack,
    find_misplaced,
    find_replicas,
    find_strays,
    heartbeat,
    is_let_in,
    must_not_lead,
    registration,
)
from tests.support.processes import run_as_text

from .conftest import HERE, NODE

TOPIC = "__consumer_offsets"
EVERY_RIGHT = 0xFFFF


def give(image, name, number, replicas, **changes):
    partitions = image.topic(name).partitions
    partitions[number] = partitions[number]._replace(replicas=replicas, **changes)


# Plans -----------------------------------------------------------------------------------------


def test_a_node_joins_as_the_last_replica(image):
    give(image, TOPIC, 1, (1, 2, NODE))
    assert plan_join(image, NODE, {0, 1, 2}) == [
        Move(TOPIC, 0, (2, 1), (2, 1, NODE)),
        Move(TOPIC, 2, (1, 2), (1, 2, NODE)),
    ]


def test_a_node_leaves_all_that_it_has(image):
    give(image, TOPIC, 0, (2, NODE, 1))
    give(image, "orders", 3, (NODE, 1))
    assert plan_leave(image, NODE) == [
        Move(TOPIC, 0, (2, NODE, 1), (2, 1)),
        Move("orders", 3, (NODE, 1), (1,)),
    ]
    assert plan_leave(image, NODE, {0}) == [Move(TOPIC, 0, (2, NODE, 1), (2, 1))]


def listen(image):
    image.brokers[NODE] = image.brokers[NODE]._replace(endpoints=image.brokers[1].endpoints)
    image.settings[2, TOPIC] = {"min.insync.replicas": "2"}


def test_a_node_leads_as_the_first_replica_and_yields_as_the_last(image):
    listen(image)
    give(image, TOPIC, 0, (2, 1, NODE))
    give(image, TOPIC, 1, (NODE, 1, 2))
    assert plan_order(image, NODE, {0, 1}, leads=True) == [
        Move(TOPIC, 0, (2, 1, NODE), (NODE, 2, 1)),
        Move(TOPIC, 1, (NODE, 1, 2), (NODE, 1, 2)),
    ]
    assert plan_order(image, NODE, {1}, leads=False) == [Move(TOPIC, 1, (NODE, 1, 2), (1, 2, NODE))]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda image: give(image, TOPIC, 0, (2, 1)), "`muster node join` makes it one"),
        (lambda image: give(image, TOPIC, 0, (2, NODE)), "has 1 other replicas"),
        (lambda image: give(image, TOPIC, 0, (2, 1, NODE), adding=(3,)), "is being reassigned"),
        (lambda image: image.settings.pop((2, TOPIC)), "min.insync.replicas of"),
        (lambda image: fence(image, NODE), "is fenced"),
        (
            lambda image: image.brokers.update({NODE: image.brokers[NODE]._replace(endpoints=())}),
            "start `muster node` with --listen",
        ),
    ],
)
def test_a_node_does_not_lead_what_would_not_survive_it(image, change, words):
    listen(image)
    give(image, TOPIC, 0, (2, 1, NODE))
    change(image)
    with pytest.raises(ConfigError, match=words):
        plan_order(image, NODE, {0}, leads=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda image: image.brokers.pop(NODE), "is not registered: start `muster node`"),
        (lambda image: fence(image, NODE), "is fenced: it sends no heartbeats"),
        (lambda image: give(image, TOPIC, 0, (2, 1), adding=(3,)), "is being reassigned already"),
        (lambda image: image.topic(TOPIC).partitions.pop(0), "has 0: __consumer_offsets has"),
        (lambda image: image.topic_ids.pop(TOPIC), "has no topic __consumer_offsets yet"),
    ],
)
def test_a_node_that_cannot_join_is_refused(image, change, words):
    change(image)
    with pytest.raises(ConfigError, match=words):
        plan_join(image, NODE, {0})


def fence(image, node_id):
    image.brokers[node_id] = image.brokers[node_id]._replace(is_fenced=True)


def test_a_node_that_cannot_leave_is_refused(image):
    with pytest.raises(
        ConfigError, match="has 2: node 1001 is not a replica of __consumer_offsets-2"
    ):
        plan_leave(image, NODE, {2})
    give(image, TOPIC, 2, (NODE,))
    with pytest.raises(ConfigError, match="__consumer_offsets-2 has no other replica"):
        plan_leave(image, NODE)
    with pytest.raises(ConfigError, match="node 55 is not registered"):
        plan_leave(image, 55)


def test_brokers_that_keep_a_node_from_leaving_are_named(image):
    give(image, TOPIC, 0, (2, NODE, 1), isr=(1, NODE))
    give(image, TOPIC, 1, (2, NODE, 1), isr=(1, 2))
    moves = plan_leave(image, NODE)
    assert find_late(image, moves) == [2]
    del image.topic_ids[TOPIC]  # meanwhile
    assert find_late(image, moves) == []


def test_a_replica_that_was_placed_here_goes_to_the_broker_that_has_the_fewest(image):
    give(image, "orders", 0, (NODE,))
    give(image, "orders", 1, (1, NODE))
    fence(image, 1)
    assert move_elsewhere("orders", 0, image, NODE).after == (2,)
    assert move_elsewhere("orders", 1, image, NODE).after == (1, 2)
    image.brokers[2] = image.brokers[2]._replace(cordoned_log_dirs=(HERE,))  # another node
    assert move_elsewhere("orders", 0, image, NODE).after == ()
    image.brokers[2] = image.brokers[2]._replace(cordoned_log_dirs=())
    fence(image, 2)
    assert move_elsewhere("orders", 0, image, NODE).after == ()
    assert [(topic.name, number) for topic, number in find_strays(image, NODE)] == [
        ("orders", 0), ("orders", 1),
    ]  # fmt: skip


# Checks ----------------------------------------------------------------------------------------


def check(image, operations=EVERY_RIGHT, node_id=NODE, rack=None, *, is_ours=True, obstacle=""):
    found = check_cluster(image, operations, node_id, rack, is_ours=is_ours, obstacle=obstacle)
    return {one.subject: one.level for one in found}


def test_a_sound_cluster_has_one_warning_at_most(image):
    assert check(image, obstacle="brokers map certificates")["leading"] == WARNING
    found = check(image)
    assert found.pop(TOPIC) == WARNING  # min.insync.replicas is 1 there
    assert set(found.values()) == {OK}
    image.settings[2, TOPIC]["min.insync.replicas"] = "2"
    assert check(image)[TOPIC] == OK


def test_what_is_in_the_way_is_found(image):
    assert check(image, 1 << 9 | 1 << 8)["ALTER"] == BAD
    assert check(image, is_ours=False)["node id"] == BAD
    assert check(image, rack="c")["rack"] == BAD
    image.topic_ids["__CruiseControlMetrics"] = UUID(int=5)
    assert check(image)["Cruise Control"] == WARNING
    strimzi = Endpoint("REPLICATION-9091", "h", 9091, 1)
    image.brokers[1] = image.brokers[1]._replace(endpoints=(strimzi,))
    assert check(image)["Strimzi"] == BAD
    for level, result in ((29, WARNING), (30, OK)):
        image.features["metadata.version"] = level
        assert check(image)["cordon"] == result
    image.features["metadata.version"] = 34
    assert check(image)["metadata.version"] == BAD
    give(image, TOPIC, 0, (2, 1, NODE))
    assert check(image)["replicas"] == WARNING
    give(image, TOPIC, 0, (2, 1, NODE), isr=(2, 1, NODE))
    assert check(image)["replicas"] == OK
    give(image, "orders", 0, (NODE,))
    assert check(image)["strays"] == BAD
    del image.topic_ids[TOPIC]
    assert check(image)[TOPIC] == WARNING


def test_a_new_node_takes_no_id_of_a_broker(image):
    check_id_is_free(image, IDENTITY._replace(node_id=44))
    ours = image.brokers[2].incarnation_id  # registered, and killed before it knew
    check_id_is_free(image, IDENTITY._replace(node_id=2, incarnation_id=ours))
    with pytest.raises(ConfigError, match="a broker of the cluster, which is alive"):
        check_id_is_free(image, IDENTITY._replace(node_id=1))
    fence(image, 2)
    with pytest.raises(ConfigError, match="a broker of the cluster, which is down"):
        check_id_is_free(image, IDENTITY._replace(node_id=2))


def test_a_node_has_a_rack_that_others_have(image):
    assert choose_rack(image, NODE, None) is None
    with pytest.raises(ConfigError, match="no broker has a rack: leave it out"):
        choose_rack(image, NODE, "a")
    image.brokers[1] = image.brokers[1]._replace(rack="a")
    assert choose_rack(image, NODE, "a") == "a"
    image.brokers[NODE] = image.brokers[NODE]._replace(rack="mine")
    for wanted in (None, "mine"):
        with pytest.raises(ConfigError, match="give a rack that brokers have, a;"):
            choose_rack(image, NODE, wanted)


# Registration and heartbeats -------------------------------------------------------------------

IDENTITY = Identity(NODE, "c", UUID(int=1), HERE, -1)


def beat(image, *, takes=False, stops=False):
    fence = must_not_lead(image, NODE)
    return heartbeat(
        image, IDENTITY, 7, 90, takes_replicas=takes, shuts_down=stops, wants_fence=fence
    )


def test_a_node_supports_every_level_of_what_it_does_not_read(image):
    asked = registration(image, IDENTITY, Place("h", 9, None))
    levels = {
        one["name"]: (one["min_supported_version"], one["max_supported_version"])
        for one in asked["features"]
    }
    assert levels["metadata.version"] == (7, 33)
    assert levels["share.version"] == levels["kraft.version"] == (0, 32_767)
    assert [one["name"] for one in asked["listeners"]] == ["MUSTER"]  # which no client asks on


def test_a_node_is_cordoned_but_in_a_window(image):
    assert beat(image)["cordoned_log_dirs"] == [HERE]
    assert beat(image, takes=True)["cordoned_log_dirs"] == []
    assert not takes_replicas(image, NODE)
    image.features["metadata.version"] = 29
    assert "cordoned_log_dirs" not in beat(image)


@pytest.mark.parametrize(
    ("until", "is_open"),
    [
        ("1001", True), ("61000", True), ("1000", False), ("61001", False), ("", False),
        ("-5", False), ("soon", False), ("1" * 9_000, False), ("9_000", False),
    ],
)  # fmt: skip
def test_another_machine_lets_a_node_take_replicas_for_a_moment(image, until, is_open):
    assert not is_let_in(image, NODE, 1_000)
    image.settings[4, str(NODE)] = {"muster.takes.replicas.until": until}
    assert is_let_in(image, NODE, 1_000) is is_open
    assert not is_let_in(image, NODE + 1, 1_000)


def test_a_node_that_would_lead_is_fenced(image):
    """It follows only: a partition that it led would have no coordinator."""
    give(image, TOPIC, 0, (1, 2, NODE), isr=(1, 2, NODE))
    assert not beat(image)["want_fence"]
    for changes in ({"leader": NODE}, {"leader": -1}):
        give(image, TOPIC, 0, (1, 2, NODE), **changes)
        assert beat(image)["want_fence"]
    give(image, TOPIC, 0, (1, 2, NODE), leader=-1, isr=(1,), eligible_leaders=())
    assert not must_not_lead(image, NODE)
    give(image, TOPIC, 0, (1, 2, NODE), leader=-1, isr=(1,), eligible_leaders=(NODE,))
    assert must_not_lead(image, NODE)
    assert list(find_replicas(image, NODE)) == [0]


def test_replicas_are_named_that_controllers_look_for_elsewhere(image):
    lost = UUID(int=901)
    topic = image.topic(TOPIC)
    give(image, TOPIC, 0, (1, NODE), directories=(UUID(int=7), HERE))
    give(image, TOPIC, 1, (NODE, 1), directories=(lost, UUID(int=7)))
    give(image, TOPIC, 2, (NODE, 1), directories=(None, UUID(int=7)))  # not given one yet
    assert find_misplaced(image, IDENTITY) == {topic.topic_id: [1]}


# The command -----------------------------------------------------------------------------------


def test_partitions_are_numbers_and_ranges():
    assert parse_partitions("3, 7,10-12") == {3, 7, 10, 11, 12}
    for text in ("", "x", "1,", "2-", "-3"):
        with pytest.raises(ConfigError, match="give numbers, such as"):
            parse_partitions(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (
            ["fly", "--store", "s"],
            "the action is 'fly': give one of run, check, join, lead, yield, leave",
        ),
        ([], "--store is missing"),
        (["--store", "s", "--cluster", "h:9092"], "--cluster is 'h:9092': give kafka://host:port"),
        (["--store", "s3://b/s", "--cluster", "kafka://h:1"], "s3://b/s is a URL"),
        (["join", "--store", "s", "--cluster", "kafka://h:1"], "--partitions is missing"),
        (["leave", "--store", "s", "--cluster", "kafka://h:1"], "is of no node yet"),
    ],
)
def test_bad_input_is_refused(tmp_path, words, says):
    done = run_as_text("node", *words, cwd=tmp_path)
    assert (done.returncode, says in done.stderr) == (2, True), done.stderr


def test_a_cluster_that_does_not_answer_is_named(tmp_path):
    done = run_as_text(
        "node", "check", "--store", "s", "--cluster", "kafka://127.0.0.1:1", cwd=tmp_path
    )
    assert done.returncode == 1
    assert "127.0.0.1:1" in done.stderr
