"""Plans in requests and answers: the fields of a request, a plan as JSON, and its explanation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from assignors import SpecError
from coordinator.api.parameters import cut
from coordinator.api.shapes import Decision, FindingTotal, OverloadedMember, PlanSummaryRow
from coordinator.core.plans.planner import ShownPlan
from coordinator.core.state.records import PlanMade
from coordinator.display.times import format_time
from coordinator.history.findings import Finding
from coordinator.history.json_rows import to_json_rows

NAMED = 10
"""Members that have too much, of which so many are named; and rows of each finding."""
REASON_MAX = 1_000
DECISIONS = {
    "apply": "applied", "propose": "waiting", "approve": "applied", "reject": "rejected",
}  # fmt: skip
"""What becomes of a plan by each action."""


class PlanRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is asked of a plan, as by the options of `muster plan`; without any, the group's target.

    `settings` are the group's, for this plan only. `without` and `add` suppose members that have
    left or joined: such a plan is shown, never applied.
    """

    assignor: str = ""
    settings: dict[str, str | int | float | bool] = {}
    max_moves: int | None = None
    without: list[str] = []
    add: int = 0
    drain: list[str] = []
    undrain: list[str] = []
    reason: str = ""
    as_of: str | None = None


class RollbackRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """To the target of which epoch a plan returns."""

    to: int
    reason: str = ""


class ApplyRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A plan to apply, as it was shown; with `propose` it waits for approval."""

    plan: PlanMade
    propose: bool = False
    reason: str = ""


class DecideRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why a plan is approved or rejected."""

    reason: str = ""


def decode(body: bytes, wanted: type[msgspec.Struct]) -> Any:  # noqa: ANN401 - of the type
    """Return a body of a type.

    Raises
    ------
    SpecError
        It is not JSON, or not of the type, or has a field that the type has not.
    """
    try:
        given = msgspec.json.decode(body or b"{}")
        found = msgspec.convert(given, wanted)
        more = find_unknown(given, msgspec.to_builtins(found))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"the body cannot be read: {error}") from None
    if more is not None:
        raise SpecError(f"the body has an unknown field {cut(more)!r}: leave it out")
    if len(reason := getattr(found, "reason", "")) > REASON_MAX:
        raise SpecError(f"the reason has {len(reason):,} characters: give {REASON_MAX:,} at most")
    return found


def find_unknown(given: object, known: object) -> str | None:
    """Return a key of objects in objects that is not known; None where all are.

    Of a plan that someone edited, nothing is ignored.
    """
    if isinstance(given, dict) and isinstance(known, dict):
        for key, value in given.items():
            found = key if key not in known else find_unknown(value, known[key])
            if found is not None:
                return str(found)
    elif isinstance(given, list) and isinstance(known, list | tuple):
        pairs = zip(given, known, strict=False)
        return next((found for pair in pairs if (found := find_unknown(*pair)) is not None), None)
    return None


def summarize(
    made: PlanMade,
    overloaded: Sequence[tuple[str, float]] | None = None,
    findings: Sequence[Finding] = (),
) -> PlanSummaryRow:
    """Return the fields that follow the moves of a plan.

    Parameters
    ----------
    overloaded
        Members that then have too much; None where they are not computed.
    findings
        What `muster doctor` found in a group that Kafka coordinates.
    """
    row = PlanSummaryRow(
        plan_id=made.plan_id,
        plan_digest=made.plan_digest,
        group_id=made.group_id,
        group_epoch=made.group_epoch,
        assignor=made.assignor,
        drains=made.drains,
        supposes=made.supposes or None,
        expires_at=format_time(made.expires_ms),
        inputs=made.inputs,
        **msgspec.structs.asdict(made.summary),
    )
    more: dict[str, Any] = {}
    if overloaded is not None:
        named = overloaded[:NAMED]
        more["overloaded"] = [OverloadedMember(member_id=one, load=load) for one, load in named]
    if findings:
        more["findings"] = [
            FindingTotal(
                finding=one.name,
                total=len(one.rows),
                rows=to_json_rows(one.rows.slice(0, NAMED)),
            )
            for one in findings
        ]
    return msgspec.structs.replace(row, **more)


def show_plan(shown: ShownPlan) -> dict[str, Any]:
    """Return a plan that was computed as JSON values."""
    summary = msgspec.to_builtins(summarize(shown.plan, shown.overloaded))
    return {"summary": summary, "plan": msgspec.to_builtins(shown.plan)}


def tell_decision(group_id: str, plan_id: str, action: str, epoch: int) -> dict[str, Any]:
    """Return what became of a plan as JSON values."""
    found = Decision(group_id=group_id, plan_id=plan_id, decision=DECISIONS[action])
    if epoch:
        found.group_epoch = epoch
    values: dict[str, Any] = msgspec.to_builtins(found)
    return values
