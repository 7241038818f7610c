"""Follow a topic: how often brokers are asked, and in which order what they have is handed on."""

import random
import time
from itertools import islice

from coordinator.core.java_hash import place_of
from coordinator.history import frame
from coordinator.watcher.record_batches import KafkaRecord, RecordBatch
from coordinator.watcher.time_order import BUFFERED_MAX, TimeOrder

from .fake_cluster import FakeCluster, following, wait_for
from .test_reread import follow_until, groups_of, is_read, open_store
from .written import batch, group_of


def empty_batch(offset, at_ms):
    return RecordBatch(
        offset, offset, 0, -1, -1, False, None, [KafkaRecord(offset, at_ms, b"", b"")]
    )


def test_what_is_handed_on_never_goes_back_in_time_and_lacks_nothing():
    for seed in range(50):
        rng = random.Random(seed)
        times = {p: sorted(rng.choices(range(100), k=rng.randrange(30))) for p in range(4)}
        unread = {
            p: [empty_batch(at, ms) for at, ms in enumerate(some)] for p, some in times.items()
        }
        order, got = TimeOrder(), []
        for p in unread:
            order.expect(p)
        while any(unread.values()) or not order.is_live:
            p = rng.randrange(4)
            count = rng.randrange(5)
            some, unread[p] = unread[p][:count], unread[p][count:]
            order.add(p, some, 10 * len(some), at_end=not unread[p])
            for partition, found in order.take():
                got += [(b.records[0].timestamp_ms, partition, b.base_offset) for b in found]
        assert [ms for ms, _, _ in got] == sorted(ms for ms, _, _ in got), f"seed {seed}"
        assert {(p, at) for _, p, at in got} == {
            (p, at) for p in times for at in range(len(times[p]))
        }
        for p, some in times.items():
            assert [at for _, q, at in got if q == p] == list(range(len(some)))


def test_a_partition_that_is_far_ahead_is_not_read_on():
    order = TimeOrder()
    order.expect(0)
    order.expect(1)
    order.add(0, [empty_batch(0, 50)], BUFFERED_MAX, at_end=False)
    assert list(order.take()) == []
    assert not order.has_room(0)
    assert order.has_room(1)
    order.add(1, [], 0, at_end=True)
    assert [(p, [b.base_offset for b in some]) for p, some in order.take()] == [(0, [0])]
    assert order.has_room(0)
    order.drop(0)
    assert order.is_live


def test_a_topic_read_to_its_end_is_not_asked_for_at_once(tmp_path):
    """On a busy cluster each Fetch is answered at once: without a pause it would be asked on and on."""
    cluster = FakeCluster()
    with open_store(tmp_path) as store, following(cluster, store, round_ms=600_000):
        wait_for(is_read(cluster, store))
        wait_for(lambda: cluster.fetched[-1] == (0, cluster.ends[0]))
        asked = len(cluster.fetched)
        cluster.write(0, group_of("g"))
        time.sleep(0.3)
        assert len(cluster.fetched) <= asked + 1


def test_a_topic_that_is_behind_is_asked_for_until_its_end(tmp_path):
    cluster = FakeCluster(partitions=2)
    for number in range(20):
        cluster.write(number % 2, group_of(f"g{number}"))
    with open_store(tmp_path) as store, following(cluster, store, round_ms=600_000):
        wait_for(is_read(cluster, store))


def groups_in(partition, count):
    """Ids of groups that Kafka would write to one of two partitions."""
    names = (f"g{number}" for number in range(1000))
    return list(islice((one for one in names if place_of(one, 2) == partition), count))


LEFT, RIGHT = groups_in(0, 3), groups_in(1, 3)


def test_a_damaged_batch_holds_up_its_partition_alone(tmp_path):
    cluster = FakeCluster(partitions=2)
    for partition, groups in enumerate((LEFT, RIGHT)):
        for group_id in groups[:2]:
            cluster.write(partition, group_of(group_id))
    cluster.damaged = {(0, cluster.logs[0][1][0])}
    with open_store(tmp_path) as store, following(cluster, store, wait_for_ms=100):
        wait_for(lambda: groups_of(store) == {*RIGHT[:2]})
        assert not store.has_caught_up
        cluster.write(1, group_of(RIGHT[2]))
        wait_for(lambda: groups_of(store) == {*RIGHT})
        cluster.damaged = set()
        wait_for(lambda: groups_of(store) == {*RIGHT, *LEFT[:2]})
        wait_for(lambda: store.has_caught_up)


def test_a_partition_without_a_leader_holds_up_no_other_after_a_stop(tmp_path):
    cluster = FakeCluster(partitions=2)
    for partition, groups in enumerate((LEFT, RIGHT)):
        cluster.write(partition, group_of(groups[0]))
    follow_until(tmp_path, cluster)
    cluster.leaderless = {0}
    for partition, groups in enumerate((LEFT, RIGHT)):
        cluster.write(partition, group_of(groups[1]))
    options = {"wait_for_ms": 100, "topics_ms": 50}
    with open_store(tmp_path) as store, following(cluster, store, **options):
        wait_for(lambda: groups_of(store) == {LEFT[0], *RIGHT[:2]})
        assert not store.has_caught_up
        cluster.leaderless = set()
        wait_for(lambda: groups_of(store) == {*LEFT[:2], *RIGHT[:2]})
        wait_for(lambda: store.has_caught_up)


def test_a_topic_that_is_made_while_it_is_watched_is_history(tmp_path):
    cluster = FakeCluster()
    cluster.error = 3
    with open_store(tmp_path) as store, following(cluster, store, topics_ms=50):
        wait_for(lambda: store.has_caught_up)
        cluster.write(0, group_of("g"))
        cluster.error = 0
        wait_for(is_read(cluster, store))
    assert [row["reason"] for row in frame(tmp_path, "epochs").to_pylist()] == ["member joined"]


def test_what_a_topic_had_before_it_was_seen_is_no_history(tmp_path):
    """A broker that starts may not know its topics yet."""
    cluster = FakeCluster()
    cluster.error = 3
    cluster.write(0, group_of("g"), int(time.time() * 1000) - 60_000)
    with open_store(tmp_path) as store, following(cluster, store, topics_ms=50):
        wait_for(lambda: store.has_caught_up)
        cluster.error = 0
        wait_for(is_read(cluster, store))
    assert [row["reason"] for row in frame(tmp_path, "epochs").to_pylist()] == [""]


def test_changes_of_several_partitions_are_one_commit(tmp_path):
    read = [
        (partition, [batch(group_of(group_id), at=0)])
        for partition, group_id in enumerate((LEFT[0], RIGHT[0]))
    ]
    with open_store(tmp_path) as store:
        before = len(list(tmp_path.glob("log/_delta_log/*.json")))
        store.take_all(read)
        assert groups_of(store) == {LEFT[0], RIGHT[0]}
        assert store.next_offsets().keys() == {0, 1}
        assert len(list(tmp_path.glob("log/_delta_log/*.json"))) == before + 1
