"""Deadlines of many members, checked together: `GroupTimers` says of what, `Deadlines` when."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

import numpy as np

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
from coordinator.core.state.groups import Member, State
from coordinator.core.state.records import MemberState

MANY = 100
"""So many timers are worth to be set as arrays."""
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
        return len(self._slots)

    def __contains__(self, key: K) -> bool:
        return key in self._slots

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
        self._at[slots] = at_ms
        self._set[slots] = np.arange(self._count + 1, self._count + 1 + len(slots))
        self._epoch[slots] = epoch
        self._count += len(slots)
        self._next = min(self._next, at_ms)

    def cancel(self, key: K) -> None:
        """End a timer; it need not be running."""
        slot = self._slots.pop(key, None)
        if slot is not None:
            self._at[slot] = NEVER
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
            key = self._keys[slot]
            assert key is not None
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
        rows = [
            (int(self._at[slot]), int(self._set[slot]), slot, key)
            for key, slot in self._slots.items()
        ]
        return [
            Due(key, at, int(self._epoch[slot]))
            for at, _, slot, key in sorted(rows, key=lambda row: row[:2])
        ]

    def _slot_of(self, key: K) -> int:
        slot = self._slots.get(key)
        return self._new_slot(key) if slot is None else slot

    def _new_slot(self, key: K) -> int:
        if self._free:
            slot = self._free.pop()
            self._keys[slot] = key
        else:
            slot = len(self._keys)
            self._keys.append(key)
            if slot == len(self._at):
                self._at = np.concatenate([self._at, np.full(slot, NEVER, dtype=np.int64)])
                self._set = np.concatenate([self._set, np.zeros(slot, dtype=np.int64)])
                self._epoch = np.concatenate([self._epoch, np.zeros(slot, dtype=np.int64)])
        self._slots[key] = slot
        return slot


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
        self._deadlines: Deadlines[TimerKey] = Deadlines()

    def start(self, state: State) -> None:
        """Forget all, and start those that follow from a state that was loaded (K-13, G-73).

        The coordinator before us may confirm heartbeats for check_ms after our claim: by so much
        longer members may count on what they have.
        """
        self.clear()
        now = self._steady()
        check_ms = self._config.lease.check_ms
        self._deadlines.set((EXPIRE, "", ""), now + self._expire_every_ms)
        sessions: defaultdict[int, list[TimerKey]] = defaultdict(list)
        revoking: list[Member] = []
        for group_id, group in sorted(state.groups.items()):
            alike = sessions[self._session_ms(state, group_id)]
            alike += [(SESSION, group_id, member_id) for member_id in sorted(group.members)]
            unstable = (one for one in group.members.values() if not one.stable)
            revoking += [one for one in unstable if one.current.state is REVOKING]
        for session_ms, keys in sessions.items():  # one by one, a million groups take long
            self._deadlines.set_many(keys, now + check_ms + session_ms)
        for member in sorted(revoking, key=lambda m: (m.meta.group_id, m.member_id)):
            after = now + member.meta.rebalance_timeout_ms
            key = (REBALANCE, member.meta.group_id, member.member_id)
            self._deadlines.set(key, after, member.epoch)

    def clear(self) -> None:
        """Forget all."""
        self._deadlines = Deadlines()

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
        keys = [(SESSION, group_id, member_id) for member_id in member_ids]
        self._deadlines.set_many(keys, self._steady() + self._session_ms(state, group_id))

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
