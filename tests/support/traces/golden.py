"""Traces as Kafka wrote them: which of them there are, and how one is played and compared."""

from __future__ import annotations

import json
from pathlib import Path

from coordinator.config import LogConfig
from coordinator.storage.delta_log import DeltaLog
from coordinator.trace.json_trace import JsonTrace
from tests.conftest import GOLDEN
from tests.support.longer import EVERY
from tests.support.traces.comparison import comparable


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


def _trace_of(file, store):
    def open_log(_config, _fresh):
        return DeltaLog.open(store, LogConfig(fsync=False))

    return JsonTrace(open_log if store else None, records=not is_walk(file))


def check_answers(file, store: Path | None = None):
    """Play a file, in memory or on a store in a folder, and compare each answer with Kafka's."""
    trace = _trace_of(file, store)
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        case = json.loads(line)
        op = case.pop("op")
        wide = file.stem.startswith("wide")
        found, wanted = comparable(trace.run(op), case, op, wide=wide)
        assert found == wanted, f"{file.name}, line {number}: {op}"
    trace.close()
