"""A record that is damaged, or contradicts what was, costs its group, and no other one."""

import struct
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.core.events import DescribeGroup
from coordinator.core.java_hash import place_of
from coordinator.core.state.records import KafkaWatched
from coordinator.errors import GroupError
from coordinator.watcher.record_batches import KafkaRecord
from coordinator.watcher.record_schemas import KEYS, VALUES
from coordinator.watcher.watched_store import WatchedStore
from tests.support.longer import EVERY
from tests.support.members import state_of

from .written import batch, current, group_of, held, offset_of, record, write_key, write_value

CLUSTER = KafkaWatched("cluster-1", "records", 1)


def open_store(folder=None):
    return WatchedStore.open(folder, CLUSTER, is_live=False)


def describe(store, group_id):
    """What the store has of a group, all of it: or the error that says what it lacks."""
    state = state_of(store.coordinator)
    group = state.groups.get(group_id)
    found = None
    if group is not None:
        members = [(one.meta, one.current) for one in group.members.values()]
        found = (group.epoch, group.assignment_epoch, [*group.targets.own()], members)
    return repr((found, state.classic.get(group_id), state.offsets.get(group_id)))


def take(store, records):
    """Take records, each as a batch of its own, behind what was read."""
    at = store.next_offsets().get(0, 0)
    moved = [one._replace(offset=at + n) for n, one in enumerate(records)]
    store.take(0, [batch([one]) for one in moved])
    store.flush()


def write_groups(store, *group_ids):
    for group_id in group_ids:
        take(store, group_of(group_id, partitions=range(4)))
        take(store, [offset_of(group_id)])


MEMBER = {"group_id": "bad", "member_id": "m2"}
GROUP = {"group_id": "bad"}
SOME_MEMBER = {
    "instance_id": None,
    "rack_id": None,
    "client_id": "",
    "client_host": "",
    "subscribed_topic_names": [],
    "subscribed_topic_regex": None,
    "rebalance_timeout_ms": 1,
    "server_assignor": None,
}
CLASSIC = {
    "protocol_type": "consumer",
    "generation": 1,
    "protocol": None,
    "leader": None,
    "current_state_timestamp": -1,
    "members": [],
}
CONTRADICTIONS = {
    "two owners": [
        record(5, MEMBER, SOME_MEMBER), record(8, MEMBER, current(2, held(1, [3])))
    ],
    "twice in one": [
        record(8, {**GROUP, "member_id": "m"}, current(2, held(1, [3]), held(1, [3])))
    ],
    "an epoch that falls": [record(3, GROUP, {"epoch": -1})],
    "a target's epoch that falls": [
        record(6, GROUP, {"assignment_epoch": 0, "assignment_timestamp": 1})
    ],
    "another protocol": [record(2, GROUP, CLASSIC, version=3)],
    "a member that goes and holds partitions": [record(5, {**GROUP, "member_id": "m"})],
    "a group that ends with members": [record(3, GROUP)],
    "a version to come": [KafkaRecord(0, 1, write_key(3, **GROUP), struct.pack(">h", 9))],
    "a value that is cut": [
        KafkaRecord(0, 1, write_key(3, **GROUP), write_value(3, 0, epoch=2)[:4])
    ],
    "a value with a tail": [
        KafkaRecord(0, 1, write_key(3, **GROUP), write_value(3, 0, epoch=2) + b"x")
    ],
    "a key with a tail": [
        KafkaRecord(0, 1, write_key(3, **GROUP) + b"x", write_value(3, 0, epoch=2))
    ],
    "a partition below 0": [record(8, {**GROUP, "member_id": "m"}, current(2, held(1, [-1])))],
    "a partition that no topic has": [
        record(8, {**GROUP, "member_id": "m"}, current(2, held(1, [2**31 - 1])))
    ],
    "an offset of a partition below 0": [offset_of("bad", partition=-1)],
}  # fmt: skip


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_it_costs_its_group_alone(tmp_path, name):
    with open_store(tmp_path) as store:
        write_groups(store, "good", "bad", "last")
        before = [describe(store, one) for one in ("good", "last")]
        take(store, CONTRADICTIONS[name])
        assert [describe(store, one) for one in ("good", "last")] == before
        assert describe(store, "bad") == repr((None, None, None))
        (unread,) = store.watched.unread.values()
        assert (unread.group_id, unread.partition, unread.offset >= 18) == ("bad", 0, True)
        assert unread.reason
        metrics = store.coordinator.metrics.registry
        assert metrics.get_sample_value("watched_group_unread_total") == 1
        with pytest.raises(GroupError, match="cannot be read"):
            store.coordinator._ask(DescribeGroup("bad"))
        take(store, group_of("bad", epoch=7))  # what comes later has no ground
        assert describe(store, "bad") == repr((None, None, None))
        states = [describe(store, one) for one in ("good", "bad", "last")]
    with open_store(tmp_path) as store:
        assert [describe(store, one) for one in ("good", "bad", "last")] == states
        assert list(store.watched.unread) == ["bad"]


def end_of(group_id):
    member = {"group_id": group_id, "member_id": "m"}
    return [record(kind, member) for kind in (8, 7, 5)] + [
        record(kind, {"group_id": group_id}) for kind in (6, 3)
    ]


def test_a_group_that_was_deleted_can_be_read_again(tmp_path):
    with open_store(tmp_path) as store:
        write_groups(store, "g")
        take(store, [record(3, {"group_id": "g"})])
        assert list(store.watched.unread) == ["g"]
        take(store, end_of("g"))
        assert not store.watched.unread
        write_groups(store, "g")
        sound = describe(store, "g")
    with open_store(tmp_path) as store:
        assert describe(store, "g") == sound
        assert not store.watched.unread


def test_a_group_that_changes_its_protocol_is_not_whole_by_that(tmp_path):
    with open_store(tmp_path) as store:
        write_groups(store, "bad")
        take(store, CONTRADICTIONS["two owners"])
        at = store.next_offsets()[0]
        both = [*end_of("bad"), record(2, {"group_id": "bad"}, CLASSIC, version=3)]
        store.take(0, [batch([one._replace(offset=at + n) for n, one in enumerate(both)])])
        assert list(store.watched.unread) == ["bad"]


def test_a_load_reads_a_group_again(tmp_path):
    with open_store(tmp_path) as store:
        write_groups(store, "good", "bad")
        sound = [describe(store, one) for one in ("good", "bad")]
        take(store, CONTRADICTIONS["two owners"])
        written = [
            *group_of("good", partitions=range(4)), offset_of("good"),
            *group_of("bad", partitions=range(4)), offset_of("bad"),
        ]  # fmt: skip
        store.load(0, written, store.next_offsets()[0])
        assert not store.watched.unread
        assert [describe(store, one) for one in ("good", "bad")] == sound


def test_a_load_with_a_damaged_group(tmp_path):
    with open_store(tmp_path) as store:
        damaged = CONTRADICTIONS["a value that is cut"] + CONTRADICTIONS["two owners"]
        store.load(0, [*group_of("good"), *damaged, *group_of("last")], 40)
        assert list(store.watched.unread) == ["bad"]
        assert describe(store, "good") != describe(store, "bad")
        assert describe(store, "bad") == describe(store, "never")


def test_a_batch_of_several_groups_and_one_that_is_damaged(tmp_path):
    with open_store(tmp_path) as store:
        write_groups(store, "bad", "good")
        both = [
            offset_of("good", offset=5), *CONTRADICTIONS["an epoch that falls"],
            offset_of("bad", offset=5), offset_of("good", partition=1),
        ]  # fmt: skip
        at = store.next_offsets()[0]
        store.take(0, [batch([one._replace(offset=at + n) for n, one in enumerate(both)])])
        store.flush()
        assert list(store.watched.unread) == ["bad"]
        offsets = state_of(store.coordinator).offsets
        assert {key: one.offset for key, one in offsets["good"].items()} == {
            ("t", 0): 5, ("t", 1): 1,
        }  # fmt: skip


# Hostile bytes ---------------------------------------------------------------------------------

NUMBERS = st.sampled_from([-(2**31), -2, -1, 0, 1, 2, 3, 2**24, 2**31 - 1])
TEXTS = st.sampled_from(["", "bad", "m", "m2", "t", "x" * 300, "\0", "é", "a\ud7ff"])

PLAIN = {
    "uuid": st.builds(UUID, int=st.integers(0, 2)),
    "string": TEXTS,
    "bytes": st.binary(max_size=40),
    "int64": st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1]),
    "int32": NUMBERS,
    "int8": st.integers(-128, 127),
}


def value_of(shape, draw):
    if shape.null and draw(st.booleans()):
        return None
    if shape.array:
        return [one_of(shape, draw) for _ in range(draw(st.integers(0, 2)))]
    return one_of(shape, draw)


def one_of(shape, draw):
    if isinstance(shape.kind, tuple):
        return {part.name: value_of(part, draw) for part in shape.kind}
    return draw(PLAIN[shape.kind])


@st.composite
def hostile(draw):
    """A record about group `bad`: as its schema says, or damaged."""
    kind = draw(st.sampled_from(sorted(KEYS)))
    names = {shape.name: value_of(shape, draw) for shape in KEYS[kind].fields}
    key = write_key(kind, **{**names, "group_id": "bad"})
    version = draw(st.integers(0, VALUES[kind].newest))
    fields = {shape.name: value_of(shape, draw) for shape in VALUES[kind].fields}
    value = draw(st.sampled_from([write_value(kind, version, **fields), None]))
    damage = draw(st.sampled_from(["none", "none", "cut", "flip", "tail", "version", "key"]))
    if damage == "key":
        at = draw(st.integers(7, len(key)))  # the group's name stands before: another is no damage
        key = key[:at]
    elif value is not None and damage != "none":
        at = draw(st.integers(0, len(value) - 1))
        value = {
            "cut": value[:at],
            "flip": value[:at] + bytes([value[at] ^ draw(st.integers(1, 255))]) + value[at + 1 :],
            "tail": value + draw(st.binary(min_size=1, max_size=9)),
            "version": struct.pack(">h", draw(st.integers(-32768, 32767))) + value[2:],
        }[damage]
    at_ms = draw(st.sampled_from([-(2**63), -1, 0, 5, 2**41, 2**63 - 1]))
    return KafkaRecord(0, at_ms, key, value)


@settings(
    max_examples=300 if EVERY else 80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    written=st.lists(hostile(), min_size=1, max_size=6), whole=st.booleans(), reread=st.booleans()
)
def test_hostile_bytes_change_no_other_group(written, whole, reread):
    with open_store() as store:
        write_groups(store, "good", "bad")
        before = describe(store, "good")
        at = store.next_offsets()[0]
        moved = [one._replace(offset=at + n) for n, one in enumerate(written)]
        if reread:
            store.load(0, moved, at + len(moved))
        else:
            store.take(0, [batch(moved)] if whole else [batch([one]) for one in moved])
        store.flush()
        assert describe(store, "good") == before
        take(store, end_of("bad"))
        take(store, group_of("bad"))


@given(raw=st.binary(max_size=60), value=st.none() | st.binary(max_size=60))
@settings(max_examples=300 if EVERY else 80, deadline=None)
def test_bytes_that_mean_nothing_change_nothing(raw, value):
    with open_store() as store:
        take(store, group_of("good"))
        before = describe(store, "good")
        take(store, [KafkaRecord(0, 1, raw, value)])
        assert describe(store, "good") == before


def test_commands_say_which_groups_cannot_be_read(tmp_path, muster_here):
    with open_store(tmp_path) as store:
        write_groups(store, "good", "bad")
        take(store, CONTRADICTIONS["two owners"])
    listed = muster_here("groups", "--store", tmp_path)
    assert b'"good"' in listed.stdout
    assert b'"bad"' not in listed.stdout
    assert b"1 group cannot be read: bad (partition 0, offset 1" in listed.stderr
    for command in ("describe", "plan"):
        done = muster_here(command, "bad", "--store", tmp_path)
        assert done.returncode == 2
        assert b"cannot be read: the record at offset 1" in done.stderr
    assert muster_here("verify", "--store", tmp_path).returncode == 0


def test_a_partition_that_is_reread_has_no_group_that_kafka_has_not(tmp_path):
    """Its log was cleaned, or cut, behind where it was read: what is gone left no record."""
    partition = place_of("good", 50)
    with open_store(tmp_path) as store:
        store.load(partition, [*group_of("good"), *group_of("gone"), offset_of("gone")], 9)
        store.load(7, group_of("there"), 9, partitions=50)
        before = describe(store, "there")
        assert describe(store, "gone") != describe(store, "never"), "it may be of any partition"
        store.load(place_of("gone", 50), [], 12, partitions=50)
        assert describe(store, "gone") == describe(store, "never")
        assert describe(store, "good") != describe(store, "never")
        assert describe(store, "there") == before


def test_groups_are_where_kafka_has_them():
    """As a real Kafka 4.4.0 with five partitions placed them, and Java's own hashes."""
    assert [place_of(one, 5) for one in ("g-classic", "g-consumer")] == [3, 2]
    assert place_of("g", 50) == 103 % 50
    assert place_of("polygenelubricants", 50) == 0, "its hash has no absolute value in Java"
