"""Data files of an object store: small ones are asked for side by side, and read in order."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest

from coordinator.config import LogConfig
from coordinator.core.state.records import OffsetCommitted
from coordinator.storage.data_files import AT_ONCE, list_parts, read_parts
from coordinator.storage.record_log import CorruptLog
from tests.support.lives import claimed

BUCKET, FILES = "memory://somewhere", 4 * AT_ONCE


@pytest.fixture
def log(tmp_path):
    log = claimed(tmp_path, config=LogConfig(fsync=False, reopen_commits=0, pack_commits=0))
    for number in range(FILES - 1):  # the claim is one, too
        log.append([OffsetCommitted("g", "t", "id", 0, number, commit_timestamp=1)], 3 + number)
    return log


@pytest.fixture
def read(log, monkeypatch):
    """Return what reads the log as if an object store had it, with what each request does."""

    def read_with(ask):
        def source(path):
            ask(path)
            with open(path.replace(BUCKET, str(log.store)), "rb") as file:
                return pa.BufferReader(file.read())

        monkeypatch.setattr("coordinator.storage.data_files.source_of", source)
        return read_parts(f"{BUCKET}/log", list_parts(log._table.read()))

    return read_with


def test_small_files_are_asked_for_side_by_side_and_read_in_order(read):
    together = threading.Barrier(AT_ONCE, timeout=60)
    rows = pa.concat_tables(read(lambda _path: together.wait()), promote_options="default")
    assert rows["position"].to_pylist() == list(range(1, FILES + 1))


def test_a_file_that_is_gone_is_named_after_all_before_it_were_read(read, log):
    gone = list_parts(log._table.read())[AT_ONCE + 3]

    def refuse(path):
        if path.endswith(gone.path):
            raise FileNotFoundError(path)

    pieces, found = read(refuse), []
    with pytest.raises(CorruptLog, match=gone.path):
        found.extend(len(piece) for piece in pieces)
    assert sum(found) == gone.first - 1
    assert "muster-fetch" not in " ".join(thread.name for thread in threading.enumerate())


def test_who_reads_no_further_leaves_no_thread(read):
    pieces = read(lambda _path: None)
    assert len(next(pieces)) == 1
    pieces.close()
    assert "muster-fetch" not in " ".join(thread.name for thread in threading.enumerate())
