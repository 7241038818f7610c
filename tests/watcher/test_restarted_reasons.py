"""Reasons after a restart are those that they were before: when members wrote is in the store."""

import pytest

from coordinator.core.reasons import Reason
from coordinator.core.state.records import KafkaWatched
from coordinator.history.log_reader import LogReader
from coordinator.history.view_rows import list_rows
from coordinator.watcher.watched_store import WatchedStore

from .test_unread_groups import CONTRADICTIONS, end_of, take
from .written import batch, group_of, record

CLUSTER = KafkaWatched("cluster-1", "records", 1)
START_MS = 1_000_000


def open_store(folder):
    return WatchedStore.open(folder, CLUSTER, is_live=False)


@pytest.mark.parametrize(
    ("after_ms", "reason"), [(5_000, Reason.MEMBER_LEFT), (90_000, Reason.MEMBER_GONE)]
)
def test_when_members_wrote_is_known_after_a_restart(tmp_path, after_ms, reason):
    with open_store(tmp_path) as store:
        store.take(0, [batch(group_of("g", at_ms=START_MS)[:-1])])  # it waits for partitions
    member = {"group_id": "g", "member_id": "m"}
    at_ms = START_MS + after_ms
    gone = [record(kind, member, at_ms=at_ms) for kind in (8, 7, 5)]
    gone.append(record(3, {"group_id": "g"}, {"epoch": 2}, at_ms=at_ms))
    with open_store(tmp_path) as store:
        at = store.next_offsets()[0]
        store.take(0, [batch([one._replace(offset=at + n) for n, one in enumerate(gone)])])
    epochs = list_rows(LogReader(tmp_path), "epochs", "g")
    assert epochs[-1]["reason"] == reason


def test_groups_that_are_gone_are_forgotten(tmp_path):
    with open_store(tmp_path) as store:
        for group_id in ("g", "bad", "last"):
            take(store, group_of(group_id, partitions=range(4)))
        take(store, CONTRADICTIONS["two owners"])
        take(store, end_of("g"))
        assert set(store.translator._seen) == {"last"}
        store.load(0, [], 100, partitions=1)
        assert not store.translator._seen
