"""The operations of the API, each once: its path, what it takes and what it answers.

Routes, the OpenAPI document and the reference page are made from `OPERATIONS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import msgspec

from coordinator.api.parameters import AFTER, AS_OF, PAGING, PARTITION, TOPIC, Parameter
from coordinator.api.plans import ApplyRequest, DecideRequest, PlanRequest, RollbackRequest
from coordinator.api.shapes import (
    ROWS,
    Decision,
    ExplainedPartition,
    FindingsPage,
    PlanAnswer,
    make_one,
    make_page,
)
from coordinator.core.audit import ACTIONS
from coordinator.core.state.groups import GroupState
from coordinator.history.findings import LEVELS
from coordinator.history.nodes_view import NodeRow, ShardRow
from coordinator.history.plan_view import STATUSES

BASE = "/api/v1"
STATES = tuple(one.value for one in GroupState if one is not GroupState.DEAD)
READING = (
    HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND,
    HTTPStatus.SERVICE_UNAVAILABLE,
)  # fmt: skip


WRITING = (
    *READING, HTTPStatus.CONFLICT, HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """What one method of one path does.

    Attributes
    ----------
    name
        Its `operationId`, by which its handler is found.
    path
        Below `BASE`; parts in braces are names of what is asked for.
    doc
        What it does, in a sentence.
    answer, body
        The shapes of what is sent back, and of what is sent; None is nothing.
    problems
        The statuses of its problems.
    """

    name: str
    path: str
    doc: str
    parameters: Sequence[Parameter]
    answer: Any
    method: str = "GET"
    body: type[msgspec.Struct] | None = None
    problems: Sequence[HTTPStatus] = READING

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Return the names in a path, by what they are; None if it is another one's path."""
        ours = self.path.split("/")[1:]
        if len(ours) != len(parts):
            return None
        found = {}
        for one, part in zip(ours, parts, strict=True):
            if one.startswith("{") and part:
                found[one.strip("{}")] = part
            elif one != part:
                return None
        return found


OPERATIONS = (
    Operation(
        "getDocument", "/openapi.json", "This API in OpenAPI 3.1.", (), dict[str, Any],
    ),
    Operation(
        "listGroups", "/groups",
        "The groups that you may see, by their ids: states, epochs and sizes.",
        (Parameter("state", "Only groups in this state.", choices=STATES), AS_OF, *PAGING),
        make_page("GroupsPage", ROWS["groups"], "Groups."),
    ),
    Operation(
        "getGroup", "/groups/{group}", "One group.", (AS_OF,),
        make_one("GroupAnswer", "group", ROWS["groups"], "A group."),
    ),
    Operation(
        "listMembers", "/groups/{group}/members",
        "Its members, by their ids: subscriptions, epochs, and the ranges that they own.",
        (AS_OF, *PAGING),
        make_page("MembersPage", ROWS["members"], "Members of a group."),
    ),
    Operation(
        "listOwnership", "/groups/{group}/ownership",
        "Who owned what, as of a time: since when, and why. `until` says what is known by now.",
        (TOPIC, PARTITION, AS_OF, *PAGING),
        make_page("OwnershipPage", ROWS["assignment_history"], "Ranges that members owned."),
    ),
    Operation(
        "listHistory", "/groups/{group}/history",
        "Who owned what, from when until when, and why.",
        (TOPIC, PARTITION, Parameter("member", "Only this member."), AS_OF, *PAGING),
        make_page("HistoryPage", ROWS["assignment_history"], "Ranges that members owned."),
    ),
    Operation(
        "listEpochs", "/groups/{group}/epochs",
        "Its epochs: why each began, and its target.", (AFTER, AS_OF, *PAGING),
        make_page("EpochsPage", ROWS["epochs"], "Epochs of a group."),
    ),
    Operation(
        "listEvents", "/groups/{group}/events",
        "What happened to it, in order. Ask again with the last `position` as `after`.",
        (AFTER, AS_OF, *PAGING),
        make_page("EventsPage", ROWS["events"], "Events of a group."),
    ),
    Operation(
        "listRebalances", "/groups/{group}/rebalances",
        "Its rebalances: why each began, how long it took, who was waited for, and what moved.",
        (AFTER, AS_OF, *PAGING),
        make_page("RebalancesPage", ROWS["rebalances"], "Rebalances of a group."),
    ),
    Operation(
        "listWaits", "/groups/{group}/waits",
        "For which members others waited, and for how long.", (AS_OF, *PAGING),
        make_page("WaitsPage", ROWS["waits"], "Waits for members of a group."),
    ),
    Operation(
        "explainPartition", "/groups/{group}/explain",
        "Who has a partition by the newest target, or an epoch's; who could have it, and why not.",
        (
            TOPIC, PARTITION,
            Parameter("epoch", "By the target of this epoch.", least=0, most=2**31 - 1), AS_OF,
        ),
        make_one("ExplainAnswer", "explained", ExplainedPartition, "An explanation."),
    ),
    Operation(
        "listOffsets", "/groups/{group}/offsets", "Its committed offsets.",
        (TOPIC, AS_OF, *PAGING),
        make_page("OffsetsPage", ROWS["offsets"], "Committed offsets of a group."),
    ),
    Operation(
        "listPlans", "/groups/{group}/plans", "Its plans and what became of them.",
        (Parameter("status", "Only plans of this status.", choices=STATUSES), AS_OF, *PAGING),
        make_page("PlansPage", ROWS["plans"], "Plans of a group."),
    ),
    Operation(
        "getPlan", "/groups/{group}/plans/{plan}", "One plan, with its moves.", (AS_OF,),
        make_one("PlanRowAnswer", "plan", ROWS["plans"], "A plan."),
    ),
    Operation(
        "makePlan", "/groups/{group}/plan",
        "Show the target that the group would get. Nothing is changed, and nothing kept.",
        (), PlanAnswer, "POST", PlanRequest, WRITING,
    ),
    Operation(
        "makeRollback", "/groups/{group}/rollback",
        "Show a plan that returns to the target of an earlier epoch.",
        (), PlanAnswer, "POST", RollbackRequest, WRITING,
    ),
    Operation(
        "applyPlan", "/groups/{group}/plans",
        "Make the target of a plan that was shown the group's target, or let it wait for approval.",
        (), Decision, "POST", ApplyRequest, WRITING,
    ),
    Operation(
        "approvePlan", "/groups/{group}/plans/{plan}/approve", "Apply a plan that waits.",
        (), Decision, "POST", DecideRequest, WRITING,
    ),
    Operation(
        "rejectPlan", "/groups/{group}/plans/{plan}/reject", "Reject a plan that waits.",
        (), Decision, "POST", DecideRequest, WRITING,
    ),
    Operation(
        "listFindings", "/doctor",
        "What is wrong with the groups, or with one: the rows of `muster doctor`.",
        (
            Parameter("group", "Only this group."),
            Parameter("only", "Only this finding.", choices=tuple(LEVELS)),
            Parameter("window", "How far back to look: 90s, 15m, 1h, 7d; 1h unless given."),
            AS_OF, *PAGING,
        ),
        FindingsPage,
    ),
    Operation(
        "listAudit", "/audit",
        "Who deleted or altered what, and who was refused, of the groups that you may see.",
        (Parameter("action", "Only this action.", choices=ACTIONS), AFTER, AS_OF, *PAGING),
        make_page("AuditPage", ROWS["audit"], "Rows of the audit."),
    ),
    Operation(
        "listNodes", "/nodes", "The nodes of a store of shards that are alive.", PAGING,
        make_page("NodesPage", NodeRow, "Nodes."),
    ),
    Operation(
        "listShards", "/shards", "The shards of a store, each with its node.", PAGING,
        make_page("ShardsPage", ShardRow, "Shards."),
    ),
)  # fmt: skip
"""All operations."""
