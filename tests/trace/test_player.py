"""`muster trace` answers as Kafka 4.4.0 did, file by file."""

from __future__ import annotations

import json

import pytest

from tests.support.traces.golden import check_answers, files_for_a_store, golden_files

FILES = golden_files("traces")
STORED = files_for_a_store(FILES, walks={"walk-07", "walk-21", "wide-10"})
"""Those walks fail over most often."""


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_answers_as_kafka(file):
    check_answers(file)


@pytest.mark.parametrize("file", STORED, ids=lambda f: f.stem)
def test_answers_as_kafka_on_a_delta_store(file, tmp_path):
    """The same, every answer durable first, `reload` really reopens the store."""
    check_answers(file, tmp_path / "store")


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
        ("[]", "line 1: give one operation per line"),
        ('{"op": "leap"}', "line 1: unknown op 'leap': the operations are config"),
        ('{"op": "reload", "grop": 1}', "line 1: reload has 'grop'"),
        ('{"op": "advance", "ms": -1}', "the clock cannot go back"),
        ('{"op": "advance", "ms": "1"}', "ms is '1'"),
        ('{"op": "topics", "set": {"a": -1}}', "topic 'a' has -1 partitions"),
        ('{"op": "config", "props": {"group.max": 1}}', "unknown setting 'group.max'"),
        ('{"op": "commit", "offsets": [1]}', "give {topic: {partition: offset}}"),
    ],
)
def test_bad_operations_are_refused(muster_here, line, words):
    done = muster_here("trace", stdin=line)
    assert (done.returncode, done.stdout) == (2, b"")
    assert words in done.stderr.decode()
