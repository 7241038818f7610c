"""Kafka's batches over our commits: none is seen in part, none is lost, none is there twice."""

import random

import pytest

from coordinator.core.state.records import GroupMetadata, KafkaWatched, PartitionRead
from coordinator.errors import GroupError
from coordinator.history.log_reader import LogReader
from coordinator.storage.data_files import list_parts
from coordinator.storage.delta_log import open_log_table
from coordinator.storage.record_log import LogError
from coordinator.watcher.partition_changes import NONE_OPEN, PartitionChanges
from coordinator.watcher.record_batches import ABORT, COMMIT
from coordinator.watcher.watched_store import WatchedStore
from tests.support.longer import EVERY
from tests.support.members import log_of, state_of

from .written import batch, current, group_of, held, offset_of, record

CLUSTER = KafkaWatched("cluster-1", "records", 1)


def open_store(folder=None):
    return WatchedStore.open(folder, CLUSTER, is_live=False)


def cluster_of(seed, partitions=3, batches=40):
    """A random topic: by partition, its batches; epochs of groups count up, as do offsets."""
    rng = random.Random(seed)
    topic = {number: [] for number in range(partitions)}
    epochs, committed, opened = {}, 0, {}
    for _ in range(batches):
        number = rng.randrange(partitions)
        log = topic[number]
        at = log[-1].last_offset + 1 if log else rng.randrange(3)
        group_id = f"g{number}-{rng.randrange(2)}"
        kind = rng.choice(["group", "group", "offset", "offset", "open", "end", "empty"])
        if kind == "group" and group_id not in epochs:
            epochs[group_id] = 1
            log.append(batch(group_of(group_id, at=at)))
        elif kind == "group":
            epochs[group_id] += 1
            log.append(batch(next_epoch(group_id, epochs[group_id], at)))
        elif kind == "offset":
            committed += 1
            log.append(
                batch([offset_of(group_id, partition=committed % 3, offset=committed, at=at)])
            )
        elif kind == "open":
            committed += 1
            found = opened.setdefault(number, rng.randrange(2))
            row = offset_of(group_id, partition=3, offset=committed, at=at)
            log.append(batch([row], producer_id=found, transactional=True))
        elif kind == "end" and number in opened:
            marker = rng.choice([COMMIT, COMMIT, ABORT])
            ended = opened.pop(number)
            log.append(batch([], producer_id=ended, transactional=True, marker=marker, at=at))
        else:
            log.append(batch([], at=at))  # the cleaner left it
    return topic


def next_epoch(group_id, epoch, at):
    """What Kafka writes when the only member's subscription changes: each with the same epoch."""
    key = {"group_id": group_id}
    member = {**key, "member_id": "m"}
    rows = [
        (3, key, {"epoch": epoch}),
        (6, key, {"assignment_epoch": epoch, "assignment_timestamp": 1}),
        (8, member, current(epoch, held(1, [epoch % 7]))),
    ]
    return [record(k, of, value, offset=at + n) for n, (k, of, value) in enumerate(rows)]


def read_on(store, topic, rng):
    """Take some of what each partition has behind what was read, as a fetch does."""
    for number, log in topic.items():
        at = store.next_offsets().get(number, 0)
        ahead = [one for one in log if one.last_offset >= at]
        store.take(number, ahead[: rng.randrange(1, 6)])
        if rng.random() < 0.3:
            store.flush()


def is_read(store, topic):
    ends = {number: log[-1].last_offset + 1 for number, log in topic.items() if log}
    return all(store.next_offsets().get(number, 0) >= end for number, end in ends.items())


def read_whole(store, topic):
    for number, log in topic.items():
        store.take(number, log)
    store.flush()
    return summary(state_of(store.coordinator))


def summary(state):
    groups = {
        one.group_id: (one.epoch, one.assignment_epoch, [m.current for m in one.members.values()])
        for one in state.groups.values()
    }
    offsets = {
        group_id: {key: one.offset for key, one in found.items()}
        for group_id, found in state.offsets.items()
    }
    return groups, offsets


@pytest.mark.parametrize("seed", range(12 if EVERY else 5))
def test_a_store_that_is_stopped_or_fails_anywhere_misses_nothing(tmp_path, seed):
    topic = cluster_of(seed)
    with open_store() as whole:
        wanted = read_whole(whole, topic)
    rng = random.Random(seed)
    store = open_store(tmp_path)
    while not is_read(store, topic):
        fails = rng.random() < 0.4
        if fails:
            break_appends(store, rng)
        try:
            read_on(store, topic, rng)
        except GroupError:
            assert fails
        mend_appends(store)
        if rng.random() < 0.3:
            store.close()  # what waits for a flush is lost, as by a kill
            store = open_store(tmp_path)
    store.flush()
    assert summary(state_of(store.coordinator)) == wanted
    epochs = {}
    written = [one for part in log_of(store.coordinator).replay() for one in part.records]
    store.close()
    for one in written:
        if isinstance(one, GroupMetadata):
            epochs.setdefault(one.group_id, []).append(one.epoch)
    for group_id, found in epochs.items():
        assert found == list(range(1, wanted[0][group_id][0] + 1)), group_id


def break_appends(store, rng):
    """Let the next append but some fail: before it wrote, or after."""
    log = log_of(store.coordinator)
    append, left, lands = type(log).append, [rng.randrange(3)], rng.random() < 0.5

    def broken(rows, at_ms):
        left[0] -= 1
        if left[0] == -1:
            if lands:
                append(log, rows, at_ms)
            raise LogError("no answer")
        return append(log, rows, at_ms)

    log.append = broken


def mend_appends(store):
    vars(log_of(store.coordinator)).pop("append", None)


@pytest.mark.parametrize("seed", range(4))
def test_no_reader_sees_half_a_batch(tmp_path, seed):
    topic = cluster_of(seed)
    rng = random.Random(seed)
    with open_store(tmp_path) as store:
        while not is_read(store, topic):
            read_on(store, topic, rng)
        store.flush()
    seen = 0
    for position in ends_of_commits(tmp_path):
        for group in LogReader(tmp_path, position).state().groups.values():
            epochs = {group.epoch, group.assignment_epoch}
            epochs |= {member.epoch for member in group.members.values()}
            assert len(epochs) == 1, group.group_id
            seen += 1
    assert seen


def ends_of_commits(folder):
    return [part.last for part in list_parts(open_log_table(str(folder)))]


def test_what_was_not_written_is_not_passed_over():
    """One event of several fails, and the ones behind it are refused: they do not follow."""
    with open_store() as store:
        store.take(0, [batch(group_of("g"))])
        at = store.next_offsets()[0]
        broken = [batch(next_epoch("g", epoch, at + 3 * (epoch - 2))) for epoch in (2, 3, 4)]
        log = log_of(store.coordinator)
        appends = iter([LogError("no answer")])
        append = type(log).append

        def fail_once(rows, at_ms):
            for error in appends:
                raise error
            return append(log, rows, at_ms)

        log.append = fail_once
        events = [store._translate(0, one) for one in store._partitions[0].take(broken)]
        with pytest.raises(GroupError):
            store._write(events[0])
        (answer,) = store.coordinator.submit([events[1]]).result()
        assert "read on from" in str(answer)
        assert store.next_offsets() == {0: at}
        store.take(0, broken)
        assert state_of(store.coordinator).groups["g"].epoch == 4
        read = [
            one for part in log.replay() for one in part.records if isinstance(one, PartitionRead)
        ]
        assert [one.offset for one in read] == sorted({one.offset for one in read})


def test_an_offset_that_was_overtaken_does_not_come_back():
    """Of two offsets the one that was written last counts, whenever its transaction ends."""
    log = [
        batch([offset_of("g", offset=5, at=0)], producer_id=7, transactional=True),
        batch([offset_of("g", offset=6, at=1)]),
        batch([], producer_id=7, transactional=True, marker=COMMIT, at=2),
        batch([offset_of("g", offset=7, at=3)], producer_id=7, transactional=True),
        batch([], producer_id=7, transactional=True, marker=COMMIT, at=4),
    ]
    whole, again = PartitionChanges(), PartitionChanges(next_offset=2, open_offset=0)
    assert [*whole.take(log[:2]), *again.take(log[:2])] == []
    assert [one.offset for one in whole.flush().offsets] == [1]
    for changes in (whole, again):
        assert list(changes.take(log[2:3])) == []
        assert changes.flush().offsets == ()
        assert list(changes.take(log[3:])) == []
        assert [one.offset for one in changes.flush().offsets] == [3]


def test_what_the_cleaner_left_of_transactions_opens_none():
    changes = PartitionChanges()
    assert list(changes.take([batch([], producer_id=7, transactional=True, at=3)])) == []
    assert (changes.next_offset, changes.open_offset) == (4, NONE_OPEN)
