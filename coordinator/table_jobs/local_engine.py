"""Assign tables in this process, with NumPy: read, drop what no longer exists, assign, write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors import Assignor, GroupSpec, SpecError, quality
from assignors.groups.assign_groups import assign_groups
from assignors.groups.group_set import GroupSet
from assignors.groups.group_tables import GROUP_ID
from assignors.parse_tables import (
    OWNED_COLUMNS,
    parse_owned_table,
    parse_topic_counts,
    parse_topics_table,
)
from coordinator.clock import wall_ms
from coordinator.storage.tables.shared_table import (
    NONE,
    check_replaceable_by_url,
    replace_files,
    write_data_file,
)
from coordinator.storage.tables.store_files import is_remote
from coordinator.storage.tables.table_io import check_replaceable, replace_delta, replace_file
from coordinator.table_jobs.assignment_job import AssignmentJob, AssignmentResult
from coordinator.table_jobs.inputs import Input, RulesFile, local_table
from coordinator.table_jobs.outputs import is_delta_output, refuse_folder
from coordinator.table_jobs.runs import KEY, Run


def assign_locally(job: AssignmentJob, assignor: Assignor, run: Run) -> AssignmentResult:
    """Run a job in this process. Its inputs must be pinned, and its output locked.

    Raises
    ------
    SpecError
        Bad input, or an output that this process cannot replace. Nothing was written.
    """
    if job.output is not None:
        _check_replaceable_here(job.output)
    members, topics = _read(job.members, "members"), _read(job.topics, "topics")
    if GROUP_ID in members.schema.names:
        if job.changes is not None:
            raise SpecError("--changes are of one group, but members has many: omit one of them")
        return _assign_groups(job, assignor, run, members, topics)
    owned, forgotten = _read_owned(job, topics, forget)
    group = GroupSpec.from_arrow(members, topics, owned, **_read_rules(job), as_of_ms=wall_ms())
    if job.changes is not None:
        group = job.changes.apply(group)
    job.safeguards.check_members(group.member_count)
    ranges = assignor.assign(group)
    report = quality.report(group, ranges)
    totals = report.totals()
    done = AssignmentResult(
        "local", run.run_id, None, False, forgotten, group, ranges, report, totals
    )
    return _write(job, done, run, ranges.to_arrow())


def _assign_groups(
    job: AssignmentJob, assignor: Assignor, run: Run, members: pa.Table, topics: pa.Table
) -> AssignmentResult:
    """Assign the groups of the tables, each by itself, in one run."""
    owned, forgotten = _read_owned(job, topics, forget_in_groups)
    job.safeguards.check_members(len(members))
    groups = GroupSet.from_arrow(members, topics, owned, **_read_rules(job), as_of_ms=wall_ms())
    job.safeguards.check_groups(groups.find_empty())
    found = assign_groups(groups, assignor)
    done = AssignmentResult(
        "local", run.run_id, None, False, forgotten, totals=found.totals(), groups=found
    )
    return _write(job, done, run, found.rows)


def _read_owned(
    job: AssignmentJob, topics: pa.Table, drop_gone: Callable[..., tuple[pa.Table, int]]
) -> tuple[pa.Table | None, int]:
    """Return who owns what, and how many partitions of the previous assignment are no longer there.

    Raises
    ------
    SpecError
        It is more of them than the safeguard allows.
    """
    if job.owned:
        return _read(job.owned, "owned"), 0
    if job.previous is None:
        return None, 0
    previous = _read(job.previous, job.previous_name)
    owned, forgotten = drop_gone(previous, topics, job.previous_name)
    job.safeguards.check_forgotten(forgotten, pc.sum(previous["partition_count"]).as_py() or 0)
    return owned, forgotten


def _read_rules(job: AssignmentJob) -> dict[str, pa.Table | None]:
    """Return the weights of partitions and the constraints, by the names of their parameters."""
    return {
        "partitions": _read(job.partitions, "partitions") if job.partitions else None,
        "constraints": _read(job.constraints, "constraints") if job.constraints else None,
    }


def _write(
    job: AssignmentJob, done: AssignmentResult, run: Run, rows: pa.Table
) -> AssignmentResult:
    """Replace the output, if there is one, in one commit."""
    if job.output is None:
        return done
    kept = done.record_in(run).to_json()
    if is_remote(job.output):
        return replace(done, version=_put(job.output, job.output_version, rows, run, kept))
    if is_delta_output(job.output):
        seen = None if job.output_version == NONE else job.output_version
        return replace(done, version=replace_delta(job.output, seen, rows, run.run_id, kept))
    replace_file(job.output, rows.schema.with_metadata({KEY: kept}), [rows])
    return done


def _put(output: str, seen: int, rows: pa.Table, run: Run, kept: str) -> int:
    """Write a data file and commit it; the output is replaced then, or as it was."""
    added = [write_data_file(output, rows)]
    return replace_files(output, seen, added, rows.schema, run.run_id, kept)


def forget(previous: pa.Table, topics: pa.Table, what: str = "previous") -> tuple[pa.Table, int]:
    """Drop topics and partitions that no longer exist from a previous assignment.

    Parameters
    ----------
    what
        The name of the previous assignment in errors.

    Returns
    -------
    claims, forgotten
        The remaining rows, cut at the end of their topic, and how many partitions were dropped.
    """
    owner, names, first, count = parse_owned_table(previous, what)
    known, partitions = parse_topics_table(topics)
    place = pc.index_in(names, value_set=known)
    size = np.append(partitions, 0)[np.asarray(pc.fill_null(place, len(partitions)))]
    left = np.clip(size - first, 0, count)
    columns = {"member_id": owner, "topic": names, "first_partition": first}
    kept = pa.table(columns | {"partition_count": left}).filter(pa.array(left > 0))
    return kept, int((count - left).sum())


def forget_in_groups(
    previous: pa.Table, topics: pa.Table, what: str = "previous"
) -> tuple[pa.Table, int]:
    """Do the same as `forget` for tables of many groups.

    Raises
    ------
    SpecError
        The previous assignment is of one group.
    """
    if GROUP_ID not in previous.schema.names:
        raise SpecError(
            f"{what}: column 'group_id' is missing, but members has it: name another output, or "
            "another previous assignment"
        )
    parse_owned_table(previous.drop_columns([GROUP_ID]), what)
    keys = [GROUP_ID, "topic"] if GROUP_ID in topics.schema.names else ["topic"]
    parse_topic_counts(topics.drop_columns(keys[:-1]))
    sizes = topics.select([*keys, "partitions"])
    text = [pa.field(name, pa.string()) for name in (*keys, "partitions")]
    sizes = sizes.cast(pa.schema([*text[:-1], pa.field("partitions", pa.int64())]))
    rows = previous.select([GROUP_ID, *OWNED_COLUMNS]).cast(
        pa.schema([pa.field(name, pa.string()) for name in (GROUP_ID, *OWNED_COLUMNS[:2])]
                  + [pa.field(name, pa.int64()) for name in OWNED_COLUMNS[2:]])
    ).join(sizes, keys)  # fmt: skip
    count = rows["partition_count"].to_numpy()
    left = np.clip(
        pc.fill_null(rows["partitions"], 0).to_numpy() - rows["first_partition"].to_numpy(),
        0, count,
    )  # fmt: skip
    kept = rows.set_column(
        rows.schema.get_field_index("partition_count"), "partition_count", pa.array(left)
    )
    kept = kept.drop_columns(["partitions"]).filter(pa.array(left > 0))
    return kept, int((count - left).sum())


def _check_replaceable_here(output: str) -> None:
    if is_remote(output):
        check_replaceable_by_url(output)
    elif is_delta_output(output):
        check_replaceable(output)
    else:
        refuse_folder(output)


def _read(table: Input, what: str) -> pa.Table:
    if isinstance(table, RulesFile):
        return table.rows
    return local_table(table, f"--{what.removeprefix('--')}").read(what)
