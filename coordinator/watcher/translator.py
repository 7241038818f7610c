"""Make events of what Kafka's coordinator wrote: each of its batches is one change of one group.

Pure: no clock, no disk, no network. Core infers the reasons, which Kafka does not write.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from coordinator.core.events import LEAVE_FOR_A_WHILE
from coordinator.core.state.groups import TopicView
from coordinator.core.state.records import (
    ClassicGroupWritten,
    CurrentMember,
    GroupMetadata,
    MemberMetadata,
    OffsetCommitted,
    Record,
    RegexResolved,
    TargetMember,
    TargetMetadata,
    Tombstone,
)
from coordinator.core.watched_events import KafkaWrote, Unreadable
from coordinator.watcher.kafka_records import Names, UndecodableError, make_record, read_key
from coordinator.watcher.own_fields import read_own
from coordinator.watcher.record_batches import KafkaRecord, keep_last

SESSION_MS = 45_000
"""Kafka's default of `group.consumer.session.timeout.ms`."""
LOADED: tuple[type[Record], ...] = (
    ClassicGroupWritten,
    GroupMetadata,
    MemberMetadata,
    RegexResolved,
    TargetMetadata,
    TargetMember,
    CurrentMember,
    OffsetCommitted,
)
"""The order in which the last records of all keys make a state: what is needed comes first."""
WRITTEN_BY_MEMBERS = (MemberMetadata, CurrentMember)
LISTED = 100
"""Records that cannot be decoded, of which the last are kept for people to see."""
TEXT_MAX = 500
ASK_MS = 1_000
"""The least time between two looks at topics because groups have others, by the records' time."""
logger = logging.getLogger("muster.watch")


@dataclass(slots=True)
class Faults:
    """What could not be taken, and what was passed over, for people to see.

    Attributes
    ----------
    passed_over
        How many records of each type were not for us: of share and streams groups, or unknown.
    undecodable
        The offsets of records that could not be decoded, with what is wrong: the last ones.
    count
        How many these were in all.
    """

    passed_over: Counter[int] = field(default_factory=Counter)
    undecodable: deque[tuple[int, str]] = field(default_factory=lambda: deque(maxlen=LISTED))
    count: int = 0

    def note(self, offset: int, reason: str) -> None:
        """Note a record that could not be decoded."""
        self.undecodable.append((offset, reason))
        self.count += 1
        logger.warning("the record at offset %d is passed over: %s", offset, reason[:TEXT_MAX])


class Translator:
    """Translates the records of one Kafka cluster.

    Parameters
    ----------
    topics
        Asked for the topics that are known now.
    session_ms
        Kafka's session timeout of groups of the consumer protocol.

    Attributes
    ----------
    faults
        What could not be taken.
    names
        By id, the topics that were met: Kafka's records have ids of topics that are gone, too.
    find_topics
        Asked for the topics once more when a record has an id that is new, or says that a group's
        topics have changed: then that is known before the group's epoch. None: never.
    """

    def __init__(self, topics: Callable[[], TopicView], session_ms: int = SESSION_MS) -> None:
        self.faults = Faults()
        self._topics = topics
        self._session_ms = session_ms
        self.names: dict[str, str] = {}
        self.find_topics: Callable[[], None] | None = None
        self._seen: dict[str, dict[str, int]] = {}
        """When members wrote last, by group and member."""
        self._hashes: dict[str, int] = {}
        """What each group's topics were like, by Kafka's hash."""
        self._asked_ms = 0
        self._known = Names(self._name_of, self._id_of)

    def load(self, written: Iterable[KafkaRecord]) -> KafkaWrote:
        """Return what a compacted topic says, which is the last record of each key.

        That is not a history, so no reason can be inferred.
        """
        last: dict[bytes, KafkaRecord] = {}
        keep_last(last, written)
        alive = [record for record in last.values() if record.value is not None]
        found, unreadable = self._make_all(alive)
        found.sort(key=lambda one: LOADED.index(type(one[1])))
        for record, made in found:
            self._note_activity(made, record.timestamp_ms)
            self._note_hash(made)
        newest = max((record.timestamp_ms for record, _ in found), default=0)
        return KafkaWrote(
            tuple(made for _, made in found),
            newest,
            explains=False,
            replaces=True,
            offsets=tuple(record.offset for record, _ in found),
            unreadable=tuple(unreadable),
        )

    def take(self, batch: Sequence[KafkaRecord]) -> KafkaWrote | None:
        """Return what Kafka wrote at once; None where nothing of it is about a group of ours."""
        made, unreadable = self._make_all(batch)
        if not made and not unreadable:
            return None
        records = tuple(ours for _, ours in made)
        differs = [self._note_hash(one) for one in records]
        at_ms = batch[-1].timestamp_ms
        if any(differs) and self.find_topics is not None and at_ms - self._asked_ms >= ASK_MS:
            self._asked_ms = at_ms  # of many groups that have a new topic, the first one asks
            self.find_topics()
        event = KafkaWrote(
            records,
            batch[-1].timestamp_ms,
            session_ms=self._session_ms,
            seen_ms=self._seen_of(records),
            offsets=tuple(record.offset for record, _ in made),
            unreadable=tuple(unreadable),
        )
        for record, ours in made:
            self._note_activity(ours, record.timestamp_ms)
        return event

    def _make_all(
        self, written: Iterable[KafkaRecord]
    ) -> tuple[list[tuple[KafkaRecord, Record]], list[Unreadable]]:
        """Return the records of Kafka's with ours, and those that cannot be decoded."""
        made: list[tuple[KafkaRecord, Record]] = []
        unreadable: list[Unreadable] = []
        for record in written:
            try:
                ours = self._make(record)
            except UndecodableError as error:
                self.faults.note(record.offset, str(error))
                if error.group_id is not None:
                    unreadable.append(Unreadable(error.group_id, record.offset, str(error)))
            else:
                if ours is not None:
                    made.append((record, ours))
        return made, unreadable

    def make(self, records: Iterable[KafkaRecord]) -> list[Record]:
        """Return what single records of Kafka's say, without those that cannot be decoded."""
        return [ours for _, ours in self._make_all(records)[0]]

    def _make(self, record: KafkaRecord) -> Record | None:
        """Translate a record of Kafka's; None if it has no counterpart, which is counted."""
        if record.key is None:
            return None
        key = read_key(record.key)
        if key is None:
            self.faults.passed_over[int.from_bytes(record.key[:2], signed=True)] += 1
            return None
        ours = make_record(key, record.value, self._known)
        return read_own(ours, record.own) if record.own and ours is not None else ours

    def _seen_of(self, records: Iterable[Record]) -> dict[tuple[str, str], int]:
        """Return when the members that a batch ends, or leaves out, last wrote something."""
        gone = {
            (one.group_id, one.member_id or "")
            for one in records
            if isinstance(one, Tombstone) and one.of == MemberMetadata.kind
        }
        found = {(group, member): self._seen.get(group, {}).get(member) for group, member in gone}
        return {key: at_ms for key, at_ms in found.items() if at_ms is not None}

    def note_seen(self, seen: Mapping[tuple[str, str], int]) -> None:
        """Note when members wrote last, as a store says."""
        for (group_id, member_id), at_ms in seen.items():
            self._seen.setdefault(group_id, {})[member_id] = at_ms

    def forget(self, group_ids: Iterable[str]) -> None:
        """Forget the members of groups."""
        for group_id in group_ids:
            self._seen.pop(group_id, None)

    def keep(self, group_ids: AbstractSet[str]) -> None:
        """Forget the members of all other groups."""
        self.forget(self._seen.keys() - group_ids)

    def _note_activity(self, record: Record, at_ms: int) -> None:
        """Note when a member wrote something: until a session later, it cannot have timed out.

        A static member that leaves for a while does not begin another session.
        """
        leaves = isinstance(record, CurrentMember) and record.member_epoch == LEAVE_FOR_A_WHILE
        if isinstance(record, WRITTEN_BY_MEMBERS) and not leaves:
            self._seen.setdefault(record.group_id, {})[record.member_id] = at_ms
        elif isinstance(record, Tombstone) and record.of == MemberMetadata.kind:
            self._seen.get(record.group_id, {}).pop(record.member_id or "", None)
        elif isinstance(record, Tombstone) and record.of == GroupMetadata.kind:
            self._seen.pop(record.group_id, None)

    def _note_hash(self, record: Record) -> bool:
        """Note what a group's topics are like; whether they were known, and are others now."""
        if isinstance(record, GroupMetadata):
            before = self._hashes.get(record.group_id, record.metadata_hash)
            self._hashes[record.group_id] = record.metadata_hash
            return before != record.metadata_hash
        if isinstance(record, Tombstone) and record.of == GroupMetadata.kind:
            self._hashes.pop(record.group_id, None)
        return False

    def _name_of(self, topic_id: str) -> str:
        """Return a topic's name; of one that is gone, the name that it had, if we met it."""
        topic = self._topics().by_id.get(topic_id)
        if topic is None and topic_id not in self.names and self.find_topics is not None:
            self.find_topics()
            topic = self._topics().by_id.get(topic_id)
        if topic is None:
            return self.names.setdefault(topic_id, topic_id)
        self.names[topic_id] = topic.key.name
        return topic.key.name

    def _id_of(self, name: str) -> str:
        topic = self._topics().by_name.get(name)
        return "" if topic is None else topic.key.topic_id
