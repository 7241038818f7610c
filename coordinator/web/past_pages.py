"""The pages of a group's past: the picture over time, its rows as tables, one partition."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.display.times import format_time
from coordinator.history.json_rows import to_json_rows
from coordinator.history.keyed_rows import combine_chunks, to_numbers
from coordinator.web import group_now, lanes, loads
from coordinator.web.access import Viewer
from coordinator.web.errors import QueryError
from coordinator.web.pages import (
    Pages,
    Query,
    Values,
    find_group,
    is_past,
    kept_words,
    refuse_topics,
    show_page,
)
from coordinator.web.paging import TEXT_MAX, Paging, read_number, read_time
from coordinator.web.store_reader import Look

HOUR_MS = 3_600_000
CHANGES = "changes"
"""From the first epoch until a little after what changed last, in place of now."""
SPANS = {"15m": HOUR_MS // 4, "1h": HOUR_MS, "6h": 6 * HOUR_MS, "24h": 24 * HOUR_MS,
         "7d": 168 * HOUR_MS, "all": 0, CHANGES: 0}  # fmt: skip
AUTO_MS = 24 * HOUR_MS
"""A longer history is shown in part, unless asked for."""
STEP_MS = 1_000
"""A picture that ends now is not redrawn more often."""
PARTITION_MAX = 2**31 - 1
OWNED = (
    "topic", "first_partition", "partition_count", "member_id", "since", "assignment_epoch",
    "reason", "until", "until_reason",
)  # fmt: skip
EPOCHS = ("position", "reason", "member_id", "moved", "recorded_at")


class PastPages:
    """The pages about what was. Queries and values are as those of `Pages`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def picture(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the picture over time, and of the loads."""
        group_id = find_group(query, viewer)
        look = self._pages.reader.of(group_id).newest()
        history, epochs = self._read(look, group_id)
        refuse_topics(viewer, history)
        changes = [epochs["recorded_at"], history["since"], history["until"]]
        window, span = _find_window(query, changes, self._pages.now_ms(), look.reading.at_ms)
        only = _find_lanes(query)
        cursor = self._pages.look(query, group_id).reading.at_ms if is_past(query) else None
        picture = look.once(
            group_id,
            ("lanes", window, only, cursor),
            lambda: lanes.draw(history, epochs, window, only=only, cursor_ms=cursor),
        )
        return self._pages.base(look) | {
            "group_id": group_id,
            "picture": picture,
            "span": span,
            "spans": SPANS,
            "only": only,
            "query": kept_words(
                query, "id", "span", "from", "to", "topic", "first", "until", "last", "at"
            ),
        }

    def loads(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the loads before the last epoch, now, and by the target."""
        group_id = find_group(query, viewer)
        look = self._pages.look(query, group_id)
        now = group_now.read_group(look, group_id)
        history, _ = self._read(look, group_id)
        found = loads.count_loads(now, history)
        most = max((max(row.before, row.now, row.target or 0) for row in found), default=1)
        return self._pages.base(look) | {
            "group_id": group_id, "loads": found, "most": most,
            "epoch": group_now.newest_epoch(now.epochs),
            "query": kept_words(query, "id", "at", "at_ms"),
        }  # fmt: skip

    def history(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the tables: who owned what, and the epochs."""
        group_id = find_group(query, viewer)
        look = self._pages.look(query, group_id)
        history, epochs = self._read(look, group_id)
        refuse_topics(viewer, history)
        filters = {name: query[name] for name in ("member", "topic") if query.get(name)}
        if "member" in filters:
            history = history.filter(pc.equal(history["member_id"], filters["member"]))
        if "topic" in filters:
            history = history.filter(pc.equal(history["topic"], filters["topic"]))
        owned = Paging.of(query, OWNED, "-since").cut(
            history, "topic", "topic_id", "first_partition", "since_position", "member_id"
        )
        shown = Paging.of(query, EPOCHS, "-position", prefix="e_").cut(epochs, "position")
        return self._pages.base(look) | {
            "group_id": group_id, "owned": owned, "epochs": shown, "filters": filters,
            "past": is_past(query),
            "query": kept_words(
                query, "id", "at", "at_ms", "member", "topic", "sort", "page", "e_sort", "e_page",
                "rows",
            ),
        }  # fmt: skip

    def partition(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of one partition: who had it, since when, and why it moved."""
        group_id = find_group(query, viewer)
        topic = query.get("topic")
        number = read_number(query, "partition", 0, PARTITION_MAX)
        if topic is None or number is None:
            raise QueryError("topic and partition are missing: give both")
        look = self._pages.look(query, group_id)
        history, _ = self._read(look, group_id)
        refuse_topics(viewer, history)
        ours = history.filter(pc.equal(history["topic"], topic))
        last = pc.max(ours["last_partition"]).as_py()
        first, end = ours["first_partition"], ours["last_partition"]
        rows = ours.filter(pc.and_(pc.less_equal(first, number), pc.greater_equal(end, number)))
        newest = rows.sort_by([("since_position", "descending"), ("member_id", "ascending")])
        shown = newest.slice(0, Paging.of(query, OWNED, "-since").rows).to_pylist()
        return self._pages.base(look) | {
            "group_id": group_id, "topic": topic, "number": number, "last": last,
            "rows": shown, "total": len(rows),
            "target": _find_target(look, group_id, topic, number),
            "past": is_past(query),
            "query": kept_words(query, "id", "at", "at_ms", "topic"),
        }  # fmt: skip

    def _read(self, look: Look, group_id: str) -> tuple[pa.Table, pa.Table]:
        """Return the history and the epochs of a group, of one that was deleted, too."""
        history = look.view("assignment_history", group_id)
        epochs = look.view_of("epochs", group_id)
        return history, epochs


def history_json(values: Values) -> Values:
    """Return the history as JSON values."""
    return (
        {"position": values["position"], "at": format_time(values["at_ms"])}
        | {"group_id": values["group_id"]}
        | show_page(values["owned"], "assignment_history")
        | {"epochs": to_json_rows(values["epochs"].table), "epochs_total": values["epochs"].total}
    )


def partition_json(values: Values) -> Values:
    """Return who had a partition as JSON values."""
    names = ("group_id", "topic", "total", "target")
    head = {"position": values["position"], "at": format_time(values["at_ms"])}
    rows = [
        {name: _plain(value) for name, value in row.items() if name != "group_id"}
        for row in values["rows"]
    ]
    found = {name: values[name] for name in names}
    return head | found | {"partition": values["number"], "assignment_history": rows}


def _plain(value: Any) -> Any:  # noqa: ANN401 - of a row
    return format_time(int(value.timestamp() * 1000)) if hasattr(value, "timestamp") else value


def _find_target(look: Look, group_id: str, topic: str, number: int) -> str | None:
    """Return the member that will have a partition by the target; None if unknown."""
    try:
        rows = look.view("target_assignments", group_id)
    except Exception:  # noqa: BLE001 - rows of a target may be lost; the history is not
        return None
    rows = rows.filter(pc.equal(rows["topic"], topic))
    first = to_numbers(rows["first_partition"])
    here = (first <= number) & (number < first + to_numbers(rows["partition_count"]))
    found = combine_chunks(rows["member_id"]).filter(pa.array(here))
    return found[-1].as_py() if len(found) else None


def _find_window(
    query: Query, changes: list[pa.ChunkedArray], now_ms: int, written_ms: int
) -> tuple[tuple[int, int], str]:
    """Return begin and end of the time that an address asks for, and the name of its length.

    Without another end it is now, just after what was written last: who owns a partition does so
    while nothing is written, and clocks may have been put back.
    """
    bounds = (pc.min_max(times) for times in changes if times.null_count < len(times))
    ms = [_to_ms(time) for one in bounds for time in one.values()] or [written_ms]
    begun, newest = min(ms), max(ms)
    last_ms = max(now_ms, written_ms, newest)
    if query.get("from") or query.get("to"):
        begin = int(read_time(query, "from").timestamp() * 1000) if query.get("from") else begun
        end = int(read_time(query, "to").timestamp() * 1000) if query.get("to") else last_ms + 1
        if end <= begin:
            raise QueryError("to is not after from: give a later time")
        return (begin, end), ""
    span = query.get("span")
    if not span:  # a day, unless nothing happened in it
        long = begun < last_ms - AUTO_MS
        span = "all" if not long else "24h" if newest > last_ms - AUTO_MS else CHANGES
    if span not in SPANS:
        raise QueryError(f"span is {span[:TEXT_MAX]!r}: give one of {', '.join(SPANS)}")
    if span == CHANGES:
        return (begun, newest + max(STEP_MS, (newest - begun) // 20)), span
    length = SPANS[span] or last_ms - begun
    step = max(STEP_MS, length // lanes.WIDTH)
    end = (last_ms // step + 1) * step  # a pixel at most is still to come, and is drawn once
    return (max(begun, last_ms - length), end), span


def _to_ms(time: pa.Scalar) -> int:
    return int(time.as_py().timestamp() * 1000)


def _find_lanes(query: Query) -> lanes.Span | None:
    """Return the partitions that an address asks for: of a topic, or of all to another one."""
    topic = query.get("topic")
    if topic is None:
        return None
    first = read_number(query, "first", 0, PARTITION_MAX) or 0
    last = read_number(query, "last", 0, PARTITION_MAX)
    until = query.get("until") or topic
    return lanes.Span(topic, first, until, PARTITION_MAX - 1 if last is None else last)
