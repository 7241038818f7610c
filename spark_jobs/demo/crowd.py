"""Members of the demo's very large group: they send heartbeats in batches."""

from __future__ import annotations

import time
from collections.abc import Callable

from coordinator import Coordinator
from coordinator.core.events import JOIN, LEAVE, Heartbeat
from coordinator.runtime.responses import HeartbeatAnswer

BATCH = 10_000
BEAT_S = 10.0
"""How often all members send a heartbeat while they wait."""


class Crowd:
    """Very many members of one group."""

    def __init__(self, coordinator: Coordinator, group_id: str, topics: tuple[str, ...]) -> None:
        self._coordinator, self.group_id, self.topics = coordinator, group_id, topics
        self.epochs: dict[str, int] = {}
        self._count: dict[str, int] = {}
        """How many partitions each member owns, if it got an assignment since it joined."""

    def join(self, member_ids: list[str], say: Callable[[str], object]) -> None:
        """Let members join."""
        for at in range(0, len(member_ids), BATCH):
            say(f"{at:,} of {len(member_ids):,} members have joined")
            self._count.update(dict.fromkeys(member_ids[at : at + BATCH], 0))
            self._beat(
                [
                    Heartbeat(
                        self.group_id,
                        member_id,
                        JOIN,
                        rebalance_timeout_ms=60_000,
                        subscribed_topic_names=self.topics,
                        topic_partitions={},
                    )
                    for member_id in member_ids[at : at + BATCH]
                ]
            )

    def leave(self, member_ids: list[str]) -> None:
        """Let members leave."""
        self._coordinator.consumer_group_heartbeats(
            [Heartbeat(self.group_id, member_id, LEAVE) for member_id in member_ids]
        )
        for member_id in member_ids:
            del self.epochs[member_id]
            self._count.pop(member_id, None)

    def beat(self) -> None:
        """Send one heartbeat for every member."""
        beats = [Heartbeat(self.group_id, member, epoch) for member, epoch in self.epochs.items()]
        for at in range(0, len(beats), BATCH):
            self._beat(beats[at : at + BATCH])

    def one_beats(self) -> tuple[int, int]:
        """Send a heartbeat for one member; return the group epoch and the assignment epoch."""
        one = next(iter(self.epochs))
        self._beat([Heartbeat(self.group_id, one, self.epochs[one])])
        return self._coordinator.group_epochs(self.group_id)[0]

    def settle(self, say: Callable[[str], object]) -> float:
        """Send heartbeats until the group is stable at its newest epoch; return the seconds."""
        began = beaten = time.perf_counter()
        while True:
            group_epoch, assignment_epoch = self.one_beats()
            if group_epoch == assignment_epoch:
                break
            say(self._coordinator.progress() or f"epoch {group_epoch:,} waits for its interval")
            time.sleep(0.2)
            if time.perf_counter() - beaten > BEAT_S:
                beaten = time.perf_counter()
                self.beat()
        say("members reconcile to the new target")
        while self._state() != "Stable":
            self.beat()
        return time.perf_counter() - began

    def _state(self) -> str:
        groups = self._coordinator.list_groups()["groups"]
        return next(str(g["group_state"]) for g in groups if g["group_id"] == self.group_id)

    def _beat(self, beats: list[Heartbeat]) -> None:
        answers = self._coordinator.consumer_group_heartbeats(beats).raise_for_error()
        less = []
        for beat, answer in zip(beats, answers, strict=True):
            self.epochs[beat.member_id] = answer.member_epoch
            if answer.ranges is not None:
                count = sum(end - first for _, first, end in answer.ranges)
                # What a member that was there before the crowd owned is unknown.
                if count < self._count.get(beat.member_id, count + 1):
                    less.append(self._let_go(beat.member_id, answer))
                self._count[beat.member_id] = count
        if less:
            self._beat(less)

    def _let_go(self, member_id: str, answer: HeartbeatAnswer) -> Heartbeat:
        """Return the heartbeat that confirms a revocation."""
        return Heartbeat(
            self.group_id, member_id, answer.member_epoch, topic_partitions=answer.assignment
        )
