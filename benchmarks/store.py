"""A store to measure on, and a settled group in it: written by its log alone, without joins."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.shape import EPOCH, GROUP, Shape, small_group_id, small_member_id
from coordinator.clock import wall_ms
from coordinator.config import Config
from coordinator.core.state.groups import Topic
from coordinator.core.state.member_rows import (
    META_FIELDS,
    STABLE,
    CurrentRows,
    MemberRows,
    TargetRows,
)
from coordinator.core.state.records import (
    CurrentMember,
    GroupConfigured,
    GroupMetadata,
    MemberMetadata,
    Record,
    TargetMember,
    TargetMetadata,
    TopicChanged,
)
from coordinator.core.state.span_columns import SpanRows
from coordinator.runtime.topic_catalog import topic_id_of
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.state_loader import write_snapshot

BATCH = 50_000


@contextmanager
def temporary_store() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="muster-bench-"))
    try:
        yield folder / "store"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_group(
    store: Path, shape: Shape, settings: Mapping[str, str] | None = None, *, snapshot: bool = False
) -> None:
    """Write the log of a group in which every member is settled, and optionally a snapshot.

    Parameters
    ----------
    settings
        The group's own, where it has any.
    """
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", wall_ms())
    topics = _topics(shape)
    log.append([TopicChanged(t.key.name, t.key.topic_id, t.partitions) for t in topics], 1)
    facts: list[Record] = [GroupConfigured(GROUP, dict(settings))] if settings else []
    log.append([*facts, *epoch_records(shape, EPOCH)], 1)
    if snapshot:  # it is what is read, so the log may have rows that no process wrote one by one
        for first in range(0, shape.members, BATCH):
            for rows in _member_rows(shape, topics, first, min(first + BATCH, shape.members)):
                log.append(rows, 1)
        write_snapshot(log, wall_ms())
    else:
        records = _members(shape, topics)
        while batch := list(islice(records, BATCH)):
            log.append(batch, 1)
    log.close()


def write_small_groups(
    store: Path,
    count: int,
    ids: Container[str] | None = None,
    members: int = 1,
    name: Callable[[int], str] = small_group_id,
) -> None:
    """Write many groups of settled members with a partition each, beside what the store has.

    Parameters
    ----------
    ids
        Which of them to write; None for all.
    members
        Of each.
    name
        Returns a group's id.
    """
    log = DeltaLog.open(store, Config().log)
    log.claim("benchmark", "", wall_ms())
    topic = Topic.of("small", topic_id_of("small"), members, ())
    log.append([TopicChanged("small", topic.key.topic_id, members)], 1)
    records = (
        record
        for number in range(count)
        if ids is None or name(number) in ids
        for record in _small_group(topic, name(number), number, members)
    )
    while batch := list(islice(records, BATCH)):
        log.append(batch, 1)
    log.close()


def _small_group(topic: Topic, group_id: str, number: int, members: int) -> Iterator[Record]:
    ids = [small_member_id(number, at) for at in range(members)]
    yield GroupMetadata(group_id, EPOCH, topic.hash)
    for member_id in ids:
        yield MemberMetadata(  # as its client's first heartbeat says it, which then writes nothing
            group_id, member_id, client_id="test", client_host="/127.0.0.1",
            subscribed_topic_names=("small",), rebalance_timeout_ms=60_000,
        )  # fmt: skip
    for at, member_id in enumerate(ids):
        yield TargetMember(group_id, member_id, ((topic.key, at, at + 1),))
    yield TargetMetadata(group_id, EPOCH, 1, "uniform")
    for at, member_id in enumerate(ids):
        held = ((topic.key, at, at + 1, EPOCH),)
        yield CurrentMember(group_id, member_id, EPOCH, assigned=held)


def epoch_records(shape: Shape, epoch: int) -> list[Record]:
    """Return the records of an epoch and its target, which say nothing of members."""
    metadata_hash = sum(topic.hash for topic in _topics(shape)) % 2**64
    return [GroupMetadata(GROUP, epoch, metadata_hash), TargetMetadata(GROUP, epoch, 1, "uniform")]


def member_records(shape: Shape) -> Iterator[Record]:
    """Yield the records of the members of a settled group, one by one."""
    return _members(shape, _topics(shape))


def _topics(shape: Shape) -> list[Topic]:
    return [Topic.of(name, topic_id_of(name), count, ()) for name, count in shape.topics().items()]


def _member_rows(
    shape: Shape, topics: list[Topic], first: int, stop: int
) -> Iterator[Sequence[Record]]:
    """Yield what `_members` does of some members, in columns."""
    ids = pa.array(shape.ids()[first:stop], pa.string())
    numbers = np.arange(first, stop)
    width = topics[0].partitions
    piece, places = shape.each // shape.ranges, width // shape.each
    topic, place = numbers * shape.each // width, numbers % places
    turns = np.arange(shape.ranges) * piece * places
    begin = (place[:, None] * piece + turns).ravel()
    keys, counts = [topic.key for topic in topics], np.full(len(numbers), shape.ranges)
    columns = [begin, begin + piece, np.full(len(begin), EPOCH)]
    numbered = topic.repeat(shape.ranges)
    class_ = numbers * shape.classes // shape.members
    lists = [shape.names(at * shape.members // shape.classes) for at in range(shape.classes)]
    used, codes = np.unique(class_, return_inverse=True)
    fixed = {"subscribed_topic_names": ([lists[at] for at in used.tolist()], codes)}
    sample = MemberMetadata(GROUP, "", rebalance_timeout_ms=60_000)
    zeros = np.zeros(len(numbers), np.int32)
    metas = [fixed.get(name) or ([getattr(sample, name)], zeros) for name in META_FIELDS]
    yield MemberRows(GROUP, ids, metas)
    yield TargetRows(GROUP, ids, SpanRows(keys, counts, numbered, columns[:2]))
    epochs = [zeros + EPOCH, zeros, zeros + STABLE]
    nothing = np.zeros(0, np.int32)
    held = SpanRows(keys, counts, numbered, columns)
    none = SpanRows([], zeros, nothing, [nothing] * 3)
    yield CurrentRows(GROUP, ids, epochs, held, none)


def _members(shape: Shape, topics: list[Topic]) -> Iterator[Record]:
    keys, width = [topic.key for topic in topics], topics[0].partitions
    piece = shape.each // shape.ranges
    in_round = piece * (width // shape.each)  # of one topic: its members' pieces side by side
    lists = {at: shape.names(at * shape.members // shape.classes) for at in range(shape.classes)}
    for number, member_id in enumerate(shape.ids()):
        line = number * shape.each
        key, place = keys[line // width], (line % width) // shape.each
        firsts = [turn * in_round + place * piece for turn in range(shape.ranges)]
        names = lists[number * shape.classes // shape.members]
        yield MemberMetadata(
            GROUP, member_id, subscribed_topic_names=names, rebalance_timeout_ms=60_000
        )
        yield TargetMember(GROUP, member_id, tuple((key, at, at + piece) for at in firsts))
        held = tuple((key, at, at + piece, EPOCH) for at in firsts)
        yield CurrentMember(GROUP, member_id, EPOCH, assigned=held)
