"""What each page shows, as values for its template or as JSON. Runs in a thread, knows no HTTP."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.state.groups import GroupState
from coordinator.core.state.records import GroupConfigured, KafkaWatched
from coordinator.display.times import format_time
from coordinator.history.json_rows import to_json_rows
from coordinator.history.keyed_rows import combine_chunks, to_numbers
from coordinator.history.log_reader import AsOf, BeforeLogError, parse_as_of
from coordinator.storage.record_log import CLAIM
from coordinator.storage.shards import NODES, shard_at
from coordinator.web import group_list, group_now
from coordinator.web.access import Viewer
from coordinator.web.errors import ForbiddenError, NoGroupError, QueryError
from coordinator.web.group_list import HOUR_MS
from coordinator.web.group_now import GroupNow
from coordinator.web.paging import TEXT_MAX, Page, Paging, contains, read_time
from coordinator.web.shards_reader import ShardsReader
from coordinator.web.store_reader import Look, StoreReader
from coordinator.web.weights import LAG

Query = Mapping[str, str]
Values = dict[str, Any]
STATES = [state.value for state in GroupState if state is not GroupState.DEAD]
WAITED = "waited"
NO_TOPICS = "The group has topics that you may not see: this needs DESCRIBE on each of its topics."


class Pages:
    """The pages of a store.

    Parameters
    ----------
    name
        What the store is called at the head of each page.
    now_ms
        The clock.
    live
        Whether open pages get changes.
    weight
        What weights of partitions are: "lag", "rate", or "weight".
    retention_ms
        How long offsets are kept that no member needs.

    Attributes
    ----------
    now_ms, retention_ms
        The clock; as above.
    """

    def __init__(
        self,
        reader: StoreReader | ShardsReader,
        name: str,
        now_ms: Callable[[], int] | None = None,
        *,
        live: bool = True,
        weight: str = "weight",
        retention_ms: int = 7 * 24 * HOUR_MS,
    ) -> None:
        self.reader = reader
        self.retention_ms = retention_ms
        self._weight = weight
        self._live = live
        self.name = name
        self.now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)

    def groups(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the list of groups."""
        found, looks = self._list_groups(viewer)
        total, weighed = len(found), found["weight"].null_count < len(found)
        states = {
            row["values"]: row["counts"] for row in pc.value_counts(found["state"]).to_pylist()
        }
        paging = Paging.of(query, group_list.COLUMNS, "unsettled_since")
        text, state = _text(query, "q"), query.get("state", "")
        if state:
            if state not in STATES:
                raise QueryError(f"state is {state[:TEXT_MAX]!r}: give one of {', '.join(STATES)}")
            found = found.filter(pc.equal(found["state"], state))
        found = contains(found, ("group_id",), text)
        return self.base(*looks) | {
            # Where to look first: what has not settled for longest, what waits for approval.
            "page": paging.cut(found, "-plans_waiting", "-rebalances", "group_id"),
            "query": kept_words(query, "q", "state", "sort", "rows"),
            "states": [(name, states.get(name, 0)) for name in STATES],
            "text": text,
            "state": state,
            "all_groups": total,
            "weighed": weighed,
            "servers": self.reader.find_servers(self.now_ms()),
            "shards": self._count_shards(),
            "claim": _read_claim(looks[0]) if len(looks) == 1 else {},
            "refusals": self._count_refusals() if viewer.sees_audit else {},
        }

    def groups_by_id(self, query: Query, viewer: Viewer) -> Values:
        """Return the same in an order that stays, for programs that take page after page."""
        return self.groups({"sort": "group_id", **query}, viewer)

    def group(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the page of a group."""
        group_id = find_group(query, viewer)
        look = self.look(query, group_id)
        try:
            now = group_now.read_group(look, group_id)
        except NoGroupError:  # there may have been one before, or after
            raise NoGroupError(
                group_id, format_time(look.reading.at_ms) if is_past(query) else ""
            ) from None
        paging = Paging.of(query, group_now.COLUMNS, "-waited")
        text, only = _text(query, "q"), query.get("only", "")
        members = now.members
        if only == WAITED:
            members = members.filter(members["waited"])
        elif only:
            raise QueryError(f"only is {only[:TEXT_MAX]!r}: give {WAITED}")
        members = contains(members, group_now.SEARCHED, text)
        return self.base(look) | {
            "group_id": group_id,
            "now": now,
            "epoch": group_now.newest_epoch(now.epochs),
            "page": paging.cut(members, "member_id"),
            "query": kept_words(query, "id", "at", "at_ms", "q", "only", "sort", "rows"),
            "text": text,
            "only": only,
            "past": is_past(query),
            "servers": self.reader.find_servers(self.now_ms(), group_id),
            "plans_waiting": 0 if is_past(query) else self._count_waiting(group_id),
            "settings": _read_settings(look, group_id) if viewer.sees_settings(group_id) else {},
            "slider": self._make_slider(look, now, past=is_past(query)),
            "load_max": max(1, pc.max(now.members["owned"]).as_py() or 0),
        }

    def look(self, query: Query, group_id: str) -> Look:
        """Return a look at a group at the position or time of an address, else at the newest."""
        return self.look_as_of(group_id, _read_as_of(query))

    def look_as_of(self, group_id: str, as_of: AsOf) -> Look:
        """Return a look at a group as of a position or time; None is the newest."""
        return _look(self.reader.of(group_id), as_of)

    def look_at_all(self, query: Query) -> list[Look]:
        """Return looks at all logs at the time of an address, else at the newest.

        Raises
        ------
        QueryError
            The address has a position, and there are several logs.
        """
        return self.look_at_all_as_of(_read_as_of(query), "at")

    def look_at_all_as_of(self, as_of: AsOf, name: str) -> list[Look]:
        """Return looks at all logs as of a position or time, which a parameter of a name has.

        Raises
        ------
        QueryError
            It is a position, and there are several logs.
        """
        readers = self.reader.parts()
        if len(readers) == 1:
            return [_look(readers[0], as_of)]
        if isinstance(as_of, int):
            raise QueryError(
                f"{name} is the position {as_of}, and this store has {len(readers)} logs: give a "
                "time"
            )
        found = []
        for one in readers:
            with suppress(BeforeLogError):  # its shard had no groups then
                found.append(_look(one, as_of))
        return found

    def nodes(self, _query: Query, _viewer: Viewer) -> Values:
        """Return the values of the page of nodes and shards.

        Raises
        ------
        QueryError
            The store is one shard, so that it has no nodes.
        """
        reader = self.reader
        if isinstance(reader, StoreReader):
            raise QueryError("This store is one shard, which has no nodes.")
        looks = {one.store: one.newest() for one in reader.parts()}
        rows = reader.list_owners()
        for row in rows:
            look = looks.get(shard_at(reader.store, row["shard"]))
            row["groups"] = 0 if look is None else len(look.view("groups"))
            row["since"] = None if look is None else _read_claim(look).get("at")
        found = reader.list_nodes()
        return self.base(*looks.values()) | {
            "nodes": found,
            "rows": rows,
            "query": {},
            "group_id": NODES,
        }

    def _count_shards(self) -> Values | None:
        """Return how many shards and nodes there are; None for a store of one shard."""
        return None if isinstance(self.reader, StoreReader) else self.reader.count_shards()

    def _count_refusals(self) -> dict[str, int]:
        since = self.now_ms() // 10_000 * 10_000 - HOUR_MS
        found: Counter[str] = Counter()
        for one in self.reader.parts():
            found.update(one.activity.refusals(since))
        return dict(found)

    def _count_waiting(self, group_id: str) -> int:
        activity = self.reader.of(group_id).activity
        return int(activity.waiting_plans(pa.array([group_id]))[0])

    def _make_slider(self, look: Look, now: GroupNow, *, past: bool) -> Values:
        """Return the times that the slider goes through, and the epochs before and after."""
        last = self.reader.of(now.row["group_id"]).newest() if past else look
        newest = last.reading
        positions = last.view("epochs", now.row["group_id"])
        at = to_numbers(positions["position"])
        times = combine_chunks(positions["recorded_at"]).cast(pa.timestamp("ms", tz="UTC"))
        here = int(np.searchsorted(at, look.reading.position, side="right"))
        is_newest = look.reading.position == newest.position
        return {
            "begin": times[0].value if len(times) else newest.at_ms,
            "end": newest.at_ms,
            "before": int(at[here - 2]) if here > 1 else None,
            "after": int(at[here]) if here < len(at) and not is_newest else None,
        }

    def base(self, *looks: Look) -> Values:
        """Return the values that all pages have: of one log, or of those of all shards."""
        watched = next((one.activity.watched for one in self.reader.parts()), None)
        return {
            "store": self.name,
            "position": looks[0].reading.position if len(looks) == 1 else None,
            "at_ms": max((one.reading.at_ms for one in looks), default=self.now_ms()),
            "live": self._live,
            "watched": watched,
            "weight": self._weight if watched is None else LAG,
        }

    def _list_groups(self, viewer: Viewer) -> tuple[pa.Table, list[Look]]:
        readers = self.reader.parts()
        looks = [one.newest() for one in readers]
        tables = [self._groups_of(*both) for both in zip(readers, looks, strict=True)]
        found = pa.concat_tables(tables) if tables else group_list.no_groups()
        if viewer.access.acls is None or viewer.sees_all:
            return found, looks
        ids = found["group_id"].to_pylist()
        seen = pa.array(np.fromiter(map(viewer.sees, ids), np.bool_, len(ids)))
        return found.filter(seen), looks

    def _groups_of(self, reader: StoreReader, look: Look) -> pa.Table:
        # Rebalances of the last hour are of a time, not of a position: look again each 10 s.
        now_ms = self.now_ms()

        def count() -> pa.Table:
            listed = look.once_of_list(
                "groups", lambda: group_list.list_groups(look, reader.activity)
            )
            return group_list.count_rebalances(listed, reader.activity, now_ms)

        return look.once_of_list(("groups", now_ms // 10_000), count)


def _read_claim(look: Look) -> dict[str, Any]:
    """Return the claim of the log that is in force."""

    def read() -> dict[str, Any]:
        columns = ["position", "at", "coordinator_epoch", "owner", "address"]
        rows = look.rows().past([CLAIM], columns)
        found: list[dict[str, Any]] = rows.slice(max(0, len(rows) - 1)).to_pylist()
        return found[0] if found else {}

    return look.once(None, "claim", read)


def _read_as_of(query: Query) -> AsOf:
    """Return the position or time of an address; None is now."""
    if not is_past(query):
        return None
    at = query.get("at")
    return parse_as_of(at[:TEXT_MAX], "at") if at else read_time(query, "at_ms")


def _look(reader: StoreReader, as_of: AsOf) -> Look:
    return reader.newest() if as_of is None else reader.past(as_of)


def _read_settings(look: Look, group_id: str) -> dict[str, str]:
    """Return the settings that a group has of its own."""

    def read() -> dict[str, str]:
        columns = ["tombstone", "settings"]
        rows = look.rows(group_id).present([GroupConfigured.kind], columns).to_pylist()
        return {} if not rows or rows[-1]["tombstone"] else dict(rows[-1]["settings"] or ())

    return look.once(group_id, "settings", read, followed=False)


def find_group(query: Query, viewer: Viewer) -> str:
    """Return the id of the group that an address names.

    Raises
    ------
    QueryError, NoGroupError
        It names none, or one that the viewer may not see.
    """
    group_id = query.get("id")
    if group_id is None:
        raise QueryError("id is missing: give the id of a group")
    if not viewer.sees(group_id):
        raise NoGroupError(group_id)
    return group_id


def refuse_topics(viewer: Viewer, *tables: pa.Table) -> None:
    """Refuse to show tables that name topics which the viewer may not see.

    Raises
    ------
    ForbiddenError
        They do.
    """
    names = {name for one in tables for name in pc.unique(one["topic"]).to_pylist()}
    if not viewer.sees_topics(names):
        raise ForbiddenError(NO_TOPICS)


def groups_json(values: Values) -> Values:
    """Return the list of groups as JSON values."""
    return head(values) | show_page(values["page"], "groups")


def nodes_json(values: Values) -> Values:
    """Return nodes and shards as JSON values."""
    shards = [
        row | {"since": row["since"] and format_time(int(row["since"].timestamp() * 1000))}
        for row in values["rows"]
    ]
    return head(values) | {"nodes": values["nodes"], "shards": shards}


def group_json(values: Values) -> Values:
    """Return a group as JSON values."""
    now: GroupNow = values["now"]
    counts: Values = {"partitions": now.partitions, "moving": now.moving, "waits_for": now.waited}
    row = now.row | {"member_count": now.row["members"]}
    counts["weight"] = now.weights.total if now.weights else None
    return head(values) | row | counts | show_page(values["page"], "members")


def is_past(query: Query) -> bool:
    """Whether an address asks for a former position or time."""
    return bool(query.get("at") or query.get("at_ms"))


def head(values: Values) -> Values:
    """Return as of when a page is."""
    found = {"position": values["position"], "at": format_time(values["at_ms"])}
    watched: KafkaWatched | None = values["watched"]
    if watched is None:
        return found
    since = {"watched_since": format_time(watched.timestamp), "observed": watched.observed}
    return found | {"kafka_cluster": watched.cluster_id} | since


def show_page(page: Page, name: str) -> Values:
    """Return the rows of a page as JSON values, and where they are among all."""
    return {"total": page.total, "page": page.number, "pages": page.last} | {
        name: to_json_rows(_name_times(page.table))
    }


def _name_times(table: pa.Table) -> pa.Table:
    """Return a table with its times, ms, as times."""
    for name in {"since", "unsettled_since"} & set(table.column_names):
        at = table.column_names.index(name)
        table = table.set_column(at, name, table[name].cast(pa.timestamp("ms", tz="UTC")))
    return table


def _text(query: Query, name: str) -> str:
    return query.get(name, "")[:TEXT_MAX]


def kept_words(query: Query, *names: str) -> dict[str, str]:
    """Return the words of an address that its links keep."""
    return {
        name: query[name] if name == "id" else query[name][:TEXT_MAX]
        for name in names
        if query.get(name)
    }
