"""The operations about plans: those of a group, a plan that is shown, and decisions."""

from __future__ import annotations

import asyncio
import logging

import pyarrow.compute as pc
from starlette.requests import Request

from assignors import SpecError
from coordinator.api.plans import (
    ApplyRequest,
    DecideRequest,
    PlanRequest,
    RollbackRequest,
    decode,
    show_plan,
    tell_decision,
)
from coordinator.config import ConfigError
from coordinator.config.kafka import group_settings
from coordinator.core.events import Action
from coordinator.core.plans.planner import PlanOptions, make_plan, make_rollback
from coordinator.core.state.records import PlanMade
from coordinator.display.printable import visible
from coordinator.history.former_targets import read_basis, read_former_targets
from coordinator.history.frames import VIEWS
from coordinator.history.json_rows import to_json_rows
from coordinator.history.log_reader import parse_as_of
from coordinator.web.access import is_same_origin
from coordinator.web.api.asking import Answer, Ask, stamp_of, tell_head
from coordinator.web.errors import (
    ForbiddenError,
    MediaError,
    NoPlanError,
    QueryError,
    RefusedError,
)
from coordinator.web.guard import NO_RIGHT, Site
from coordinator.web.pages import Values, refuse_topics
from coordinator.web.plan_form import BODY_S, BYTES_MAX, read_body
from coordinator.web.store_reader import Look

PLAN_BYTES_MAX = 32 << 20
"""Of a plan that is applied: it has all its moves."""
PLAN_S = 60.0
MAX_MOVES = "consumer.assignor.max.moves"
logger = logging.getLogger("muster.web")


def list_plans(ask: Ask) -> Answer:
    """Answer `listPlans`."""
    look, group_id = ask.look(), ask.group_id
    found = look.view_of("plans", group_id)
    _refuse_topics(ask, look, group_id)
    if (status := ask.given.get("status")) is not None:
        found = found.filter(pc.equal(found["status"], status))
    return Answer(
        stamp_of(look, group_id),
        lambda: tell_head(ask, look) | ask.page(found, VIEWS["plans"].order),
    )


def get_plan(ask: Ask) -> Answer:
    """Answer `getPlan`."""
    look, group_id = ask.look(), ask.group_id
    row = _find_plan(look, group_id, ask.names["plan"])
    _refuse_topics(ask, look, group_id)
    return Answer(stamp_of(look, group_id), lambda: tell_head(ask, look) | {"plan": row})


async def read_request(ask: Ask, request: Request) -> object:
    """Return what was sent to an operation that asks for plans, of its shape.

    Who may not decide about the group is refused before anything is read, and so is what a page of
    another site sent: a browser sends a login for any.

    Raises
    ------
    SpecError
        It is refused; the class says as what.
    """
    if not ask.viewer.decides(ask.group_id):
        raise ForbiddenError(NO_RIGHT)
    sent = request.headers
    origin, fetch_site = sent.get("origin"), sent.get("sec-fetch-site")
    from_browser = origin is not None or fetch_site is not None
    if from_browser and not is_same_origin(sent.get("host", ""), origin, fetch_site):
        raise ForbiddenError("This request was sent by a page of another site.")
    kind = sent.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise MediaError(f"the body is {kind!r}: send Content-Type: application/json")
    wanted = ask.operation.body
    assert wanted is not None
    is_plan = wanted is ApplyRequest
    most, within_s = (PLAN_BYTES_MAX, PLAN_S) if is_plan else (BYTES_MAX, BODY_S)
    body = await read_body(request, most, "body", within_s)
    return decode(body, wanted)


def make_shown_plan(ask: Ask) -> Values:
    """Answer `makePlan` and `makeRollback`."""
    group_id, asked = ask.group_id, ask.body
    options = PlanOptions(owner=ask.viewer.principal, reason=asked.reason)
    try:
        if isinstance(asked, RollbackRequest):
            look = ask.pages.look_as_of(group_id, None)
            basis = read_basis(look.reading, ask.config, group_id)
            targets = read_former_targets(look.reading, basis, asked.to)
            _refuse_topics(ask, look, group_id)
            shown = make_rollback(basis, targets, asked.to, options, ask.config, ask.pages.now_ms())
        else:
            assert isinstance(asked, PlanRequest)
            as_of = None if asked.as_of is None else parse_as_of(asked.as_of, "as_of")
            look = ask.pages.look_as_of(group_id, as_of)
            basis = read_basis(look.reading, ask.config, group_id)
            _refuse_topics(ask, look, group_id)
            moves = {} if asked.max_moves is None else {MAX_MOVES: asked.max_moves}
            options = PlanOptions(
                asked.assignor, group_settings(ask.config.kafka, {**asked.settings, **moves}),
                asked.without, asked.add, asked.drain, asked.undrain, options.owner, asked.reason,
            )  # fmt: skip
            shown = make_plan(basis, options, ask.config, ask.pages.now_ms())
    except ConfigError as error:
        raise QueryError(str(error)) from None
    return show_plan(shown)


async def decide(ask: Ask, site: Site) -> Values:
    """Answer `applyPlan`, `approvePlan` and `rejectPlan`, once the coordinator has answered.

    Raises
    ------
    RefusedError
        It refused; the message says why.
    BusyError
        No coordinator answered: nothing was decided.
    """
    group_id, by = ask.group_id, ask.viewer.principal
    action, plan_id, plan = _read_action(ask, group_id)
    position = await site.read(_check_plan, ask, None if plan else plan_id)
    answer = site.decider.decide(action, group_id, plan_id, position, by, ask.body.reason, plan)
    try:
        epoch = await asyncio.wrap_future(answer)
    except SpecError as error:
        raise RefusedError(str(error)) from None
    logger.info("%s: %s plan %s of group %s", by, action, visible(plan_id), visible(group_id))
    return tell_decision(group_id, plan_id, action, epoch)


def _check_plan(ask: Ask, plan_id: str | None) -> int:
    """Return a position before the decision, of a log that has the plan, if one is named."""
    look = ask.pages.look_as_of(ask.group_id, None)
    if plan_id is not None:
        _find_plan(look, ask.group_id, plan_id)
    return look.reading.position


def _read_action(ask: Ask, group_id: str) -> tuple[Action, str, PlanMade | None]:
    """Return what is asked, of which plan, and the plan itself where it was sent."""
    asked = ask.body
    if isinstance(asked, ApplyRequest):
        made = asked.plan
        if made.group_id != group_id:
            raise QueryError(
                f"the plan is of group {made.group_id!r}: send it to that group's path"
            )
        return "propose" if asked.propose else "apply", made.plan_id, made
    assert isinstance(asked, DecideRequest)
    action: Action = "approve" if ask.operation.name == "approvePlan" else "reject"
    return action, ask.names["plan"], None


def _find_plan(look: Look, group_id: str, plan_id: str) -> Values:
    rows = look.view_of("plans", group_id)
    found = to_json_rows(rows.filter(pc.equal(rows["plan_id"], plan_id)))
    if not found:
        raise NoPlanError(group_id, plan_id)
    return found[-1]


def _refuse_topics(ask: Ask, look: Look, group_id: str) -> None:
    """Refuse who may not see all topics that the group had: moves name them."""
    if ask.viewer.access.acls is not None:
        refuse_topics(ask.viewer, look.view("assignment_history", group_id))
