"""The pages of details: what a group committed, one of its members, and who was refused what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from coordinator.core.audit import ACTIONS
from coordinator.history.keyed_rows import to_numbers
from coordinator.history.view_schemas import SCHEMAS
from coordinator.storage.record_log import LostTarget
from coordinator.web import group_now
from coordinator.web.access import Viewer
from coordinator.web.errors import NoMemberError, QueryError
from coordinator.web.pages import (
    Pages,
    Query,
    Values,
    find_group,
    head,
    is_past,
    kept_words,
    refuse_topics,
    show_page,
)
from coordinator.web.paging import TEXT_MAX, Paging, contains
from coordinator.web.store_reader import Look
from coordinator.web.weights import read_weights

OFFSETS = ("topic", "partition", "offset", "weight", "committed_at", "leader_epoch")
AUDIT = (
    "position", "recorded_at", "action", "principal", "client_host", "group_id", "resource_name",
    "count",
)  # fmt: skip
SEARCHED = ("principal", "client_id", "client_host", "group_id", "resource_name")
NAMES_MAX, RANGES_MAX = 200, 200
"""Of a member's subscription, and of its partitions, that its page shows."""


def read_audit(looks: Sequence[Look], viewer: Viewer) -> pa.Table:
    """Return the rows of the audit that one may see: of all logs, or of the groups alone."""
    empty = [SCHEMAS["audit"].empty_table()]  # of a store of shards that has no log yet
    found = pa.concat_tables([one.view("audit") for one in looks] or empty)
    if viewer.sees_audit:
        return found
    ids = pc.fill_null(found["group_id"], "").to_pylist()
    sees = {one: bool(one) and viewer.sees(one) for one in set(ids)}
    return found.filter(pa.array([sees[one] for one in ids], pa.bool_()))


class DetailPages:
    """The pages of details. Queries and values are as those of `Pages`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def offsets(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the table of committed offsets, with the weights noted for them."""
        group_id = find_group(query, viewer)
        look = self._pages.look(query, group_id)
        found = look.view_of("offsets", group_id)
        refuse_topics(viewer, found)
        weights = read_weights(look, group_id)
        weight = pa.nulls(len(found), pa.float64())
        if weights is not None:
            weight = weights.of_partitions(found["topic"], to_numbers(found["partition"]))
        found = found.append_column("weight", weight)
        text = query.get("q", "")[:TEXT_MAX]
        default = "committed_at" if weights is None else "-weight"
        page = Paging.of(query, OFFSETS, default).cut(
            contains(found, ("topic",), text), "topic", "topic_id", "partition"
        )
        return self._pages.base(look) | {
            "group_id": group_id, "page": page, "weights": weights, "text": text,
            "newest": pc.max(found["committed_at"]).as_py(),
            "all_offsets": len(found),
            "past": is_past(query),
            "query": kept_words(query, "id", "at", "at_ms", "q", "sort", "page", "rows"),
        }  # fmt: skip

    def audit(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of who was refused what, and who deleted or altered what."""
        looks = self._pages.look_at_all(query)
        found = read_audit(looks, viewer)
        action, text = (query.get(name, "")[:TEXT_MAX] for name in ("action", "q"))
        if action:
            if action not in ACTIONS:
                raise QueryError(f"action is {action!r}: give one of {', '.join(ACTIONS)}")
            found = found.filter(pc.equal(found["action"], action))
        paging = Paging.of(query, AUDIT, "-position" if len(looks) == 1 else "-recorded_at")
        page = paging.cut(contains(found, SEARCHED, text), "position", "group_id")
        return self._pages.base(*looks) | {
            "page": page, "action": action, "actions": ACTIONS, "text": text,
            "past": is_past(query),
            "query": kept_words(query, "at", "at_ms", "action", "q", "sort", "rows"),
        }  # fmt: skip

    def member(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the page of a member: its subscription, and what it owns."""
        group_id = find_group(query, viewer)
        member_id = query.get("member")
        if member_id is None:
            raise QueryError("member is missing: give the id of a member")
        look = self._pages.look(query, group_id)
        now = group_now.read_group(look, group_id)
        row = _find(now.members, member_id)
        known = _find(look.view("members", group_id), member_id)
        if row is None or known is None:
            raise NoMemberError(group_id, member_id)
        names = known["subscribed_topic_names"] or []
        owned = _list_ranges(look, "current_assignments", group_id, member_id)
        target = _list_ranges(look, "target_assignments", group_id, member_id)
        refuse_topics(viewer, owned, target, pa.table({"topic": pa.array(names, pa.string())}))
        return self._pages.base(look) | {
            "group_id": group_id,
            "row": row | {name: known[name] for name in known if name not in row},
            "names": names[:NAMES_MAX],
            "more_names": len(names) - len(names[:NAMES_MAX]),
            "owned": owned.slice(0, RANGES_MAX).to_pylist(), "owned_total": len(owned),
            "target": target.slice(0, RANGES_MAX).to_pylist(), "target_total": len(target),
            "lost_target": now.lost_target,
            "weighed": now.weights is not None,
            "past": is_past(query),
            "query": kept_words(query, "id", "at", "at_ms") | {"member": member_id},
        }  # fmt: skip


def audit_json(values: Values) -> Values:
    """Return audit records as JSON values."""
    return head(values) | show_page(values["page"], "audit")


def offsets_json(values: Values) -> Values:
    """Return committed offsets as JSON values."""
    return head(values) | {"group_id": values["group_id"]} | show_page(values["page"], "offsets")


def _find(members: pa.Table, member_id: str) -> dict[str, Any] | None:
    """Return the row of a member."""
    found: list[dict[str, Any]] = members.filter(
        pc.equal(members["member_id"], member_id)
    ).to_pylist()
    return found[0] if found else None


def _list_ranges(look: Look, view: str, group_id: str, member_id: str) -> pa.Table:
    """Return the ranges of a member; none of a target that is lost."""
    try:
        rows = look.view(view, group_id)
    except LostTarget:
        return pa.table({"topic": pa.array([], pa.string())})
    return rows.filter(pc.equal(rows["member_id"], member_id))
