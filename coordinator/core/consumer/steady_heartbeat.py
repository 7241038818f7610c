"""Answer the heartbeats of a group at rest: the fast path beside `step`.

Almost all heartbeats say nothing new, in a group where nothing changes. Their answer needs no walk
through the three steps of a heartbeat, and of many of them one record at most. What this file
answers is exactly what `step` decides; for everything else it returns None, or stops.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from coordinator.config import Config
from coordinator.config.kafka import group_value
from coordinator.core.events import Heartbeat, HeartbeatResponse, Result
from coordinator.core.state.groups import Group, Member, State
from coordinator.core.state.member_rows import META_FIELDS, HeldRows
from coordinator.core.state.partition_spans import MANY, drop_epochs
from coordinator.core.state.records import MembersAdvanced, MemberState
from coordinator.core.state.row_dict import NO_ROW
from coordinator.core.state.rows.member_table import MemberDict
from coordinator.core.state.target_assignment import Targets

FEW, MOST = 64, 8_192
"""Heartbeats of members in rows that are looked at together, at first and at most."""
EPOCH_MAX = 2**31 - 1
CLIENT_ID, CLIENT_HOST, CLASSIC = map(
    META_FIELDS.index, ("client_id", "client_host", "classic_member_metadata")
)
NOT_CLASSIC = CLASSIC, None
SILENT = {"client_id": "", "client_host": "", "classic_member_metadata": None}
"""What is known of members whose heartbeats come from this process."""


def find_steady_group(state: State, config: Config, group_id: str) -> tuple[Group, int] | None:
    """Return a group whose members' heartbeats may be steady, and its heartbeat interval.

    None when any heartbeat might change something: an assignment is due, topics changed, a target
    is unfinished, regexes may have to be resolved again, or members differ about the assignor; and
    where Kafka coordinates the groups, whose heartbeats are refused.
    """
    group = state.groups.get(group_id)
    if (
        group is None
        or state.watched is not None
        or group.epoch != group.assignment_epoch
        or group.topics_hash != group.noticed_hash
        or group.partial
        or group.regex_members
        or len(group.wishes) > 1
    ):
        return None
    settings = state.settings.get(group_id, {})
    return group, group_value(config.kafka, settings, "consumer.heartbeat.interval.ms")


def answer_steady_heartbeat(state: State, config: Config, event: Heartbeat) -> Result | None:
    """Answer the heartbeats that a group at rest gets; None for all others.

    The fast path: exactly what `step` decides for a heartbeat with nothing but id and epoch (owned
    partitions do not matter here) of a member that rests at the assignment epoch, where nothing
    changes, or is STABLE behind an epoch that changes nothing for it, where only its epoch moves.
    """
    if (
        event.rebalance_timeout_ms != -1
        or event.subscribed_topic_names is not None
        or event.subscribed_topic_regex is not None
        or event.server_assignor is not None
        or event.rack_id is not None
        or event.wants_assignment
        or event.member_epoch <= 0
        or (found := find_steady_group(state, config, event.group_id)) is None
    ):
        return None
    group, interval_ms = found
    epoch, members = group.assignment_epoch, group.members
    if (
        event.member_epoch == epoch
        and event.instance_id is None
        and isinstance(members, MemberDict)
    ):
        row = members.find_row(event.member_id)
        fields = (CLIENT_ID, event.client_id), (CLIENT_HOST, event.client_host), NOT_CLASSIC
        if row is not None and members.rows.rests(row, epoch, fields):
            return Result(response=HeartbeatResponse(event.member_id, epoch, interval_ms))
    member = members.get(event.member_id)
    if (
        member is None
        or event.instance_id not in (None, member.meta.instance_id)
        or not _rests(group, member, event.member_epoch, event.client_id, event.client_host)
    ):
        return None
    if event.member_epoch == epoch:
        return Result(response=HeartbeatResponse(event.member_id, epoch, interval_ms))
    if not _has_target(member, group.targets):
        return None
    return Result(
        [MembersAdvanced(event.group_id, epoch, (event.member_id,))],
        HeartbeatResponse(event.member_id, epoch, interval_ms),
    )


def answer_steady_heartbeats(
    state: State,
    config: Config,
    group_id: str,
    member_ids: Sequence[str],
    member_epochs: Sequence[int],
    start: int = 0,
) -> tuple[int, int, int, tuple[str, ...]]:
    """Answer the heartbeats of many members that say nothing but who and where they are.

    As `answer_steady_heartbeat` for each from `start` on, up to the first that needs a step.

    Returns
    -------
    tuple
        Where it ended, the epoch that all of them are at then, the heartbeat interval in ms, and
        the members whose epoch moves: one record for all.
    """
    found = find_steady_group(state, config, group_id)
    if found is None:
        return start, 0, 0, ()
    group, interval_ms = found
    epoch, members, targets = group.assignment_epoch, group.members, group.targets
    rows = SteadyRows(group, members) if isinstance(members, MemberDict) else None
    find = members.get
    advanced: dict[str, None] = {}
    at = start
    while at < len(member_ids):
        if rows is not None and (count := rows.answer(member_ids, member_epochs, at, advanced)):
            at += count
            continue
        member_id, sent = member_ids[at], member_epochs[at]
        member = find(member_id)
        if member is None or sent <= 0 or member_id in advanced or not _rests(group, member, sent):
            break
        if sent != epoch:
            if not _has_target(member, targets):
                break
            advanced[member_id] = None
        at += 1
    return at, epoch, interval_ms, tuple(advanced)


class SteadyRows:
    """Answers the heartbeats of members that are rows: some at once, more as long as all can be.

    After some that it cannot answer it rests, longer each time: others do it one by one.
    """

    def __init__(self, group: Group, members: MemberDict) -> None:
        self._group = group
        self._members = members
        self._some = FEW
        self._rest = 0
        self._rests = 1

    def answer(
        self, ids: Sequence[str], epochs: Sequence[int], start: int, advanced: dict[str, None]
    ) -> int:
        """Return how many from one on are steady; note which of them advance."""
        if self._rest:
            self._rest -= 1
            return 0
        some = slice(start, start + self._some)
        count, asked = self._count(ids[some], epochs[some], advanced), len(ids[some])
        if count == asked:
            self._some, self._rests = min(2 * self._some, MOST), 1
        else:
            self._some = FEW
            self._rest = self._rests
            self._rests = min(2 * self._rests, MOST) if count < FEW else 1
        return count

    def _count(self, ids: Sequence[str], epochs: Sequence[int], advanced: dict[str, None]) -> int:
        group, table, rows = self._group, self._members.rows, self._members.look_up(ids)
        if max(epochs) > EPOCH_MAX:
            return 0
        sent = np.array(epochs, np.int64)
        metas = table.metas
        steady = (rows != NO_ROW) & (sent > 0) & table.held.are_stable(rows, sent)
        for name, value in SILENT.items():
            steady &= metas.are(name, value, rows)
        moves = steady & (sent != group.assignment_epoch)
        if moves.any():
            who = [ids[at] for at in np.flatnonzero(moves).tolist()]
            targets = group.targets.find_rows(rows[moves], who)
            if targets is None or len({*who, *advanced}) < len(who) + len(advanced):
                return 0
            steady[moves] = table.held.have_just(rows[moves], *targets)
        count = len(ids) if steady.all() else int(np.argmin(steady))
        advanced.update(dict.fromkeys(ids[at] for at in np.flatnonzero(moves[:count]).tolist()))
        return count


def _rests(
    group: Group, member: Member, epoch: int, client_id: str = "", client_host: str = ""
) -> bool:
    """Whether a member is where it was, at the epoch that it says, and has nothing to do there.

    It is STABLE; or it waits at the assignment epoch, and nothing came free since it last looked.
    """
    held, meta = member.held, member.meta
    if isinstance(held, HeldRows):
        rests = held.is_stable(member, epoch) or _waits(group, member, epoch)
    elif held is None or held.member_epoch != epoch:
        return False
    else:
        rests = held.state is MemberState.STABLE or _waits(group, member, epoch)
    return (
        rests
        and meta.client_id == client_id
        and meta.client_host == client_host
        and meta.classic_member_metadata is None
    )


def _waits(group: Group, member: Member, epoch: int) -> bool:
    """Whether a member waits at the assignment epoch, where nothing came free since it looked."""
    return (
        member.looked_at == group.revision
        and epoch == group.assignment_epoch
        and member.epoch == epoch
        and member.current.state is MemberState.UNRELEASED_PARTITIONS
    )


def _has_target(member: Member, targets: Targets) -> bool:
    """Whether a member has exactly its target."""
    assigned, target = member.current.assigned, targets.get(member.member_id, ())
    if len(assigned) != len(target):
        return len(assigned) > len(target) and drop_epochs(assigned) == target
    if len(assigned) == 1:  # most members of very large groups
        return assigned[0][:3] == target[0]
    if len(assigned) >= MANY:
        return drop_epochs(assigned) == target
    return all(held[:3] == span for held, span in zip(assigned, target, strict=True))
