"""Check a target that was computed outside a step, before it is installed (K-47)."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from assignors import GroupSpec, PartitionRanges, SpecError
from assignors.quality import find_problems
from coordinator.core.state.groups import Computation, Topic
from coordinator.core.state.target_assignment import Targets, WholeTarget
from coordinator.core.targets.basis import AssignorInput
from coordinator.errors import ErrorCode, GroupError


def validate_ranges(computation: Computation, ranges: pa.Table) -> PartitionRanges:
    """Check an assignment against the input it was computed from (K-47).

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT: partitions missing, given twice, outside their topic, to an unknown
        member, or of a topic to which the member does not subscribe; or not such a table.
    """
    spec = AssignorInput(
        computation.metas, Targets(), computation.topics, computation.regexes
    ).spec()
    return _check_ranges(spec, ranges)


def validate_whole_target(spec: GroupSpec, topics: Iterable[Topic], whole: WholeTarget) -> None:
    """Check a whole target against the input it was computed from (K-47).

    Raises
    ------
    GroupError
        INVALID_ASSIGNMENT, as for `validate_ranges`; or a topic has another id.
    """
    had = whole.ranges()
    unknown = set(had.keys) - {topic.key for topic in topics}
    if unknown:
        raise _invalid(f"there is no topic {min(unknown)}")
    names = pa.array([key.name for key in had.keys], pa.string())
    columns = {
        "member_id": had.owner,
        "topic": names.take(pa.array(had.topic)),
        "first_partition": had.first,
        "partition_count": had.end - had.first,
    }
    _check_ranges(spec, pa.table(columns))


def _check_ranges(spec: GroupSpec, ranges: pa.Table) -> PartitionRanges:
    try:
        found = _read_ranges(spec, ranges)
        wrong = find_problems(spec, found)
    except (SpecError, KeyError, pa.ArrowInvalid, ValueError, OverflowError) as error:
        wrong = [str(error)]
    if wrong:
        raise _invalid(wrong[0])
    return found


def _invalid(reason: str) -> GroupError:
    return GroupError(ErrorCode.INVALID_ASSIGNMENT, f"The assignment is refused: {reason}.")


def _read_ranges(spec: GroupSpec, ranges: pa.Table) -> PartitionRanges:
    wanted = ("member_id", "topic", "first_partition", "partition_count")
    missing = [name for name in wanted if name not in ranges.column_names]
    if missing:
        raise SpecError(f"column {missing[0]} is missing: give {', '.join(wanted)}")
    table = ranges.select(wanted).cast(
        pa.schema(
            [
                ("member_id", pa.string()),
                ("topic", pa.string()),
                ("first_partition", pa.int32()),
                ("partition_count", pa.int32()),
            ]
        )
    )
    if any(column.null_count for column in table.columns):
        raise SpecError("a value is null: give every row its four values")
    count = table["partition_count"].to_numpy()
    first = table["first_partition"].to_numpy()
    if (count < 1).any() or (first < 0).any():
        raise SpecError("a range is empty or begins below 0")
    found = PartitionRanges.from_arrow(spec.member_ids, spec.topics, table)
    return found
