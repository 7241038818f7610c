"""The root of a store of shards: its owner is replaced, whatever the store does."""

from __future__ import annotations

import threading
from types import SimpleNamespace

from coordinator.config import Config
from coordinator.errors import ErrorCode, GroupError
from coordinator.shards import root
from coordinator.storage.shards import Shards


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
    has_root.hold("b:1", ending)
    assert asked == ["m", "no member"]
    assert ending.is_set()  # the others are to know that it has the root
