"""A follower ends with what its leader has, whatever they had before, and loses nothing in sync."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from coordinator.kraft.following import (
    Append,
    AskOffsets,
    Restart,
    Truncate,
    Wait,
    decide,
    decide_offsets,
    find_common,
)
from coordinator.kraft.partition_log import EpochEnd, PartitionLog

from .batches import batch
from .recorded import answer
from .test_partition_log import filled


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (6, "it does not lead the partition now"),
        (74, "it leads in a later epoch"),
        (75, "it does not know yet that it leads"),
        (100, "it does not know the topic yet"),
        (56, "Kafka's error 56"),
    ],
)
def test_errors_pass_or_are_named(code, why):
    assert decide(PartitionLog(), 1, answer(error_code=code)) == Wait(why)


def test_an_offset_that_is_not_there_is_asked_for():
    log = filled((0, 1, 10))
    assert decide(log, 1, answer(error_code=1)) == AskOffsets()
    assert decide_offsets(log, 20, 90) == Restart(20)
    assert decide_offsets(log, 0, 7) == Truncate(7)
    assert isinstance(decide_offsets(log, 5, 30), Wait)


@pytest.mark.parametrize(
    ("leader", "common"),
    [
        (EpochEnd(2, 12), 12),  # both have the epoch: the shorter one
        (EpochEnd(2, 99), 15),
        (EpochEnd(3, 20), 15),  # ours has no such epoch: back to the end of the one before
        (EpochEnd(5, 18), 18),
        (EpochEnd(9, 17), 17),  # newer than all of ours
        (EpochEnd(-1, 8), 8),
        (EpochEnd(-1, -1), 4),  # it cannot say: back to what all had
    ],
)
def test_logs_are_cut_back_to_what_both_have(leader, common):
    log = filled((0, 1, 10), (10, 2, 5), (15, 5, 5))
    log.follow_marks(4, 0)
    assert find_common(log, leader) == common


def test_damaged_bytes_of_a_leader_are_asked_for_again():
    decision = decide(PartitionLog(), 1, answer(batch(0, 1)[:-1] + b"?", 1))
    assert decision == Wait("the batch at offset 0 is damaged: its checksum differs")


class Replica:
    """A broker's replica: the twin of a log is the list of its batches."""

    def __init__(self):
        self.log, self.batches = PartitionLog(), []

    def write(self, raw, epoch):
        accepted = self.log.check(raw, epoch)
        self.log.append(accepted)
        self.batches += accepted.batches

    def has(self, end):
        """What it has below an offset."""
        return [one.raw for one in self.batches if one.last_offset < end]

    def serve(self, offset, last_epoch, count, high_watermark):
        """As Kafka's leaders answer a follower that fetches from an offset."""
        if last_epoch >= 0:
            ends = self.log.end_of(last_epoch)
            if ends.epoch != last_epoch or ends.end_offset < offset:
                diverging = SimpleNamespace(epoch=ends.epoch, end_offset=ends.end_offset)
                return answer(diverging_epoch=diverging, high_watermark=high_watermark)
        if offset > self.log.end:
            return answer(error_code=1)
        some = [one.raw for one in self.batches if one.last_offset >= offset][:count]
        return answer(b"".join(some), high_watermark)

    def fetch(self, leader, epoch, count, high_watermark):
        log = self.log
        found = leader.serve(log.end, log.last_epoch, count, high_watermark)
        decision = decide(log, epoch, found)
        if isinstance(decision, AskOffsets):
            decision = decide_offsets(log, leader.log.start, leader.log.end)
        match decision:
            case Append():
                self.write(decision.accepted.data, epoch)
                log.follow_marks(decision.high_watermark, 0)
            case Truncate():
                assert decision.offset >= log.high_watermark, "what was in sync is cut off"
                log.truncate(decision.offset)
                self.batches = [b for b in self.batches if b.last_offset < decision.offset]


@pytest.mark.parametrize("seed", range(150))
def test_replicas_agree_in_the_end(seed):
    """Leaders change among the replicas in sync, with records that only some have."""
    chance = random.Random(seed)
    replicas = [Replica() for _ in range(3)]
    decided, epoch, mark = [], 0, 0
    for _ in range(chance.randint(1, 9)):
        # Any replica may lead that has all that was decided, as those in sync do.
        leader = chance.choice([r for r in replicas if r.has(mark) == decided])
        epoch += chance.randint(1, 3)
        leader.log.begin_epoch(epoch, leader.log.end)
        others = [r for r in replicas if r is not leader and chance.random() < 0.8]
        for _ in range(chance.randint(1, 12)):
            if chance.random() < 0.5:
                leader.write(batch(leader.log.end, epoch, chance.randint(1, 3)), epoch)
            for one in others:
                if chance.random() < 0.5:
                    one.fetch(leader, epoch, chance.randint(1, 4), mark)
        # Those that fetched to the leader's end are in sync; what they all have is decided.
        in_sync = [r for r in replicas if r is leader or r.log.last_epoch == epoch]
        if len(in_sync) > 1:
            mark = max(mark, min(r.log.end for r in in_sync))
            decided = leader.has(mark)
    for one in replicas:
        for _ in range(60):
            if one is not leader:
                one.fetch(leader, epoch, 3, mark)
        assert one.batches == leader.batches
        assert one.has(mark) == decided
        written = [[e for e in r.log.epochs if e.start < r.log.end] for r in (one, leader)]
        assert written[0] == written[1]
