"""Offsets in transactions in the log of a partition: written, loaded and handed over as by Kafka."""

from __future__ import annotations

import random
import struct
from collections import defaultdict

import pytest

from coordinator.core.events import (
    EndTransaction,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    TxnOffsetCommit,
    Unverified,
)
from coordinator.core.state.transactions import Producer
from coordinator.errors import GroupError
from coordinator.kraft.batch_writer import BatchKind, Change, KeyValue, write_batch, write_batches
from coordinator.kraft.partition_log import Accepted, PartitionLog
from coordinator.watcher.partition_changes import PartitionLoad
from coordinator.watcher.record_batches import COMMIT, read_batches, split_batches
from tests.support.longer import EVERY

from .recorded import TRANSACTIONS, split
from .test_partition_records import Here

BEFORE = len(TRANSACTIONS) - sum(len(raw) for _, _, raw in split(TRANSACTIONS)[-2:])
UNSTABLE = "UNSTABLE_OFFSET_COMMIT"
SAID = {
    BEFORE: {
        ("g1", 0): (4, UNSTABLE),
        ("g1", 1): (12, UNSTABLE),
        ("g2", 0): (8, 8),
        ("g2", 1): (11, 11),
        ("g3", 1): (None, UNSTABLE),
    },
    len(TRANSACTIONS): {
        ("g1", 0): (9, 9), ("g1", 1): (12, 12), ("g2", 0): (8, 8), ("g2", 1): (11, 11),
    },
}  # fmt: skip
"""By the length of the log, what Kafka's OffsetFetch said: of all offsets, and of stable ones."""


class KafkaOffsets:
    """Offsets as Kafka's `OffsetMetadataManager` replays a log, batch by batch."""

    def __init__(self, raw):
        self.offsets, self.pending, self.open = {}, defaultdict(dict), defaultdict(set)
        for batch in read_batches(raw):
            if batch.marker is not None:
                self.end(batch)
            for record in batch.records if batch.marker is None else ():
                self.take(batch, record)

    def take(self, batch, record):
        if record.key[:2] != b"\0\1":
            return
        at = 2
        names = []
        for _ in range(2):
            (length,) = struct.unpack_from(">h", record.key, at)
            names.append(record.key[at + 2 : at + 2 + length].decode())
            at += 2 + length
        key = (*names, struct.unpack_from(">i", record.key, at)[0])
        if record.value is None:
            self.offsets.pop(key, None)
            for producer_id in self.open.pop(key, ()):
                del self.pending[producer_id][key]
            return
        found = record.offset, struct.unpack_from(">q", record.value, 2)[0]
        if batch.is_transactional:
            self.pending[batch.producer_id][key] = found
            self.open[key].add(batch.producer_id)
        else:
            self.offsets[key] = found

    def end(self, batch):
        for key, found in self.pending.pop(batch.producer_id, {}).items():
            self.open[key].discard(batch.producer_id)
            if batch.marker == COMMIT and found[0] > self.offsets.get(key, (-1,))[0]:
                self.offsets[key] = found

    def answers(self):
        keys = self.offsets.keys() | {key for key, producers in self.open.items() if producers}
        return {
            (group, partition): (
                offset := self.offsets.get((group, topic, partition), (None, None))[1],
                UNSTABLE if self.open.get((group, topic, partition)) else offset,
            )
            for group, topic, partition in keys
        }


class Node(Here):
    """A node that leads a partition, and what its groups answer."""

    def take(self, raw):
        """Have a log that a broker wrote."""
        self.pair.file.append(Accepted(list(split_batches(raw)), None))

    def run(self, event):
        (answer,) = self.coordinator._loop.submit([event]).result(10)
        if isinstance(answer, GroupError):
            return answer.code.name
        return answer.response

    def commit(self, producer, offsets, group="g"):
        given = {"orders": {p: (offset, "") for p, offset in offsets.items()}}
        event = TxnOffsetCommit(OffsetCommit(group, "", -1, given), Producer(*producer))
        found = self.run(event)
        if isinstance(found, Unverified):
            found = self.run(TxnOffsetCommit(event.commit, event.producer, found.ended))
        return found

    def end(self, producer, *, committed=True):
        return self.run(EndTransaction(Producer(*producer), 0, committed))

    def plain(self, partition, offset, group="g"):
        return self.run(OffsetCommit(group, "", -1, {"orders": {partition: (offset, "")}}))

    def answers(self, groups=("g",)):
        found = {}
        for group in groups:
            for stable in (False, True):
                event = OffsetFetch(group, {"orders": [0, 1]}, require_stable=stable)
                for partition, one in self.run(event)["orders"].items():
                    said = one.name if hasattr(one, "name") else one and one.offset
                    found.setdefault((group, partition), []).append(said)
        return {key: tuple(said) for key, said in found.items() if any(said)}


@pytest.fixture
def node(tmp_path):
    one = Node(tmp_path / "p")
    yield one
    one.resign()


# As Kafka wrote it -------------------------------------------------------------------------------


def test_batches_of_transactions_are_kafkas_byte_for_byte():
    compared = 0
    for _, _, raw in split(TRANSACTIONS):
        (said,) = read_batches(raw)
        if said.is_transactional:
            is_marker = said.marker is not None
            kind = BatchKind(said.producer_id, said.producer_epoch, is_marker)
            rows = [KeyValue(one.key, one.value) for one in said.records]
            change = Change(rows, said.records[0].timestamp_ms, kind)
            assert write_batch([change], said.base_offset, said.leader_epoch) == raw
            compared += 1
    assert compared > 20


@pytest.mark.parametrize("size", SAID)
def test_a_log_of_kafkas_is_loaded_as_kafka_answers(node, size):
    node.take(TRANSACTIONS[:size])
    node.elect()
    assert node.answers(("g1", "g2", "g3")) == SAID[size]


def test_every_beginning_of_it_is_loaded_as_kafka_would(node):
    for _, _, raw in split(TRANSACTIONS):
        node.take(raw)
        node.elect()
        written = node.pair.file.read(0, 1 << 20)
        assert node.answers(("g1", "g2", "g3")) == KafkaOffsets(written).answers()


def test_what_a_broker_began_is_ended_here(node):
    node.take(TRANSACTIONS[:BEFORE])
    node.elect()
    assert node.end((0, 0)) == 0
    assert node.end((1, 4)) == "INVALID_PRODUCER_EPOCH", "the epochs in the log count"
    assert node.end((1, 6), committed=False) == 0
    assert node.answers(("g1", "g2", "g3")) == SAID[len(TRANSACTIONS)]


# As Muster writes it -----------------------------------------------------------------------------


def test_a_transaction_outlives_its_leader(node):
    node.elect()
    node.plain(0, 1)
    node.commit((7, 3), {0: 5, 1: 6})
    node.elect()
    assert node.answers() == {("g", 0): (1, UNSTABLE), ("g", 1): (None, UNSTABLE)}
    assert node.commit((7, 2), {0: 9}) == "INVALID_PRODUCER_EPOCH"
    assert node.commit((7, 3), {1: 7}) == {"orders": {1: 0}}
    node.elect()
    assert node.end((7, 2)) == "INVALID_PRODUCER_EPOCH"
    assert node.end((7, 3)) == 0
    node.elect()
    assert node.answers() == {("g", 0): (5, 5), ("g", 1): (7, 7)}


def test_each_transaction_has_batches_of_its_own(node):
    node.elect()
    loop = node.coordinator._loop
    offsets = OffsetCommit("g", "", -1, {"orders": {0: (5, "")}})
    events = [
        TxnOffsetCommit(offsets, Producer(7, 0), 0),
        offsets,
        TxnOffsetCommit(offsets, Producer(7, 0), 0),
        TxnOffsetCommit(offsets, Producer(8, 0), 0),
        EndTransaction(Producer(7, 0), 4, True),
        EndTransaction(Producer(7, 0), 4, True),
    ]
    loop.submit(events).result(10)
    found = [
        (one.producer_id, one.is_transactional, one.marker)
        for one in read_batches(node.pair.follower.raw)
    ]
    assert found == [
        (7, True, None), (-1, False, None), (7, True, None), (8, True, None),
        (7, True, COMMIT), (7, True, COMMIT),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(200 if EVERY else 4))
def test_any_order_of_things_is_as_kafka_would_have_it(node, seed):
    """The log that followers have, replayed by Kafka's rules, says what Muster answers."""
    draw = random.Random(seed)
    node.elect()
    for step in range(1, 41):
        producer, place = (draw.randrange(3), 0), draw.randrange(2)
        action = draw.choice("ccccpppeeedr")
        if action == "c":
            node.commit(producer, {place: step})
        elif action == "p":
            node.plain(place, step)
        elif action == "e":
            node.end(producer, committed=draw.random() < 0.7)
        elif action == "d":
            node.run(OffsetDelete("g", {"orders": [place]}))
        else:
            node.elect()
        said = KafkaOffsets(node.pair.follower.raw).answers()
        assert node.answers() == said, (step, action)
        assert _loaded(node.pair.follower.raw) == {k: v for k, (v, _) in said.items() if v}


def _loaded(raw):
    """What `muster watch` makes of a log."""
    load = PartitionLoad()
    load.take(list(read_batches(raw)))
    found = {}
    for one in load.finish():
        if one.value is not None:
            offset = struct.unpack_from(">q", one.value, 2)[0]
            found["g", struct.unpack_from(">i", one.key, len(one.key) - 4)[0]] = offset
    return {key: offset for key, offset in found.items() if offset}


def test_what_is_too_large_for_a_batch_stays_of_its_producer(tmp_path):
    node = Node(tmp_path / "small")
    node.elect(bytes_max=300)
    offsets = dict.fromkeys(range(40), 5)
    node.commit((7, 0), offsets)
    batches = list(read_batches(node.pair.follower.raw))
    assert len(batches) > 1
    assert {(one.producer_id, one.is_transactional) for one in batches} == {(7, True)}
    node.end((7, 0))
    found = node.run(OffsetFetch("g", {"orders": list(offsets)}))["orders"]
    assert {partition: one.offset for partition, one in found.items()} == offsets
    node.resign()


# Readers of committed records --------------------------------------------------------------------


def _stable(batches, mark):
    """The last stable offset, and the aborted transactions before it, by looking at each batch."""
    opened, ended = {}, []
    for one in batches:
        if one.marker is not None and one.producer_id in opened:
            ended.append((opened.pop(one.producer_id), one.base_offset, one))
        elif one.marker is None and one.is_transactional:
            opened.setdefault(one.producer_id, one.base_offset)
    undecided = [start for start, end, _ in ended if end >= mark]
    stable = min([mark, *opened.values(), *undecided])
    aborted = {(one.producer_id, start) for start, _, one in ended if one.marker != COMMIT}
    return stable, {one for one in aborted if one[1] < stable}


@pytest.mark.parametrize("seed", range(1000 if EVERY else 20))
def test_stable_offsets_are_found_in_any_log(seed):
    draw = random.Random(seed)
    log, raws = PartitionLog(), []
    for _ in range(60):
        if draw.random() < 0.1 and log.end:
            log.truncate(draw.randrange(log.end + 1))
            raws = [raw for raw in raws if raw[1] < log.end]
        else:
            kind = draw.choice([BatchKind(), BatchKind(draw.randrange(3), 0)])
            if kind.producer_id >= 0 and draw.random() < 0.4:
                kind = kind._replace(is_marker=True)
            key = struct.pack(">hh", 0, draw.randrange(2)) if kind.is_marker else b"k"
            rows = [KeyValue(key, struct.pack(">hi", 0, 0))] * (1 if kind.is_marker else 2)
            (raw,) = write_batches([Change(rows, 1, kind)], log.end, 1, 10_000)
            raws.append((log.end, log.end + len(rows) - 1, raw))
            log.append(log.check(raw, 1))
        log.high_watermark = mark = draw.randrange(log.end + 1)
        batches = [next(read_batches(raw)) for _, _, raw in raws]
        stable, aborted = _stable(batches, mark)
        assert log.stable_end == stable
        found = log.transactions.aborted(0, stable)
        assert {(one["producer_id"], one["first_offset"]) for one in found} == aborted


def test_readers_of_committed_records_get_no_others(node):
    node.elect()
    node.plain(0, 1)
    node.commit((7, 0), {0: 5})
    node.plain(1, 2)

    def read(offset, *, committed):
        found = node.led.fetch(offset, -1, -1, 10_000, replica=False, committed=committed)
        return (
            [one.base_offset for one in read_batches(found.data)],
            found.stable_end,
            found.aborted,
        )

    assert read(0, committed=True) == ([0], 1, [])
    assert read(0, committed=False) == ([0, 1, 2], 1, None)
    assert node.led.find_offset(-1, last=True, replica=False, committed=True) == (0, 1)
    assert node.led.find_offset(-1, last=True, replica=False) == (0, 3)
    node.end((7, 0), committed=False)
    skipped = [{"producer_id": 7, "first_offset": 1}]
    assert read(1, committed=True) == ([1, 2, 3], 4, skipped)
