"""The operations that read groups: each row is one of a view, as commands and SQL show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.display.printable import as_json
from coordinator.display.times import format_time
from coordinator.history.frames import VIEWS, compute_view, sort_rows
from coordinator.history.json_rows import to_json_rows
from coordinator.history.keyed_rows import combine_chunks, flatten
from coordinator.history.past_target import can_explain, explain_past_partition
from coordinator.history.view_rows import pick_owned, pick_owners_at
from coordinator.history.view_schemas import VIEW_SCHEMAS
from coordinator.web.api.asking import Answer, Ask, stamp_of, tell_head
from coordinator.web.detail_pages import read_audit
from coordinator.web.doctor_page import DoctorPage
from coordinator.web.errors import NoGroupError, NoNodesError, QueryError
from coordinator.web.pages import Values, head, refuse_topics
from coordinator.web.shards_reader import ShardsReader
from coordinator.web.store_reader import UNFOLLOWED, Look, StoreReader


def list_groups(ask: Ask) -> Answer:
    """Answer `listGroups`."""
    looks = ask.pages.look_at_all_as_of(ask.as_of, "as_of")
    empty = [VIEW_SCHEMAS["groups"].empty_table()]  # of a store of shards that has no log yet
    found = sort_rows("groups", pa.concat_tables([*map(_read_groups, looks), *empty]))
    if ask.viewer.access.acls is not None and not ask.viewer.sees_all:
        ids = found["group_id"].to_pylist()
        seen = np.fromiter(map(ask.viewer.sees, ids), np.bool_, len(ids))
        found = found.filter(pa.array(seen))
    if state := ask.given.get("state"):
        found = found.filter(pc.equal(found["state"], state))
    stamp = tuple(map(stamp_of, looks))
    return Answer(stamp, lambda: tell_head(ask, *looks) | ask.page(found, VIEWS["groups"].order))


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
    return _page(ask, look, "members", found)


def list_ownership(ask: Ask) -> Answer:
    """Answer `listOwnership`: from the newest history, so that no past state is read again."""
    group_id = ask.group_id
    look = ask.pages.look_as_of(group_id, None)
    history = _read_history(ask, look, group_id)
    position, at_ms = look.reading.find(ask.as_of)
    return Answer(
        (*stamp_of(look, group_id), position),
        lambda: (
            tell_head(ask, look)
            | {"position": position, "at": format_time(at_ms)}
            | ask.page(pick_owners_at(history, position), VIEWS["assignment_history"].order)
        ),
    )


def list_history(ask: Ask) -> Answer:
    """Answer `listHistory`."""
    look, group_id = ask.look(), ask.group_id
    found = _read_history(ask, look, group_id)
    if (member := ask.given.get("member")) is not None:
        found = found.filter(pc.equal(found["member_id"], member))
    return _page(ask, look, "assignment_history", found)


def list_epochs(ask: Ask) -> Answer:
    """Answer `listEpochs`."""
    look, group_id = ask.look(), ask.group_id
    found = look.once(
        group_id, "rows of epochs", lambda: compute_view(look.rows(group_id), "epochs")
    )
    if not len(found) and not look.has_group(group_id):
        raise NoGroupError(group_id)
    if ask.viewer.access.acls is not None:
        named = pa.table({"topic": pc.list_flatten(combine_chunks(found["topics_changed"]))})
        refuse_topics(ask.viewer, named)
    return _page(ask, look, "epochs", _after(ask, found))


def list_events(ask: Ask) -> Answer:
    """Answer `listEvents`."""
    look, group_id = ask.look(), ask.group_id
    found = look.view_of("events", group_id)
    if ask.viewer.access.acls is not None:
        refuse_topics(ask.viewer, found.filter(pc.is_valid(found["topic"])))
    return _page(ask, look, "events", _after(ask, found))


def list_rebalances(ask: Ask) -> Answer:
    """Answer `listRebalances`."""
    look = ask.look()
    return _page(ask, look, "rebalances", _after(ask, look.view_of("rebalances", ask.group_id)))


def list_waits(ask: Ask) -> Answer:
    """Answer `listWaits`."""
    look = ask.look()
    return _page(ask, look, "waits", look.view_of("waits", ask.group_id))


def explain_one(ask: Ask) -> Answer:
    """Answer `explainPartition`."""
    look, group_id, given = ask.look(), ask.group_id, ask.given
    for name in ("topic", "partition"):
        if name not in given:
            raise QueryError(f"{name} is missing: give the topic and the partition to explain")
    refuse_topics(ask.viewer, pa.table({"topic": [given["topic"]]}))
    if not look.has_group(group_id):
        raise NoGroupError(group_id)
    epoch = int(given["epoch"]) if "epoch" in given else None
    if not can_explain(look.reading, group_id, epoch):
        raise QueryError(
            "What a Kafka cluster's coordinator computed a target with is not written: ask for "
            "ownership instead"
        )

    def make() -> Values:
        target, found = explain_past_partition(
            look.reading, group_id, given["topic"], int(given["partition"]), epoch
        )
        row = {"group_id": group_id, "assignment_epoch": target.epoch, "assignor": target.assignor}
        row |= {"plan_id": target.plan_id, **msgspec.to_builtins(found)}
        return tell_head(ask, look) | {"explained": row}

    return Answer(stamp_of(look, group_id), make)


def list_audit(ask: Ask) -> Answer:
    """Answer `listAudit`."""
    looks = ask.pages.look_at_all_as_of(ask.as_of, "as_of")
    found = _after(ask, read_audit(looks, ask.viewer))
    if (action := ask.given.get("action")) is not None:
        found = found.filter(pc.equal(found["action"], action))
    order = VIEWS["audit"].order if len(looks) == 1 else ("recorded_at", "position", "group_id")
    stamp = tuple(map(stamp_of, looks))
    return Answer(stamp, lambda: tell_head(ask, *looks) | ask.page(found, order))


def list_offsets(ask: Ask) -> Answer:
    """Answer `listOffsets`."""
    look, group_id = ask.look(), ask.group_id
    found = look.view_of("offsets", group_id)
    refuse_topics(ask.viewer, found)
    if (topic := ask.given.get("topic")) is not None:
        found = found.filter(pc.equal(found["topic"], topic))
    return _page(ask, look, "offsets", found)


def list_findings(ask: Ask) -> Answer:
    """Answer `listFindings`: of later pages as of the time that the first one had."""
    given = {name: ask.given[name] for name in ("window", "only") if name in ask.given}
    if (group_id := ask.given.get("group")) is not None:
        given["id"] = group_id
    if ask.as_of is not None:
        given["at"] = ask.given["as_of"]
        if group_id is None:
            ask.pages.look_at_all_as_of(ask.as_of, "as_of")  # a wrong one is named as it is here
    values = DoctorPage(ask.pages).doctor(given, ask.viewer)
    until = format_time(values["until_ms"])

    def make() -> Values:
        rows = [
            {name: one[name] for name in ("finding", "level")} | row
            for one in values["findings"]
            for row in to_json_rows(one["rows"])
        ]
        numbers = pa.table({"number": pa.array(np.arange(len(rows)))})
        found = ask.page(numbers, ("number",), {"as_of": ask.given.get("as_of", until)})
        items = [rows[one["number"]] for one in found["items"]]
        return head(values) | found | {"items": items}

    counts = tuple((one["finding"], len(one["rows"])) for one in values["findings"])
    return Answer((values["position"], until, counts), make)


def list_nodes(ask: Ask) -> Answer:
    """Answer `listNodes`."""
    return _list_rows(ask, "node_id", lambda reader: reader.list_nodes())


def list_shards(ask: Ask) -> Answer:
    """Answer `listShards`."""
    return _list_rows(ask, "shard", lambda reader: reader.list_owners())


def _list_rows(ask: Ask, key: str, read: Callable[[ShardsReader], list[Values]]) -> Answer:
    """Answer with a page of rows that are not of a log, by their numbers."""
    reader = ask.pages.reader
    if isinstance(reader, StoreReader):
        raise NoNodesError
    rows = {one[key]: one for one in read(reader)}
    numbers = pa.table({key: pa.array(sorted(rows), pa.int64())})
    found = ask.page(numbers, (key,))
    found["items"] = [rows[one[key]] for one in found["items"]]
    return Answer(as_json(found), lambda: tell_head(ask) | found)


def _page(ask: Ask, look: Look, view: str, rows: pa.Table) -> Answer:
    """Answer with a page of rows of a view of the group of the path."""
    stamp = stamp_of(look, None if view in UNFOLLOWED else ask.group_id)
    return Answer(stamp, lambda: tell_head(ask, look) | ask.page(rows, VIEWS[view].order))


def _after(ask: Ask, rows: pa.Table) -> pa.Table:
    """Return the rows after the position that is asked for."""
    after = ask.given.get("after")
    return rows if after is None else rows.filter(pc.greater(rows["position"], int(after)))


def _read_history(ask: Ask, look: Look, group_id: str) -> pa.Table:
    """Return the history of a group, or of the topic or partition that is asked for."""
    history = look.view_of("assignment_history", group_id)
    refuse_topics(ask.viewer, history)
    topic, partition = ask.given.get("topic"), ask.given.get("partition")
    if partition is not None and topic is None:
        raise QueryError(f"partition is {partition}, without a topic: give topic too")
    return pick_owned(history, group_id, topic, None if partition is None else int(partition))


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
