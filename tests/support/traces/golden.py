"""Traces as Kafka wrote them: which of them there are, and how one is played and compared."""

from __future__ import annotations

import json
from pathlib import Path

from coordinator.config import LogConfig
from coordinator.storage.delta_log import DeltaLog
from coordinator.trace.json_trace import JsonTrace
from tests.conftest import GOLDEN
from tests.support.longer import EVERY


def golden_files(folder):
    """Return the traces of a folder, in order of their names."""
    return sorted((GOLDEN / folder).glob("*.jsonl"))


def is_walk(file):
    """Whether a file is a random walk: its answers hold no records."""
    return file.stem.startswith(("walk", "wide"))


def files_for_a_store(files, walks):
    """Return what is played on a Delta store, too: all but most walks, which take 5 s each.

    `MUSTER_LONG=1` plays all.
    """
    return [file for file in files if not is_walk(file) or file.stem in walks or EVERY]


def player_of(file, store: Path | None = None):
    """Return a player of a file: in memory, or with its log in a folder."""

    def open_log(_config, _anew):
        return DeltaLog.open(store, LogConfig(fsync=False))

    return JsonTrace(open_log if store else None, records=not is_walk(file))


def check_answers(player, file, compared):
    """Play a file, and compare each answer: `compared` returns ours and Kafka's of one line."""
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        case = json.loads(line)
        op = case.pop("op")
        found, wanted = compared(player.run(op), case, op)
        assert found == wanted, f"{file.name}, line {number}: {op}"
    player.close()
