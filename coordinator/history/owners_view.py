"""The view of who owns which partitions, and of those without an owner."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.state.records import MemberMetadata, RegexResolved
from coordinator.history import classic_views
from coordinator.history.current_views import (
    NAMES,
    parse_name_lists,
    read_current_assignments,
    read_topics,
    take_last,
)
from coordinator.history.keyed_rows import (
    combine_chunks,
    encode_keys,
    flatten,
    to_numbers,
)
from coordinator.history.log_rows import LogRows
from coordinator.history.view_schemas import VIEW_SCHEMAS

SCHEMA = VIEW_SCHEMAS["partition_owners"]


def read_partition_owners(log: LogRows) -> pa.Table:
    """Return the owner, or none, of each range of partitions of existing topics."""
    owned, there = read_current_assignments(log), read_topics(log)
    names = pa.concat_arrays([combine_chunks(owned["topic"]), combine_chunks(there["topic"])])
    ids = pa.concat_arrays([combine_chunks(owned["topic_id"]), combine_chunks(there["topic_id"])])
    keys = encode_keys(names, ids)
    owned = owned.filter(pa.array(np.isin(keys[: len(owned)], keys[len(owned) :])))
    last = pc.subtract(pc.add(owned["first_partition"], owned["partition_count"]), 1)
    owned = owned.append_column("last_partition", last.cast(pa.int32()))
    unowned = _find_unowned(owned, _read_subscriptions(log), there)
    return pa.concat_tables([owned.select(SCHEMA.names).cast(SCHEMA), unowned])


def _read_subscriptions(log: LogRows) -> pa.Table:
    """Return the topics that members of each group subscribe to, by name or expression, once."""
    rows = log.present([MemberMetadata.kind], ["tombstone", "group_id", "member_id", NAMES])
    kept = take_last(rows, _keys_of(rows, "group_id", "member_id"))
    alike = np.unique(_keys_of(kept, "group_id", NAMES), return_index=True)[1]
    kept = kept.take(pa.array(alike))  # the names of equal subscriptions are parsed once
    rows = log.present([RegexResolved.kind], ["tombstone", "group_id", "regex", "topics"])
    matched = take_last(rows, _keys_of(rows, "group_id", "regex"))
    classic = classic_views.read_present(log)
    pieces = [
        (kept["group_id"], parse_name_lists(combine_chunks(kept[NAMES]))),
        (matched["group_id"], combine_chunks(matched["topics"])),
        (classic.column("group_id"), classic.members.field(NAMES)),
    ]
    found = [(groups, *flatten(lists)) for groups, lists in pieces]
    table = pa.table(
        {
            "group_id": pa.concat_arrays(
                [combine_chunks(one).cast(pa.string()).take(pa.array(row)) for one, row, _ in found]
            ),
            "topic": pa.concat_arrays([topics.cast(pa.string()) for _, _, topics in found]),
        }
    )
    first = np.unique(_keys_of(table, "group_id", "topic"), return_index=True)[1]
    return table.take(pa.array(first))


def _keys_of(rows: pa.Table, *names: str) -> np.ndarray:
    return encode_keys(*(combine_chunks(rows[name]) for name in names))


def _find_unowned(owned: pa.Table, wanted: pa.Table, there: pa.Table) -> pa.Table:
    """Return the ranges of existing topics that a group subscribes to and no member owns."""
    place = pc.index_in(wanted["topic"], value_set=combine_chunks(there["topic"]))
    wanted, place = wanted.filter(pc.is_valid(place)), combine_chunks(place.drop_null())
    topics = there.take(place)
    names = pa.concat_tables([one.select(["group_id", "topic"]) for one in (wanted, owned)])
    keys = _keys_of(names, "group_id", "topic")
    ours, theirs = keys[: len(wanted)], keys[len(wanted) :]
    end = np.zeros(int(keys.max(initial=-1)) + 1, np.int64)
    end[ours] = to_numbers(topics["partitions"])
    subscribed = np.isin(theirs, ours)
    low = to_numbers(owned["first_partition"])[subscribed]
    high = low + to_numbers(owned["partition_count"])[subscribed]
    # What is after the last range of a topic ends where the topic does.
    key = np.concatenate([theirs[subscribed], ours])
    low = np.minimum(np.concatenate([low, end[ours]]), end[key])
    high = np.minimum(np.concatenate([high, end[ours]]), end[key])
    order = np.lexsort((low, key))
    key, low, high = key[order], low[order], high[order]
    span = int(end.max(initial=0)) + 1
    covered = np.maximum.accumulate(key * span + high)
    covered = np.maximum(np.append(0, covered[:-1])[: len(key)] - key * span, 0)
    gap = np.flatnonzero(low > covered)
    row = np.empty(len(end), np.int64)
    row[ours] = np.arange(len(wanted))
    at = pa.array(row[key[gap]])
    columns = {
        "group_id": wanted["group_id"].take(at),
        "topic": wanted["topic"].take(at),
        "topic_id": topics["topic_id"].take(at),
        "first_partition": pa.array(covered[gap], pa.int32()),
        "last_partition": pa.array(low[gap] - 1, pa.int32()),
        "partition_count": pa.array(low[gap] - covered[gap], pa.int32()),
        "pending_revocation": pa.array(np.zeros(len(gap), np.bool_)),
    }
    columns |= {
        field.name: pa.nulls(len(gap), field.type) for field in SCHEMA if field.name not in columns
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}).cast(SCHEMA)
