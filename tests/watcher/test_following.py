"""Follow a topic: how often brokers are asked, and in which order what they have is handed on."""

import random
import time

from coordinator.watcher.record_batches import KafkaRecord, RecordBatch
from coordinator.watcher.time_order import BUFFERED_MAX, TimeOrder

from .fake_cluster import FakeCluster, following, wait_for
from .test_read_anew import is_read, open_store
from .written import group_of


def batch(offset, at_ms):
    return RecordBatch(
        offset, offset, 0, -1, -1, False, None, [KafkaRecord(offset, at_ms, b"", b"")]
    )


def test_what_is_handed_on_never_goes_back_in_time_and_lacks_nothing():
    for seed in range(50):
        rng = random.Random(seed)
        times = {p: sorted(rng.choices(range(100), k=rng.randrange(30))) for p in range(4)}
        unread = {p: [batch(at, ms) for at, ms in enumerate(some)] for p, some in times.items()}
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
    order.add(0, [batch(0, 50)], BUFFERED_MAX, at_end=False)
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
