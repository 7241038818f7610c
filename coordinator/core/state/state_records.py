"""Turn a state into the records that make it, for a snapshot, and some records into a state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

from coordinator.core.state.classic_written import record_of
from coordinator.core.state.groups import Computation, Group, State
from coordinator.core.state.records import (
    GroupConfigured,
    GroupMetadata,
    OffsetCommitted,
    Record,
    TargetMetadata,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.replay import replay_all
from coordinator.core.state.rows.group_rows import list_currents, list_metas, list_targets
from coordinator.core.state.transactions import Transactions


class StateRecords(Iterable[Record]):
    """Records that, replayed on an empty state, make a state."""

    def __init__(self, state: State) -> None:
        self._state = state

    def __iter__(self) -> Iterator[Record]:
        return records_of(self._state)

    def runs(self) -> Iterator[Iterable[Record]]:
        """Return them in runs; those of members that are rows are `RecordRows`."""
        return _runs_of(self._state)


def records_of(state: State) -> Iterator[Record]:
    """Yield records that, replayed on an empty state, make this one."""
    return chain.from_iterable(_runs_of(state))


def records_of_group(state: State, group: Group) -> Iterator[Record]:
    """Yield records that make this consumer group, where its topics are."""
    return chain.from_iterable(_runs_of_group(state, group))


def _runs_of(state: State) -> Iterator[Iterable[Record]]:
    yield _records_before_groups(state)
    for group in state.groups.values():
        yield from _runs_of_group(state, group)
    yield _records_after_groups(state)


def _records_before_groups(state: State) -> Iterator[Record]:
    if state.watched is not None:
        yield state.watched.cluster
        yield from state.watched.read.values()
        yield from state.watched.unread.values()
    for topic in state.topics.values():
        name, topic_id = topic.key.name, topic.key.topic_id
        yield TopicChanged(name, topic_id, topic.partitions, topic.racks, topic.version)
    for group_id, settings in state.settings.items():
        yield GroupConfigured(group_id, settings)
    yield from state.loads.values()
    yield from state.loads_used.values()


def _records_after_groups(state: State) -> Iterator[Record]:
    for classic in state.classic.values():
        yield record_of(classic)
    yield from state.transactions.records_before()
    for group_id, offsets in state.offsets.items():
        yield from offsets.values()
        if not offsets:
            # The group is there because it has had some: one that came and went says so.
            yield OffsetCommitted(group_id, "", "", 0, 0)
            yield Tombstone(OffsetCommitted.kind, group_id, name="", partition=0)
    yield from state.transactions.records_after()


def _runs_of_group(state: State, group: Group) -> Iterator[Iterable[Record]]:
    yield list_metas(group)
    yield group.regexes.values()
    yield [
        GroupMetadata(group.group_id, group.epoch, group.metadata_hash, owner_left=group.owner_left)
    ]
    if group.installed is not None:
        yield [group.installed]
    yield from list_targets(group)
    yield [
        TargetMetadata(
            group.group_id,
            group.assignment_epoch,
            group.assignment_timestamp,
            group.assignor,
            partial=group.partial,
        )
    ]
    yield from list_currents(group)
    yield group.plans.values()
    yield group.decided.values()
    found = group.computation
    if found is not None and found == Computation.of(found.record, group, state.topics):
        # One whose input has changed since would be checked against another input after the load:
        # it is left out, and installing it fails with "prepare again".
        yield [found.record]


def replay_alone(state: State, records: Iterable[Record]) -> State:
    """Return the state that records make by themselves, of no group yet, with a state's topics."""
    alone = replace(
        state,
        groups={},
        subscribers={},
        classic={},
        classic_bytes=0,
        offsets={},
        transactions=Transactions(),
    )
    replay_all(alone, records)
    return alone
