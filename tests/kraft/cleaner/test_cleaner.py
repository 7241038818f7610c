"""A replica's log is cleaned while it is written: what counts stays, by offset and by key."""

from __future__ import annotations

import os
import threading
from uuid import UUID

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from coordinator.clock import wall_ms
from coordinator.kraft.batch_writer import Change, KeyValue, write_batch
from coordinator.kraft.cleaner.cleaner import CLEANED, clean, is_worth_it
from coordinator.kraft.log_files import BATCHES, LogFile
from coordinator.kraft.partition_log import Accepted
from coordinator.watcher.record_batches import (
    HEAD,
    TRANSACTIONAL,
    keep_last,
    read_batches,
    split_batches,
)

TOPIC_ID, WEEK_MS = UUID(int=7), 7 * 86_400_000
OLD_MS = 1_000
PAST, NOW = 10 * WEEK_MS, -1
"""How long tombstones stay behind a cleaning: long, or not at all."""


def batch(base, rows, epoch=1, at_ms=None):
    at_ms = wall_ms() if at_ms is None else at_ms
    pairs = [KeyValue(key, value) for key, value in rows]
    return write_batch([Change(pairs, at_ms)], base, epoch)


def open_log(folder):
    return LogFile(str(folder), TOPIC_ID, WEEK_MS)


def write(file, *batches):
    file.append(Accepted([one for raw in batches for one in split_batches(raw)], None))
    file.log.high_watermark = file.log.end


def records(file):
    data = os.pread(file.descriptor, file.log.size, 0)
    return [record for one in read_batches(data) for record in one.records]


def last(rows):
    kept = {}
    keep_last(kept, rows)
    return {key: (one.offset, one.value) for key, one in kept.items()}


KEYS = st.sampled_from([b"a", b"b", b"c", b"d"])
BATCHES_OF_ROWS = st.lists(
    st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)), min_size=1, max_size=4),
    min_size=1, max_size=12,
)  # fmt: skip


@given(BATCHES_OF_ROWS, st.integers(0, 12), st.lists(st.integers(0, 3), max_size=3))
def test_of_each_key_the_last_record_stays_where_it_was(tmp_path_factory, written, counted, cuts):
    """Also over a restart; what does not count yet is untouched, and offsets are as before."""
    folder = tmp_path_factory.mktemp("log")
    file, end, epoch = open_log(folder), 0, 1
    for number, rows in enumerate(written):
        epoch += number in cuts
        write(file, batch(end, rows, epoch))
        end = file.log.end
        if number + 1 == counted:
            mark = end
    mark = file.log.high_watermark = mark if 0 < counted <= len(written) else end
    before, epochs = records(file), list(file.log.epochs)
    assert clean(file, PAST, "t-0")
    after = records(file)
    assert last(after) == last(before)
    assert [one for one in after if one.offset >= mark] == [
        one for one in before if one.offset >= mark
    ]
    below = [one for one in after if one.offset < mark]
    assert len({one.key for one in below}) == len(below)
    assert (file.log.end, file.log.epochs, file.log.high_watermark) == (end, epochs, mark)
    for offset in range(end + 1):
        found = list(read_batches(file.read(offset, 1 << 20)))
        wanted = [one.offset for one in after if one.offset >= offset]
        assert [r.offset for b in found for r in b.records if r.offset >= offset] == wanted
    write(file, batch(end, [(b"z", b"1")], epoch))
    file.close()
    again = open_log(folder)
    assert records(again) == [*after, again_last(again)]
    assert (again.log.end, again.log.epochs[-1].epoch) == (end + 1, epoch)
    again.close()


def again_last(file):
    return records(file)[-1]


def test_tombstones_stay_until_a_cleaning_is_long_ago(tmp_path):
    """However old they are: a reader that is under way may have what they end, and not them yet."""
    file = open_log(tmp_path / "log")
    old = [
        batch(0, [(b"a", b"1"), (b"b", b"1")], at_ms=OLD_MS),
        batch(2, [(b"a", None)], at_ms=OLD_MS),
    ]
    write(file, *old)

    def keys():
        return [(one.offset, one.key, one.value) for one in records(file)]

    for keep in (NOW, PAST):  # none was before the first; none so long ago before the second
        assert clean(file, keep, "t-0")
        assert keys() == [(1, b"b", b"1"), (2, b"a", None)]
    file.keep_marks()
    file.close()
    file = open_log(tmp_path / "log")  # that is known over a restart
    write(file, batch(3, [(b"b", None)]))
    assert clean(file, NOW, "t-0")
    assert keys() == [(3, b"b", None)], "b ended after the last cleaning"
    file.truncate(3)
    write(file, batch(3, [(b"c", None)]), batch(4, [(b"d", b"1")]))
    assert clean(file, NOW, "t-0")
    assert keys() == [(3, b"c", None), (4, b"d", b"1")], "another record has that offset now"
    file.close()


def test_where_an_epoch_ended_is_known_after_cleaning_and_a_restart(tmp_path):
    file = open_log(tmp_path / "log")
    write(
        file,
        batch(0, [(b"a", b"1")], 1),
        *(batch(n, [(b"b", b"1")], 2) for n in range(1, 9)),
        batch(9, [(b"b", b"2")], 4),
    )
    ends = {epoch: file.log.end_of(epoch) for epoch in range(1, 5)}
    assert ends[1] == (1, 1)
    assert clean(file, PAST, "t-0")
    assert {epoch: file.log.end_of(epoch) for epoch in range(1, 5)} == ends
    file.close()
    again = open_log(tmp_path / "log")
    assert {epoch: again.log.end_of(epoch) for epoch in range(1, 5)} == ends
    again.close()


def transactional(raw):
    head = list(HEAD.unpack_from(raw))
    head[5] |= TRANSACTIONAL
    out = bytearray(HEAD.pack(*head)) + raw[HEAD.size :]
    head[4] = crc32c(bytes(out[21:]))
    return HEAD.pack(*head) + raw[HEAD.size :]


def test_batches_of_transactions_stay_whole_and_so_does_what_takes_them_back(tmp_path):
    file = open_log(tmp_path / "log")
    regular, open_one = (
        batch(0, [(b"a", b"1")], at_ms=OLD_MS),
        batch(1, [(b"a", b"2"), (b"b", b"2")]),
    )
    write(
        file,
        regular,
        transactional(open_one),
        batch(3, [(b"b", None), (b"c", None)], at_ms=OLD_MS),
        batch(5, [(b"z", b"1")]),
    )
    for _ in range(2):
        assert clean(file, NOW, "t-0")
    assert [(one.offset, one.key) for one in records(file)] == [
        (0, b"a"), (1, b"a"), (2, b"b"), (3, b"b"), (5, b"z"),
    ]  # fmt: skip
    file.close()


def test_what_is_written_while_it_is_cleaned_is_kept(tmp_path):
    file, stop = open_log(tmp_path / "log"), threading.Event()
    write(file, *(batch(n, [(b"k%d" % (n % 5), b"v" * 100)]) for n in range(500)))

    def go_on():
        number = 500
        while not stop.is_set():
            write(file, batch(number, [(b"k%d" % (number % 5), b"w")]))
            number += 1

    writer = threading.Thread(target=go_on)
    writer.start()
    try:
        for _ in range(20):
            assert clean(file, PAST, "t-0")
    finally:
        stop.set()
        writer.join()
    assert clean(file, PAST, "t-0")
    found = records(file)
    assert sorted(one.key for one in found) == [b"k0", b"k1", b"k2", b"k3", b"k4"]
    assert max(one.offset for one in found) == file.log.end - 1
    file.close()
    assert open_log(tmp_path / "log").log.end == max(one.offset for one in found) + 1


@pytest.mark.parametrize("change", ["truncate", "restart", "close", "delete"])
def test_a_log_that_changes_meanwhile_stays_as_it_is(tmp_path, change, monkeypatch):
    file = open_log(tmp_path / "log")
    write(file, *(batch(n, [(b"a", b"v")]) for n in range(9)))
    real = os.fsync

    def meanwhile(descriptor):
        if descriptor != file.descriptor:
            {"truncate": lambda: file.truncate(5), "restart": lambda: file.restart(40),
             "close": file.close, "delete": file.delete}[change]()  # fmt: skip
        real(descriptor)

    monkeypatch.setattr(os, "fsync", meanwhile)
    assert not clean(file, PAST, "t-0")
    if change == "truncate":
        assert [one.offset for one in records(file)] == [0, 1, 2, 3, 4]
    if change == "restart":
        assert (file.log.size, file.log.end) == (0, 40)
    assert not (tmp_path / "log" / CLEANED).exists()


def test_a_log_is_cleaned_when_half_of_it_is_new(tmp_path):
    file = open_log(tmp_path / "log")
    write(file, *(batch(n, [(b"a", b"v" * 200)]) for n in range(20)))
    assert is_worth_it(file, 1_000)
    assert not is_worth_it(file, 1 << 20)
    assert clean(file, PAST, "t-0")
    assert 0 < file.cleaned_bytes < 400
    assert os.path.getsize(tmp_path / "log" / BATCHES) == file.log.size == file.cleaned_bytes
    assert not is_worth_it(file, 100)
    file.close()


@pytest.mark.parametrize(
    "place", [68, 70, 79], ids=["a record", "an offset, which has no checksum", "a length"]
)
def test_a_damaged_log_stays_as_it_is(tmp_path, caplog, place):
    file = open_log(tmp_path / "log")
    write(file, *(batch(n, [(b"a", b"v")]) for n in range(3)))
    os.pwrite(file.descriptor, b"?", place)
    before = os.pread(file.descriptor, file.log.size, 0)
    assert not clean(file, PAST, "t-0")
    assert "cannot be cleaned" in caplog.text
    assert os.pread(file.descriptor, file.log.size, 0) == before
    file.close()
