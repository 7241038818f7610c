"""The copy of a small file's rows in the entry that adds it: read in its place, never against it."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given

from coordinator.config import LogConfig
from coordinator.core.state.records import LoadsNoted, OffsetCommitted
from coordinator.storage.record_decoder import ValueCache, decode_rows, read_copy
from coordinator.storage.record_encoder import COPY_MAX, copy_records, encode_records
from coordinator.storage.record_log import CorruptLog, merge_advances
from coordinator.storage.tables.commit_reader import read_table_files
from coordinator.storage.tables.commit_writer import COPY
from coordinator.storage.tables.recovery import commit_file
from coordinator.verify import verify
from tests.support.lives import claimed, life, replayed, rows_of
from tests.support.log_records import anything

COMMITS = 25
NO_SYNC = LogConfig(fsync=False, reopen_commits=0, pack_commits=0)


def offset(number):
    return OffsetCommitted("g", "t", "id", 0, number, commit_timestamp=1)


@pytest.fixture
def log(tmp_path):
    """A log with commits since its checkpoint."""
    log = claimed(tmp_path, config=NO_SYNC)
    for number in range(COMMITS):
        log.append([offset(number)], 3 + number)
    return log


def written():
    return [offset(number) for number in range(COMMITS)]


@pytest.fixture
def read_files(monkeypatch):
    """The names of the data files that are read from now on."""
    read, really = [], pq.ParquetFile.read_row_group

    def note(file, *words, **more):
        read.append(file.metadata.num_rows)
        return really(file, *words, **more)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", note)
    return read


def change_entry(path, change):
    """Change the first line of an entry, and have the next one, if there is one, follow it."""
    first, *lines = Path(path).read_text().splitlines()
    said = json.loads(first)
    change(said["commitInfo"])
    Path(path).write_text("\n".join([json.dumps(said), *lines]) + "\n")


def newest_entry(log):
    return commit_file(f"{log.store}/log", log._table.version)


def newest_file(log):
    files = read_table_files(f"{log.store}/log").files.values()
    return max(files, key=lambda file: file.statistics["maxValues"]["position"])


@given(anything)
def test_a_copy_says_what_the_rows_say(records):
    records = merge_advances(records)
    copy = copy_records(records, 7, 1_000, 3)
    if not copy:
        long = len(msgspec.json.encode(records)) > COPY_MAX - 1_000
        assert long or any(record.kind in {"loads", "loads_used", "plan"} for record in records)
        return
    found = read_copy(copy)
    assert (found.position, found.last) == (7, 6 + len(records))
    assert (found.at_ms, found.epoch) == (1_000, 3)
    assert found.records == decode_rows(encode_records(records, 7, 1_000, 3), ValueCache())


def test_a_start_reads_no_file_of_commits_since_a_checkpoint(log, read_files):
    assert replayed(claimed(log.store, config=NO_SYNC)) == written()
    assert read_files == [1, 1], "the claims of both"
    assert rows_of(log.store) == written(), "as do those who read the files"


def test_commits_of_older_versions_are_read_by_their_files(log, read_files, monkeypatch):
    monkeypatch.setattr("coordinator.storage.delta_log.copy_records", lambda *_: "")
    for number in range(COMMITS, COMMITS + 4):
        log.append([offset(number)], 3 + number)
    monkeypatch.undo()
    log.append(life(1), 1_000)
    assert replayed(log) == [offset(number) for number in range(COMMITS + 4)] + life(1)


@pytest.mark.parametrize("records", [[LoadsNoted("g")], [offset(number) for number in range(100)]])
def test_what_is_long_or_has_other_numbers_than_json_is_read_by_its_file(log, records, read_files):
    log.append(records, 1_000)
    assert COPY not in Path(newest_entry(log)).read_text()
    assert replayed(claimed(log.store, config=NO_SYNC)) == written() + records
    assert read_files == [1, len(records), 1]


def test_an_entry_with_a_copy_stays_small(log):
    log.append([offset(number) for number in range(25)], 1_000)
    entry = Path(newest_entry(log)).read_text()
    assert COPY in entry
    assert len(entry) < 2 * COPY_MAX + 2_000


def flip(said):
    said[COPY] = said[COPY].replace('"offset":', '"offset":1')


def forge(*place):
    def change(said):
        said[COPY] = copy_records([offset(9_999)], *place)

    return change


CHANGES = {
    "damaged": flip,
    "of another place": forge(1, 1, 1),
    "of another epoch": forge(COMMITS + 1, 1, 2),
    "short": lambda said: said.update({COPY: "0"}),
    "a number": lambda said: said.update({COPY: 0}),
    "with a field that is not known": lambda said: said.update(
        {COPY: copy_records([offset(1)], COMMITS + 1, 1, 1).replace('"offset"', '"ofset"')}
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_that_is_not_sound_is_passed_over(log, change):
    """No later entry tells that the newest one was changed."""
    change_entry(newest_entry(log), CHANGES[change])
    assert replayed(claimed(log.store, config=NO_SYNC)) == written()


def test_a_copy_of_another_version_is_passed_over(log):
    place = COMMITS + 1, COMMITS + 2, 1
    newer = copy_records([offset(COMMITS - 1)], *place)
    assert read_copy(newer).records == [offset(COMMITS - 1)]

    def add_field(said):
        said[COPY] = seal(newer[8:].replace('"offset":', '"lag":1,"offset":'))

    change_entry(newest_entry(log), add_field)
    assert replayed(claimed(log.store, config=NO_SYNC)) == written()
    assert verify(log.store).position == COMMITS + 2, "that is no damage"


def seal(text):
    return f"{zlib.crc32(text.encode()):08x}{text}"


@pytest.mark.parametrize("harm", [os.remove, lambda path: os.truncate(path, 100)])
def test_a_copy_does_not_hide_that_its_file_is_gone(log, harm):
    path = f"{log.store}/log/{newest_file(log).name}"
    harm(path)
    with pytest.raises(CorruptLog, match=f"{path} cannot be read"):
        replayed(claimed(log.store, config=NO_SYNC))


@pytest.mark.parametrize("change", [flip, forge(COMMITS + 1, COMMITS + 2, 1), forge(COMMITS, 1, 1)])
def test_verify_compares_copies_with_files(log, change):
    assert verify(log.store).position == COMMITS + 1
    change_entry(newest_entry(log), change)
    path = f"{log.store}/log/{newest_file(log).name}"
    with pytest.raises(CorruptLog, match=f"has of the rows of {path} is damaged: it"):
        verify(log.store)


def test_a_copy_goes_with_its_file(log, read_files):
    log.maintain(pack=True)
    log.append([offset(1)], 2_000)
    del read_files[:]
    assert replayed(log) == [*written(), offset(1)]
    assert max(read_files) > COMMITS
