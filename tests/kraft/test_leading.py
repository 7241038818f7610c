"""A leader counts what every replica in sync has, and compares epochs as Kafka does."""

from types import SimpleNamespace

import pytest

from coordinator.kraft.following import Append, Truncate, decide
from coordinator.kraft.leading import Leadership, find_alive
from coordinator.kraft.metadata_image import Partition
from coordinator.kraft.partition_log import Accepted, EpochEnd, PartitionLog
from coordinator.watcher.record_batches import split_batches

from .batches import batch
from .recorded import answer

NODE, LAG_S = 1001, 30.0
ALIVE = {1: 11, 2: 12, NODE: 13}


def lead(end=3, epoch=5, isr=(NODE, 1, 2), least=2, replicas=(NODE, 1, 2)):
    """A leader of an epoch, whose log has a batch of the epoch before."""
    log = PartitionLog()
    write(log, batch(0, epoch - 1, end))
    partition = Partition(replicas, isr, (), (), NODE, epoch, 7, 0, (), ())
    return Leadership(log, NODE, partition, least, 0.0, LAG_S)


def write(log, *raws):
    log.append(Accepted(list(split_batches(b"".join(raws))), None))


def grow(led, count=1):
    write(led.log, batch(led.log.end, led.epoch, count))
    led.advance()


def decided(led, isr, epoch, code=0):
    return SimpleNamespace(error_code=code, leader_epoch=led.epoch, isr=isr, partition_epoch=epoch)


def test_a_record_counts_once_all_in_sync_have_it():
    led = lead()
    assert led.log.high_watermark == 0
    led.note_fetch(1, 11, 3, 1.0)
    assert led.log.high_watermark == 0
    assert led.note_fetch(2, 12, 3, 1.0)
    assert led.log.high_watermark == 3
    grow(led, 2)
    led.note_fetch(1, 11, 5, 2.0)
    led.note_fetch(2, 12, 3, 2.0)
    assert led.log.high_watermark == 3
    led.note_fetch(2, 12, 5, 2.0)
    assert led.log.high_watermark == 5
    led.note_fetch(2, 12, 0, 3.0)  # it was truncated: what counted counts
    assert led.log.high_watermark == 5


def test_nothing_counts_while_too_few_are_in_sync():
    led = lead(isr=(NODE,))
    grow(led)
    assert not led.is_writable
    assert led.log.high_watermark == 0
    led.follow(Partition((NODE, 1, 2), (NODE, 1), (), (), NODE, 5, 8, 0, (), ()), 1.0)
    assert led.is_writable
    assert led.log.high_watermark == 0
    led.note_fetch(1, 11, 4, 1.0)
    assert led.log.high_watermark == 4
    alone = lead(isr=(NODE,), least=1)
    assert alone.log.high_watermark == 3
    assert lead(isr=(NODE,), replicas=(NODE,)).log.high_watermark == 3  # as many as there can be


def test_a_follower_that_lags_leaves_and_comes_back():
    led = lead()
    for node_id in (1, 2):
        led.note_fetch(node_id, ALIVE[node_id], 3, 1.0)
    assert led.ask_isr(ALIVE, 100.0) is None  # who has everything may be silent
    grow(led)
    led.note_fetch(1, 11, 4, 100.0)
    assert led.ask_isr(ALIVE, 30.0) is None
    asked = led.ask_isr(ALIVE, 100.0)
    assert asked.replicas == {NODE: 13, 1: 11}
    assert led.log.high_watermark == 3  # not before the controller has decided
    assert led.ask_isr(ALIVE, 101.0) is asked
    led.take_isr(decided(led, (NODE, 1), 8))
    assert led.isr == (NODE, 1)
    assert led.log.high_watermark == 4
    led.note_fetch(2, 12, 3, 102.0)
    assert led.ask_isr(ALIVE, 102.0) is None
    led.note_fetch(2, 12, 4, 103.0)
    assert led.ask_isr({**ALIVE, 2: 99}, 103.0) is None  # it is another incarnation by now
    assert led.ask_isr({NODE: 13, 1: 11}, 103.0) is None  # it is fenced
    assert led.ask_isr(ALIVE, 103.0).replicas == ALIVE
    grow(led)
    led.note_fetch(1, 11, 5, 104.0)
    assert led.log.high_watermark == 4  # it may be in sync already
    led.take_isr(decided(led, (), -1, code=107))
    assert led.log.high_watermark == 5


def test_an_answer_that_leaves_open_what_was_decided_lowers_nothing():
    led = lead(isr=(NODE, 1))
    led.note_fetch(1, 11, 3, 1.0)
    led.note_fetch(2, 12, 3, 1.0)
    assert led.ask_isr(ALIVE, 1.0).replicas == ALIVE
    grow(led)
    led.note_fetch(1, 11, 4, 2.0)
    led.take_isr(decided(led, (), -1, code=94))
    assert led.log.high_watermark == 3
    led.follow(Partition((NODE, 1, 2), (NODE, 1), (), (), NODE, 5, 7, 0, (), ()), 3.0)
    assert led.log.high_watermark == 3
    led.follow(Partition((NODE, 1, 2), (NODE, 1), (), (), NODE, 5, 9, 0, (), ()), 3.0)
    assert led.log.high_watermark == 4


def test_a_follower_of_another_past_learns_where_it_diverges():
    led = lead()  # epoch 4 to offset 3, then 5
    grow(led)
    assert led.fetch(3, 5, 4, 100, replica=True).diverging is None
    assert led.fetch(6, 5, 4, 100, replica=True).diverging == EpochEnd(4, 3)
    assert led.fetch(4, 5, 5, 100, replica=True).diverging is None
    assert led.fetch(3, 5, 3, 100, replica=True).diverging == EpochEnd(3, 0)
    assert led.fetch(3, 5, 9, 100, replica=True).error == 1
    empty = lead(end=1)
    empty.log.restart(0)
    empty.log.begin_epoch(5, 0)
    assert empty.fetch(0, 5, 5, 100, replica=True).error == 0


@pytest.mark.parametrize(("epoch", "offset", "error"), [(4, 3, 74), (6, 3, 75), (5, 9, 1)])
def test_a_fetch_of_another_epoch_or_offset_is_refused(epoch, offset, error):
    assert lead().fetch(offset, epoch, -1, 100, replica=True).error == error


def test_consumers_read_what_counts():
    led = lead()
    grow(led)
    for node_id in (1, 2):
        led.note_fetch(node_id, ALIVE[node_id], 3, 1.0)
    whole = led.fetch(0, -1, -1, 10_000, replica=True)
    found = led.fetch(0, -1, -1, 10_000, replica=False)
    assert (found.begin, found.end) == (0, led.log.size_below(3))
    assert found.end < whole.end == led.log.size
    assert led.fetch(3, -1, -1, 100, replica=False)[2:] == (found.end, found.end)


def test_followers_prove_that_no_other_leads():
    led = lead(isr=(NODE, 1))
    assert led.led_since_s == float("-inf")
    led.note_fetch(1, 11, 3, 5.0)
    led.note_answer(1, 6.0)
    assert led.led_since_s == float("-inf")  # the next one may be from before a pause
    led.note_fetch(1, 11, 3, 60.0)
    assert led.led_since_s == 6.0


def test_who_may_be_in_sync(image):
    image.brokers[2] = image.brokers[2]._replace(is_fenced=True)
    assert find_alive(image.brokers, (1, 2, 3, NODE)) == {1: image.brokers[1].epoch, NODE: 7}


def test_a_follower_of_ours_ends_with_the_same_log():
    """What a follower decides by such answers, as a node does itself, ends with the leader's log."""
    led = lead(end=2)
    grow(led, 3)
    log = PartitionLog()
    write(log, batch(0, 4, 2), batch(2, 4, 4))  # four of them no one else has
    raw = batch(0, 4, 2) + batch(2, 5, 3)
    for _ in range(9):
        found = led.fetch(log.end, 5, log.last_epoch, 1, replica=True)
        far = found.diverging or EpochEnd(-1, -1)
        part = answer(
            raw[found.begin : found.end], led.log.high_watermark, error_code=found.error,
            diverging_epoch=SimpleNamespace(epoch=far.epoch, end_offset=far.end_offset),
        )  # fmt: skip
        decision = decide(log, 5, part)
        if isinstance(decision, Truncate):
            log.truncate(decision.offset)
        elif isinstance(decision, Append):
            log.append(decision.accepted)
    assert (log.end, log.epochs) == (5, led.log.epochs)
