"""The log of a partition that is led, as a coordinator's: with records as Kafka's reads them.

What Kafka has no record for (`record_writer.LEFT_OUT`) goes to the node's own store, and comes from
there; settings of groups come from the cluster's metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from coordinator.core.events import CatalogTopic
from coordinator.core.state.groups import State, TopicView
from coordinator.core.state.records import (
    GroupConfigured,
    GroupMetadata,
    Record,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.replay import replay_all
from coordinator.core.state.target_assignment import WholeTarget
from coordinator.core.state.transactions import TransactionEnded
from coordinator.core.watched.kept_records import is_kept, list_restored
from coordinator.kraft.batch_writer import Change
from coordinator.kraft.kafka_hash import hash_of, hash_topics
from coordinator.kraft.led_partition import LedPartition
from coordinator.kraft.record_writer import RecordWriter, UnwritableError, kind_of
from coordinator.kraft.transactions.load import ProducersLoad
from coordinator.storage.record_log import (
    Batch,
    CommitFailed,
    CorruptLog,
    LostTarget,
    Unmaintained,
    merge_advances,
    rise_each,
)
from coordinator.watcher.kafka_records import PASSED_OVER
from coordinator.watcher.partition_changes import PartitionLoad
from coordinator.watcher.record_batches import BatchError
from coordinator.watcher.translator import Translator


class PartitionRecords(Unmaintained):
    """A `RecordLog` over a partition in one epoch; that one ends with it.

    Parameters
    ----------
    topics
        Asked for the topics of the cluster.
    settings
        Asked for the cluster's settings of groups, by group.
    state
        Asked for the coordinator's state, as of the records that are appended.
    assignors
        Those that the cluster's brokers have, the default one first.
    kept
        Asked for what the node's store keeps of the groups.
    keep
        Called with what the store is to keep, once what belongs to it is written.
    """

    store: str | None = None

    def __init__(
        self,
        led: LedPartition,
        topics: Callable[[], TopicView],
        assignors: Sequence[str],
        settings: Callable[[], Mapping[str, Mapping[str, str]]] = dict,
        state: Callable[[], State] = State,
        kept: Callable[[], Sequence[Record]] = tuple,
        keep: Callable[[Sequence[Record]], object] = lambda _: None,
    ) -> None:
        self._led, self._topics, self.state, self._settings = led, topics, state, settings
        self._kept, self._keep = kept, keep
        self._writer = RecordWriter(assignors)
        self.epoch = self.position = 0
        self._last_ms = 0

    def claim(self, owner: str, address: str, at_ms: int) -> int:  # noqa: ARG002 - the protocol
        """Return the epoch: the cluster's controller has given the partition to this node."""
        self._led.look()
        self.epoch = self._led.epoch
        return self.epoch

    def replay(self) -> Iterator[Batch]:
        """Yield the topics, and the state that the last records of all keys make.

        A cleaned log is no history: what a member had may outlive the record that took it away.

        Raises
        ------
        WriterFenced
            It is no longer led.
        CommitFailed
            Not all replicas in sync have the log, so it may still be another one.
        CorruptLog
            A record cannot be read, or a group is of a kind that Muster does not coordinate: a
            broker must lead the partition.
        """
        end, load, producers = self._led.end, PartitionLoad(), ProducersLoad()
        try:
            for batches in self._led.read():
                load.take(batches)
                producers.take(batches)
        except BatchError as error:
            raise CorruptLog(f"partition {self._led.number}: {error}") from None
        view = self._topics()
        translator = Translator(lambda: view)
        found = translator.load(load.finish())
        pending = producers.finish(load, translator.make)
        others = PASSED_OVER & translator.faults.passed_over.keys()
        if others:
            raise CorruptLog(
                f"partition {self._led.number} has share or streams groups (records of type "
                f"{min(others)}), which Muster does not coordinate"
            )
        if translator.faults.count:
            offset, why = translator.faults.undecodable[-1]
            raise CorruptLog(f"partition {self._led.number}, offset {offset}: {why}")
        settings = [GroupConfigured(name, dict(one)) for name, one in self._settings().items()]
        written = *pending.before, *found.records, *pending.after
        records = [*_topic_records(view), *settings, *written]
        loaded = State()
        replay_all(loaded, records)
        records += list_restored(loaded, self._kept())
        self._writer = RecordWriter(self._writer.assignors)
        self._writer.load(loaded)
        self._led.wait_until_counted(end)
        self._last_ms = max(self._last_ms, found.at_ms)
        self.position = max(self.position, end)
        yield Batch(
            self.position, found.at_ms, self.epoch, [_with_our_hash(one, loaded) for one in records]
        )

    def append(self, records: Sequence[Record], at_ms: int | Sequence[int]) -> int:
        """Write records, and wait until all replicas in sync have them.

        Returns
        -------
        int
            A position that rises with every record, those that Kafka has none for too.

        Raises
        ------
        WriterFenced
            It is no longer led: whether they count is not known here.
        CommitFailed
            They may count later, or never.
        """
        _, last_ms = rise_each(self._last_ms, at_ms)
        state = self.state()
        written, rows = [], merge_advances(records)
        try:
            for some in _split_changes(rows):
                one = self._writer.write(some, lambda record: hash_of(record, state))
                self._writer.keep(one)  # what fails is followed by a replay, which begins again
                if one.records:
                    written.append(Change(one.records, last_ms, kind_of(some[0])))
        except UnwritableError as error:
            raise CommitFailed(str(error)) from None
        if written:
            self._led.append(written)
        else:  # who appends takes the log for its own
            self._led.look()
        self._last_ms = last_ms
        self.position += len(rows)
        if kept := [one for one in records if is_kept(one)]:
            self._keep(kept)
        return self.position

    def look(self) -> None:
        """See that no other node leads the partition; raises as `LedPartition.look`."""
        self._led.look()

    def target(self, record: TargetMetadata) -> WholeTarget:
        """Return the whole target that a record names: its members' records have it."""
        if record.whole is None:
            raise LostTarget(f"the topic of groups has no table of targets: {record}")
        return record.whole

    def snapshot(self, records: Iterable[Record], position: int, at_ms: int) -> None:
        """Do nothing: the log is read whole."""

    def close(self) -> None:
        """Let go: the partition's file is the node's."""


def make_view(topics: dict[str, CatalogTopic]) -> TopicView:
    """Return topics as a coordinator knows them."""
    state = State()
    records = [
        TopicChanged(name, one.topic_id, one.partitions, one.racks, version)
        for version, (name, one) in enumerate(sorted(topics.items()), 1)
    ]
    replay_all(state, records)
    return TopicView.now(state)


def _split_changes(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield what is kept whole: what is about one group, up to where that ends.

    What is of a transaction has batches of its own, and so has each end of one.
    """
    some: list[Record] = []
    for record in records:
        if some and _begins_another(record, some[-1]):
            yield some
            some = []
        some.append(record)
    if some:
        yield some


def _begins_another(record: Record, last: Record) -> bool:
    if isinstance(last, TransactionEnded) or kind_of(last) != kind_of(record):
        return True
    is_end = isinstance(last, Tombstone) and last.of == GroupMetadata.kind
    return is_end or _group_of(last) != _group_of(record)


def _group_of(record: Record) -> str | None:
    return getattr(record, "group_id", None)


def _topic_records(view: TopicView) -> list[Record]:
    return [
        TopicChanged(name, one.key.topic_id, one.partitions, one.racks, one.version)
        for name, one in sorted(view.by_name.items())
    ]


def _with_our_hash(record: Record, loaded: State) -> Record:
    """Return a group with our hash of its topics, where Kafka's says that they are the same.

    So no group's epoch is raised because another coordinator takes it over.
    """
    if not isinstance(record, GroupMetadata):
        return record
    group = loaded.groups.get(record.group_id)
    if group is None or hash_topics(group.names, loaded.topics) != record.metadata_hash:
        return record
    return msgspec.structs.replace(record, metadata_hash=group.topics_hash)
