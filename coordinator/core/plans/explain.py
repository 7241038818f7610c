"""Explain who has a partition: who could have it, what each would cost, and what decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from assignors import GroupSpec, SpecError
from assignors.arrays import Longs, offsets_of, sum_by
from assignors.loads.constraints import DRAIN, EXCLUDE, MAX_PARTITIONS, PIN
from assignors.loads.load_spec import LoadSpec
from assignors.registry import knows_loads
from coordinator.core.state.partition_spans import Spans
from coordinator.core.targets.basis import AssignorInput
from coordinator.core.targets.load_columns import DRAINED

SUBSCRIPTION, CONSTRAINT, OWNER = "subscription", "constraint", "least weight moved"
MAKESPAN, RACK, PLAN = "makespan", "same rack", "plan"
NEAR = 1e-9
CAUSES_SHOWN = 3


class Candidate(msgspec.Struct, frozen=True):
    """What a member would be with a partition.

    Attributes
    ----------
    level
        Load by capacity with the partition in it, all others as in the target.
    before
        The same under the target before; None for a member that is new since.
    local
        Whether a replica is in its rack; None where that is not known.
    refused
        Why it could not have it; None if it could.
    """

    member_id: str
    has: bool
    had: bool
    level: float
    before: float | None
    local: bool | None
    refused: str | None


class PartitionExplained(msgspec.Struct, frozen=True):
    """Who has a partition by a target, who could have had it, and what decided.

    Attributes
    ----------
    owner, previous_owner
        None without an owner.
    weight
        In the unit of the weights; 1 where they are not known.
    decided_by
        "subscription", "constraint", "least weight moved", "same rack", "makespan" or "plan".
    decision
        The same in a sentence.
    candidates
        The owner first, then those that could have it, the lowest level first.
    """

    topic: str
    partition: int
    owner: str | None
    previous_owner: str | None
    weight: float
    decided_by: str
    decision: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class _Loads:
    """Loads of members before and after, without the partition, as levels and with it."""

    loads: LoadSpec
    place: int
    before: Longs
    after: Longs

    def level(self, load: Longs, member: int, *, has: bool) -> float:
        weight = int(self.loads.weight[self.place])
        total = int(load[member]) + (0 if has else weight)
        scale = self.loads.weight_unit / self.loads.capacity_unit
        return total / int(self.loads.capacity[member]) * scale


def explain_partition(
    given: AssignorInput,
    targets: Mapping[str, Spans],
    assignor: str,
    topic: str,
    partition: int,
    plan_id: str | None = None,
) -> PartitionExplained:
    """Explain one partition of a target.

    Parameters
    ----------
    given
        What the target was computed from: members, the target before, weights, constraints.
    targets
        The target.
    assignor
        That computed it.
    plan_id
        Of the plan that was applied; None without one.

    Raises
    ------
    SpecError
        The group has no such partition.
    """
    spec = given.weighed_spec()
    loads = spec.loads
    assert loads is not None
    place = _find_place(spec, topic, partition)
    now = {key: spans for key, spans in targets.items() if key in given.metas}
    owner, previous = (_find_owner(one, topic, partition) for one in (now, given.targets))
    sums = _Loads(
        loads, place, _sum_loads(spec, loads, given.targets), _sum_loads(spec, loads, now)
    )
    old = {member_id for member_id in given.targets if member_id in given.metas}
    ids = spec.member_ids.to_pylist()
    local = _find_local(spec, loads, place)
    refusals = _find_refusals(spec, place, topic, heeds=knows_loads(assignor))
    found = [
        Candidate(
            member_id,
            member_id == owner,
            member_id == previous,
            sums.level(sums.after, at, has=member_id == owner),
            sums.level(sums.before, at, has=member_id == previous) if member_id in old else None,
            local[at],
            refusals.get(at),
        )
        for at, member_id in enumerate(ids)
    ]
    found.sort(key=lambda one: (not one.has, one.refused is not None, one.level, one.member_id))
    by, text = _decide(found, previous, given, plan_id)
    weight = int(loads.weight[place]) * loads.weight_unit
    return PartitionExplained(topic, partition, owner, previous, weight, by, text, tuple(found))


def _find_place(spec: GroupSpec, topic: str, partition: int) -> int:
    names = spec.topics.to_pylist()
    if topic not in names:
        raise SpecError(f"topic {topic!r} is not in the group; it has {', '.join(names) or 'none'}")
    at = names.index(topic)
    if not 0 <= partition < int(spec.partitions[at]):
        raise SpecError(
            f"topic {topic!r} has no partition {partition}: it has {int(spec.partitions[at])}"
        )
    return int(offsets_of(spec.partitions)[at]) + partition


def _find_owner(targets: Mapping[str, Spans], topic: str, partition: int) -> str | None:
    for member_id in targets:
        for key, first, end in targets[member_id]:
            if key.name == topic and first <= partition < end:
                return member_id
    return None


def _sum_loads(spec: GroupSpec, loads: LoadSpec, targets: Mapping[str, Spans]) -> Longs:
    """Return the weight that each member has, shape (members,)."""
    start = dict(
        zip(spec.topics.to_pylist(), offsets_of(spec.partitions)[:-1].tolist(), strict=True)
    )
    size = dict(zip(spec.topics.to_pylist(), spec.partitions.tolist(), strict=True))
    prefix = offsets_of(loads.weight)
    number = {member_id: at for at, member_id in enumerate(spec.member_ids.to_pylist())}
    who, much = [], []
    for member_id, spans in targets.items():
        if member_id not in number:
            continue
        for key, first, end in spans:
            if key.name in start:
                low = start[key.name] + min(first, size[key.name])
                high = start[key.name] + min(end, size[key.name])
                who.append(number[member_id])
                much.append(int(prefix[high] - prefix[low]))
    return sum_by(np.array(who, dtype=np.int64), np.array(much, dtype=np.int64), len(number))


def _find_local(spec: GroupSpec, loads: LoadSpec, place: int) -> list[bool | None]:
    at = int(loads.rack_set[place])
    if at < 0:
        return [None] * spec.member_count
    near = set(loads.rack_sets[at])
    return [None if rack is None else rack in near for rack in spec.racks.to_pylist()]


def _find_refusals(spec: GroupSpec, place: int, topic: str, *, heeds: bool) -> dict[int, str]:
    """Return why members could not have a partition; constraints count where they are heeded."""
    number = spec.topics.to_pylist().index(topic)
    class_ = np.repeat(np.arange(spec.class_count), np.diff(spec.class_offsets))
    subscribed = np.isin(spec.member_class, class_[spec.class_topics == number])
    why = f"does not subscribe to {topic}"
    out: dict[int, str] = dict.fromkeys(np.flatnonzero(~subscribed).tolist(), why)
    loads = spec.loads
    if loads is None:
        return out
    for at in np.flatnonzero(~loads.active & heeds).tolist():
        out.setdefault(at, "is not active")
    for rule in loads.constraints:
        if not heeds and (rule.kind, rule.reason) != (DRAIN, DRAINED):
            continue  # every assignor heeds that a plan drains a member
        if not rule.hard or (rule.kind in (PIN, EXCLUDE) and not rule.is_about(place)):
            continue
        barred = np.zeros(spec.member_count, dtype=np.bool_)
        if rule.kind in (PIN, EXCLUDE, DRAIN) or (rule.kind == MAX_PARTITIONS and rule.limit == 0):
            barred[rule.members] = True
            barred ^= rule.kind == PIN  # which bars all others
        why = f"constraint {rule.name}" + (f" ({rule.reason})" if rule.reason else "")
        for at in np.flatnonzero(barred).tolist():
            out.setdefault(at, why)
    return out


def _decide(
    found: list[Candidate], previous: str | None, given: AssignorInput, plan_id: str | None
) -> tuple[str, str]:
    """Say which constraint or aim decided, and how."""
    owner = next((one for one in found if one.has), None)
    if owner is None:
        return (
            SUBSCRIPTION,
            "it has no owner: no member subscribes to its topic, or none may own it",
        )
    others = [one for one in found if one.refused is None and not one.has]
    if plan_id is not None and not owner.had:
        return PLAN, f"plan {plan_id} gave it to {owner.member_id}"
    if not others:
        why = sorted({one.refused for one in found if one.refused})
        causes = f": others {'; '.join(why[:CAUSES_SHOWN])}" if why else ""
        return _name_refusal(why), f"only {owner.member_id} could have it{causes}"
    if owner.had:
        return OWNER, f"{owner.member_id} had it, and balance did not require that it move"
    return _decide_move(found, owner, others, previous, given)


def _decide_move(
    found: list[Candidate],
    owner: Candidate,
    others: list[Candidate],
    previous: str | None,
    given: AssignorInput,
) -> tuple[str, str]:
    loser = next((one for one in found if one.had), None)
    if loser is not None and loser.refused is not None:
        why = f"{loser.member_id} had it and could not keep it: {loser.refused}"
        return _name_refusal([loser.refused]), why
    if owner.local and _is_nearer(owner, others):
        return RACK, f"{owner.member_id} is in the rack of a replica"
    if loser is not None:
        return MAKESPAN, (
            f"{loser.member_id} had it, and would be at level {loser.level:.6g} with it; "
            f"{owner.member_id} is at {owner.level:.6g}"
        )
    gone = f"{previous} is gone" if previous not in (None, *given.metas) else "nobody owned it"
    return MAKESPAN, f"{gone}; {owner.member_id} is at level {owner.level:.6g} with it"


def _name_refusal(why: list[str]) -> str:
    """Return what refused: a constraint or state, or else only subscriptions."""
    ruled = any(one.startswith(("constraint", "is not")) for one in why)
    return CONSTRAINT if ruled else SUBSCRIPTION


def _is_nearer(owner: Candidate, others: list[Candidate]) -> bool:
    """Whether a member at a lower level is in another rack."""
    return any(one.local is False and one.level < owner.level - NEAR for one in others)
