"""What is done to every store: snapshots, compaction, checks, copies, times; of a watched one."""

from datetime import UTC, datetime

import pytest

from coordinator.backup.backup import backup
from coordinator.backup.restore import restore
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.state.records import KafkaWatched
from coordinator.history.log_reader import LogReader
from coordinator.storage.compaction import compact
from coordinator.storage.record_log import LogError
from coordinator.verify.store import verify
from coordinator.watcher.watched_store import WatchedStore
from tests.support.longer import EVERY

from .test_batches_and_commits import next_epoch, summary
from .test_unread_groups import CONTRADICTIONS, take, write_groups
from .test_watched_store import feed, rows
from .written import batch, group_of

CLUSTER = KafkaWatched("cluster-1", "records", 1)
NAMES = ("wide-00.jsonl", "classic-02.jsonl")


def state_of(folder):
    """All that a store says, also of the cluster and of what was read of it."""
    state = LogReader(folder).state()
    watched = state.watched
    return summary(state), state.classic.keys(), watched.cluster, watched.read, watched.unread


def write_more(folder):
    with WatchedStore.open(folder, CLUSTER, is_live=False) as store:
        write_groups(store, "more", "bad")
        take(store, CONTRADICTIONS["two owners"])


@pytest.mark.parametrize("name", NAMES)
def test_a_store_is_the_same_packed_copied_and_from_its_snapshot(tmp_path, name):
    store, copy, again = (tmp_path / one for one in ("store", "copy", "again"))
    feed(store, name, most=None if EVERY else 10)
    write_more(store)
    known, written = state_of(store), rows(store)
    backup(store, copy)
    restore(copy, again)
    assert verify(again).groups == verify(store).groups
    assert state_of(again) == known
    compact(store, Config(), wall_ms())
    assert verify(store).snapshots
    assert state_of(store) == known
    assert rows(store) == written
    with WatchedStore.open(store, CLUSTER, is_live=False) as opened:
        assert opened.watched.read == known[3]
        assert opened.watched.unread == known[4]


def test_a_tool_does_not_date_what_kafka_did_before(tmp_path):
    feed(tmp_path / "s", NAMES[0])
    compact(tmp_path / "s", Config(), wall_ms())
    backup(tmp_path / "s", tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "again")
    last = LogReader(tmp_path / "s").at_ms
    with WatchedStore.open(tmp_path / "again", CLUSTER, is_live=False) as store:
        at = store.next_offsets()[0]
        store.take(0, [batch(group_of("late", at=at, at_ms=last + 5))])
    assert LogReader(tmp_path / "again").at_ms == last + 5


def test_damage_is_found(tmp_path):
    feed(tmp_path, NAMES[0])
    (largest, *_) = sorted(tmp_path.glob("log/**/*.parquet"), key=lambda file: -file.stat().st_size)
    raw = bytearray(largest.read_bytes())
    raw[len(raw) // 3] ^= 0xFF
    largest.write_bytes(raw)
    with pytest.raises(LogError):
        verify(tmp_path)


def test_a_commit_of_several_times_is_read_at_each_of_them(tmp_path):
    with WatchedStore.open(tmp_path, CLUSTER, is_live=False) as store:
        store.take(0, [batch(group_of("g", at=0, at_ms=1_000))])
        changes = [batch(next_epoch("g", n, 3 * n)) for n in range(2, 6)]
        moved = [
            one._replace(records=[row._replace(timestamp_ms=1_000 * n) for row in one.records])
            for n, one in enumerate(changes, 2)
        ]
        store.take(0, moved)
    reading = LogReader(tmp_path)
    assert reading.at_ms == 5_000
    for n in range(1, 6):
        then = LogReader(tmp_path, time_of(n))
        assert then.state().groups["g"].epoch == n
        assert then.at_ms == n * 1_000


def time_of(seconds):
    return datetime.fromtimestamp(seconds, UTC)
