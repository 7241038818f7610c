"""The operations that read groups: each row is one of a view, as commands and SQL show it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.history.frames import VIEWS, compute_view, sort_rows
from coordinator.history.json_rows import to_json_rows
from coordinator.history.keyed_rows import combine_chunks, flatten
from coordinator.history.log_reader import format_time
from coordinator.history.view_schemas import VIEW_SCHEMAS
from coordinator.web.api.asking import Answer, Ask, stamp_of, tell_head
from coordinator.web.errors import NoGroupError
from coordinator.web.pages import refuse_topics
from coordinator.web.store_reader import Look


def list_groups(ask: Ask) -> Answer:
    """Answer `listGroups`."""
    looks = ask.pages.look_at_all_as_of(ask.as_of, "as_of")
    empty = [VIEW_SCHEMAS["groups"].empty_table()]  # of a store of shards that has no log yet
    found = sort_rows("groups", pa.concat_tables([*map(_read_groups, looks), *empty]))
    stamp = [*map(stamp_of, looks)]
    if ask.viewer.access.acls is not None and not ask.viewer.sees_all:
        ids = found["group_id"].to_pylist()
        seen = np.fromiter(map(ask.viewer.sees, ids), np.bool_, len(ids))
        stamp.append((seen.tobytes().hex(), 0))
        found = found.filter(pa.array(seen))
    if state := ask.given.get("state"):
        found = found.filter(pc.equal(found["state"], state))
    return Answer(
        tuple(stamp), lambda: tell_head(ask, *looks) | ask.page(found, VIEWS["groups"].order)
    )


def get_group(ask: Ask) -> Answer:
    """Answer `getGroup`."""
    look, group_id = ask.look(), ask.group_id
    rows = look.once(group_id, "row of groups", lambda: compute_view(look.rows(group_id), "groups"))
    if not len(rows):
        when = "" if ask.as_of is None else format_time(look.reading.at_ms)
        raise NoGroupError(group_id, when)
    (row,) = to_json_rows(rows)
    return Answer(stamp_of(look, group_id), lambda: tell_head(ask, look) | {"group": row})


def list_members(ask: Ask) -> Answer:
    """Answer `listMembers`."""
    look, group_id = ask.look(), ask.group_id
    found = look.view_of("members", group_id)
    if ask.viewer.access.acls is not None:
        refuse_topics(ask.viewer, *_topics_of(look, group_id, found))
    return Answer(
        stamp_of(look, group_id),
        lambda: tell_head(ask, look) | ask.page(found, VIEWS["members"].order),
    )


def _read_groups(look: Look) -> pa.Table:
    return look.once(None, "rows of groups", lambda: compute_view(look.rows(), "groups"))


def _topics_of(look: Look, group_id: str, members: pa.Table) -> Iterable[pa.Table]:
    """Return the topics that members subscribe to or own, in tables with a column `topic`."""
    lists = [combine_chunks(members["subscribed_topic_names"])]
    owned = [combine_chunks(members[name]) for name in ("assigned", "pending")]

    def read() -> pa.Table:
        names = [flatten(one)[1].cast(pa.string()) for one in lists]
        names += [flatten(one)[1].field("topic").cast(pa.string()) for one in owned]
        return pa.table({"topic": pc.unique(pa.concat_arrays(names))})

    return [look.once(group_id, "topics of members", read)]
