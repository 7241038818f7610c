"""When a node takes its store for cut off, so that others may have its shards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from coordinator.config import Config, LeaseConfig
from coordinator.shards.reach import Reach
from coordinator.shards.root import session_ms_of

CONFIG = Config(lease=LeaseConfig(ttl_ms=9_000))
SESSION_MS = session_ms_of(CONFIG)
EVERY_S = SESSION_MS / 1000
"""A node's file is written so often: two of these times are longer than a session."""


@pytest.mark.parametrize(
    ("silent_ms", "stuck_ms", "is_cut_off"),
    [
        (SESSION_MS, SESSION_MS + 1, False),
        (SESSION_MS + 1, SESSION_MS + 1, True),
        (SESSION_MS + 1, SESSION_MS, False),
        (2 * SESSION_MS, 0, False),
        (2 * SESSION_MS + 1, 0, True),
        (0, 10 * SESSION_MS, False),
    ],
    ids=[
        "a session has not passed", "a shard is stuck, too", "none is stuck for so long",
        "its file may be due", "it is overdue", "a shard alone is stuck",
    ],
)  # fmt: skip
def test_a_node_is_cut_off_after_a_session_where_a_shard_is_stuck_too(
    silent_ms, stuck_ms, is_cut_off
):
    nodes = SimpleNamespace(silent_ms=silent_ms, every_s=EVERY_S, root="s3://bucket/store")
    here = SimpleNamespace(stuck_ms=stuck_ms)
    left = []
    reach = Reach(CONFIG, None, None, here, nodes, None)
    reach.member = SimpleNamespace(leave=lambda: left.append(True))
    reach.leave_where_cut_off()
    assert (left, reach.member is None) == ([True] * is_cut_off, is_cut_off)
