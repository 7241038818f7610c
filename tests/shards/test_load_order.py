"""Which shard is loaded next, and what the garbage collector does meanwhile."""

from __future__ import annotations

import gc
import threading

import pytest

from coordinator.core.state.records import GroupMetadata
from coordinator.shards.load_order import LoadOrder
from coordinator.storage import loaded_state
from coordinator.storage.loaded_state import CollectorRest, LoadedState
from coordinator.storage.record_log import Batch
from tests.support.members import wait_for


@pytest.mark.parametrize(("asked", "order"), [([], [0, 1, 2, 3]), ([3, 2], [3, 2, 0, 1])])
def test_a_shard_that_is_asked_for_is_loaded_before_the_others(asked, order):
    turns, loaded, go = LoadOrder(1), [], threading.Event()

    def load(shard):
        with turns.turn(shard):
            loaded.append(shard)
            go.wait(5)

    threads = [threading.Thread(target=load, args=(shard,)) for shard in (9, 2, 0, 3, 1)]
    for thread in threads:
        thread.start()
        wait_for(lambda: loaded == [9])
    wait_for(lambda: len(turns._waiting) == 4)
    for shard in (*asked, *asked[:1]):
        turns.ask(shard)
    go.set()
    for thread in threads:
        thread.join(5)
    assert loaded == [9, *order]


def test_a_shard_that_was_asked_for_before_any_came_is_loaded_first():
    """A node that starts is asked while it joins, and then gets all shards, one thread each."""
    turns, loaded = LoadOrder(1), []
    turns.ask(3)

    def load(shard):
        with turns.turn(shard):
            loaded.append(shard)

    threads = [threading.Thread(target=load, args=(shard,)) for shard in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert loaded[0] == 3
    assert sorted(loaded) == [0, 1, 2, 3, 4]


def test_one_that_was_asked_for_and_never_comes_keeps_no_other_waiting():
    turns = LoadOrder(1)
    turns.ask(9)
    for shard in (1, 0):
        with turns.turn(shard):
            pass


def test_a_load_that_fails_ends_its_turn():
    turns = LoadOrder(1)
    with pytest.raises(OSError, match="gone"), turns.turn(1):
        raise OSError("gone")
    with turns.turn(2):
        pass


def groups(count):
    return [Batch(1, 1, 1, [GroupMetadata(f"g{number}", 1, 0) for number in range(count)])]


def test_no_load_ends_the_rest_that_another_one_needs(monkeypatch):
    """Each would look at the other's objects again and again, and ever after."""
    monkeypatch.setattr(loaded_state, "_rest", CollectorRest(many=10))
    seen, frozen = [], gc.get_freeze_count()

    def batches():
        yield from groups(6)
        LoadedState().read(groups(5))
        seen.append(gc.isenabled())

    LoadedState().read(batches())
    assert seen == [False]
    assert gc.isenabled()
    assert gc.get_freeze_count() > frozen, "shards of few records each are many records"
    gc.unfreeze()
