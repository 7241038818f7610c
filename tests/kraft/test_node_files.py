"""Who a node is when it comes back: the same incarnation only where it must have all that it had."""

from __future__ import annotations

import shutil

import pytest

from coordinator.config import ConfigError
from coordinator.kraft.node_files import NodeFiles
from coordinator.storage.tables.table_io import BusyError

CLUSTER = "cluster-1"


def begin(store, boot_id="boot-1", node_id=None):
    return NodeFiles(str(store), boot_id).begin(CLUSTER, node_id)


@pytest.fixture
def first(tmp_path):
    found = begin(tmp_path, node_id=1001)
    NodeFiles(str(tmp_path), "boot-1").keep_epoch(52)
    return found


def test_a_new_node_has_no_epoch_before(first):
    assert (first.node_id, first.previous_epoch) == (1001, -1)


def test_a_process_that_was_killed_comes_back_as_the_same(tmp_path, first):
    again = begin(tmp_path)
    assert again == first._replace(previous_epoch=52)


@pytest.mark.parametrize("boot_id", ["boot-2", ""])
def test_a_machine_that_failed_brings_another_node(tmp_path, first, boot_id):
    """It may have lost the end of its logs: the cluster must not count on them."""
    again = begin(tmp_path, boot_id)
    assert again.incarnation_id != first.incarnation_id
    assert (again.directory_id, again.previous_epoch) == (first.directory_id, -1)


def test_a_node_that_was_flushed_is_another_one_that_lost_nothing(tmp_path, first):
    NodeFiles(str(tmp_path), "boot-1").end()
    again = begin(tmp_path, "boot-2")
    assert again.incarnation_id != first.incarnation_id
    assert (again.directory_id, again.previous_epoch) == (first.directory_id, 52)
    killed = begin(tmp_path, "boot-3")  # what it did since is not on the disk
    assert killed.previous_epoch == -1


def test_an_id_is_the_nodes_own_once_it_was_registered(tmp_path):
    """Not because a first start, which was refused, has written it down."""
    files = NodeFiles(str(tmp_path), "boot-1")
    begin(tmp_path, node_id=1001)
    assert not files.read_state().is_known
    files.keep_epoch(7)
    begin(tmp_path, "boot-2")  # the epoch counts no longer, the id does
    assert files.read_state().broker_epoch == -1
    assert files.read_state().is_known


def test_lost_logs_are_another_directory(tmp_path, first):
    NodeFiles(str(tmp_path), "boot-1").end()
    shutil.rmtree(NodeFiles(str(tmp_path)).logs)
    again = begin(tmp_path)
    assert again.directory_id != first.directory_id
    assert again.incarnation_id != first.incarnation_id
    assert again.previous_epoch == -1


def test_a_node_whose_logs_lack_records_is_another_one(tmp_path, first):
    """The cluster must not count on them, after a kill of its process either."""
    files = NodeFiles(str(tmp_path), "boot-1")
    now = files.forget(begin(tmp_path))
    assert (now.incarnation_id == first.incarnation_id, now.previous_epoch) == (False, -1)
    assert begin(tmp_path) == now  # killed before it was registered
    assert files.read_state().is_known


def test_a_store_is_of_one_node_of_one_cluster(tmp_path, first):
    with pytest.raises(ConfigError, match="is of node 1001, not of 7"):
        begin(tmp_path, node_id=7)
    with pytest.raises(ConfigError, match="of a node of cluster cluster-1, but this is other"):
        NodeFiles(str(tmp_path)).begin("other", 1001)
    with pytest.raises(ConfigError, match="--node-id is missing"):
        begin(tmp_path / "new")


def test_damage_is_named(tmp_path, first):
    files = NodeFiles(str(tmp_path))
    for path in (f"{files.folder}/node.json", f"{files.logs}/directory.json"):
        with open(path, "w") as file:
            file.write("{")
        with pytest.raises(ConfigError, match=r"json is damaged"):
            begin(tmp_path)
        with open(path, "w") as file:
            file.write(
                '{"directory_id": "00000000-0000-0000-0000-000000000384", "cluster_id": "cluster-1",'
                ' "node_id": 1001, "incarnation_id": "00000000-0000-0000-0000-000000000385"}'
            )


def test_one_process_is_the_node(tmp_path):
    files, other = NodeFiles(str(tmp_path)), NodeFiles(str(tmp_path))
    with files.held(), pytest.raises(BusyError, match="another process is the node"), other.held():
        pass
    with files.held():
        pass


def test_a_window_ends_by_itself(tmp_path):
    files = NodeFiles(str(tmp_path))
    assert not files.is_window_open()
    files.open_window(60)
    assert NodeFiles(str(tmp_path)).is_window_open()
    files.open_window(-1)
    assert not files.is_window_open()
    files.open_window(60)
    files.close_window()
    assert not files.is_window_open()
