"""The root of a store of shards: its owner is replaced, whatever the store does."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from types import SimpleNamespace
from unittest.mock import patch

import pytest

from coordinator import Coordinator
from coordinator.config import Config
from coordinator.errors import ErrorCode, GroupError
from coordinator.shards import root
from coordinator.storage.shards import Shards, root_at


def test_a_node_has_the_root_though_it_could_not_remove_its_predecessor(tmp_path, monkeypatch):
    """Else the root would be held by one who does not coordinate, and by no one after it."""
    ending, asked = threading.Event(), []

    def refuse(*_settings, member_id="no member", **_fields):
        asked.append(member_id)
        raise GroupError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the log failed")

    opened = SimpleNamespace(
        epoch=2,
        status="active",
        close=lambda: None,
        consumer_group_describe=lambda _: [{"members": [{"client_id": "a:1", "member_id": "m"}]}],
        consumer_group_heartbeat=refuse,
        describe_group_config=lambda _: {},
        alter_group_config=refuse,
    )
    former = SimpleNamespace(coordinator_epoch=1, address="a:1")
    nodes = SimpleNamespace(look=lambda: (), with_claim={1: former}.get)
    monkeypatch.setattr(root, "Coordinator", SimpleNamespace(open=lambda *_, **__: opened))
    has_root = root.Root(str(tmp_path), Shards(4), Config(), nodes, ending.set)
    has_root.hold("b:1", ending, ending)
    assert asked == ["m", "no member"]
    assert ending.is_set()  # the others are to know that it has the root


@pytest.mark.parametrize("leaves", ["while it waits for the lease", "while it opens the root"])
def test_a_node_that_ends_keeps_no_root(tmp_path, leaves):
    """Its thread had opened the root after the node had closed, and kept renewing its lease."""
    leaving, says, at = threading.Event(), [], root_at(str(tmp_path))
    nodes = SimpleNamespace(look=lambda: (), with_claim={}.get)
    has_root = root.Root(str(tmp_path), Shards(4), Config(), nodes, lambda: says.append("has it"))
    with ExitStack() as held:
        if leaves == "while it waits for the lease":
            held.enter_context(Coordinator.open(at))
            threading.Timer(0.3, leaving.set).start()
        else:
            config = root.config_of_nodes(Config())
            begins = patch.object(root, "config_of_nodes", lambda _: leaving.set() or config)
            held.enter_context(begins)
        has_root.hold("b:1", leaving, threading.Event())
    assert (has_root.coordinator, says) == (None, [])
    with Coordinator.open(at, takeover="refuse"):
        pass
