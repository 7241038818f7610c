"""What Kafka's topic has no record for: weights, plans, decisions, settings and the audit.

While a node leads a partition, the store of its history keeps these records of the partition's
groups, and the node's next coordinator of them begins with these. Both sides may be behind the
other, so each record is taken by what it says, not by the order in which it comes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from coordinator.core.events import Result
from coordinator.core.java_hash import place_of
from coordinator.core.state.groups import Group, State
from coordinator.core.state.records import (
    Audited,
    GroupConfigured,
    LoadsNoted,
    LoadsUsed,
    PlanDecided,
    PlanMade,
    Record,
    RequestAnswered,
    Tombstone,
)
from coordinator.core.watched.unread_groups import group_of
from coordinator.core.watched_events import KeepRecords

KEPT = frozenset(
    one.kind
    for one in (Audited, GroupConfigured, LoadsNoted, PlanDecided, PlanMade, RequestAnswered)
)
"""Kinds of records that are kept."""
OF_PLANS = frozenset({PlanDecided.kind, PlanMade.kind})
"""Kinds that a group has, so that they wait until it is there."""


def is_kept(record: Record) -> bool:
    """Whether it, or the end of it, is kept."""
    return _kind_of(record) in KEPT


def is_of_plan(record: Record) -> bool:
    """Whether it can be kept only once its group is there."""
    return _kind_of(record) in OF_PLANS


def keep_records(state: State, event: KeepRecords) -> Result:
    """Return those of a node's records that say something new, for the store of its history.

    The response names the groups that are not in the history yet: their plans are not kept.
    """
    unknown: set[str] = set()
    kept: list[Record] = []
    for record in event.records:
        group_id = group_of(record)
        if is_of_plan(record) and group_id not in state.groups:
            unknown.add(group_id)
        elif _is_new(state, record):
            kept.append(_as_used(record))
    return Result(kept, unknown)


def _is_new(state: State, record: Record) -> bool:
    match record:
        case LoadsNoted():
            return state.loads_used.get(record.group_id) != _as_used(record)
        case GroupConfigured():
            return state.settings.get(record.group_id) != record.settings
        case PlanMade():
            return _lacks_plan(state.groups[record.group_id], record.plan_id)
        case PlanDecided():
            return state.groups[record.group_id].decided.get(record.plan_id) != record
    return True


def _as_used(record: Record) -> Record:
    """Return a record as the history has it, where `loads` are what Kafka's lags are noted by."""
    if isinstance(record, LoadsNoted):
        return LoadsUsed(**msgspec.structs.asdict(record))
    if isinstance(record, Tombstone) and record.of == LoadsNoted.kind:
        return msgspec.structs.replace(record, of=LoadsUsed.kind)
    return record


def restore_records(state: State, event: KeepRecords) -> Result:
    """Return what a node has kept of groups, for their coordinator: only what it does not know."""
    return Result([*list_restored(state, event.records)])


def list_restored(state: State, records: Iterable[Record]) -> Iterator[Record]:
    """Yield those of kept records that a coordinator lacks, of groups that it has.

    Settings of groups are the cluster's, so they are not taken from here.
    """
    for record in records:
        group_id = group_of(record)
        group = state.groups.get(group_id)
        if isinstance(record, LoadsNoted) and (group is not None or group_id in state.classic):
            yield from _restore_loads(state.loads.get(group_id), record)
        if isinstance(record, PlanMade | PlanDecided) and _lacks_plan(group, record.plan_id):
            yield record


def _restore_loads(now: LoadsNoted | None, kept: LoadsNoted) -> Iterator[LoadsNoted]:
    """Yield the kept ones where there are none; of newer ones, those who are drained."""
    if now is None:
        yield kept
    elif not set(kept.drained) <= set(now.drained):
        drained = tuple(dict.fromkeys((*now.drained, *kept.drained)))
        yield msgspec.structs.replace(now, drained=drained)


def list_kept(state: State, number: int, partitions: int) -> list[Record]:
    """Return what is to be kept of the groups of one of so many partitions, from either side."""
    found: list[Record] = []
    planned = state.planned & state.groups.keys()
    loads = state.loads if state.watched is None else state.loads_used
    for group_id in sorted(state.settings.keys() | loads.keys() | planned):
        if place_of(group_id, partitions) != number:
            continue
        if group_id in state.settings:
            found.append(GroupConfigured(group_id, state.settings[group_id]))
        if group_id in loads:
            found.append(LoadsNoted(**msgspec.structs.asdict(loads[group_id])))
        group = state.groups.get(group_id)
        if group is not None:
            found += [*group.plans.values(), *group.decided.values()]
    return found


def list_ended(kept: Sequence[Record], now: Sequence[Record]) -> list[Tombstone]:
    """Return the end of settings that are kept, and that a coordinator no longer has."""
    has = {one.group_id for one in now if isinstance(one, GroupConfigured)}
    configured = [one for one in kept if isinstance(one, GroupConfigured)]
    return [Tombstone(one.kind, one.group_id) for one in configured if one.group_id not in has]


def _lacks_plan(group: Group | None, plan_id: str) -> bool:
    return group is not None and plan_id not in group.plans and plan_id not in group.decided


def _kind_of(record: Record) -> str:
    return record.of if isinstance(record, Tombstone) else record.kind
