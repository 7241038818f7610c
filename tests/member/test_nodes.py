"""The servers of a store find each other, on a disk and in an object store."""

from __future__ import annotations

import pytest
from obstore.store import MemoryStore

from coordinator.config import LeaseConfig
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.object_files import ObjectFiles

LONG_MS = 900_000


@pytest.fixture(params=["disk", "objects"])
def server(request, tmp_path):
    """Return what makes one server's side; `now` is the time of all, in ms."""
    now = [1_000_000]
    memory = MemoryStore()

    def new(epoch=0, ahead_ms=0):
        on_disk = request.param == "disk"
        root = str(tmp_path) if on_disk else "memory://tests/store"
        disk = Filesystem() if on_disk else ObjectFiles("memory://tests", memory)
        clock = lambda: now[0] + ahead_ms  # noqa: E731
        return StoreNodes(root, LeaseConfig(), lambda: epoch, clock, disk)

    new.now = now
    return new


def test_servers_get_ids_of_their_own_and_see_who_coordinates(server):
    first, second = server(epoch=3), server()
    assert first.register(1, "a:1") == 1
    assert second.register(1, "b:1") == 2  # it is taken
    first.renew()
    assert [(one.node_id, one.address) for one in first.others] == [(2, "b:1")]
    assert (first.coordinator(), second.coordinator().address) == (None, "a:1")
    again = server(epoch=4)  # of the process that stood by: the address keeps its id
    assert again.register(1, "b:1") == 2
    first.renew()
    assert first.coordinator().coordinator_epoch == 4
    again.leave()
    first.renew()
    assert first.others == ()


def test_a_server_that_writes_no_more_is_forgotten_and_its_id_is_free(server):
    first, second = server(), server()
    first.register(1, "a:1")
    second.register(1, "b:1")
    server.now[0] += LONG_MS
    second.renew()
    assert second.others == ()
    assert server().register(1, "c:1") == 1


@pytest.mark.parametrize("ahead_ms", [-LONG_MS, LONG_MS])
def test_clocks_may_differ(server, ahead_ms):
    first, second = server(), server(ahead_ms=ahead_ms)
    first.register(1, "a:1")
    second.register(2, "b:1")
    for _ in range(3):
        server.now[0] += 1_000
        second.renew()
        first.renew()
    assert [one.address for one in first.others] == ["b:1"]
    assert [one.address for one in second.others] == ["a:1"]
