"""Deadlines of many members, checked together: `GroupTimers` says of what, `Deadlines` when."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from assignors.arrays import Longs
from coordinator.clock import Clock
from coordinator.config import Config
from coordinator.config.kafka import group_value
from coordinator.core.events import (
    HEARTBEAT,
    REBALANCE,
    SESSION,
    Event,
    ExpireOffsets,
    SetTimer,
    TimerFired,
    TimerKey,
)
from coordinator.core.state.classic_group import ClassicMember
from coordinator.core.state.groups import Group, Member, State
from coordinator.core.state.records import MemberState
from coordinator.core.state.row_dict import NO_ROW, MemberIndex, SortedIds
from coordinator.core.state.rows.member_table import MemberDict, list_unstable

MANY = 100
"""So many timers are worth to be set as arrays."""
GROWTH = 4
"""Room for timers grows by this part of it, when there is none left."""
REVOKING = MemberState.UNREVOKED_PARTITIONS
NEVER = np.iinfo(np.int64).max
EXPIRE = "expire-group-metadata"
"""The timer that looks at the age of offsets, under Kafka's name."""
K = TypeVar("K", bound=Hashable)


class Due(NamedTuple, Generic[K]):
    """A deadline that has passed."""

    key: K
    at_ms: int
    epoch: int


class Deadlines(Generic[K]):
    """Deadlines by key in one array: starting one again is one store, looking is one comparison.

    Those of the same instant fire in the order in which they were set.
    """

    def __init__(self) -> None:
        self._slots: dict[K, int] = {}
        self._keys: list[K | None] = []
        self._free: list[int] = []
        self._at = np.full(64, NEVER, dtype=np.int64)
        self._set = np.zeros(64, dtype=np.int64)
        self._epoch = np.zeros(64, dtype=np.int64)
        self._count = 0
        self._next = NEVER
        """No deadline is before this."""

    def __len__(self) -> int:
        return int(np.count_nonzero(self._at != NEVER))

    def __contains__(self, key: K) -> bool:
        slot = self._find(key)
        return slot is not None and self._at[slot] != NEVER

    def _find(self, key: K) -> int | None:
        """Return the slot that a key has, if it has one."""
        return self._slots.get(key)

    def _key_of(self, slot: int) -> K:
        """Return the key that has a slot."""
        key = self._keys[slot]
        assert key is not None
        return key

    def set(self, key: K, at_ms: int, epoch: int = 0) -> None:
        """Start a timer, or start it again."""
        slot = self._slot_of(key)
        self._count += 1
        self._at[slot] = at_ms
        self._set[slot] = self._count
        self._epoch[slot] = epoch
        self._next = min(self._next, at_ms)

    def set_many(self, keys: Sequence[K], at_ms: int, epoch: int = 0) -> None:
        """Start timers, or start them again, all for the same instant, in their order."""
        known = list(map(self._slots.get, keys))
        slots = [slot for slot in known if slot is not None]
        if len(slots) < len(keys):
            slots = list(map(self._slot_of, keys))
        self._set_slots(slots, at_ms, epoch)

    def _set_slots(self, slots: list[int] | Longs, at_ms: int, epoch: int = 0) -> None:
        self._at[slots] = at_ms
        self._set[slots] = np.arange(self._count + 1, self._count + 1 + len(slots))
        self._epoch[slots] = epoch
        self._count += len(slots)
        self._next = min(self._next, at_ms)

    def cancel(self, key: K) -> None:
        """End a timer; it need not be running."""
        slot = self._find(key)
        if slot is None:
            return
        self._at[slot] = NEVER
        if self._slots.pop(key, None) is not None:
            self._keys[slot] = None
            self._free.append(slot)

    def pop_due(self, now_ms: int, most: int | None = None) -> list[Due[K]]:
        """Return and end the timers whose deadline has passed, in the order of their deadlines.

        Parameters
        ----------
        most
            How many to return; the others are due still.
        """
        if now_ms < self._next:
            return []
        slots = np.flatnonzero(self._at <= now_ms)
        slots = slots[np.lexsort((self._set[slots], self._at[slots]))][:most]
        due = []
        for slot in slots.tolist():
            key = self._key_of(slot)
            due.append(Due(key, int(self._at[slot]), int(self._epoch[slot])))
            self.cancel(key)
        self._next = int(self._at.min())
        return due

    def next_at(self) -> int | None:
        """Return the next deadline."""
        self._next = int(self._at.min())
        return None if self._next == NEVER else self._next

    def wait_ms(self, now_ms: int, most_ms: int) -> int:
        """Return how long no deadline passes, at most so long, without looking at all of them."""
        return min(max(self._next - now_ms, 0), most_ms)

    def all(self) -> list[Due[K]]:
        """Return what runs, in the order of the deadlines."""
        slots = np.flatnonzero(self._at != NEVER)
        slots = slots[np.lexsort((self._set[slots], self._at[slots]))]
        return [
            Due(self._key_of(slot), int(self._at[slot]), int(self._epoch[slot]))
            for slot in slots.tolist()
        ]

    def _slot_of(self, key: K) -> int:
        slot = self._find(key)
        return self._new_slot(key) if slot is None else slot

    def _new_slot(self, key: K) -> int:
        if self._free:
            slot = self._free.pop()
            self._keys[slot] = key
        else:
            slot = len(self._keys)
            self._keys.append(key)
            if slot == len(self._at):
                self._grow(slot // GROWTH + 1)
        self._slots[key] = slot
        return slot

    def _grow(self, more: int) -> None:
        """Have room for more slots."""
        self._at = np.concatenate([self._at, np.full(more, NEVER, dtype=np.int64)])
        self._set = np.concatenate([self._set, np.zeros(more, dtype=np.int64)])
        self._epoch = np.concatenate([self._epoch, np.zeros(more, dtype=np.int64)])


class SessionDeadlines(Deadlines[TimerKey]):
    """Deadlines of which the sessions of very large groups have slots by their members' rows.

    A member of theirs is no key: its slot follows from its row.
    """

    def __init__(self) -> None:
        super().__init__()
        self._blocks: dict[str, tuple[int, MemberIndex]] = {}
        """Of each such group: its first slot, and the rows of its members."""
        self._begins: list[int] = []
        self._groups: list[str] = []
        """Where blocks begin, and whose they are; in order."""

    def add_block(self, group_id: str, index: MemberIndex) -> None:
        """Give the members of a group that has none a slot each."""
        begin = len(self._keys)
        self._grow(max(begin + len(index) - len(self._at), 0))
        self._keys += [None] * len(index)
        self._blocks[group_id] = begin, index
        self._begins.append(begin)
        self._groups.append(group_id)

    def set_sessions(self, group_id: str, member_ids: Sequence[str], at_ms: int) -> None:
        """Start sessions of a group, or start them again, in their order."""
        block = self._blocks.get(group_id)
        if block is not None:
            rows = block[1].look_up(member_ids)
            if (rows != NO_ROW).all():
                self._set_slots(block[0] + rows, at_ms)
                return
        self.set_many([(SESSION, group_id, member_id) for member_id in member_ids], at_ms)

    def set_members(self, group_id: str, members: MemberDict, at_ms: int) -> None:
        """Start the sessions of a group whose members have a slot by their row, by their ids."""
        begin, index = self._blocks[group_id]
        rows, stays = index.list_by_id(), np.ones(len(index), np.bool_)
        stays[index.look_up(list(members.gone - members.own.keys()))] = False
        others = sorted(members.own.keys() - index.places.keys())
        slots, here = begin + rows, stays[rows]
        if others:
            sorted_ids = SortedIds(index.ids.take(pa.array(rows)))
            at = list(map(sorted_ids.place, others))
            keys = [(SESSION, group_id, one) for one in others]
            slots = np.insert(slots, at, list(map(self._slot_of, keys)))
            here = np.insert(here, at, True)
        self._set_slots(slots[here], at_ms)

    def _find(self, key: TimerKey) -> int | None:
        if self._blocks and key[0] == SESSION:
            block = self._blocks.get(key[1])
            if block is not None:
                row = block[1].places.get(key[2])
                if row is not None:
                    return block[0] + row
        return self._slots.get(key)

    def _key_of(self, slot: int) -> TimerKey:
        key = self._keys[slot]
        if key is not None:
            return key
        group_id = self._groups[bisect_right(self._begins, slot) - 1]
        begin, index = self._blocks[group_id]
        return SESSION, group_id, index.ids[slot - begin].as_py()


class DueEvent(NamedTuple):
    """A deadline that has passed, and the event that it is."""

    due: Due[TimerKey]
    event: Event


class GroupTimers:
    """The deadlines of one coordinator: sessions, rebalances, the age of offsets.

    Parameters
    ----------
    config
        How long after a load each of them is.
    steady
        The clock that they run on, in ms.
    """

    def __init__(self, config: Config, steady: Clock) -> None:
        self._config = config
        self._steady = steady
        self._deadlines = SessionDeadlines()

    def start(self, state: State) -> None:
        """Forget all, and start those that follow from a state that was loaded (K-13, G-73).

        The coordinator before us may confirm heartbeats for check_ms after our claim: by so much
        longer members may count on what they have.
        """
        self.clear()
        now = self._steady()
        check_ms = self._config.lease.check_ms
        self._deadlines.set((EXPIRE, "", ""), now + self._expire_every_ms)
        alike: defaultdict[int, list[Group]] = defaultdict(list)
        revoking: list[Member] = []
        for group_id, group in sorted(state.groups.items()):
            alike[self._session_ms(state, group_id)].append(group)
            unstable = list_unstable(group.members)
            revoking += [one for one in unstable if one.current.state is REVOKING]
        for session_ms, groups in alike.items():
            self._start_sessions(groups, now + check_ms + session_ms)
        for member in sorted(revoking, key=lambda m: (m.meta.group_id, m.member_id)):
            after = now + member.meta.rebalance_timeout_ms
            key = (REBALANCE, member.meta.group_id, member.member_id)
            self._deadlines.set(key, after, member.epoch)

    def _start_sessions(self, groups: Sequence[Group], at_ms: int) -> None:
        """Start the sessions of all members of groups: one by one, a million groups take long."""
        keys: list[TimerKey] = []
        for group in groups:
            if isinstance(group.members, MemberDict):
                self._deadlines.set_many(keys, at_ms)
                keys = []
                self._deadlines.add_block(group.group_id, group.members.rows.index)
                self._deadlines.set_members(group.group_id, group.members, at_ms)
            else:
                keys += [(SESSION, group.group_id, one) for one in sorted(group.members)]
        self._deadlines.set_many(keys, at_ms)

    def clear(self) -> None:
        """Forget all."""
        self._deadlines = SessionDeadlines()

    def apply(self, timers: Sequence[SetTimer]) -> None:
        """Start and cancel what a step asked for."""
        if not timers:
            return
        now = self._steady()
        if len(timers) > MANY:
            self._apply_many(timers, now)
            return
        for timer in timers:
            if timer.unless_set and timer.key in self._deadlines:
                continue
            if timer.after_ms is None:
                self._deadlines.cancel(timer.key)
            else:
                self._deadlines.set(timer.key, now + timer.after_ms, timer.member_epoch)

    def _apply_many(self, timers: Sequence[SetTimer], now: int) -> None:
        """Start and cancel very many, those alike together: a phase of a group ends for all."""
        alike = attrgetter("after_ms", "member_epoch", "unless_set")
        for (after_ms, epoch, unless_set), run in groupby(timers, alike):
            keys = [(timer.kind, timer.group_id, timer.member_id) for timer in run]
            if unless_set:
                keys = [key for key in dict.fromkeys(keys) if key not in self._deadlines]
            if after_ms is not None:
                self._deadlines.set_many(keys, now + after_ms, epoch)
                continue
            for key in keys:
                self._deadlines.cancel(key)

    def extend_session(self, state: State, group_id: str, member_id: str, now: int) -> None:
        """Give a member another session timeout, from `now` on."""
        at_ms = now + self._session_ms(state, group_id)
        self._deadlines.set((SESSION, group_id, member_id), at_ms)

    def extend_classic_session(self, group_id: str, member: ClassicMember, now: int) -> None:
        """Give a member of a classic group another session timeout, from `now` on."""
        key = (HEARTBEAT, group_id, member.member_id)
        self._deadlines.set(key, now + member.session_timeout_ms)

    def extend_sessions(self, state: State, group_id: str, member_ids: Sequence[str]) -> None:
        """Give members of a group another session timeout, from this instant on."""
        at_ms = self._steady() + self._session_ms(state, group_id)
        self._deadlines.set_sessions(group_id, member_ids, at_ms)

    def pop_due(self, most: int | None = None) -> list[DueEvent]:
        """Return what is due now, or so much of it; what repeats is started again."""
        found = []
        for due in self._deadlines.pop_due(self._steady(), most):
            kind, group_id, member_id = due.key
            event: Event = TimerFired(kind, group_id, member_id, due.epoch)
            if kind == EXPIRE:
                self._deadlines.set(due.key, due.at_ms + self._expire_every_ms)
                event = ExpireOffsets()
            found.append(DueEvent(due, event))
        return found

    def next_at(self) -> int | None:
        """Return the next deadline."""
        return self._deadlines.next_at()

    def wait_ms(self, most_ms: int) -> int:
        """Return how long no deadline passes from now on, at most so long."""
        return self._deadlines.wait_ms(self._steady(), most_ms)

    def all(self) -> list[Due[TimerKey]]:
        """Return what runs, in the order of the deadlines."""
        return self._deadlines.all()

    @property
    def _expire_every_ms(self) -> int:
        return self._config.kafka.offsets_retention_check_interval_ms

    def _session_ms(self, state: State, group_id: str) -> int:
        settings = state.settings.get(group_id, {})
        return group_value(self._config.kafka, settings, "consumer.session.timeout.ms")
