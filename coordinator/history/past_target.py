"""A past target with what it was computed from: of any epoch, from the log alone."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow.compute as pc

from assignors import SpecError
from coordinator.core.plans.explain import PartitionExplained, explain_partition
from coordinator.core.state.groups import BY_NODE
from coordinator.core.state.records import TargetMember, TargetMetadata
from coordinator.core.state.target_assignment import Targets
from coordinator.core.targets.basis import AssignorInput, MemberChange, build_input
from coordinator.history.former_targets import find_target_position
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows
from coordinator.history.view_rows import explain_epochs
from coordinator.history.watched import read_watched


class PastTarget(NamedTuple):
    """A target, and the group as its assignor found it."""

    epoch: int
    position: int
    assignor: str
    plan_id: str | None
    given: AssignorInput
    targets: Targets


def can_explain(reading: LogReader, group_id: str, epoch: int | None = None) -> bool:
    """Whether it is known what the target of an epoch was computed from; None is the newest.

    Of a target that Kafka's coordinator computed that is not written.
    """
    watched = read_watched(reading)
    if watched is None:
        return True
    if watched.observed != BY_NODE:
        return False
    rows = [row for row in explain_epochs(reading, group_id) if row["computed_at"] is not None]
    if epoch is not None:
        rows = [row for row in rows if row["group_epoch"] == epoch]
    return bool(rows) and rows[-1]["assignor"] is not None


def explain_past_partition(
    reading: LogReader, group_id: str, topic: str, partition: int, epoch: int | None = None
) -> tuple[PastTarget, PartitionExplained]:
    """Explain who has a partition by the target of an epoch; None is the newest.

    Raises
    ------
    SpecError
        The group, its target or the partition does not exist.
    LostTarget
        Rows of the target are no longer in the table `targets`.
    """
    found = read_past_target(reading, group_id, epoch)
    explained = explain_partition(
        found.given, found.targets, found.assignor, topic, partition, found.plan_id
    )
    return found, explained


def read_past_target(reading: LogReader, group_id: str, epoch: int | None) -> PastTarget:
    """Return the target of an epoch; raises as `explain_past_partition`."""
    rows = LogRows(reading, group_id)
    kinds = [TargetMetadata.kind, TargetMember.kind]
    names = ["position", "kind", "tombstone", "assignment_epoch", "assignor", "plan_id"]
    found = rows.past(kinds, names)
    done = found.filter(
        pc.and_(
            pc.equal(found["kind"], TargetMetadata.kind),
            pc.and_(
                pc.invert(found["tombstone"]), pc.not_equal(pc.fill_null(found["assignor"], ""), "")
            ),
        )
    )
    if not len(done):
        if not rows.has_group():
            raise reading.unknown(group_id)
        raise SpecError(f"group {group_id!r} has no target yet")
    epoch = int(done["assignment_epoch"][-1].as_py()) if epoch is None else epoch
    position = find_target_position(reading, group_id, epoch)
    row = done.filter(pc.equal(done["position"], position)).to_pylist()[0]
    members = set(found.filter(pc.equal(found["kind"], TargetMember.kind))["position"].to_pylist())
    first = position
    while first - 1 in members:
        first -= 1
    then, before = LogReader(reading.store, position), LogReader(reading.store, first - 1)
    after = then.state().groups[group_id]
    then.read_target(after)
    state = before.state()
    group = state.groups[group_id]
    before.read_target(group)
    given = build_input(state, group, MemberChange(), then.at_ms)
    return PastTarget(epoch, position, row["assignor"], row["plan_id"], given, after.targets)
