"""Run an assignor in this process, and find whose target it changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import GroupSpec, PartitionRanges, SpecError
from assignors.arrays import Bools, Longs, offsets_of
from assignors.partition_ranges import Verdict
from assignors.prior_ownership import RangeColumns
from assignors.registry import knows_loads
from coordinator.config import Config
from coordinator.core.state.partition_spans import count_partitions, subtract_spans
from coordinator.core.state.records import TargetMember
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput
from coordinator.errors import ErrorCode, GroupError


def run_assignor(spec: GroupSpec, options: AssignorOptions) -> PartitionRanges:
    """Run an assignor in this process.

    Raises
    ------
    SpecError
        The assignor is not installed or refuses the group.
    """
    ranges = options.make_assignor().assign(spec)
    return replace(ranges, verdict=Verdict()) if options.waits else ranges


def assign_in_step(
    given: AssignorInput, asked: tuple[str, Mapping[str, str], Config], epoch: int
) -> PartitionRanges | None:
    """Run a group's assignor within a step; None keeps the target, for constraints that clash.

    Parameters
    ----------
    asked
        The assignor's name, the group's settings and the coordinator's.

    Raises
    ------
    GroupError
        UNKNOWN_SERVER_ERROR: the assignor fails.
    """
    options = AssignorOptions.of_target(*asked)
    try:
        return run_assignor(given.spec(options.assignor), options)
    except (SpecError, ValueError, MemoryError) as error:
        ruled = given.loads is not None and (knows_loads(options.assignor) or given.loads.drained)
        if isinstance(error, SpecError) and ruled:
            return None
        raise GroupError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"Failed to compute a new target assignment for epoch {epoch}: {error}",
        ) from error


def diff_targets(
    group_id: str, old: AssignorInput, ranges: PartitionRanges, spec: GroupSpec | None = None
) -> tuple[list[TargetMember], int]:
    """Return a record for each member whose target is another one (G-153), and the moves in them.

    A member that had no target gets a record even when it stays empty.

    Parameters
    ----------
    spec
        The old input's, if what its members own are just their targets; else None.
    """
    bounds = offsets_of(np.bincount(ranges.member, minlength=len(ranges.member_ids)))
    had = _list_targets(old, ranges.member_ids) if spec is None else _list_owned(spec)
    differs = _find_changed(old, had, ranges, bounds)
    rows, theirs = np.flatnonzero(differs), differs[ranges.member]
    ids: list[str] = ranges.member_ids.take(pa.array(rows)).to_pylist()
    keys = {topic.key.name: topic.key for topic in old.topics}
    names = [keys[name] for name in ranges.topics.to_pylist()]
    topic, first = ranges.topic[theirs], ranges.first[theirs].astype(np.int64)
    end = first + ranges.count[theirs]
    columns = (map(names.__getitem__, topic.tolist()), first.tolist(), end.tolist())
    spans = list(zip(*columns, strict=True))
    stops = np.cumsum(np.diff(bounds)[rows]).tolist()
    alive = set(names)
    records, moved = [], 0
    for member_id, (start, stop) in zip(ids, pairwise([0, *stops]), strict=True):
        record = TargetMember(group_id, member_id, tuple(spans[start:stop]))
        held = old.targets.get(member_id) or ()
        moved += count_partitions(subtract_spans((s for s in held if s[0] in alive), record.spans))
        records.append(record)
    return sorted(records, key=lambda record: record.member_id), moved


def _list_targets(old: AssignorInput, member_ids: pa.StringArray) -> RangeColumns:
    """Return the old targets by member: the place of each among these, topic, first and end."""
    had, number = old.owned()
    owner = pc.index_in(had.owner, value_set=member_ids)
    member = owner.fill_null(-1).to_numpy().astype(np.int64)
    order = np.argsort(member, kind="stable")[np.count_nonzero(member < 0) :]
    return member[order], number[order], had.first[order], had.end[order]


def _list_owned(spec: GroupSpec) -> RangeColumns:
    """Return the same of a group whose members own just their targets."""
    return spec.member, spec.topic, spec.first, spec.first + spec.count


def _find_changed(
    old: AssignorInput, had: RangeColumns, ranges: PartitionRanges, bounds: Longs
) -> Bools:
    """Return which members' ranges are not their old target, comparing whole columns."""
    member, topic, begin, end = had
    had_count = np.bincount(member, minlength=len(bounds) - 1)
    has_count = np.diff(bounds)
    differs: Bools = had_count != has_count
    nothing = np.flatnonzero((had_count == 0) & (has_count == 0))
    ids = ranges.member_ids.take(pa.array(nothing)).to_pylist()
    differs[nothing] = [member_id not in old.targets for member_id in ids]
    was = np.flatnonzero(~differs[member])
    now = np.flatnonzero(~differs[ranges.member])
    other = (
        (topic[was] != ranges.topic[now])
        | (begin[was] != ranges.first[now])
        | (end[was] != ranges.first[now].astype(np.int64) + ranges.count[now])
    )
    differs[ranges.member[now[other]]] = True
    return differs
