"""Make plans: what a group's target would be, without touching the group (docs/guide/plans.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import msgspec
import numpy as np
import pyarrow as pa

from assignors import GroupSpec, PartitionRanges, SpecError
from assignors.certificate import certify, weigh_members
from assignors.quality import Report, report
from assignors.registry import find_keeper
from coordinator.config import Config
from coordinator.core.plans.input_digest import hash_columns, hash_texts
from coordinator.core.plans.inputs import describe_inputs
from coordinator.core.state.plan_values import PlannedMove, PlanSummary
from coordinator.core.state.records import LoadsNoted, MemberMetadata, PlanMade
from coordinator.core.state.target_assignment import Targets
from coordinator.core.state.target_candidate import TargetCandidate
from coordinator.core.targets.approval import move_nothing
from coordinator.core.targets.assignor_options import AssignorOptions
from coordinator.core.targets.basis import AssignorInput, Basis
from coordinator.core.targets.compute_here import compute_ranges

ADDED = "added-"
ADD_MAX = 100_000
ROUNDING = 1e-9
Compute: TypeAlias = Callable[[Basis], TargetCandidate]
"""Computes a target, on some engine."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What is asked of a plan.

    Attributes
    ----------
    assignor
        "" takes the group's.
    settings
        Of the group, for this plan only; names as in `GROUP_NAMES`.
    without, add
        Members that the plan supposes to be gone, and how many it supposes to have come: such a
        plan is shown, never applied.
    drain, undrain
        Members, by instance id or member id, to be emptied, and to be filled again.
    owner, reason
        Who asks, and why.
    loads
        Weights, capacities and constraints that the plan supposes instead of those noted.
    """

    assignor: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    add: int = 0
    drain: Sequence[str] = ()
    undrain: Sequence[str] = ()
    owner: str = ""
    reason: str = ""
    loads: LoadsNoted | None = None

    def __post_init__(self) -> None:
        """Refuse what a program may give by mistake: a name where a list is wanted, and the like.

        Raises
        ------
        SpecError
            An option is not of its type.
        """
        for name in ("assignor", "owner", "reason"):
            if not isinstance(getattr(self, name), str):
                raise SpecError(f"{name} is {getattr(self, name)!r}: give text")
        for name in ("without", "drain", "undrain"):
            given = getattr(self, name)
            if not isinstance(given, list | tuple) or not all(isinstance(n, str) for n in given):
                raise SpecError(f"{name} is {given!r}: give a list of members' names")
        if type(self.add) is not int:
            raise SpecError(f"add is {self.add!r}: give a whole number of members")


@dataclass(frozen=True, slots=True)
class ShownPlan:
    """A plan and what commands show with it.

    Attributes
    ----------
    report
        Has one row per member and one per move.
    overloaded
        Members that now have more weight for their capacity than the lower bound, the most first.
    """

    plan: PlanMade
    report: Report
    overloaded: tuple[tuple[str, float], ...] = ()


def make_plan(
    basis: Basis,
    options: PlanOptions,
    config: Config,
    now_ms: int,
    compute: Compute = compute_ranges,
) -> ShownPlan:
    """Compute the target that a group would get.

    Parameters
    ----------
    compute
        Of an engine; another one gives the same plan.

    Raises
    ------
    SpecError
        An option names an unknown member, or the assignor refuses the group.
    """
    own = basis.assignor if options.loads is None else find_keeper(loads=True)
    assignor = options.assignor or own
    settings = {**basis.settings, **options.settings}
    supposed = _suppose(basis, options, AssignorOptions.of_group(assignor, settings, config))
    until_ms = now_ms + config.plans.valid_ms
    return _show(basis, supposed, options, compute(supposed), (now_ms, until_ms))


def make_rollback(
    basis: Basis,
    targets: Targets,
    epoch: int,
    options: PlanOptions,
    config: Config,
    now_ms: int,
) -> ShownPlan:
    """Make a plan for the target of a former epoch, minus what is no longer there.

    Partitions that had no owner then, or whose owner is gone, go to members as evenly as possible.

    Parameters
    ----------
    targets
        Of that epoch, for members of today.
    """
    settings = {**basis.settings, **options.settings}
    assignor, settings = move_nothing(basis.assignor, settings)
    supposed = _suppose(basis, options, AssignorOptions.of_group(assignor, settings, config))
    former = replace(supposed, input=replace(supposed.input, targets=targets))
    options = replace(options, reason=options.reason or f"rollback to epoch {epoch}")
    until_ms = now_ms + config.plans.valid_ms
    return _show(basis, supposed, options, compute_ranges(former), (now_ms, until_ms))


def _suppose(basis: Basis, options: PlanOptions, how: AssignorOptions) -> Basis:
    """Return a group as a plan supposes it: without some members, with others, some drained.

    Raises
    ------
    SpecError
        A member is not in the group, or no member is left.
    """
    found = basis.input
    metas, targets = dict(found.metas), found.targets
    for name in options.without:
        member_id = find_member(metas, name, "without")
        if targets is found.targets:
            targets = targets.copy()
        del metas[member_id]
        targets.end(member_id)
    if options.add:
        _refuse_adding(options.add, metas, basis.group_id)
        like = metas[max(metas)]
        for number in range(1, options.add + 1):
            member_id = _new_name(f"{ADDED}{number}", metas)
            metas[member_id] = msgspec.structs.replace(
                like, member_id=member_id, instance_id=None, rack_id=None
            )
    if not metas:
        raise SpecError(f"group {basis.group_id!r} has no member left to plan for")
    loads = drain_members(basis, options)
    supposed = leave_out(basis, replace(found, metas=metas, targets=targets, loads=loads))
    return replace(basis, assignor=how.assignor, options=how, input=supposed)


def leave_out(basis: Basis, after: AssignorInput) -> AssignorInput:
    """Return a group without the topics that no member may have, before a plan and after it.

    A plan that takes the last member from a topic is refused, when it is assigned or checked.
    """
    return after.without(basis.input.find_drained_topics() & after.find_drained_topics())


def drain_members(basis: Basis, options: PlanOptions) -> LoadsNoted | None:
    """Return what is noted of the group, with other members drained."""
    loads = options.loads or basis.input.loads
    if not (options.drain or options.undrain):
        return loads
    loads = loads or LoadsNoted(basis.group_id)
    both = set(options.drain) & set(options.undrain)
    if both:
        raise SpecError(f"drain and undrain both name {min(both)}: leave one out")
    drained = dict.fromkeys(loads.drained)
    for name in options.drain:
        member_id = find_member(basis.input.metas, name, "drain")
        drained[basis.input.metas[member_id].instance_id or member_id] = None
    for name in options.undrain:
        meta = basis.input.metas.get(name)
        known = name if name in drained else (meta and meta.instance_id)
        if known not in drained:
            raise SpecError(
                f"undrain {name}: it is not drained; drained are {', '.join(drained) or 'none'}"
            )
        del drained[known]
    return msgspec.structs.replace(loads, drained=tuple(sorted(drained)))


def find_member(metas: Mapping[str, MemberMetadata], name: str, option: str) -> str:
    """Return the id of a member that is named by it, or by its instance id.

    Raises
    ------
    SpecError
        The group has no such member.
    """
    if name in metas:
        return name
    for member_id, meta in metas.items():
        if meta.instance_id == name:
            return member_id
    some = ", ".join(sorted(metas)[:10])
    raise SpecError(f"{option} {name}: not a member; the group has {some or 'none'}")


def _refuse_adding(add: int, metas: Mapping[str, MemberMetadata], group_id: str) -> None:
    if not 0 < add <= ADD_MAX:
        raise SpecError(f"add is {add}: give 1 to {ADD_MAX} members")
    if not metas:
        raise SpecError(
            f"add {add}: group {group_id!r} has no member whose subscription new members could copy"
        )


def _new_name(name: str, metas: Mapping[str, MemberMetadata]) -> str:
    while name in metas:
        name += "'"
    return name


def _show(
    basis: Basis,
    supposed: Basis,
    options: PlanOptions,
    candidate: TargetCandidate,
    valid: tuple[int, int],
) -> ShownPlan:
    ranges = candidate.ranges
    assert ranges is not None  # nothing was prepared, so an engine returns all of it
    # With weights for every assignor: readers of a plan want to know what it does to them.
    spec = supposed.input.weighed_spec()
    found = report(spec, ranges)
    moves = tuple(_list_moves(basis, supposed, found))
    inputs = describe_inputs(basis)
    supposes = ", ".join(
        ([basis.supposes] if basis.supposes else [])
        + (["with the weights given"] if options.loads is not None else [])
        + [f"without {name}" for name in options.without]
        + ([f"with {options.add} more member{'s' * (options.add > 1)}"] if options.add else [])
    )
    plan = PlanMade(
        basis.group_id,
        "",
        basis.group_epoch,
        basis.assignment_epoch,
        supposed.assignor,
        dict(sorted(options.settings.items())),
        inputs,
        moves,
        _summarise(spec, found, ranges, supposed.input.loads),
        "",
        tuple(options.drain),
        tuple(options.undrain),
        supposes,
        options.owner,
        options.reason,
        *valid,
    )
    digest = digest_of(plan)
    plan_id = hash_texts([digest, str(valid[0]), options.owner, options.reason])
    shown = msgspec.structs.replace(plan, plan_id=plan_id, plan_digest=digest)
    return ShownPlan(shown, found, _find_overloaded(spec, shown.summary.lower_bound))


def digest_of(plan: PlanMade) -> str:
    """Return the digest of what a plan was made from, of what it does, and until when it holds."""
    return hash_texts(
        [
            plan.group_id,
            plan.assignor,
            repr(sorted(plan.settings.items())),
            repr([(name, text.split(" ", 1)[0]) for name, text in sorted(plan.inputs.items())]),
            _digest_moves(plan.moves),
            repr((plan.drains, plan.undrains, plan.supposes)),
            repr((msgspec.structs.astuple(plan.summary), plan.expires_ms)),
        ]
    )


def _digest_moves(moves: Sequence[PlannedMove]) -> str:
    numbers = [
        np.array([getattr(move, name) for move in moves], dtype=np.int64)
        for name in ("first_partition", "partition_count")
    ]
    texts = [
        [getattr(move, name) for move in moves]
        for name in ("topic", "topic_id", "from_member_id", "to_member_id")
    ]
    return hash_columns([*numbers, *texts])


def _list_moves(basis: Basis, supposed: Basis, found: Report) -> Iterable[PlannedMove]:
    """Yield the moves from the targets of today."""
    ids = {topic.key.name: topic.key.topic_id for topic in supposed.input.topics}
    names = ("topic", "first_partition", "partition_count", "from_member_id", "to_member_id")
    columns = [found.changes[name].to_pylist() for name in names]
    for topic, first, count, giver, taker in zip(*columns, strict=True):
        owner = giver if giver in basis.input.metas else None
        yield PlannedMove(topic, ids[topic], first, count, owner, taker)


def _find_overloaded(spec: GroupSpec, bound: float | None) -> tuple[tuple[str, float], ...]:
    """Return who has more than the lower bound, with the weight for its capacity."""
    if bound is None:
        return ()
    found = weigh_members(spec)
    above = np.flatnonzero(found > bound * (1 + ROUNDING))
    names = spec.member_ids.take(pa.array(above)).to_pylist()
    pairs = zip(names, found[above].tolist(), strict=True)
    return tuple(sorted(pairs, key=lambda pair: (-pair[1], pair[0])))


def _summarise(
    spec: GroupSpec, found: Report, ranges: PartitionRanges, loads: LoadsNoted | None
) -> PlanSummary:
    before = spec.owned()
    was, will = certify(spec, before), certify(spec, ranges)
    assert was is not None
    assert will is not None
    owned = int(np.sum(found.changes["partition_count"].to_numpy())) if len(found.changes) else 0
    return PlanSummary(
        members=spec.member_count,
        partitions=int(spec.partitions[spec.subscribed_topics()].sum()),
        moved=found.moved,
        placed=owned - found.moved,
        moved_weight=will.moved_weight,
        makespan_before=was.makespan,
        makespan_after=will.makespan,
        lower_bound=will.lower_bound,
        distant_before=was.distant_after,
        distant_after=will.distant_after,
        weights_known=0 if loads is None or not loads.weights else will.weights_known,
    )
