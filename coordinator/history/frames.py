"""The views of a store as Arrow tables, without a JVM, for DuckDB, polars and pandas.

`VIEWS` lists them all. Each has a twin in SQL with the same name (spark_jobs/sql) and a section in
docs/guide/sql.md; tests compare the three.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from assignors import SpecError
from coordinator.core.state.records import (
    KINDS,
    PARTITION_METADATA,
    Audited,
    ComputationPrepared,
    RequestAnswered,
    TargetMetadata,
)
from coordinator.history import (
    current_views,
    epoch_views,
    events_view,
    finding_views,
    owners_view,
    ownership_view,
    plan_view,
)
from coordinator.history.functions import FUNCTIONS, call_function
from coordinator.history.keyed_rows import combine_chunks
from coordinator.history.log_reader import AsOf, LogReader, open_logs
from coordinator.history.log_rows import LogRows, repeat_shard
from coordinator.history.view_schemas import OF_EACH_SHARD, TABLE_SCHEMAS, WITHOUT_GROUPS
from coordinator.storage.record_log import CLAIM, LogError
from coordinator.storage.record_schema import SCHEMA
from coordinator.storage.tables.newest_version import find_silence
from coordinator.storage.tables.store_files import explain, is_remote, open_delta
from coordinator.storage.tables.table_io import read_delta
from coordinator.storage.target_table import ARROW_SCHEMA, COLUMNS, targets_path


def frame(
    store: str | os.PathLike[str],
    view: str,
    *,
    group_id: str | None = None,
    as_of: AsOf | str = None,
    **arguments: object,
) -> pa.Table:
    """Return a view of a store, or the rows of a table function, as an Arrow table.

    >>> history = frame("store", "assignment_history", group_id="billing")  # doctest: +SKIP
    >>> then = frame("store", "assignment_at", group_id="billing", epoch=5)  # doctest: +SKIP

    Parameters
    ----------
    store
        The folder, or URL, that the coordinator was opened with.
    view
        A name in `VIEWS`, or of a table function; docs/guide/sql.md describes each of them.
    group_id
        Return, and read, only rows of this group. A group that is not in the log has no rows.
    as_of
        A position of the log, or a time; None is now. A string has the syntax of `--as-of`.
    arguments
        Of a table function, beside the group's id.

    Returns
    -------
    pyarrow.Table
        The rows of the SQL view, sorted by the columns that `VIEWS` names; times are UTC.

    Raises
    ------
    SpecError
        The store or view does not exist, `as_of` is invalid or outside the log, `group_id` is not
        a string, or the view has no column `group_id`.
    LogError
        The log cannot be read. LostTarget, a subclass: rows of a target in force are missing.
    """
    _check_view(view)
    if view in FUNCTIONS:
        return call_function(open_logs(store, as_of, group_id)[0], view, group_id, arguments)
    if arguments:
        raise SpecError(f"view {view!r} takes no {', '.join(arguments)}: omit it")
    if group_id is not None and view in WITHOUT_GROUPS:
        raise SpecError(f"view {view!r} has no group_id: omit group_id={group_id!r}")
    logs = open_logs(store, as_of, group_id)
    if len(logs) == 1 or view in OF_EACH_SHARD:
        return read_view(logs[0], view, group_id)
    return sort_rows(view, pa.concat_tables([read_view(one, view) for one in logs]))


def frame_pieces(
    store: str | os.PathLike[str],
    view: str,
    *,
    group_id: str | None = None,
    as_of: AsOf | str = None,
    **arguments: object,
) -> Iterator[pa.Table]:
    """Yield the same in any order, and piece by piece where it can be long."""
    _check_view(view)
    if view not in PIECES:
        yield frame(store, view, group_id=group_id, as_of=as_of, **arguments)
        return
    for reading in open_logs(store, as_of, group_id):
        yield from PIECES[view](LogRows(reading, group_id))


def _check_view(view: str) -> None:
    if view not in VIEWS and view not in FUNCTIONS:
        raise SpecError(
            f"unknown view {view!r}: the views are {', '.join(sorted(VIEWS))}, and the functions "
            f"{', '.join(sorted(FUNCTIONS))}"
        )


def read_view(reading: LogReader, view: str, group_id: str | None = None) -> pa.Table:
    """Return a view of an open log."""
    return compute_view(LogRows(reading, group_id), view)


def compute_view(log: LogRows, view: str) -> pa.Table:
    """Return a view of rows of a log."""
    rows, _ = VIEWS[view]
    return sort_rows(view, rows(log))


def sort_rows(view: str, rows: pa.Table) -> pa.Table:
    """Return rows of a view in its order."""
    return rows.sort_by([(name, "ascending") for name in VIEWS[view][1]]).combine_chunks()


def _read_log(log: LogRows) -> pa.Table:
    """Return the rows of the log, of all kinds."""
    empty = TABLE_SCHEMAS["log"].empty_table()
    return pa.concat_tables([empty, *_read_log_pieces(log)]).combine_chunks()


def _read_log_pieces(log: LogRows) -> Iterator[pa.Table]:
    """Yield the rows of each file of the log."""
    for found in log.past_by_file([*KINDS, CLAIM, PARTITION_METADATA], SCHEMA.names):
        ours = pc.equal(found["group_id"], log.group_id)
        rows = found if log.group_id is None else found.filter(ours)
        columns = {
            name: combine_chunks(rows[name]).cast(SCHEMA.field(name).type)
            for name in rows.column_names
        }
        columns["recorded_at"] = columns.pop("at")
        columns["shard"] = repeat_shard(log, len(rows))
        yield pa.table(columns, schema=TABLE_SCHEMAS["log"])


def _read_targets(log: LogRows) -> pa.Table:
    """Return what jobs computed, installed or not, as far as the log names them."""
    return _read_table_of_targets(log).join(
        _name_runs(log), ["group_id", "run_id"], ["group_id", "computation_id"], "left semi"
    )


def _name_runs(log: LogRows) -> pa.Table:
    """Return the runs that the log names: asked for, installed, or judged."""
    kinds = [ComputationPrepared.kind, TargetMetadata.kind, RequestAnswered.kind]
    rows = log.past(kinds, ["group_id", "computation_id"])
    return pa.table(
        {name: combine_chunks(rows[name]).cast(pa.string()) for name in rows.column_names}
    )


def _read_table_of_targets(log: LogRows) -> pa.Table:
    """Return the rows of the table `targets`."""
    schema, path = ARROW_SCHEMA, targets_path(log.store)
    of_group = None if log.group_id is None else [("group_id", "=", log.group_id)]
    try:
        if is_remote(path):  # through its own file system delta-rs calls back into Python
            rows = read_delta(open_delta(path)).select(list(COLUMNS)).cast(schema)
            found = rows if of_group is None else rows.filter(pc.field("group_id") == log.group_id)
        else:
            found = DeltaTable(path).to_pyarrow_table(filters=of_group, columns=list(COLUMNS))
    except TableNotFoundError:
        return schema.empty_table()
    except (DeltaError, OSError, pa.ArrowException) as error:
        raise find_silence(path, error) or LogError(
            f"{path} cannot be read: {explain(path, error)}"
        ) from None
    return found.cast(schema)


def _read_audit(log: LogRows) -> pa.Table:
    """Return who deleted or altered what, and who was refused: one row per action or count."""
    names = ["position", "at", "reason", "owner", "client_id", "client_host", "group_id"]
    rows = log.past([Audited.kind], [*names, "settings"])
    found = {name: combine_chunks(rows[name]) for name in rows.column_names}
    for name in ("owner", "client_id", "client_host", "group_id"):
        known = pc.not_equal(found[name], "")
        found[name] = pc.if_else(known, found[name], pa.scalar(None, pa.string()))
    details = found.pop("settings")
    for name in ("operation", "resource_type", "resource_name", "count"):
        found[name] = pc.map_lookup(details, name, "first")
    found["count"] = pc.fill_null(found["count"].cast(pa.int64()), 1)
    renamed = {"at": "recorded_at", "reason": "action", "owner": "principal"}
    columns = {renamed.get(name, name): column for name, column in found.items()}
    return pa.table(columns | {"details": details, "shard": repeat_shard(log, len(rows))})


class ViewDefinition(NamedTuple):
    """The function that computes a view, and the columns that its rows are sorted by."""

    rows: Callable[[LogRows], pa.Table]
    order: tuple[str, ...]


_SPAN = ("group_id", "topic", "topic_id", "first_partition")
VIEWS = {
    "assignment_history": ViewDefinition(
        ownership_view.read_assignment_history, (*_SPAN, "since_position", "member_id")
    ),
    "audit": ViewDefinition(_read_audit, ("position",)),
    "current_assignments": ViewDefinition(
        current_views.read_current_assignments, (*_SPAN, "member_id")
    ),
    "epochs": ViewDefinition(epoch_views.read_epochs, ("position",)),
    "events": ViewDefinition(
        events_view.read_events,
        ("position", "group_id", "event", "topic", "topic_id", "first_partition", "member_id"),
    ),
    "groups": ViewDefinition(current_views.read_groups, ("group_id",)),
    "log": ViewDefinition(_read_log, ("position",)),
    "members": ViewDefinition(current_views.read_members, ("group_id", "member_id")),
    "memberships": ViewDefinition(
        finding_views.read_memberships, ("since_position", "group_id", "member_id")
    ),
    "offset_commits": ViewDefinition(current_views.read_offset_commits, ("position",)),
    "offsets": ViewDefinition(
        current_views.read_offsets, ("group_id", "topic", "topic_id", "partition")
    ),
    "partition_owners": ViewDefinition(owners_view.read_partition_owners, (*_SPAN, "member_id")),
    "plans": ViewDefinition(plan_view.read_plans, ("group_id", "position")),
    "rebalances": ViewDefinition(finding_views.read_rebalances, ("position", "group_id")),
    "target_assignments": ViewDefinition(
        current_views.read_target_assignments, (*_SPAN, "member_id")
    ),
    "targets": ViewDefinition(
        _read_targets,
        ("group_id", "assignment_epoch", "run_id", "topic", "topic_id", "first_partition"),
    ),
    "topics": ViewDefinition(current_views.read_topics, ("topic",)),
    "unowned": ViewDefinition(finding_views.read_unowned, (*_SPAN, "since_position")),
    "waits": ViewDefinition(finding_views.read_waits, ("since_position", "group_id", "member_id")),
}
"""The views by name. A new view needs an entry here, and a file of its name in spark_jobs/sql."""
PIECES: dict[str, Callable[[LogRows], Iterator[pa.Table]]] = {
    "assignment_history": ownership_view.read_history_pieces,
    "log": _read_log_pieces,
}
"""Views that can be long: what yields their rows piece by piece, in any order."""
