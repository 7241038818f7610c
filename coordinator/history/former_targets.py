"""What plans are made from, read from a store: a group, and targets of its former epochs."""

from __future__ import annotations

from dataclasses import replace

import pyarrow.compute as pc

from assignors import SpecError
from coordinator.config import Config
from coordinator.core.plans.inputs import take_basis
from coordinator.core.state.records import TargetMetadata
from coordinator.core.state.target_assignment import Targets
from coordinator.core.targets.basis import Basis
from coordinator.errors import GroupError
from coordinator.history.log_reader import LogReader
from coordinator.history.log_rows import LogRows

INT64_BITS = 64


def read_basis(reading: LogReader, config: Config, group_id: str) -> Basis:
    """Return a group as a plan finds it.

    Raises
    ------
    SpecError
        The group does not exist, or is a classic one.
    LostTarget
        The rows of its target are no longer in the table `targets`.
    """
    state = reading.state()
    if group_id in state.groups:
        reading.read_target(state.groups[group_id])
    elif group_id not in state.classic:
        raise reading.unknown(group_id)
    try:
        basis = take_basis(state, config, group_id, reading.at_ms)
    except GroupError as error:
        raise SpecError(error.message) from None
    offsets = state.offsets.get(group_id, {})
    return replace(basis, committed={place: one.offset for place, one in offsets.items()})


def find_target_position(reading: LogReader, group_id: str, epoch: int) -> int:
    """Return the position of the target of a group's epoch: of the last one, if there are several.

    Raises
    ------
    SpecError
        No target was computed for this epoch; the message names those that were. Or the epoch is
        no whole number.
    """
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise SpecError(f"an epoch is {epoch!r}: give a whole number")
    rows = LogRows(reading, group_id).past(
        [TargetMetadata.kind], ["position", "tombstone", "assignment_epoch", "assignor"]
    )
    rows = rows.filter(pc.and_(pc.invert(rows["tombstone"]), pc.not_equal(rows["assignor"], "")))
    # Columns compare with no integer that is longer than theirs.
    can_be = epoch.bit_length() < INT64_BITS
    found = rows.filter(pc.equal(rows["assignment_epoch"], epoch)) if can_be else rows.slice(0, 0)
    if not len(found):
        known = sorted(set(rows["assignment_epoch"].to_pylist()))
        some = ", ".join(map(str, known[-10:])) or "none"
        raise SpecError(
            f"group {group_id!r} has no target of epoch {epoch}: the last ones are of {some}"
        )
    return int(found["position"][-1].as_py())


def read_former_targets(reading: LogReader, basis: Basis, epoch: int) -> Targets:
    """Return what an epoch's target gave to members that are there today.

    A static member's successor has what its predecessor had.

    Raises
    ------
    SpecError
        No target was computed for this epoch.
    LostTarget
        Its rows are no longer in the table `targets`.
    """
    position = find_target_position(reading, basis.group_id, epoch)
    then = LogReader(reading.store, position)
    group = then.state().groups[basis.group_id]
    then.read_target(group)
    today = {
        meta.instance_id: member_id
        for member_id, meta in basis.input.metas.items()
        if meta.instance_id is not None
    }
    targets = Targets()
    for member_id, meta in group.metas.items():
        heir = member_id if member_id in basis.input.metas else today.get(meta.instance_id or "")
        if heir is not None:
            targets[heir] = group.targets.get(member_id, ())
    return targets
