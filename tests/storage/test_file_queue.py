"""Messages to a coordinator: there whole or not at all, whenever the power fails."""

from __future__ import annotations

import os
import stat

from coordinator.storage.file_queue import FileQueue


def test_files_with_another_suffix_are_ignored(tmp_path):
    queue = FileQueue(tmp_path, "letters", ".txt")
    assert queue.waiting() == []
    queue.put("b", b"2")
    queue.put("a", b"1")
    (tmp_path / "letters" / "c.txt.123").write_bytes(b"half")
    assert queue.waiting() == ["a", "b"]
    assert queue.read("b") == b"2"
    queue.take_away("a")
    queue.take_away("a")
    assert queue.waiting() == ["b"]


def test_a_message_has_its_content_before_its_name(tmp_path, monkeypatch):
    """Synced, renamed, and the name synced: a power cut leaves no empty message."""
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
    FileQueue(tmp_path, "letters", ".txt").put("a", b"1")
    assert done == ["content", "name", "folder"]
