"""What is appended to a partition that is led counts on its followers, or the caller hears why not."""

import threading
import time

import pytest

from coordinator.clock import monotonic_ms
from coordinator.kraft.batch_writer import Change, KeyValue
from coordinator.kraft.leading import Standing
from coordinator.storage.record_log import CommitFailed, WriterFenced
from coordinator.watcher.record_batches import read_batches

from .leads import NODE, OTHER, Led

CHANGE = [Change([KeyValue(b"key", b"value")], 1_000)]


@pytest.fixture
def led(tmp_path):
    return Led(tmp_path / "p")


def test_an_append_returns_once_the_follower_has_it(led):
    one = led.elect()
    assert one.append(CHANGE) == 1
    assert one.append([*CHANGE, *CHANGE]) == 3
    assert led.follower.raw == led.file.read(0, 1 << 20)
    assert led.file.log.high_watermark == 3
    assert [batch.leader_epoch for batch in read_batches(led.follower.raw)] == [5, 5]


def test_a_follower_that_is_stuck_fails_an_append_that_may_count_later(led):
    one = led.elect()
    led.follower.follows = False
    with pytest.raises(CommitFailed, match="offset 0 is not on all replicas in sync"):
        one.append(CHANGE)
    led.follower.follows = True
    led.follower.pull()
    one.wait_until_counted(1)


def test_too_few_in_sync_write_nothing(led):
    one = led.elect(isr=(NODE,))
    with pytest.raises(CommitFailed, match="1 replicas in sync, of 2"):
        one.append(CHANGE)
    assert one.end == 0


def test_who_leads_no_longer_writes_nothing_and_wakes_who_waits(led):
    one = led.elect()
    led.follower.follows = False
    led.commit_s = 30
    one = led.elect()
    began = time.monotonic()
    threading.Timer(0.05, one.stop).start()
    with pytest.raises(WriterFenced, match="no longer led"):
        one.append(CHANGE)
    assert time.monotonic() - began < 10
    for ask in (lambda: one.append(CHANGE), one.look, lambda: next(one.read())):
        with pytest.raises(WriterFenced):
            ask()
    assert one.fetch(0, -1, -1, 100, replica=True)[0].error == 6
    assert one.find_end(-1, 5)[0] == 6
    assert one.find_offset(-1, last=True, replica=True)[0] == 6


def test_whether_another_leads_is_known_by_controllers_or_by_followers(led):
    one = led.elect()
    with pytest.raises(CommitFailed, match="not known whether another node leads"):
        one.look()
    led.standing.hear(monotonic_ms(), is_fenced=False)
    one.look()
    led.standing.hear(monotonic_ms(), is_fenced=True)
    with pytest.raises(CommitFailed):
        one.look()
    one.note_answer(OTHER)
    with pytest.raises(CommitFailed):  # it has not asked again
        one.look()
    led.follower.pull()
    one.look()
    led.standing.hear(monotonic_ms() - 60_000, is_fenced=False)
    one.look()


def test_metadata_that_are_not_read_prove_nothing():
    standing = Standing(50)
    standing.hear(monotonic_ms(), is_fenced=False)
    standing.hear_metadata()
    assert not standing.is_sure  # its request may have been sent before a pause
    standing.hear_metadata()
    assert standing.is_sure
    time.sleep(0.06)
    standing.hear(monotonic_ms(), is_fenced=False)
    assert not standing.is_sure


def test_what_is_too_large_for_a_batch_is_cut_between_records(led):
    one = led.elect(bytes_max=200)
    many = Change([KeyValue(b"k%d" % number, b"v" * 50) for number in range(9)], 1_000)
    assert one.append([many]) == 9
    batches = list(read_batches(led.follower.raw))
    assert len(batches) == 5
    assert [len(batch.records) for batch in batches] == [2, 2, 2, 2, 1]
    with pytest.raises(CommitFailed, match=r"max\.message\.bytes"):
        one.append([Change([KeyValue(b"k", b"v" * 500)], 1_000)])


def test_all_of_the_log_is_read(led):
    one = led.elect()
    for _ in range(5):
        one.append(CHANGE)
    assert sum(len(batch.records) for some in one.read() for batch in some) == 5
