"""The claims of a log: what binds a snapshot to it, however often it was taken over."""

from collections import Counter

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from hypothesis import given
from hypothesis import strategies as st

from coordinator.config import LogConfig
from coordinator.core.state.records import OffsetCommitted
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.record_log import CommitFailed, CorruptLog
from coordinator.storage.state_loader import write_snapshot
from coordinator.storage.tables import read_table
from coordinator.storage.tables.claims import Claim, Claims, has_history, note_claim, numbers_of
from coordinator.storage.tables.commit_writer import APP


class Numbers(dict):
    """What a table keeps, and how often it was asked."""

    asked = 0

    def __call__(self, name):
        self.asked += 1
        return self.get(name)


def kept(claims, newest):
    found = Numbers({APP: newest})
    for epoch, claim in claims.items():
        found |= note_claim(epoch, claim)
    return Numbers(found)


def drawn(positions):
    """Claims with these positions at some of the epochs: of the others an older Muster made."""
    return {
        epoch: Claim(position, 100 + epoch) for epoch, position in positions.items() if position
    }


@given(
    st.lists(st.integers(0, 5), max_size=9).map(
        lambda steps: {at + 1: sum(steps[: at + 1]) + 1 if step else 0
                       for at, step in enumerate(steps)}
    ),
    st.integers(1, 10),
    st.integers(0, 40),
    st.booleans(),
)  # fmt: skip
def test_a_log_has_what_was_before_its_next_claim(positions, epoch, position, ours):
    claims = drawn(positions)
    maker = claims.get(epoch) if ours else Claim(position, 1)
    expected = (
        maker is not None
        and maker == claims.get(epoch)
        and all(position < later.position for at, later in claims.items() if at > epoch)
    )
    found = Claims(kept(claims, len(positions)))
    assert has_history(found, epoch, maker, position) is expected
    assert found.all() == claims


def test_a_claim_that_was_just_made_is_known_without_a_look():
    numbers = Numbers()
    claims = Claims(numbers)
    claims.add(7, Claim(70, 1))
    assert (claims.get(7), claims.newest_epoch, numbers.asked) == (Claim(70, 1), 7, 0)


def test_a_start_after_many_takes_no_more_looks_than_after_few(tmp_path, monkeypatch):
    """Each look reads the log of the table: on an object store by requests."""
    looks = Counter()
    real = DeltaTable.transaction_version

    def counted(table, name):
        looks[where] += 1
        return real(table, name)

    monkeypatch.setattr(DeltaTable, "transaction_version", counted)
    for where in range(12):
        log = DeltaLog.open(tmp_path, LogConfig())
        log.claim("one", "", where)
        log.append([OffsetCommitted("g", "foo", "id", 0, where)], where)
        write_snapshot(log, where)
        log.close()
    assert looks[11] == looks[3]


def test_a_claim_that_a_successor_has_cleaned_up_is_an_error_of_the_log():
    """Maintenance of a coordinator that slept reads what is gone: it ends, and says why."""

    class Gone:
        def transaction_version(self, _name):
            raise DeltaError("Kernel error: File not found")

    claims = Claims(numbers_of("store/log", Gone))
    claims.add(7, Claim(70, 1))
    with pytest.raises(CommitFailed, match="store/log cannot be read"):
        claims.get(3)
    assert claims.get(8) is None, "of a successor: its log is not ours"


@pytest.mark.parametrize("table", ["log", "snapshots"])
def test_a_table_that_was_cleaned_up_since_it_was_opened_is_an_error_of_the_log(
    table, tmp_path, monkeypatch
):
    """delta-rs reads a checkpoint when it is asked for a number: a raw error would end a thread."""

    def dislike(path):
        raise CorruptLog(path)

    monkeypatch.setattr(read_table, "read_table_files", dislike)
    log = DeltaLog.open(tmp_path, LogConfig())
    log.claim("one", "", 1)
    log.append([OffsetCommitted("g", "foo", "id", 0, 1)], 1)
    write_snapshot(log, 1)
    log.append([OffsetCommitted("g", "foo", "id", 0, 2)], 2)
    real = DeltaTable.transaction_version

    def look_up(found, name):
        if found.table_uri.rstrip("/").endswith(table):
            raise DeltaError("Object 3.checkpoint.parquet not found")
        return real(found, name)

    monkeypatch.setattr(DeltaTable, "transaction_version", look_up)
    other = DeltaLog.open(tmp_path, LogConfig())
    ask = {"log": lambda: other.claim("two", "", 2), "snapshots": lambda: write_snapshot(log, 2)}
    with pytest.raises(CommitFailed, match=f"{table} cannot be read as it was opened"):
        ask[table]()
    log.close()
