"""Run an assignor in this process, and find whose target it changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from assignors import GroupSpec, PartitionRanges, SpecError
from assignors.arrays import Bools, Longs, offsets_of
from assignors.partition_ranges import Verdict, find_names
from assignors.prior_ownership import RangeColumns
from assignors.registry import knows_loads
from coordinator.config import Config
from coordinator.core.state.partition_spans import MANY, Spans, shrink
from coordinator.core.state.records import TargetMember
from coordinator.core.state.span_columns import PARTITION_BITS, SpanColumns, TopicKeys
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput, Basis
from coordinator.core.targets.validate import check_ranges
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


def assign_checked(spec: GroupSpec, options: AssignorOptions) -> PartitionRanges:
    """Run an assignor in this process, and check what it returns (K-47).

    Every target that is computed in this process comes from here, within a step or not.

    Raises
    ------
    SpecError
        The assignor is not installed or refuses the group.
    GroupError
        INVALID_ASSIGNMENT: what it returned is not a valid assignment of the group.
    """
    refused = (
        f"assignor {options.assignor} returned an invalid assignment",
        "; correct the assignor or choose another",
    )
    return check_ranges(spec, run_assignor(spec, options), refused)


def compute_ranges(basis: Basis) -> TargetCandidate:
    """Compute a target in this process, whole, and compare it with none.

    Raises
    ------
    SpecError
        The assignor refuses the group, or returned no valid assignment of it.
    """
    options = basis.options
    try:
        ranges = assign_checked(basis.input.spec(options.assignor), options)
    except GroupError as error:
        raise SpecError(error.message) from None
    return basis.candidate(partial=ranges.partial, ranges=ranges)


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
        UNKNOWN_SERVER_ERROR: the assignor fails, or returns no valid assignment.
    """
    options = AssignorOptions.of_target(*asked)
    try:
        return assign_checked(given.spec(options.assignor), options)
    except (SpecError, GroupError, ValueError, MemoryError) as error:
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
    topics = _list_keys(old, ranges)
    changed = list_spans(ranges.of_members(pa.array(differs)), topics)
    records = [TargetMember(group_id, member_id, part) for member_id, part in changed]
    numbers = old.listed.keys.find(topics.keys)
    moved = _count_moved(had, ranges, numbers, differs)
    return sorted(records, key=lambda record: record.member_id), moved


def list_spans(ranges: PartitionRanges, topics: TopicKeys) -> Iterator[tuple[str, Spans]]:
    """Yield each member with its spans; one of `topics` is for each topic of the ranges."""
    topic, first = ranges.topic.astype(np.int32), ranges.first.astype(np.int32)
    spans = SpanColumns(topics, topic, first, first + ranges.count.astype(np.int32))
    counts = np.bincount(ranges.member, minlength=len(ranges.member_ids))
    return zip(ranges.member_ids.to_pylist(), _cut_by_member(spans, counts), strict=True)


def _list_keys(old: AssignorInput, ranges: PartitionRanges) -> TopicKeys:
    """Return the topics of an assignment, which are those of its input, mostly in their order."""
    topics = old.listed.keys
    if ranges.topics.equals(topics.arrow[0]):
        return topics
    keys = dict(zip(topics.names, topics.keys, strict=True))
    return TopicKeys([keys[name] for name in ranges.topics.to_pylist()])


def _cut_by_member(spans: SpanColumns, counts: Longs) -> Iterator[Spans]:
    """Yield the spans of each of some members, of which there are so many."""
    stops = counts.cumsum().tolist()
    if len(counts) and counts.max() >= MANY:
        for start, stop in pairwise([0, *stops]):
            yield shrink(spans.at(np.arange(start, stop)))
        return
    flat = tuple(spans)
    for start, stop in pairwise([0, *stops]):
        yield flat[start:stop]


def keep_topics(spans: Spans, topics: TopicKeys) -> Spans:
    """Return the spans of these topics."""
    if not isinstance(spans, SpanColumns):
        return tuple(span for span in spans if span[0] in topics.places)
    if spans.topics.equals(topics):
        return spans
    kept = np.array([key in topics.places for key in spans.topics.keys], np.bool_)
    return shrink(spans.where(kept[spans.topic]))


def _list_targets(old: AssignorInput, member_ids: pa.StringArray) -> RangeColumns:
    """Return the old targets by member: the place of each among these, topic, first and end."""
    had, number = old.owned()
    member = find_names(had.ids, member_ids)[had.owner]
    order = np.argsort(member, kind="stable")[np.count_nonzero(member < 0) :]
    return member[order], number[order], had.first[order], had.end[order]


def _list_owned(spec: GroupSpec) -> RangeColumns:
    """Return the same of a group whose members own just their targets."""
    return spec.member, spec.topic, spec.first, spec.first + spec.count


def _count_moved(had: RangeColumns, ranges: PartitionRanges, numbers: Longs, differs: Bools) -> int:
    """Return how many partitions, of topics that are there, some members had and have no longer.

    Parameters
    ----------
    numbers
        The number that each topic of the ranges has in `had`.
    """
    member, topic, begin, end = had
    was = np.flatnonzero(differs[member] & (topic >= 0))
    now = np.flatnonzero(differs[ranges.member])
    members = np.concatenate([member[was], ranges.member[now]]).astype(np.int64)
    topics = np.concatenate([topic[was], numbers[ranges.topic[now]]])
    # What one member has of one topic lies by itself on a line of partitions.
    _, place = np.unique(members * (len(numbers) + 1) + topics, return_inverse=True)
    place = place.astype(np.int64) << PARTITION_BITS
    order = np.argsort(place[: len(was)] + begin[was], kind="stable")
    start = (place[: len(was)] + begin[was])[order]
    stop = (place[: len(was)] + end[was])[order]
    before = np.append(0, np.cumsum(stop - start))

    def count_below(at: Longs) -> Longs:
        """Return how many of the partitions that members had come before each place."""
        runs = np.searchsorted(start, at)
        rest = np.append(0, stop)[runs] - at
        return before[runs] - np.where(runs > 0, np.maximum(rest, 0), 0)

    first = place[len(was) :] + ranges.first[now]
    kept = count_below(first + ranges.count[now]) - count_below(first)
    return int(before[-1] - kept.sum())


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
