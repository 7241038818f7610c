"""`muster reshard`: the groups of a store in one with another number of shards."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace as renew

import pytest
from msgspec.structs import replace

from coordinator import Coordinator
from coordinator.backup import reshard as reshard_module
from coordinator.backup.reshard import reshard
from coordinator.clock import wall_ms
from coordinator.config import Config, ConfigError, EngineConfig, LeaseConfig
from coordinator.config.kafka import kafka_config
from coordinator.core.classic_events import JoinGroup, Protocol, SyncGroup
from coordinator.core.events import Heartbeat
from coordinator.history import frame
from coordinator.history.log_reader import LogReader
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.record_decoder import LONG
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.shards import make_shards, read_shards, store_of, stores_of
from coordinator.verify import verify
from coordinator.wire.later_answer import LaterAnswer
from tests.support.fingerprint import fingerprint
from tests.support.members import AT_ONCE, Members, beat, join, state_of, wait_for

TOPICS = {"a": 6, "b": 2}
CONFIG = Config(
    kafka=kafka_config(
        {"group.consumer.assignment.interval.ms": 0, "group.initial.rebalance.delay.ms": 0}
    )
)
NAMES = [f"g{n}" for n in range(12)]


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """A store of one shard, with groups of every kind."""
    store = tmp_path_factory.mktemp("one") / "store"
    with Coordinator.open(store, topics=TOPICS, config=CONFIG) as opened:
        for at, name in enumerate(NAMES):
            epoch = join(opened, "m", group=name).member_epoch
            beat(opened, "m", epoch, group=name, topic_partitions={"a": list(range(6))})
            opened.offset_commit(
                group_id=name, member_id="m", member_epoch=epoch, topics={"a": {0: (at, "ä")}}
            )
        join(opened, "n", group="g0", instance_id="i")
        join(opened, "r", (), group="g1", subscribed_topic_regex="[ab]")
        opened.alter_group_config("g2", {"consumer.session.timeout.ms": "50000"})
        opened.alter_group_config("absent", {"consumer.session.timeout.ms": "50001"})
        opened.offset_commit(group_id="simple", topics={"b": {1: 5}})
        join_classic(opened)
        wait_for(lambda: state_of(opened).groups["g1"].regexes)
    return str(store)


def join_classic(coordinator):
    """Have a member of a classic group at rest."""
    range_ = Protocol("range", b"\0")
    join = JoinGroup("classic", "", "consumer", [range_], 45_000, 60_000, 0, "c", "")
    (answer,) = coordinator.submit([replace(join, knows_member_id=False)]).result()
    joined = answer.response.future.result(60).response
    sync = SyncGroup("classic", "c", joined.generation, 0, {"c": b"\0\1"})
    (answer,) = coordinator.submit([sync]).result()
    found = answer.response
    found = found.future.result(60).response if isinstance(found, LaterAnswer) else found
    assert found.assignment == b"\0\1"


def found(store):
    """What is known of each group, whichever shard it is in."""
    kinds = ("groups", "classic", "settings", "loads", "offsets")
    every = [fingerprint(LogReader(one).state()) for one in stores_of(store)]
    for group in (group for one in every for group in one["groups"].values()):
        regexes = group["regexes"].items()
        group["regexes"] = {key: replace(found, version=0) for key, found in regexes}
    assert all(one["topics"].keys() == every[0]["topics"].keys() for one in every)
    rows = [
        (kind, key, value) for one in every for kind in kinds for key, value in one[kind].items()
    ]
    return sorted(rows, key=lambda row: row[:2])


@pytest.mark.parametrize("counts", [[3, 1], [2, 5, 1]])
def test_groups_are_the_same_in_another_number_of_shards(one, tmp_path, counts, muster_here):
    wanted, last = found(one), one
    assert [row[0] for row in wanted].count("groups") == len(NAMES)
    for count in counts:
        new = str(tmp_path / f"{count}")
        done = muster_here("reshard", last, new, "--shards", count)
        assert done.returncode == 0, done.stderr
        row = json.loads(done.stdout)
        assert row == {"store": new, "shards": count, "groups": len(NAMES) + 2, "offsets": 13}
        assert found(new) == wanted
        shards = read_shards(new)
        assert (shards.count if shards else 1) == count
        assert len(stores_of(new)) == count, "so many groups are in every shard"
        assert all(verify(shard).groups for shard in stores_of(new))
        last = new
    assert found(one) == wanted, "the old store stays as it was"
    with Coordinator.open(last, topics=TOPICS, config=CONFIG) as opened:
        for name in NAMES[2:]:
            assert beat(opened, "m", 2, group=name).member_epoch == 2
        join(opened, "o", (), group="g1", subscribed_topic_regex="a")


def test_a_regex_is_resolved_again_with_the_topics_of_all_shards(one, tmp_path):
    reshard(one, tmp_path / "two", 2)
    with Coordinator.open(shard_of(tmp_path / "two", "g1"), topics=TOPICS, config=CONFIG) as opened:
        state = state_of(opened)
        assert state.groups["g1"].regexes["[ab]"].topics == ("a", "b")
        assert state.groups["g1"].regexes["[ab]"].version < state.new_topics_version, "it is due"


def test_whole_targets_are_those_of_each_member(tmp_path, engine):
    config = Config(kafka=AT_ONCE, engine=EngineConfig(engine="spark"))
    store, new = tmp_path / "store", tmp_path / "new"
    with Coordinator.open(store, topics={"a": 6}, config=config, engine=engine) as coordinator:
        members = Members(coordinator)
        for name in ("m1", "m2", "m3"):
            members.join(name)
            members.settle()
    reshard(store, new, 4)
    with Coordinator.open(shard_of(new, "g"), topics={"a": 6}, config=config) as again:
        members.coordinator = again
        owned = dict(members.owned)
        members.beat()
        assert members.owned == owned
        assert sum(len(one["a"]) for one in owned.values()) == 6
    columns = ["member_id", "topic", "first_partition", "partition_count"]
    targets = [frame(one, "target_assignments").select(columns) for one in (store, new)]
    assert targets[0].equals(targets[1])


def test_a_store_that_is_served_is_refused(tmp_path):
    with Coordinator.open(tmp_path / "store", topics=TOPICS):
        with pytest.raises(ConfigError, match=r"is coordinated by .*: stop it first"):
            reshard(tmp_path / "store", tmp_path / "new", 2)
        assert not (tmp_path / "new").exists()
    shards = tmp_path / "shards"
    make_shards(str(shards), 2, Config())
    nodes = StoreNodes(str(shards), LeaseConfig())
    nodes.register(1, "127.0.0.1:7")
    with pytest.raises(ConfigError, match=r"is coordinated by 127\.0\.0\.1:7: stop it first"):
        reshard(shards, tmp_path / "new", 2)


def test_what_a_coordinator_writes_meanwhile_is_seen(one, tmp_path, monkeypatch):
    store = tmp_path / "store"
    shutil.copytree(one, store)
    write = reshard_module._write

    def write_late(*words):
        write(*words)
        DeltaLog(store).claim("late", "", wall_ms())

    monkeypatch.setattr(reshard_module, "_write", write_late)
    with pytest.raises(ConfigError, match=r"a coordinator wrote to .* meanwhile"):
        reshard(store, tmp_path / "new", 2)
    assert not (tmp_path / "new").exists()


def test_a_log_that_does_not_read_as_it_was_written_is_no_store(one, tmp_path, monkeypatch):
    append = DeltaLog.append
    monkeypatch.setattr(DeltaLog, "append", lambda log, some, at: append(log, some[:-1], at))
    with pytest.raises(CorruptLog, match="does not read as it was written"):
        reshard(one, tmp_path / "new", 2)
    assert not (tmp_path / "new").exists()


def test_bad_words_are_refused(one, tmp_path, muster_here):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("")
    make_shards(str(tmp_path / "empty"), 2, Config())
    for source, new, count, why in (
        (one, "new", 0, b"--shards is 0: give 1 to 1024"),
        (one, "new", 5_000, b"--shards is 5000: give 1 to 1024"),
        (one, "full", 2, b"not empty"),
        (tmp_path / "absent", "new", 2, b"absent"),
        (tmp_path / "empty", "new", 3, b"no shard of it has a log"),
        (one, f"{one}/new", 2, b"inside"),
    ):
        done = muster_here("reshard", source, tmp_path / new, "--shards", count)
        assert done.returncode == 2, (new, done.stderr)
        assert why in done.stderr, done.stderr
        assert not (tmp_path / "new").exists()


def shard_of(store, group_id):
    """The store of the shard that has a group."""
    return store_of(str(store), group_id)


def test_very_many_members_are_read_as_rows_in_another_order(tmp_path):
    """Their targets are listed by when they joined; an engine's were, by their ids."""
    store, config = tmp_path / "store", renew(CONFIG, engine=EngineConfig("local", step_rows_max=0))
    with Coordinator.open(store, topics={"a": LONG}, config=config) as opened:
        new = Heartbeat("g", "", 0, None, None, 60_000, ("a",), topic_partitions={})
        joins = [replace(new, member_id=f"m{number}") for number in range(LONG)]
        opened.consumer_group_heartbeats(joins).raise_for_error()
        group = state_of(opened).groups["g"]
        wait_for(
            lambda: (
                beat(opened, "m0", group.members["m0"].epoch)
                and group.epoch == group.assignment_epoch
            )
        )
    wanted = found(str(store))
    reshard(store, tmp_path / "two", 2)
    assert found(str(tmp_path / "two")) == wanted
