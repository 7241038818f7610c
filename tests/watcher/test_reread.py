"""What is read again: after a long stop, of groups that could not be read, of a longer dump."""

import base64
import json
import time

from coordinator.core.state.records import KafkaWatched
from coordinator.watcher.watch import watch
from coordinator.watcher.watched_store import WatchedStore
from tests.support.members import position_of, state_of

from .fake_cluster import FakeCluster, following, wait_for
from .test_unread_groups import end_of
from .written import batch, group_of, offset_of, record

CLUSTER = KafkaWatched("cluster-1", "topic", 1)
DAY_MS = 86_400_000


def open_store(folder):
    return WatchedStore.open(folder, CLUSTER)


def groups_of(store):
    state = state_of(store.coordinator)
    return set(state.groups) | set(state.classic) | set(state.offsets)


def end_offset(group_id):
    return record(1, {"group_id": group_id, "topic": "t", "partition": 0})


def is_read(cluster, store):
    def holds():
        return store.next_offsets() == cluster.ends

    return holds


def follow_until(folder, cluster, holds=None, **options):
    with open_store(folder) as store:
        with following(cluster, store, **options):
            wait_for(is_read(cluster, store))
            wait_for(lambda: holds is None or holds(store))
        return groups_of(store), position_of(store.coordinator)


def test_what_ended_in_a_long_stop_ends(tmp_path):
    """Its tombstones are gone by then; nothing at all says that it ended."""
    cluster, long_ago = FakeCluster(), int(time.time() * 1000) - DAY_MS
    for group_id in ("stays", "gone", "later"):
        cluster.write(0, group_of(group_id), long_ago)
        cluster.write(0, [offset_of(group_id)], long_ago)
    with open_store(tmp_path) as store:
        store.take(0, read_log(cluster))
        store.flush()
        assert groups_of(store) == {"stays", "gone", "later"}
    cluster.write(0, [*end_of("gone"), end_offset("gone")])
    cluster.clean(0)
    cluster.write(0, [offset_of("stays", offset=7)])
    found, at = follow_until(tmp_path, cluster, lambda store: "gone" not in groups_of(store))
    assert found == {"stays", "later"}
    again, now = follow_until(tmp_path, cluster)
    assert (again, now - at <= 2) == (found, True), "claims, and nothing twice"


def read_log(cluster, partition=0):
    return [batch(records, at=first, end=last) for first, last, records in cluster.logs[partition]]


DAMAGED = record(3, {"group_id": "bad"}, {"epoch": -1})


def is_unread(store):
    return "bad" in store.watched.unread


def is_back(store):
    return "bad" in groups_of(store)


def test_a_group_that_could_not_be_read_comes_back_when_its_records_are_sound(tmp_path):
    cluster = FakeCluster()
    for group_id in ("good", "bad"):
        cluster.write(0, [*group_of(group_id), offset_of(group_id)])
    follow_until(tmp_path, cluster)
    cluster.write(0, [DAMAGED])
    follow_until(tmp_path, cluster, is_unread)
    _, before = follow_until(tmp_path, cluster, is_unread)  # it is reread, and as wrong as it was
    _, after = follow_until(tmp_path, cluster, is_unread)
    assert after - before <= 3, "claims and places"
    cluster.write(0, group_of("bad", epoch=7))
    found, _ = follow_until(tmp_path, cluster, is_back)
    assert found == {"good", "bad"}


def test_it_comes_back_while_it_is_watched(tmp_path):
    cluster = FakeCluster()
    cluster.write(0, [*group_of("bad"), offset_of("bad")])
    with open_store(tmp_path) as store, following(cluster, store, reread_ms=200):
        wait_for(is_read(cluster, store))
        cluster.write(0, [DAMAGED])
        wait_for(lambda: is_unread(store))
        cluster.write(0, group_of("bad", epoch=7))
        wait_for(lambda: is_back(store))
        assert not is_unread(store)
        state = state_of(store.coordinator)
        assert (state.groups["bad"].epoch, len(state.offsets["bad"])) == (7, 1)


def write_dump(path, rows):
    """Rows are (offset, batch, record)."""
    lines = [[at, 1_000 + at, number, *map(text, (one.key, one.value))] for at, number, one in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def text(raw):
    return None if raw is None else base64.b64encode(raw).decode()


def rows_of(*changes):
    found = []
    for number, records in enumerate(changes):
        found += [(len(found) + n, number, one) for n, one in enumerate(records)]
    return found


def read_dump(path, store):
    with watch(path, store) as watched:
        watched.wait(20)
        state = state_of(watched.coordinator)
        offsets = {group_id: len(found) for group_id, found in state.offsets.items()}
        return set(state.groups), offsets, set(watched.store.watched.unread)


def test_a_longer_dump_with_a_new_gap_says_all_that_it_keeps(tmp_path):
    """Where the store is, the first dump ended; the cleaner has been there since."""
    start = rows_of(group_of("stays"), group_of("gone"), [offset_of("stays")])
    read_dump(write_dump(tmp_path / "dump", start), tmp_path / "store")
    more = rows_of(
        *(group_of("stays"), group_of("gone"), [offset_of("stays")], end_of("gone")),
        *(group_of("new"), [offset_of("stays", partition=1)], group_of("last")),
    )
    gone = [at for at, _, one in more if b"gone" in one.key]
    cleaned = [one for one in more if one[0] not in gone]
    longer = write_dump(tmp_path / "longer", cleaned)
    whole = write_dump(tmp_path / "whole", more)
    found = read_dump(longer, tmp_path / "store")
    assert found == read_dump(whole, tmp_path / "of whole")
    assert found == ({"stays", "new", "last"}, {"stays": 2}, set())


def test_a_group_of_a_dump_comes_back_too(tmp_path):
    first = rows_of(group_of("good"), group_of("bad"), [DAMAGED])
    found = read_dump(write_dump(tmp_path / "dump", first), tmp_path / "store")
    assert found == ({"good"}, {}, {"bad"})
    more = rows_of(group_of("good"), group_of("bad"), [DAMAGED], group_of("bad", epoch=7))
    longer = write_dump(tmp_path / "longer", more)
    found = read_dump(longer, tmp_path / "store")
    assert found == ({"good", "bad"}, {}, set())
    assert read_dump(longer, tmp_path / "at once") == found
