"""A disk that takes nothing: nothing acknowledged is lost, and others lead and are in sync instead."""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
from contextlib import contextmanager

import pytest

from coordinator.errors import GroupError
from coordinator.kraft.batch_writer import Change, KeyValue
from coordinator.kraft.cleaner import cleaner
from coordinator.kraft.log_files import BATCHES, LogFile
from coordinator.kraft.replicas import Replicas
from coordinator.storage.record_log import CommitFailed
from coordinator.watcher.record_batches import read_batches

from .cleaner.test_cleaner import PAST, batch, open_log, records, write
from .leads import TOPIC_ID, WEEK_MS, Follower, Led
from .recorded import OFFSETS
from .test_leader import Node, beat, until
from .test_membership import NODE, TOPIC
from .test_replicas import Leader, at_end, data_of, follow, hold


@contextmanager
def full_disk(size):
    """Let no file of this process grow beyond a size: what fits is written, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def change(number):
    return [Change([KeyValue(b"k%d" % number, b"v" * 50)], 5)]


@pytest.mark.parametrize("room", [0, 10], ids=["nothing fits", "a part fits"])
def test_what_cannot_be_written_is_not_acknowledged_and_leaves_the_log_as_it_is(tmp_path, room):
    side = Led(tmp_path / "log")
    led = side.elect()
    for number in range(3):
        led.append(change(number))
    size = side.file.size
    side.file.keep_marks()
    with full_disk(size + room), pytest.raises(CommitFailed, match="cannot be written"):
        led.append(change(3))
    assert (led.end, side.file.size, led.cannot_write) == (3, size, True)
    shutil.copytree(tmp_path / "log", tmp_path / "killed")  # meanwhile
    assert LogFile(str(tmp_path / "killed"), TOPIC_ID, WEEK_MS).log.end == 3
    led.append(change(4))
    assert not led.cannot_write
    found = [one.key for each in read_batches(side.follower.raw) for one in each.records]
    assert found == [b"k0", b"k1", b"k2", b"k4"]
    assert side.follower.raw == side.file.read(0, 1 << 20)


def test_a_node_that_cannot_write_lets_a_broker_lead(tmp_path, image):
    node, follower = Node(tmp_path / "logs", image), Follower()
    try:
        node.see(replicas=(NODE, 1), isr=(NODE, 1))
        node.leader.changed, follower.led = follower.pull, node.leader.leaders.led[0]
        follower.pull()
        until(lambda: node.code() is None)
        coordinator = node.leader.find(node.group())
        joins = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"]}
        epoch = beat(coordinator, node, 0, topic_partitions={}, **joins)
        with full_disk(node.replicas.held[0].file.size):
            with pytest.raises(GroupError, match="try again"):
                beat(coordinator, node, epoch, **joins | {"subscribed_topic_names": ["u"]})
            until(lambda: node.leader.must_step_down)  # although the log can be read again
        until(lambda: coordinator.status == "active")
        assert beat(coordinator, node, epoch, **joins | {"subscribed_topic_names": ["u"]}) > 0
        assert not node.leader.must_step_down
    finally:
        node.leader.close()


def test_a_follower_that_cannot_write_is_not_waited_for_and_catches_up_later(tmp_path, image):
    hold(image, (0, 2))
    seen = []

    def holds(replicas):
        if not seen and all(one.cannot_write for one in replicas.held.values()):
            assert replicas.cannot_write
            hold(image, (0, 2), leader=-1)  # there is no one who would wait
            replicas.update(image)
            seen.append(replicas.cannot_write)
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            hold(image, (0, 2))
            replicas.update(image)
        return seen and at_end(replicas) and not replicas.cannot_write

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with full_disk(6_000):
        follow(tmp_path, image, Leader(), holds)
    assert seen == [False]
    assert data_of(tmp_path, 0) == data_of(tmp_path, 2) == OFFSETS


def test_marks_that_cannot_be_written_end_no_node(tmp_path, image, caplog):
    hold(image, isr=(1, NODE))
    follow(tmp_path, image, Leader(), at_end)

    async def run():
        replicas = Replicas(str(tmp_path), NODE, Leader())
        replicas.update(image)
        replicas._is_fresh = False
        with full_disk(10):
            replicas._keep_marks(replicas.held[0])
        assert "logs have no new marks" in caplog.text
        await replicas.close()

    asyncio.run(run())
    assert data_of(tmp_path) == OFFSETS


def test_a_log_that_cannot_be_made_is_made_later(tmp_path, image, caplog):
    hold(image)

    async def run():
        replicas = Replicas(str(tmp_path), NODE, Leader())
        replicas.update(image)
        hold(image, (0, 2))
        place = tmp_path / f"{TOPIC}-2"
        place.write_text("in the way")
        replicas.update(image)
        assert set(replicas.held) == {0}
        assert f"{TOPIC}-2 has no log here" in caplog.text
        place.unlink()
        replicas.update(image)
        assert set(replicas.held) == {0, 2}
        await replicas.close()

    asyncio.run(run())


def test_a_log_that_cannot_be_cleaned_stays_as_it_is(tmp_path, caplog):
    file = open_log(tmp_path / "log")
    write(file, *(batch(n, [(b"k%d" % n, b"v" * 100)]) for n in range(50)))
    before, kept = os.pread(file.descriptor, file.log.size, 0), file.log.size
    with full_disk(kept // 2):
        assert not cleaner.clean(file, PAST, "t-0")
    assert "its log cannot be cleaned, and stays as it is" in caplog.text
    assert not (tmp_path / "log" / cleaner.CLEANED).exists()
    assert (tmp_path / "log" / BATCHES).read_bytes() == before
    write(file, batch(50, [(b"k0", b"w")]))
    assert cleaner.clean(file, PAST, "t-0")
    assert [one.offset for one in records(file)] == list(range(1, 51))


def test_a_folder_that_cannot_be_flushed_after_a_cleaning_loses_nothing_later(
    tmp_path, monkeypatch
):
    """The cleaned file is in place by then: what is written next must go there."""
    file = open_log(tmp_path / "log")
    write(file, *(batch(n, [(b"a", b"v" * 100)]) for n in range(9)))

    def fail(_folder):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(cleaner, "sync_folder", fail)
    cleaner.clean(file, PAST, "t-0")
    write(file, batch(9, [(b"b", b"w")]))
    data = (tmp_path / "log" / BATCHES).read_bytes()
    assert [one.offset for each in read_batches(data) for one in each.records] == [8, 9]
    file.close()
    assert open_log(tmp_path / "log").log.end == 10
