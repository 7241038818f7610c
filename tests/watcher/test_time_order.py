"""Batches of several partitions, handed on in the order in which Kafka wrote them."""

import random

from coordinator.watcher.record_batches import KafkaRecord, RecordBatch
from coordinator.watcher.time_order import BUFFERED_MAX, TimeOrder


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
