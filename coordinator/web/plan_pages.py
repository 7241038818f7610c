"""The pages of a group's plans: all of them, and what one moves."""

from __future__ import annotations

import pyarrow.compute as pc

from coordinator.api.plans import REASON_MAX
from coordinator.display.times import format_time
from coordinator.history.json_rows import to_json_rows
from coordinator.history.plan_view import STATUSES, WAITING
from coordinator.web.access import Viewer
from coordinator.web.errors import QueryError
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
from coordinator.web.paging import TEXT_MAX, Paging
from coordinator.web.plan_diff import MEMBERS, MOVES, PlanDiff, read_plan

LISTED = (
    "position", "status", "recorded_at", "principal", "moved", "placed", "makespan_after",
    "decided_at",
)  # fmt: skip


class PlanPages:
    """The pages about plans. Queries and values are as those of `Pages`."""

    def __init__(self, pages: Pages) -> None:
        self._pages = pages

    def plans(self, query: Query, viewer: Viewer) -> Values:
        """Return the values of the list of a group's plans."""
        group_id = find_group(query, viewer)
        look = self._pages.look(query, group_id)
        found = look.view_of("plans", group_id).drop_columns(["moves"])
        status = query.get("status", "")
        if status:
            if status not in STATUSES:
                given = f"status is {status[:TEXT_MAX]!r}"
                raise QueryError(f"{given}: give one of {', '.join(STATUSES)}")
            found = found.filter(pc.equal(found["status"], status))
        return self._pages.base(look) | {
            "group_id": group_id, "status": status, "statuses": STATUSES,
            "page": Paging.of(query, LISTED, "-position").cut(found, "plan_id"),
            "past": is_past(query),
            "query": kept_words(query, "id", "at", "at_ms", "status", "sort", "rows"),
        }  # fmt: skip

    def plan(self, query: Query, viewer: Viewer, refused: str = "") -> Values:
        """Return the values of one plan; `refused` says why a decision was not carried out."""
        group_id = find_group(query, viewer)
        plan_id = query.get("plan")
        if plan_id is None:
            raise QueryError("plan is missing: give the id of a plan")
        look = self._pages.look(query, group_id)
        plan = read_plan(look, group_id, plan_id)
        refuse_topics(viewer, plan.moves, look.view("assignment_history", group_id))
        moves = Paging.of(query, MOVES, "topic")
        members = Paging.of(query, MEMBERS, "-gains", prefix="m_")
        asks = plan.row["status"] == WAITING and not is_past(query) and look.has_group(group_id)
        return self._pages.base(look) | {
            "group_id": group_id, "plan": plan, "refused": refused,
            "moves": moves.cut(
                plan.moves, "topic", "first_partition", "from_member_id", "to_member_id"
            ),
            "members": members.cut(plan.members, "member_id"),
            "decidable": asks and viewer.decides(group_id),
            "waits": asks,
            "reason_max": REASON_MAX,
            "past": is_past(query),
            "query": kept_words(
                query, "id", "plan", "at", "at_ms", "sort", "page", "m_sort", "m_page", "rows"
            ) | {"plan": plan_id},
        }  # fmt: skip


def plans_json(values: Values) -> Values:
    """Return the list of plans as JSON values."""
    return _head(values) | show_page(values["page"], "plans")


def plan_json(values: Values) -> Values:
    """Return a plan as JSON values."""
    plan: PlanDiff = values["plan"]
    row = {
        name: format_time(int(value.timestamp() * 1000)) if hasattr(value, "timestamp") else value
        for name, value in plan.row.items()
    }
    made = {name: value for name, value in plan.made.items() if name not in row}
    members = to_json_rows(values["members"].table)
    return _head(values) | row | made | show_page(values["moves"], "moves") | {"members": members}


def _head(values: Values) -> Values:
    return head(values) | {"group_id": values["group_id"]}
