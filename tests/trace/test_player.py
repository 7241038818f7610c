"""`muster trace` answers as Kafka 4.4.0 did, file by file."""

from __future__ import annotations

import json
import os

import pytest

from coordinator.config import LogConfig
from coordinator.storage.delta_log import DeltaLog
from coordinator.trace.player import TracePlayer
from tests.conftest import GOLDEN
from tests.support.traces.comparison import comparable, compared_when_wide


def is_walk(file):
    """Whether a file is a random walk: its answers hold no records."""
    return file.stem.startswith(("walk", "wide"))


FILES = sorted((GOLDEN / "traces").glob("*.jsonl"))
RELOADED = {"walk-07", "walk-21", "wide-10"}
"""Walks on a Delta store take 5 s each: these fail over most often; MUSTER_LONG=1 plays all."""
STORED = [
    file
    for file in FILES
    if not is_walk(file) or file.stem in RELOADED or os.environ.get("MUSTER_LONG")
]


def check(trace, file):
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        case = json.loads(line)
        shown = compared_when_wide if file.stem.startswith("wide") else comparable
        found, wanted = shown(trace.run(case["op"])), shown(case["answer"])
        assert found == wanted, f"{file.name}, line {number}: {case['op']}"
    trace.close()


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_answers_as_kafka(file):
    check(TracePlayer(records=not is_walk(file)), file)


@pytest.mark.parametrize("file", STORED, ids=lambda f: f.stem)
def test_answers_as_kafka_on_a_delta_store(file, tmp_path):
    """The same, every answer durable first, `reload` really reopens the store."""

    def open_log(_config, _anew):
        return DeltaLog.open(tmp_path / "store", LogConfig(fsync=False))

    check(TracePlayer(open_log, records=not is_walk(file)), file)


def test_the_command(muster, tmp_path):
    """Answers on standard output, records when asked for; a store is begun, never overwritten."""
    ops = [
        {"op": "topics", "set": {"a": 2}},
        {"member": "m", "epoch": 0, "owned": {}, "rebalance_timeout_ms": 9, "subscribed": ["a"]},
    ]
    lines = "\n".join(map(json.dumps, ops))
    done = muster("trace", "--records", "--log", tmp_path / "s", stdin=lines)
    assert done.returncode == 0, done.stderr
    first, second = map(json.loads, done.stdout.splitlines())
    assert first["topics"]["a"]["partitions"] == 2
    assert second["response"]["assignment"] == {"a": [0, 1]}
    assert second["records"][0]["type"] == "CONSUMER_GROUP_MEMBER_METADATA"
    again = muster("trace", "--log", tmp_path / "s", stdin=lines)
    assert again.returncode == 2
    assert b"is not empty" in again.stderr


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "line 1: give one operation a line"),
        ('{"op": "leap"}', "line 1: unknown op 'leap': the operations are config"),
        ('{"op": "reload", "grop": 1}', "line 1: reload has 'grop'"),
        ('{"op": "advance", "ms": -1}', "the clock cannot go back"),
        ('{"op": "advance", "ms": "1"}', "ms is '1'"),
        ('{"op": "topics", "set": {"a": -1}}', "topic 'a' has -1 partitions"),
        ('{"op": "config", "props": {"group.max": 1}}', "unknown setting 'group.max'"),
        ('{"op": "commit", "offsets": [1]}', "give offsets as"),
    ],
)
def test_bad_operations_are_refused(muster, line, words):
    done = muster("trace", stdin=line)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr.decode()
