"""The words of a command in tests/traces: partitions, settings, targets, fields of a heartbeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from coordinator.core.state.partition_spans import TopicKey, spans_of
from tests.support.traces.text import NOTHING, milliseconds

FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "instance": lambda value: {"instance_id": value},
    "rack": lambda value: {"rack_id": value},
    "regex": lambda value: {"subscribed_topic_regex": value},
    "assignor": lambda value: {"server_assignor": value},
    "epoch": lambda value: {"member_epoch": int(value)},
    "rebalance-timeout": lambda value: {"rebalance_timeout_ms": milliseconds(value)},
}
"""Of a heartbeat, as they are given: `instance=one`."""


def values(words: list[str]) -> dict[str, str]:
    wrong = [word for word in words if "=" not in word]
    if wrong:
        raise ValueError(f"{wrong[0]!r} has no value: give NAME=VALUE")
    return dict(word.split("=", 1) for word in words)


def partitions(words: list[str]) -> dict[str, list[int]]:
    """Return partitions by topic of `clicks 0-3 5 views 0`."""
    found: dict[str, list[int]] = {}
    topic = ""
    for word in words:
        if word == NOTHING:
            continue
        if not word[0].isdigit():
            topic = word
            found[topic] = []
            continue
        first, _, last = word.partition("-")
        found[topic].extend(range(int(first), int(last or first) + 1))
    return found


def by_member(words: list[str]) -> dict[str, dict[str, list[int]]]:
    """Return partitions by member of `m1: clicks 0-3 m2: clicks 4-5`."""
    parts: dict[str, list[str]] = {}
    for word in words:
        if word.endswith(":"):
            member = word[:-1]
            parts[member] = []
        else:
            parts[member].append(word)
    return {member: partitions(found) for member, found in parts.items()}


def table(members: dict[str, dict[str, list[int]]]) -> pa.Table:
    """Return a target as rows: member, topic, first partition, count."""
    rows = list(_rows(members))
    columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 4
    names = ("member_id", "topic", "first_partition", "partition_count")
    types = (pa.string(), pa.string(), pa.int32(), pa.int32())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(dict(zip(names, arrays, strict=True)))


def _rows(members: dict[str, dict[str, list[int]]]) -> Iterator[tuple[str, str, int, int]]:
    for member, topics in members.items():
        for name, found in topics.items():
            for key, first, end in spans_of((TopicKey(name, ""), p) for p in found):
                yield member, key.name, first, end - first
