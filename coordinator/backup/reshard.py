"""Make a store with another number of shards from one whose coordinators have ended.

Each group's state goes to the log of its new shard, as the records that make it. What happened
before stays in the store that it was made from.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from coordinator.backup.destination import create_destination
from coordinator.clock import wall_ms
from coordinator.config import Config, ConfigError
from coordinator.core.state.groups import Group, State
from coordinator.core.state.records import (
    ComputationPrepared,
    CurrentMember,
    GroupConfigured,
    LoadsNoted,
    OffsetCommitted,
    Record,
    RegexResolved,
    TargetMember,
    TopicChanged,
)
from coordinator.core.state.state_records import records_of
from coordinator.core.state.target_assignment import Targets
from coordinator.display.progress import task
from coordinator.history.log_reader import LogReader, open_logs
from coordinator.storage.delta_log import DeltaLog
from coordinator.storage.lease import Lease
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.record_log import CorruptLog
from coordinator.storage.shards import (
    Shards,
    check_count,
    root_at,
    shard_at,
    write_shards,
)
from coordinator.storage.state_loader import load_state
from coordinator.storage.store_marks import refuse_incomplete
from coordinator.storage.tables.store_files import files_at
from coordinator.storage.tables.store_root import find_root
from coordinator.verify.store import verify_tables

OLDEST, NEWER = 0, 1
"""Versions of regexes and of topics: so each regex is resolved again, with the topics of all."""
OF_NO_GROUP = GroupConfigured, LoadsNoted
"""What is kept of a group id even if the group does not exist."""
HELD = CurrentMember, TargetMember
"""What is listed otherwise once it was read, where members that are rows had changed."""
RECORDS_AT_ONCE = 100_000


@dataclass(frozen=True, slots=True)
class ReshardResult:
    """A store of another number of shards, which was read again and found to have every group.

    Attributes
    ----------
    shards
        How many it has; 1 is a store without shards.
    groups, offsets
        How many groups of either protocol, and committed offsets, it has.
    """

    store: str
    shards: int
    groups: int
    offsets: int


def reshard(
    source: str | os.PathLike[str],
    store: str | os.PathLike[str],
    shards: int,
    config: Config | None = None,
) -> ReshardResult:
    """Make a new store of so many shards, with the groups of another store.

    Parameters
    ----------
    source
        A store of shards, or of one, which no coordinator has now.
    store
        A new or empty folder, or a URL with nothing there.
    shards
        How many the new store has, permanently; 1 for a store of one shard.

    Raises
    ------
    ConfigError, SpecError, NoLog, NewerLog
        The store is missing, a coordinator has it, Kafka coordinates its groups, or the new
        folder cannot be used. Nothing was changed.
    CorruptLog
        The source is damaged. Nothing is left behind.
    CommitFailed
        The disk is full, read-only or broken. Nothing is left behind.
    """
    check_count(shards, "--shards", least=1)
    root, config = find_root(source), config or Config()
    _refuse_served(root, config)
    refuse_incomplete(root)
    logs = open_logs(source)
    found = _read(logs)
    with create_destination(str(store), root, f"a store made from {root}") as made:
        _write(made, shards, found, config)
        _refuse_moved(logs)
    return ReshardResult(made, shards, *found.counts())


@dataclass(slots=True)
class _Found:
    """What logs come to: the topics of all, and the records of each group."""

    topics: dict[str, Record]
    groups: dict[str, list[Record]]

    def counts(self) -> tuple[int, int]:
        """Return how many groups there are, and how many committed offsets."""
        every = [(g, one) for g, records in self.groups.items() for one in records]
        groups = {group_id for group_id, one in every if not isinstance(one, OF_NO_GROUP)}
        return len(groups), sum(isinstance(o, OffsetCommitted) and bool(o.topic) for _, o in every)


def _refuse_served(root: str, config: Config) -> None:
    """Refuse a store that a coordinator or a node has: it would write on in the old one."""
    nodes = StoreNodes(root, config.lease)
    alive = [one.address for one in nodes.look()]
    for place in (root, root_at(root)):
        if files_at(root).is_folder(place):
            held = Lease(place, "reshard", "", config.lease, wall_ms).holder()
            alive += [] if held is None else [held.address or held.owner]
    if alive:
        raise ConfigError(
            f"{root} is coordinated by {', '.join(sorted(set(alive)))}: stop it first, and start "
            "it again with the new store"
        )


def _read(logs: Iterable[LogReader]) -> _Found:
    found = _Found({}, defaultdict(list))
    for log in sorted(logs, key=lambda one: one.at_ms):  # the newest says what topics there are
        state = log.state()
        if state.watched is not None:
            raise ConfigError(
                f"{log.store} shows groups that a Kafka cluster coordinates, and has no shards: "
                "follow the cluster into a new store with `muster watch`"
            )
        for group in state.groups.values():
            _list_target(log, group)
        _take(found, state)
    return found


def _list_target(log: LogReader, group: Group) -> None:
    """Have the whole target of a group as one of each member: its rows stay in the old store."""
    log.read_target(group)
    if group.targets.whole is not None:
        each = Targets()
        for member_id in group.targets:
            each[member_id] = group.targets[member_id]
        group.targets, group.installed = each, None


def _take(found: _Found, state: State) -> None:
    for record in records_of(state):
        if isinstance(record, TopicChanged):
            topic = msgspec.structs.replace(record, version=NEWER)
            found.topics[record.topic] = topic
        elif isinstance(record, RegexResolved):
            found.groups[record.group_id].append(msgspec.structs.replace(record, version=OLDEST))
        elif not isinstance(record, ComputationPrepared):  # it is prepared again
            found.groups[record.group_id].append(record)  # type: ignore[attr-defined] # all others have it


def _write(made: str, count: int, found: _Found, config: Config) -> None:
    """Write the new logs, and read each again."""
    places: dict[str, list[str]] = defaultdict(list)
    if count > 1:
        shards = write_shards(made, Shards(count), config)
        for group_id in found.groups:
            places[shard_at(made, shards.shard_of(group_id))].append(group_id)
    else:
        places[made] = list(found.groups)
    with task("shards", len(places)) as progress:
        for place, group_ids in sorted(places.items()):
            log = DeltaLog(place, config.log)
            log.claim("reshard", "", wall_ms())
            part = _Found(found.topics, {one: found.groups[one] for one in group_ids})
            for records in _pieces(part):
                log.append(records, wall_ms())
            _check(log, part)
            log.close()
            verify_tables(place)
            progress.advance()


def _check(log: DeltaLog, wanted: _Found) -> None:
    """Read a new log again: each group is there, as it was, and nothing else."""
    again = _Found({}, defaultdict(list))
    _take(again, load_state(log)[0])
    if _sort(again) != _sort(wanted):
        raise CorruptLog(
            f"{log.store} does not read as it was written: try again with another folder, and "
            "report it"
        )


def _sort(found: _Found) -> _Found:
    """Return the same with what members have in the order of ids: no order of that is kept."""
    groups = {
        group_id: [
            *(record for record in records if not isinstance(record, HELD)),
            *sorted(
                (record for record in records if isinstance(record, HELD)),
                key=lambda record: (record.kind, record.member_id),
            ),
        ]
        for group_id, records in found.groups.items()
    }
    return _Found(found.topics, defaultdict(list, groups))


def _pieces(found: _Found) -> Iterator[list[Record]]:
    """Yield the records of a log; those of a group are of one commit."""
    piece = list(found.topics.values())
    for records in found.groups.values():
        if len(piece) > RECORDS_AT_ONCE:
            yield piece
            piece = []
        piece += records
    if piece:
        yield piece


def _refuse_moved(logs: Iterable[LogReader]) -> None:
    for log in logs:
        if LogReader(log.store).position != log.position:
            raise ConfigError(
                f"a coordinator wrote to {log.store} meanwhile: stop it first, and try again"
            )
