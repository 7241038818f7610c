"""Requests to a coordinator: there whole or not at all, whenever the power fails."""

from __future__ import annotations

import os
import stat

import pytest

from coordinator.core.events import DecidePlan
from coordinator.core.state.plan_values import PlanSummary
from coordinator.core.state.records import PlanMade
from coordinator.storage.inbox import Compact, Inbox, RequestError

PLAN = PlanMade("g", "p", 2, 1, "uniform", {"a": "b"}, {"members": "1 m"}, (), PlanSummary(), "d")


@pytest.mark.parametrize(
    "request_", [Compact("c"), DecidePlan("apply", "g", "p", PLAN, "User:ann", "why", "r")]
)
def test_a_request_is_read_as_it_was_put(tmp_path, request_):
    inbox = Inbox(tmp_path)
    inbox.put(request_)
    assert inbox.waiting() == [request_.request_id]
    assert inbox.read(request_.request_id) == request_


def test_files_with_another_suffix_are_ignored(tmp_path):
    inbox = Inbox(tmp_path)
    assert inbox.waiting() == []
    inbox.put(Compact("b"))
    inbox.put(Compact("a"))
    (tmp_path / "inbox" / "c.json.123").write_bytes(b"half")
    assert inbox.waiting() == ["a", "b"]
    inbox.remove("a")
    inbox.remove("a")
    assert inbox.waiting() == ["b"]


def test_a_request_by_another_name_is_none(tmp_path):
    inbox = Inbox(tmp_path)
    inbox.put(Compact("a"))
    (tmp_path / "inbox" / "a.json").rename(tmp_path / "inbox" / "b.json")
    with pytest.raises(RequestError, match="it is named 'b', and says 'a'"):
        inbox.read("b")


def test_a_request_has_its_content_before_its_name(tmp_path, monkeypatch):
    """Synced, renamed, and the name synced: a power cut leaves no empty request."""
    done = []
    fsync, rename = os.fsync, os.replace

    def synced(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "content")
        fsync(handle)

    def renamed(*names):
        done.append("name")
        rename(*names)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    Inbox(tmp_path).put(Compact("a"))
    assert done == ["content", "name", "folder"]
