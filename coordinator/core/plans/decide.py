"""Apply, approve, reject and propose plans.

A plan is applied only while everything that it was made from is as it was, and once; what is
applied is what was shown, to the digest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa

from assignors import SpecError
from assignors.registry import knows_loads
from coordinator.config import Config
from coordinator.core.bounded import INT32_MAX
from coordinator.core.events import DecidePlan, Result
from coordinator.core.plans.decisions import APPLIED, EXPIRED, REJECTED, SUPERSEDED
from coordinator.core.plans.inputs import (
    describe_inputs,
    find_drift,
    find_group,
    take_basis,
)
from coordinator.core.plans.planner import (
    PlanOptions,
    digest_of,
    drain_members,
    leave_out,
)
from coordinator.core.reasons import Reason
from coordinator.core.state.groups import Group, State
from coordinator.core.state.partition_spans import (
    Spans,
    TopicKey,
    add_epoch,
    drop_epochs,
    subtract_spans,
)
from coordinator.core.state.plan_values import PlannedMove
from coordinator.core.state.records import (
    ACCEPTED,
    GroupMetadata,
    LoadsNoted,
    PlanDecided,
    PlanMade,
    Record,
    RequestAnswered,
    TargetMember,
    Tombstone,
)
from coordinator.core.state.target_candidate import TargetCandidate, list_records
from coordinator.core.targets.approval import end_of, list_waiting
from coordinator.core.targets.basis import Basis
from coordinator.core.targets.validate import check_ranges, to_rows
from coordinator.errors import ErrorCode, GroupError

INT64 = 1 << 63
COORDINATOR = "coordinator"
"""The planner of groups whose targets wait for approval; a new plan of it supersedes the last."""
WAITING_MAX = 100
"""Plans of a group that may wait for approval."""


def decide_plan(state: State, config: Config, event: DecidePlan, now_ms: int) -> Result:
    """Do what is asked of a plan; where another process asks, the answer is a record.

    Raises
    ------
    GroupError
        The plan is unknown, used, expired, or what it was made from has drifted; the message says
        what.
    """
    if not event.request_id:
        return _decide(state, config, event, now_ms)
    try:
        result = _decide(state, config, event, now_ms)
    except GroupError as error:
        verdict = f"{error.code.name}: {error.message}"
        return Result([_judge(event, 0, verdict)], verdict)
    epoch = max((r.epoch for r in result.records if isinstance(r, GroupMetadata)), default=0)
    return Result([*result.records, _judge(event, epoch, ACCEPTED)], ACCEPTED)


def _judge(event: DecidePlan, epoch: int, verdict: str) -> RequestAnswered:
    return RequestAnswered(event.group_id, event.request_id, epoch, verdict)


def _decide(state: State, config: Config, event: DecidePlan, now_ms: int) -> Result:
    group = find_group(state, event.group_id)
    if event.action == "propose":
        return _propose(config, group, event, now_ms)
    if event.action == "expire":
        return Result(_forget_expired(config, group, now_ms))
    plan = _find_plan(config, group, event, now_ms)
    ended = _forget_expired(config, group, now_ms)
    if event.action == "reject":
        rejected = _decision(plan, event, REJECTED, 0, now_ms)
        return Result([*ended, rejected], {"plan_id": plan.plan_id, "decision": REJECTED})
    records = _apply(state, config, group, plan, event, now_ms)
    applied = plan if event.plan is None else event.plan
    response = {
        "plan_id": applied.plan_id,
        "decision": APPLIED,
        "group_epoch": group.epoch + 1,
        "moved": applied.summary.moved,
    }
    return Result([*ended, *records], response)


def _propose(config: Config, group: Group, event: DecidePlan, now_ms: int) -> Result:
    """Let a plan wait for approval."""
    plan = _check_plan(group, event, event.plan)
    waiting = list_waiting(group, config, now_ms)
    if plan.plan_id in {one.plan_id for one in waiting}:
        return Result(response={"plan_id": plan.plan_id, "decision": "waiting"})
    _refuse_unusable(config, group, plan, now_ms)
    if len(waiting) >= WAITING_MAX:
        raise _refused(
            f"{WAITING_MAX} plans of group {group.group_id} are waiting: reject some first"
        )
    before = [one for one in waiting if one.owner == plan.owner == COORDINATOR]
    ended = [_decision(one, event, SUPERSEDED, 0, now_ms) for one in before]
    records = [*_forget_expired(config, group, now_ms), *ended, plan]
    return Result(records, {"plan_id": plan.plan_id, "decision": "waiting"})


def _find_plan(config: Config, group: Group, event: DecidePlan, now_ms: int) -> PlanMade:
    if event.plan is not None:
        return _check_plan(group, event, event.plan)
    plan = group.plans.get(event.plan_id)
    if plan is not None:
        return plan
    used = group.decided.get(event.plan_id)
    if used is not None:
        raise _used(used)
    waiting = (
        ", ".join(sorted(one.plan_id for one in list_waiting(group, config, now_ms))) or "none"
    )
    raise _refused(
        f"no plan {event.plan_id!r} of group {group.group_id} is waiting; waiting are {waiting}"
    )


def _check_plan(group: Group, event: DecidePlan, plan: PlanMade | None) -> PlanMade:
    if plan is None:
        raise _refused("the request contains no plan: give one")
    if plan.group_id != group.group_id or plan.plan_id != event.plan_id or not plan.plan_id:
        raise _refused(
            f"the plan is {plan.plan_id!r} of group {plan.group_id!r}, asked for is "
            f"{event.plan_id!r} of {group.group_id!r}"
        )
    _refuse_bad_values(plan)
    if digest_of(plan) != plan.plan_digest:
        raise _refused(
            f"plan {plan.plan_id} is not what was shown: its digest is {digest_of(plan)}, it says "
            f"{plan.plan_digest}; plan again"
        )
    return plan


def _refuse_bad_values(plan: PlanMade) -> None:
    """Refuse a plan made by hand with what no column of the log takes."""
    try:
        made = msgspec.json.decode(msgspec.json.encode(plan), type=PlanMade)
    except (msgspec.MsgspecError, TypeError, UnicodeError, OverflowError) as error:
        raise _refused(f"the plan cannot be read: {error}; give it unchanged") from None
    small = [made.group_epoch, made.assignment_epoch]
    small += [n for move in made.moves for n in (move.first_partition, move.partition_count)]
    summary = made.summary
    large = [made.timestamp, made.expires_ms, summary.members, summary.partitions]
    large += [summary.moved, summary.placed, summary.weights_known]
    fits = all(0 <= n <= INT32_MAX for n in small) and all(abs(n) < INT64 for n in large)
    if not fits or any(move.partition_count < 1 for move in made.moves):
        raise _refused("the plan has a number out of bounds; give it unchanged")


def _refuse_unusable(config: Config, group: Group, plan: PlanMade, now_ms: int) -> None:
    """Refuse a plan that supposes something, was used, or is too old for the settings."""
    if plan.supposes:
        raise _refused(
            f"plan {plan.plan_id} supposes a group {plan.supposes}: it can only be shown"
        )
    if plan.plan_id in group.decided:
        raise _used(group.decided[plan.plan_id])
    if plan.timestamp - now_ms > config.plans.valid_ms:
        raise _refused(
            f"plan {plan.plan_id} says that it was made {(plan.timestamp - now_ms) // 1000} s from "
            "now: set the clocks, and plan again"
        )
    late_ms = now_ms - end_of(plan, config)
    if late_ms >= 0:
        raise _refused(f"plan {plan.plan_id} expired {late_ms // 1000} s ago: plan again")


def _apply(
    state: State, config: Config, group: Group, plan: PlanMade, event: DecidePlan, now_ms: int
) -> list[Record]:
    _refuse_unusable(config, group, plan, now_ms)
    basis = take_basis(state, config, group.group_id, now_ms)
    drift = find_drift(plan.inputs, describe_inputs(basis))
    if drift:
        raise GroupError(
            ErrorCode.INVALID_ASSIGNMENT,
            f"plan {plan.plan_id} is for another state of group {group.group_id}: "
            f"{'; '.join(drift)}. Plan again, or rebase the plan to see the difference.",
        )
    for move in plan.moves:
        if move.first_partition + move.partition_count > INT32_MAX:
            raise _refused(
                f"plan {plan.plan_id} cannot be applied: it moves {move.partition_count} "
                f"partitions of {move.topic} from {move.first_partition} on: no topic has so many"
            )
    changes = move_targets(basis, plan.moves)
    records: list[Record] = []
    loads = _drained(basis, plan)
    if loads is not None:
        records.append(loads)
    _refuse_invalid(basis, plan, changes, loads)
    epoch = group.epoch + 1
    reason = Reason.PLAN_APPLIED.about(plan.plan_id)
    if event.plan is not None:
        records.append(plan)
    records.append(GroupMetadata(group.group_id, epoch, group.topics_hash, reason))
    found = TargetCandidate(
        group.group_id,
        epoch,
        plan.assignor,
        plan.summary.moved,
        changes=[TargetMember(group.group_id, name, changes[name]) for name in sorted(changes)],
        plan_id=plan.plan_id,
    )
    records += list_records(found, now_ms)
    records.append(_decision(plan, event, APPLIED, epoch, now_ms))
    others = [o for o in list_waiting(group, config, now_ms) if o.plan_id != plan.plan_id]
    records += [_decision(one, event, SUPERSEDED, 0, now_ms) for one in others]
    return records


def move_targets(basis: Basis, moves: Sequence[PlannedMove]) -> dict[str, Spans]:
    """Return the targets that moves change, and those of members that had none."""
    targets = basis.input.targets
    live = {topic.key: topic.partitions for topic in basis.input.topics}
    lost: dict[str, list[tuple[TopicKey, int, int]]] = {}
    got: dict[str, list[tuple[TopicKey, int, int]]] = {}
    for move in moves:
        key = TopicKey(move.topic, move.topic_id)
        span = (key, move.first_partition, move.first_partition + move.partition_count)
        if move.from_member_id is not None:
            lost.setdefault(move.from_member_id, []).append(span)
        if move.to_member_id is not None:
            got.setdefault(move.to_member_id, []).append(span)
    changed: dict[str, Spans] = {}
    for member_id in lost.keys() | got.keys():
        had = [
            (key, first, min(end, live[key]))
            for key, first, end in targets.get(member_id, ())
            if first < live.get(key, 0)
        ]
        kept = subtract_spans(had, lost.get(member_id, ()))
        changed[member_id] = drop_epochs(add_epoch(sorted([*kept, *got.get(member_id, ())]), 0))
    new = (i for i in basis.input.metas if i not in changed and i not in targets)
    return changed | dict.fromkeys(new, ())


def _drained(basis: Basis, plan: PlanMade) -> LoadsNoted | None:
    if not (plan.drains or plan.undrains):
        return None
    try:
        return drain_members(basis, PlanOptions(drain=plan.drains, undrain=plan.undrains))
    except SpecError as error:
        raise _refused(str(error)) from None


def _refuse_invalid(
    basis: Basis, plan: PlanMade, changes: Mapping[str, Spans], loads: LoadsNoted | None
) -> None:
    """Refuse a target with a partition that has no owner or two, or that breaks a hard rule."""
    found = basis.input
    noted = loads or found.loads
    if noted is not None and not knows_loads(plan.assignor):
        noted = LoadsNoted(plan.group_id, drained=noted.drained)  # every assignor heeds these
    found = leave_out(basis, replace(found, loads=noted))
    targets = found.targets.copy()
    for member_id, spans in changes.items():
        targets[member_id] = spans
    spec = found.weighed_spec()
    columns = targets.ranges()
    alive = {topic.key for topic in found.topics}
    keep = np.array([key in alive for key in columns.keys], np.bool_)[columns.topic]
    refused = f"plan {plan.plan_id} cannot be applied", ""
    check_ranges(spec, to_rows(columns).filter(pa.array(keep)), refused, rules=True)


def _decision(
    plan: PlanMade, event: DecidePlan, decision: str, epoch: int, now_ms: int
) -> PlanDecided:
    return PlanDecided(
        plan.group_id,
        plan.plan_id,
        decision,
        epoch,
        event.by,
        event.reason,
        now_ms,
        plan.expires_ms,
    )


def _forget_expired(config: Config, group: Group, now_ms: int) -> list[Record]:
    """Return records that end what has expired: plans that waited, and decisions.

    That a plan expired is known for as long again, so a late decision is answered with the reason.
    """
    waited = [
        PlanDecided(
            group.group_id, plan.plan_id, EXPIRED, timestamp=now_ms, expires_ms=plan.expires_ms
        )
        for plan in group.plans.values()
        if now_ms >= end_of(plan, config)
    ]
    old = [
        Tombstone(PlanDecided.kind, group.group_id, name=one.plan_id)
        for one in group.decided.values()
        if now_ms >= one.expires_ms
        and (one.decision != EXPIRED or now_ms >= one.timestamp + config.plans.valid_ms)
    ]
    return [*waited, *old]


def _used(decided: PlanDecided) -> GroupError:
    epoch = f" as epoch {decided.group_epoch}" if decided.group_epoch else ""
    return _refused(
        f"plan {decided.plan_id} is already {decided.decision}{epoch}: a plan applies once; "
        "plan again"
    )


def _refused(message: str) -> GroupError:
    return GroupError(ErrorCode.INVALID_REQUEST, message)
