"""Note weights, capacities and constraints of a group, and begin an epoch where that pays."""

from __future__ import annotations

from dataclasses import replace

import msgspec

from assignors import SpecError
from assignors.certificate import certify
from assignors.option_values import parse_share
from assignors.registry import knows_loads
from coordinator.config import Config
from coordinator.core.events import ReportLoads, Result
from coordinator.core.reasons import Reason
from coordinator.core.state.groups import State
from coordinator.core.state.records import GroupMetadata, LoadsNoted, Record, Tombstone
from coordinator.core.targets.approval import list_waiting
from coordinator.core.targets.basis import Basis
from coordinator.core.targets.compute_here import run_assignor


def note_loads(state: State, config: Config, event: ReportLoads, now_ms: int) -> Result:
    """Record what a source reports; a group's assignment follows where it is due.

    Weights alone are noted once an interval, and move nothing unless that pays. Capacities, states
    of members and constraints are noted at once.
    """
    loads = event.loads
    group_id = loads.group_id
    group = state.groups.get(group_id)
    before = state.loads.get(group_id)
    if group is None and group_id not in state.classic:
        return Result([Tombstone(LoadsNoted.kind, group_id)] if before else [])
    drained = before.drained if before is not None else ()
    loads = msgspec.structs.replace(loads, drained=drained, timestamp=now_ms)
    ruled = rules_of(before or LoadsNoted(group_id)) != rules_of(loads)
    weighed = before is None or before.weights != loads.weights
    due = before is None or not 0 <= now_ms - before.timestamp < config.weights.interval_ms
    waiting = group is not None and list_waiting(group, config, now_ms)
    if not ruled and not (weighed and due and not waiting):
        return Result()  # a plan that waits for approval is not to drift by weights alone
    records: list[Record] = [loads]
    first = before is None and not (loads.capacities or loads.constraints)
    if group is not None and group.members and group.epoch == group.assignment_epoch:
        new_rules = ruled and not first
        reason = Reason.CONSTRAINTS_CHANGED if new_rules else Reason.WEIGHTS_CHANGED
        if knows_loads(group.assignor) and (event.pays or new_rules):
            records.append(GroupMetadata(group_id, group.epoch + 1, group.topics_hash, reason))
    return Result(records)


def rules_of(loads: LoadsNoted) -> object:
    """Return what takes effect at once, without waiting for the interval."""
    return loads.capacities, loads.constraints


def would_pay(basis: Basis, loads: LoadsNoted, config: Config) -> bool:
    """Tell whether a target of other weights is worth its moves.

    It is if the makespan falls by more than `weights.improvement`, or a hard constraint is broken.
    """
    assignor = basis.assignor
    if not knows_loads(assignor) or not basis.input.metas:
        return False
    found = replace(basis.input, loads=loads)
    spec = found.without(found.find_drained_topics()).spec(assignor)
    now = spec.owned()
    share = float(parse_share(config.weights.improvement, "improvement"))
    was = certify(spec, now)
    if was is None:
        return False
    if all(rule["holds"] or not rule["hard"] for rule in was.rules):
        bound = was.lower_bound
        if bound is not None and was.makespan * (1 - share) <= bound:
            return False  # no assignment is better by so much
    try:
        will = certify(spec, run_assignor(spec, basis.options))
    except SpecError:
        return False
    if will is None:
        return False
    return will.makespan < was.makespan * (1 - share)
