"""What tools/mirror.py writes is what is there, and nothing imports what imports it."""

from __future__ import annotations

import inspect
import subprocess
import sys

import grimp

from coordinator import AsyncMember, Coordinator, Member
from tests.conftest import ROOT

TOOL = [sys.executable, str(ROOT / "tools/mirror.py"), "--check"]


def test_both_files_are_what_the_tool_writes():
    done = subprocess.run(TOOL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_heartbeat_has_its_parameters_once_and_shows_them_everywhere():
    blocking = inspect.signature(Coordinator.consumer_group_heartbeat)
    later = inspect.signature(Coordinator.submit_heartbeat)
    assert later.parameters == blocking.parameters
    assert later.return_annotation == "Future[HeartbeatAnswer]"
    written = (ROOT / "coordinator/runtime/heartbeat_requests.py").read_text()
    assert written.count("subscribed_topic_regex: ") == 1


def test_a_member_has_what_an_async_member_has():
    ours, theirs = (
        {name for name in dir(owner) if not name.startswith("_")} for owner in (Member, AsyncMember)
    )
    assert theirs - ours == {"changes"}  # a coroutine's way to `wait_for_change` in a loop
    assert ours - theirs == set()
    for name in ours:
        asked, awaited = (getattr(owner, name) for owner in (Member, AsyncMember))
        if inspect.iscoroutinefunction(awaited):
            assert [*inspect.signature(asked).parameters.values()][2:] == [
                *inspect.signature(awaited).parameters.values()
            ][2:], name


def test_neither_coordinator_nor_wire_has_circles_not_even_for_types():
    """`lint-imports` passes over what only type checkers import."""
    graph = grimp.build_graph("coordinator", exclude_type_checking_imports=False, cache_dir=None)
    for room in ("coordinator.runtime", "coordinator.wire"):
        for module in graph.find_descendants(room):
            circles = [
                one
                for one in graph.find_modules_directly_imported_by(module)
                if one.startswith(room) and graph.chain_exists(importer=one, imported=module)
            ]
            assert circles == [], module
