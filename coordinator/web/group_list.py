"""The table of all groups: one row each, computed by columns, sorted and cut for a page."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import Longs
from coordinator.core.state.groups import GroupState
from coordinator.history.current_views import count_ranges, find_waited
from coordinator.history.keyed_rows import combine_chunks, to_mask, to_numbers
from coordinator.history.view_schemas import SCHEMAS
from coordinator.web.activity import Activity
from coordinator.web.store_reader import Look
from coordinator.web.weights import sum_weights

HOUR_MS = 3_600_000
COLUMNS = (
    "group_id", "state", "group_type", "members", "partitions", "group_epoch", "assignment_epoch",
    "waits_for", "since", "rebalances", "weight", "unsettled_since",
)  # fmt: skip
ADDED = {
    "partitions": pa.int64(), "waits_for": pa.int64(), "first_waited_for": pa.string(),
    "since": pa.int64(), "unsettled_since": pa.int64(), "plans_waiting": pa.int64(),
    "weight": pa.float64(), "rebalances": pa.int64(),
}  # fmt: skip
"""Columns beside those of the view."""
LEFT_OUT = {"incarnation", "observed", "observed_since", "shard"}
"""Of that view: what the list does not show, and what is of groups that Kafka coordinates."""
UNSETTLED = (GroupState.ASSIGNING.value, GroupState.RECONCILING.value)


def list_groups(look: Look, activity: Activity) -> pa.Table:
    """Return all groups, without their rebalances.

    Returns
    -------
    pyarrow.Table
        The view `groups`, and: `partitions` that members own or must still give up; `waits_for`,
        members whose next heartbeat the others wait for; `first_waited_for`, one of them; `since`,
        ms, when the group settled, or when the first epoch began that it has not settled in;
        `unsettled_since`, the same of groups that have not settled; `plans_waiting` for approval;
        `weight` of its partitions, where one was noted.
    """
    members = look.members()  # first: what the next view reads is a part of it
    groups = look.view("groups")
    ids = combine_chunks(groups["group_id"])
    place = to_numbers(pc.index_in(members["group_id"], value_set=ids))
    size = len(groups)
    assignment = to_numbers(groups["assignment_epoch"])
    waited = find_waited(members, assignment[place])
    epoch = to_numbers(members["member_epoch"])
    reached = np.full(size, np.iinfo(np.int64).max)
    np.minimum.at(reached, place, epoch)
    # A member that gives up partitions is at an earlier epoch; one that waits is at the epoch to
    # settle in.
    settles = np.minimum(reached, to_numbers(groups["group_epoch"]) - 1)
    unsettled = to_mask(pc.is_in(groups["state"], value_set=pa.array(UNSETTLED)))
    begun = activity.unsettled_ms(ids.filter(pa.array(unsettled)), settles[unsettled])
    since = activity.moved_ms(ids)
    since[unsettled] = np.where(begun < 0, since[unsettled], begun)
    first = np.full(size, -1, np.int64)
    first[place[waited][::-1]] = np.flatnonzero(waited)[::-1]
    return (
        groups.append_column("partitions", pa.array(_count_owned(members, place, size)))
        .append_column("waits_for", pa.array(np.bincount(place[waited], minlength=size)))
        .append_column(
            "first_waited_for",
            combine_chunks(members["member_id"]).take(pa.array(first, mask=first < 0)),
        )
        .append_column("since", pa.array(since, mask=since < 0))
        .append_column("unsettled_since", pa.array(since, mask=~unsettled | (since < 0)))
        .append_column("plans_waiting", pa.array(activity.waiting_plans(ids)))
        .append_column("weight", sum_weights(look, ids))
    )


def count_rebalances(groups: pa.Table, activity: Activity, now_ms: int) -> pa.Table:
    """Return groups with `rebalances`: how many there were in the last hour."""
    counts = activity.rebalances(combine_chunks(groups["group_id"]), now_ms - HOUR_MS)
    return groups.append_column("rebalances", pa.array(counts))


def no_groups() -> pa.Table:
    """Return the table that `list_groups` returns of a store without any."""
    schema = pa.schema([one for one in SCHEMAS["groups"] if one.name not in LEFT_OUT])
    for name, type_ in ADDED.items():
        schema = schema.append(pa.field(name, type_))
    return schema.empty_table()


def _count_owned(members: pa.Table, place: Longs, groups: int) -> Longs:
    owned = count_ranges(members["assigned"]) + count_ranges(members["pending"])
    return np.bincount(place, weights=owned, minlength=groups).astype(np.int64)
