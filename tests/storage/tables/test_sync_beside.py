"""A file and its name are synced side by side, and both are, whatever fails or hangs."""

from __future__ import annotations

import os
import threading

import pytest

from coordinator.storage.tables.filesystem import Filesystem
from coordinator.storage.tables.sync_beside import sync_named

SOON_S = 20


class NotedDisk(Filesystem):
    """Notes what was synced, in which thread; `before` may raise, or wait."""

    def __init__(self):
        super().__init__()
        self.synced = {}
        self.before = {}

    def sync(self, path):
        self.before.get(path, lambda: None)()
        super().sync(path)
        self.synced[path] = threading.current_thread()


@pytest.fixture
def disk():
    return NotedDisk()


@pytest.fixture
def path(tmp_path):
    (tmp_path / "one").write_text("x")
    return str(tmp_path / "one")


def failing(text):
    def fail():
        raise OSError(text)

    return fail


def test_both_wait_at_the_same_time(disk, path):
    """Each goes on once the other has begun."""
    both = threading.Barrier(2)
    disk.before = dict.fromkeys((path, os.path.dirname(path)), lambda: both.wait(SOON_S))
    sync_named(disk, path)
    assert disk.synced.keys() == {path, os.path.dirname(path)}
    assert disk.synced[path] is threading.current_thread()


@pytest.mark.parametrize("folder", [False, True])
def test_what_one_of_them_fails_with_is_raised_once_both_are_over(disk, path, folder):
    failed, other = (os.path.dirname(path), path) if folder else (path, os.path.dirname(path))
    disk.before = {failed: failing("no disk")}
    with pytest.raises(OSError, match="no disk"):
        sync_named(disk, path)
    assert other in disk.synced


def test_a_disk_that_hangs_holds_up_no_other(disk, path):
    """The thread waits for the first one; who asks for the second does both."""
    other, hung, over = NotedDisk(), threading.Event(), threading.Event()

    def hang():
        hung.set()
        over.wait(SOON_S)

    disk.before = {os.path.dirname(path): hang}
    first = threading.Thread(target=sync_named, args=(disk, path))
    first.start()
    try:
        assert hung.wait(SOON_S)
        sync_named(other, path)
        assert set(other.synced.values()) == {threading.current_thread()}
        assert first.is_alive()
    finally:
        over.set()
        first.join()
    assert os.path.dirname(path) in disk.synced


def test_a_disk_of_one_thread_syncs_in_order(disk, path):
    disk.syncs_beside = False
    sync_named(disk, path)
    assert [*disk.synced] == [path, os.path.dirname(path)]
    assert set(disk.synced.values()) == {threading.current_thread()}


def test_a_child_that_was_forked_syncs_too(disk, path):
    sync_named(disk, path)  # the thread is there
    child = os.fork()
    if child == 0:
        try:
            sync_named(disk, path)
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
