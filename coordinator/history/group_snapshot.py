"""One group as of a log position: the input of a target computation.

Epochs, topics, regexes and distinct subscriptions are small and read here. Members are read here
only to check a target against them. A Spark job reads the members itself, from the same files, and
identifies each subscription by the same label: a hash of its columns in the log.
"""

from __future__ import annotations

from functools import cached_property

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import GroupSpec
from assignors.arrays import Longs
from coordinator.core.records import (
    GroupConfigured,
    GroupMetadata,
    MemberMetadata,
    RegexResolved,
    TargetMetadata,
    TopicChanged,
)
from coordinator.core.replay import replay
from coordinator.core.state import State, Topic
from coordinator.errors import ErrorCode, GroupError
from coordinator.storage.log_scan import LogScan
from coordinator.storage.record_decoder import ValueCache, decode_rows
from coordinator.storage.target_digest import SEED, hash_texts

NAMES, REGEX = "subscribed_topic_names", "subscribed_topic_regex"
_ALL_TOLD = (TopicChanged.kind, RegexResolved.kind)
_LAST_TOLD = (GroupMetadata.kind, GroupConfigured.kind, TargetMetadata.kind)
_COLUMNS = (
    *("topic", "topic_id", "partitions", "racks", "version"),
    *("regex", "topics", "timestamp"),
    *("epoch", "metadata_hash", "reason", "member_id", "settings"),
    *("assignment_epoch", "assignment_timestamp", "assignor", "moved", "partial"),
    *("computation_id", "targets_version", "digest", "members", "ranges"),
)


class GroupSnapshot:
    """One group up to a position.

    Attributes
    ----------
    group_epoch, assignment_epoch
        The epoch to compute a target for, and the epoch of the last target.
    assignor
        Of the last target; "" if there is none.
    settings
        The group's own settings.
    topics
        The subscribed topics that exist, by name.
    lists
        The distinct subscriptions by label, as topic names. The topics need not exist.
    installed, installed_at
        The record of the last target in the table `targets`, if the current target is based on
        one, and its position.

    Raises
    ------
    GroupError
        GROUP_ID_NOT_FOUND.
    """

    def __init__(self, source: LogScan, group_id: str) -> None:
        self.source = source
        self.group_id = group_id
        state, self.installed_at = self._facts()
        group = state.groups[group_id]
        self.group_epoch, self.assignment_epoch = group.epoch, group.assignment_epoch
        self.assignor, self.installed = group.assignor, group.installed
        self.settings = state.settings.get(group_id, {})
        regexes = {regex: found.topics for regex, found in group.regexes.items()}
        self.lists = self._subscriptions(regexes)
        wanted = {name for names in self.lists.values() for name in names}
        self.topics: list[Topic] = [state.topics[n] for n in sorted(wanted & state.topics.keys())]

    @cached_property
    def members(self) -> pa.Table:
        """The members: columns member_id, instance_id and label, one row per member."""
        columns = ["member_id", "instance_id", NAMES, REGEX]
        rows = self.source.rows(self.group_id, [MemberMetadata.kind], columns)
        codes = _combine_chunks(rows["member_id"]).dictionary_encode().indices.to_numpy()
        last = np.zeros(int(codes.max(initial=-1)) + 1, dtype=np.int64)
        last[codes] = np.arange(
            len(codes)
        )  # NumPy keeps the last value for a repeated index: the member's last row
        kept = rows.take(pa.array(last))
        kept = kept.filter(pc.invert(kept["tombstone"]))
        labels = pa.array(_label_subscriptions(kept)[0])
        return kept.select(["member_id", "instance_id"]).append_column("label", labels)

    def spec(self) -> GroupSpec:
        """Return the group as assignors take it, without what its members own."""
        place = {label: at for at, label in enumerate(self.lists)}
        number = {topic.key.name: at for at, topic in enumerate(self.topics)}
        labels, inverse = np.unique(self.members["label"].to_numpy(), return_inverse=True)
        numbers = np.array([place[label] for label in labels.tolist()], dtype=np.int64)
        lists = [[number[n] for n in names if n in number] for names in self.lists.values()]
        nothing = np.array([], dtype=np.int64)
        return GroupSpec.from_columns(
            member_id=_combine_chunks(self.members["member_id"]),
            instance_id=_combine_chunks(self.members["instance_id"]),
            rack=pa.nulls(len(self.members), pa.string()),
            subscription=numbers[inverse],
            list_offsets=np.cumsum([0, *map(len, lists)], dtype=np.int64),
            list_topics=np.array([at for one in lists for at in one], dtype=np.int32),
            topics=pa.array(number, pa.string()),
            partitions=np.array([topic.partitions for topic in self.topics], dtype=np.int64),
            owner=pa.array([], pa.string()),
            owned_topic=nothing.astype(np.int32),
            owned_first=nothing,
            owned_count=nothing,
        )

    def _facts(self) -> tuple[State, int]:
        """Replay the small records, and only the last ones of the group's epochs and settings."""
        rows = self.source.rows(self.group_id, [*_ALL_TOLD, *_LAST_TOLD], _COLUMNS)
        kinds = _combine_chunks(rows["kind"])
        targets = pc.equal(kinds, TargetMetadata.kind)
        whole = pc.and_(targets, pc.or_(rows["tombstone"], pc.is_valid(rows["targets_version"])))
        places = _find_true(pc.is_in(kinds, value_set=pa.array(_ALL_TOLD)))
        at_whole = _find_true(whole)[-1:]
        for found in (*(_find_true(pc.equal(kinds, kind)) for kind in _LAST_TOLD), at_whole):
            places += found[-1:]
        state = State()
        for record in decode_rows(
            rows.take(pa.array(sorted(set(places)), pa.int64())), ValueCache()
        ):
            assert record is not None
            replay(state, record)
        if self.group_id not in state.groups:
            raise GroupError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {self.group_id} not found."
            )
        return state, rows["position"][at_whole[0]].as_py() if at_whole else 0

    def _subscriptions(self, regexes: dict[str, tuple[str, ...]]) -> dict[int, list[str]]:
        """Return the topic names of each label."""
        rows = self.source.rows(self.group_id, [MemberMetadata.kind], [NAMES, REGEX])
        labels, pairs = _label_subscriptions(rows.filter(pc.invert(rows["tombstone"])))
        found = {}
        for label, (text, regex) in zip(np.unique(labels).tolist(), pairs, strict=True):
            names: list[str] = msgspec.json.decode(text, type=list[str])
            found[label] = sorted({*names, *regexes.get(regex, ())})
        return found


def _label_subscriptions(rows: pa.Table) -> tuple[Longs, list[tuple[str, str]]]:
    """Return each row's label, and the distinct subscriptions in the order of their labels.

    The label is Spark's xxhash64(subscribed_topic_names, subscribed_topic_regex).
    """
    names, regex = _combine_chunks(rows[NAMES]), _combine_chunks(rows[REGEX]).dictionary_encode()
    width = max(len(regex.dictionary), 1)
    pair = names.indices.to_numpy().astype(np.int64) * width + regex.indices.to_numpy()
    distinct, inverse = np.unique(pair, return_inverse=True)
    texts = names.dictionary.take(pa.array(distinct // width))
    regexes = regex.dictionary.take(pa.array(distinct % width))
    hashes = hash_texts(texts, np.full(len(distinct), SEED, dtype=np.uint64))
    labels = hash_texts(regexes, hashes).view(np.int64)
    order = np.argsort(labels)
    pairs = zip(texts.to_pylist(), regexes.to_pylist(), strict=True)
    behind = list(pairs)
    return labels[inverse], [behind[at] for at in order.tolist()]


def _find_true(rows: pa.Array | pa.ChunkedArray) -> list[int]:
    """Return the indices of rows that are true."""
    found = rows.combine_chunks() if isinstance(rows, pa.ChunkedArray) else rows
    return list(np.flatnonzero(found.to_numpy(zero_copy_only=False)).tolist())


def _combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
