"""The log of a partition: what belongs at its end, where epochs end, what is cut off; its files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.kraft.following import Wait, decide
from coordinator.kraft.log_files import BATCHES, MARKS, LogFile, Marks
from coordinator.kraft.partition_log import (
    Accepted,
    EpochEnd,
    PartitionLog,
    ReplicaLogError,
)
from coordinator.watcher.record_batches import BatchError, read_batches, split_batches

from .batches import batch
from .recorded import EPOCHS, OFFSETS, answer, split

TOPIC_ID = UUID(int=77)
FOREVER_MS = float("inf")


def filled(*batches):
    """A log with batches of (first offset, epoch, how many)."""
    log = PartitionLog()
    for one in batches:
        log.append(log.check(batch(*one), one[1]))
    return log


def test_epochs_are_those_that_kafka_notes():
    log = PartitionLog()
    log.append(log.check(OFFSETS, 9))
    assert log.epochs == EPOCHS
    assert (log.end, log.size) == (split(OFFSETS)[-1][1] + 1, len(OFFSETS))


def test_an_epoch_ends_where_the_next_begins():
    log = filled((0, 2, 10), (10, 5, 5))
    log.begin_epoch(8, 15)  # of a leader that has written nothing yet
    assert [log.end_of(epoch) for epoch in (-1, 0, 2, 3, 5, 8, 9)] == [
        EpochEnd(-1, -1), EpochEnd(0, 0), EpochEnd(2, 10), EpochEnd(2, 10), EpochEnd(5, 15),
        EpochEnd(8, 15), EpochEnd(-1, -1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (batch(9, 1), "sent offsets 9 to 9, but the log ends at 10"),
        (batch(8, 1, 4), "sent offsets 8 to 11"),
        (batch(10, 1, 2) + batch(11, 1), "sent offsets 11 to 11, but the log ends at 12"),
    ],
)
def test_what_does_not_belong_at_the_end_is_refused(sent, words):
    log = filled((0, 1, 10))
    with pytest.raises(ReplicaLogError, match=words):
        log.check(sent, 1)
    assert log.end == 10


def changed(at, value):
    raw = batch(10, 1)
    return raw[:at] + value + raw[at + len(value) :]


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (changed(-1 % len(batch(10, 1)), b"y"), "offset 10 is damaged: its checksum differs"),
        (changed(16, b"\1"), "offset 10 has format 1: Muster reads 2"),
        (changed(8, b"\0\0\0\1"), "offset 10 is damaged: so is its head"),
        (changed(8, b"\xff\xff\xff\xff"), "offset 10 is damaged: so is its head"),
        (changed(23, b"\xff\xff\xff\xff"), "offset 10 is damaged: so is its head"),
        (changed(0, b"\xff"), "is damaged: so is its head"),
    ],
    ids=["checksum", "format", "short", "no length", "last offset", "base offset"],
)
def test_damaged_batches_are_refused_by_who_writes_and_by_who_reads_them(sent, words):
    log = filled((0, 1, 10))
    with pytest.raises(BatchError, match=words):
        log.check(sent, 1)
    with pytest.raises(BatchError, match=words):
        next(read_batches(sent))
    wait = decide(log, 1, answer(sent))
    assert isinstance(wait, Wait)
    assert re.search(words, wait.why)
    assert log.end == 10


def test_batches_of_a_later_epoch_are_left_out():
    """KAFKA-18723: another leader has written them since the request."""
    log = filled((0, 1, 10))
    accepted = log.check(batch(10, 1, 2) + batch(12, 3) + batch(13, 1), 2)
    assert [one.base_offset for one in accepted.batches] == [10]


def test_a_cut_batch_at_the_end_is_left_out():
    log = PartitionLog()
    data = batch(0, 1) + batch(1, 1)
    assert [b.base_offset for b in log.check(data[:-1], 1).batches] == [0]
    assert list(split_batches(data[:60])) == []


def test_an_empty_log_begins_where_a_cleaned_batch_does():
    """The first batch of a cleaned log may begin before what was asked for."""
    log = PartitionLog(2_588)
    accepted = log.check(batch(2_580, 4, 20), 4)
    assert accepted.restarts_at == 2_580
    log.append(accepted)
    assert (log.start, log.end) == (2_580, 2_600)


batches_of_leaders = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 5), st.integers(0, 2)), max_size=12
)


@given(batches_of_leaders, st.lists(st.integers(0, 60), max_size=4), st.integers(1, 400))
def test_a_log_is_like_a_list_of_batches(steps, cuts, bytes_max):
    """`steps` are epochs more, records, and offsets that the cleaner left out."""
    log, twin, file = PartitionLog(), [], b""
    epoch, end = 0, 0
    for step, (more, count, gap) in enumerate(steps):
        epoch += more
        raw = batch(end + gap, epoch, count, b"x" * (step % 5))
        log.append(log.check(raw, epoch))
        twin.append((end + gap, end + gap + count - 1, epoch, raw))
        file += raw
        end += gap + count
    for cut in cuts:
        size = log.size_below(cut) if cut > log.start else 0
        log.truncate(cut)
        twin = [one for one in twin if one[1] < cut]
        file = file[:size]
    assert file == b"".join(one[3] for one in twin)
    assert log.size == len(file)
    firsts = {}
    for first, _, its_epoch, _ in twin:
        firsts.setdefault(its_epoch, first)
    assert dict(log.epochs) == firsts
    assert log.end >= (twin[-1][1] + 1 if twin else 0)
    for offset in range(0, log.end + 1, 7):
        begin, stop = log.span(offset, bytes_max)
        wanted = [one for one in twin if one[1] >= offset]
        found = [one.base_offset for one in split_batches(file[begin:stop])]
        assert found == [one[0] for one in wanted[: len(found)]]
        assert bool(found) == bool(wanted)
        assert stop - begin <= bytes_max or len(found) == 1


def test_marks_follow_the_leader_as_far_as_the_log_reaches():
    log = filled((0, 1, 10))
    log.follow_marks(7, 0)
    log.follow_marks(99, 3)
    assert (log.high_watermark, log.start) == (10, 3)
    log.follow_marks(5, 1)
    assert (log.high_watermark, log.start) == (10, 3)
    log.truncate(6)
    assert log.high_watermark <= log.end


# Files -----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "p")


def opened(folder, topic_id=TOPIC_ID, keep_ms=FOREVER_MS):
    return LogFile(folder, topic_id, keep_ms)


def fill(folder, high_watermark=12):
    """A log as a process leaves it that is killed: nothing is closed."""
    file = opened(folder)
    for raw in (batch(0, 1, 10), batch(10, 2, 5)):
        file.append(file.log.check(raw, 2))
    file.log.follow_marks(high_watermark, 0)
    file.keep_marks()
    return file


def look(log):
    return log.start, log.end, log.high_watermark, log.epochs, log.size


def test_a_log_is_whole_after_its_process_was_killed(folder):
    was = fill(folder)
    now = opened(folder)
    assert look(now.log) == look(was.log)
    assert now.read(0, 1) == batch(0, 1, 10)
    assert now.read(10, 999) == batch(10, 2, 5)
    assert now.read(15, 999) == b""


@pytest.mark.parametrize("torn", [1, 30, 60, 61])
def test_a_batch_that_was_being_written_is_cut_off(folder, torn):
    was = fill(folder)
    with open(os.path.join(folder, BATCHES), "ab") as file:
        file.write(batch(15, 2, 3)[:torn])
    now = opened(folder)
    assert look(now.log) == look(was.log)
    now.append(now.log.check(batch(15, 2, 3), 2))
    assert opened(folder).log.end == 18


def test_damage_ends_the_log_there(folder):
    fill(folder)
    path = Path(folder, BATCHES)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    log = opened(folder).log
    assert (log.end, log.high_watermark, log.epochs) == (10, 10, [(1, 0)])
    assert opened(folder).has_lost  # it had what is below 12


def test_a_log_that_follows_no_leader_for_too_long_is_emptied(folder):
    """Tombstones were cleaned meanwhile: what they are about would come back from the dead."""
    fill(folder)
    marks = Path(folder, MARKS)
    old = msgspec.json.decode(marks.read_bytes(), type=Marks)
    aged = msgspec.json.encode(msgspec.structs.replace(old, at_ms=old.at_ms - 10_000))
    marks.write_bytes(aged)
    kept = opened(folder, keep_ms=60_000)
    assert (kept.log.end, kept.has_lost) == (15, False)
    marks.write_bytes(aged)
    for _ in range(2):  # killed before the loss was known
        assert opened(folder, keep_ms=5_000).has_lost
    assert look(opened(folder, keep_ms=5_000).log) == (0, 0, 0, [], 0)


def test_a_log_of_another_topic_or_without_marks_is_emptied(folder):
    fill(folder)
    assert opened(folder, UUID(int=78)).log.end == 0
    fill(folder)
    os.unlink(os.path.join(folder, MARKS))
    now = opened(folder)
    assert (now.log.end, now.has_lost) == (0, True)


def test_a_log_that_starts_again_is_so_after_a_kill(folder):
    fill(folder).restart(2_588)
    log = opened(folder).log
    assert (log.start, log.end, log.size) == (2_588, 2_588, 0)
    file = opened(folder)
    file.append(file.log.check(batch(2_580, 4, 20), 4))
    assert (opened(folder).log.start, opened(folder).log.end) == (2_580, 2_600)


def test_what_was_cut_off_is_gone_after_a_kill(folder):
    file = fill(folder)
    file.truncate(12)
    assert look(opened(folder).log) == look(file.log)
    assert file.log.end == 10


def test_a_log_that_is_no_replica_any_more_leaves_nothing(folder):
    fill(folder).delete()
    assert not os.path.exists(folder)


def test_accepted_bytes_are_those_that_were_sent():
    log = PartitionLog()
    assert log.check(OFFSETS, 9).data == OFFSETS
    assert Accepted([], None).data == b""
