"""Check a target before it is installed (K-47): one check and one refusal for every engine."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa

from assignors import GroupSpec, PartitionRanges, SpecError
from assignors.arrays import Ints, Longs
from assignors.certificate import find_broken_rules
from assignors.quality import find_problems
from coordinator.core.state.span_columns import PARTITION_BITS
from coordinator.core.state.target_ranges import Ranges
from coordinator.errors import ErrorCode, GroupError

ROWS = pa.schema(
    [
        ("member_id", pa.string()),
        ("topic", pa.string()),
        ("first_partition", pa.int32()),
        ("partition_count", pa.int32()),
    ]
)
GrownTopics: TypeAlias = tuple[Ints, Ints, Ints]
REFUSED = "The assignment is refused", "."


def check_ranges(
    spec: GroupSpec,
    ranges: PartitionRanges | pa.Table,
    refused: tuple[str, str] = REFUSED,
    *,
    rules: bool = False,
) -> PartitionRanges:
    """Check an assignment against the group that it was computed from.

    Parameters
    ----------
    refused
        What a refusal says before and after the reason.
    rules
        Whether hard constraints must hold too.

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT: partitions missing, given twice, outside their topic, to an unknown
        member, or of a topic to which the member does not subscribe; or the table is another one.
    """
    try:
        found = _read(spec, ranges) if isinstance(ranges, pa.Table) else _of_group(spec, ranges)
        wrong = find_problems(spec, found)
        if rules and not wrong:  # they read a column of owners: each partition has one
            wrong = find_broken_rules(spec, found)
    except (SpecError, LookupError, pa.ArrowInvalid, ValueError, OverflowError) as error:
        raise refusal(str(error), refused) from None
    if wrong:
        raise refusal(wrong[0], refused)
    return found


def check_moves(had: PartitionRanges, grown: GrownTopics, has: PartitionRanges) -> None:
    """Check what a plan changed (K-47): some members have what they and others had, and growth.

    With a valid assignment before, and topics that all subscribe to, it is one after it.

    Parameters
    ----------
    had
        What those members had before, and all that members had who are gone.
    grown
        Topics, their first new partition, and how many are new.
    has
        What they have now.

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT: a partition is missing, or was given twice.
    """
    before = _join_runs((had.topic, had.first, had.count), grown)
    after = _join_runs((has.topic, has.first, has.count))
    if not all(map(np.array_equal, before, after)):
        raise refusal("members that a plan changed do not own together what they are to own")


def _join_runs(*parts: GrownTopics) -> tuple[Longs, Longs]:
    """Return where runs of partitions begin and how long they are; what is there twice stays so."""
    topic, first, count = (
        np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True)
    )
    start = (topic << PARTITION_BITS) + first
    order = np.argsort(start, kind="stable")
    start, end = start[order], (start + count)[order]
    begins = np.append(True, start[1:] != end[:-1])[: len(start)]
    ends = np.append(begins[1:], True)[: len(start)]
    return start[begins], end[ends] - start[begins]


def refusal(reason: str, words: tuple[str, str] = REFUSED) -> GroupError:
    """Return the refusal of a target."""
    before, after = words
    return GroupError(ErrorCode.INVALID_ASSIGNMENT, f"{before}: {reason}{after}")


def to_rows(columns: Ranges) -> pa.Table:
    """Return targets as rows, a range each, whose names come once, with a number in each row."""
    names = pa.array([key.name for key in columns.keys], pa.string())
    topics = pa.DictionaryArray.from_arrays(pa.array(columns.topic), names)
    counts = columns.end - columns.first
    return pa.table([columns.owners, topics, columns.first, counts], names=ROWS.names)


def _of_group(spec: GroupSpec, ranges: PartitionRanges) -> PartitionRanges:
    """Return ranges if they are over the names of the group, as an assignor's must be."""
    if not isinstance(ranges, PartitionRanges):
        raise SpecError(f"{type(ranges).__name__} is not PartitionRanges")
    for theirs, ours in ((ranges.member_ids, spec.member_ids), (ranges.topics, spec.topics)):
        if theirs is not ours and not theirs.equals(ours):
            raise SpecError("its members or topics are not the group's")
    if len(ranges) and min(int(ranges.member.min()), int(ranges.topic.min())) < 0:
        raise SpecError("a number of a member or topic is negative")
    return ranges


def _kept(field: pa.Field, schema: pa.Schema) -> pa.Field:
    """Return a field as a table is to have it: coded texts may stay so."""
    type_ = schema.field(field.name).type
    coded = pa.types.is_dictionary(type_) and type_.value_type == field.type
    return field.with_type(type_) if coded else field


def _read(spec: GroupSpec, ranges: pa.Table) -> PartitionRanges:
    missing = [name for name in ROWS.names if name not in ranges.column_names]
    if missing:
        raise SpecError(f"column {missing[0]} is missing: give {', '.join(ROWS.names)}")
    table = ranges.select(ROWS.names)
    table = table.cast(pa.schema([_kept(field, table.schema) for field in ROWS]))
    if any(column.null_count for column in table.columns):
        raise SpecError("a value is null: give every row its four values")
    count = table["partition_count"].to_numpy()
    first = table["first_partition"].to_numpy()
    if (count < 1).any() or (first < 0).any():
        raise SpecError("a range is empty or begins below 0")
    return PartitionRanges.from_arrow(spec.member_ids, spec.topics, table)
