"""Members against a coordinator's core, in memory, on a clock by hand.

A request or an answer may be lost, an answer may come late, twice, or after newer ones. A request
that its member no longer waits for is lost, as on a connection that is closed.
"""

from __future__ import annotations

import pytest

from coordinator.core.events import HeartbeatResponse
from coordinator.errors import GroupError
from coordinator.member.events import (
    CommitOffsets,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatUnanswered,
    MemberSettings,
    SendHeartbeat,
    StepDone,
    Wake,
)
from coordinator.member.membership import Membership
from coordinator.member.states import BEATING
from tests.support.coordinator_core import SESSION_MS

REBALANCE_MS = 10_000
PATIENCE_MS = 6_000
"""Longer than until the next heartbeat: only who waits for an answer sleeps so long."""


class Player:
    """One member, and what is under way between it and the world."""

    def __init__(self, world, name, **settings):
        self.world, self.name = world, name
        fields = {"rebalance_timeout_ms": REBALANCE_MS} | settings
        self.membership = Membership(MemberSettings("g", name, **fields))
        self.request = None
        self.number = 0
        self.answers = []
        self.steps = []
        self.paused = False
        self.log = []

    @property
    def state(self):
        return self.membership.state

    def tell(self, event):
        """Let something happen to it."""
        for action in self.membership.handle(event, self.world.now):
            if isinstance(action, SendHeartbeat):
                self.request, self.number = action, action.number
            else:
                self.steps.append(action)
            self.log.append(action)

    def in_use(self):
        """The partitions that it works on: none when it must have stopped."""
        membership = self.membership
        if membership.state in BEATING and self.world.now >= membership.uses_until_ms:
            return set()
        return partitions(membership.owned)

    def wakes_at(self):
        """When its clock rings; never while it is stopped."""
        return 2**62 if self.paused else self.membership.wake_at_ms

    # What may come of its requests ---------------------------------------------------------------

    def reach(self, refusal=None):
        """Let the request reach the coordinator; its answer is under way then."""
        sent, self.request = self.request, None
        if refusal is not None:
            refused = GroupError(refusal, "as the test wants")
            self.answers.append(HeartbeatRefused(sent.number, refused))
            return
        try:
            found = self.world.core.run(sent.request).response
        except GroupError as error:
            self.answers.append(HeartbeatRefused(sent.number, error))
            return
        assert isinstance(found, HeartbeatResponse)
        self.answers.append(HeartbeatAnswered(sent.number, found))

    def give_up(self):
        """Let the member wait no longer; an answer that is under way may still come."""
        self.request = None
        self.tell(HeartbeatUnanswered(self.number))

    def hear(self, index=0, *, again=False):
        """Let an answer come in."""
        answer = self.answers[index]
        if not again:
            del self.answers[index]
        self.tell(answer)

    def finish(self):
        """Let the oldest step be done; callbacks run one after the other."""
        self.tell(StepDone(self.steps.pop(0).number))

    def talk(self):
        """Let everything that is under way arrive and be done, until nothing is."""
        while True:
            if self.steps:
                self.finish()
            elif self.answers:
                self.hear()
            elif self.request is not None:
                self.reach()
            elif self.state in BEATING and self.wakes_at() > self.world.now + PATIENCE_MS:
                self.give_up()  # of nothing, unless its answer was lost
                return
            else:
                return


class World:
    """One group, "g", with members of both sides."""

    def __init__(self, core):
        self.core = core
        self.players = []

    @property
    def now(self):
        return self.core.now

    def join(self, event, name=None, **settings):
        """Let a new member subscribe."""
        player = Player(self, name or f"m{len(self.players)}", **settings)
        self.players.append(player)
        player.tell(event)
        return player

    def advance(self, ms):
        """Move the clock; members wake and timers fire each at its instant."""
        end = self.now + ms
        while True:
            at = min([end, *(player.wakes_at() for player in self.players)])
            self.core.advance(max(0, at - self.now))
            due = [player for player in self.players if player.wakes_at() <= self.now]
            for player in due:
                player.tell(Wake())
            self.check()
            if not due and self.now >= end:
                return

    def check(self):
        """No partition is worked on by two members."""
        seen = {}
        for player in self.players:
            for partition in player.in_use():
                other = seen.setdefault(partition, player)
                assert other is player, f"{partition}: {other.name} and {player.name}"

    def settle(self, rounds=60, ms=5_000):
        """Let time pass with nothing lost, a session at least, until all have their target."""
        for turn in range(rounds):
            for player in self.players:
                player.paused = False
                player.tell(Wake())
                player.talk()
                self.check()
            live = [player for player in self.players if player.state in BEATING]
            quiet = all(p.membership.has_settled and self.has_target(p) for p in live)
            if quiet and turn * ms > SESSION_MS:
                return
            self.advance(ms)
        pytest.fail("\n".join(["not at rest", *(self.story(player) for player in self.players)]))

    def story(self, player):
        """What a player has come to, for a test that failed."""
        group = self.core.state.groups.get("g")
        member = group and group.members.get(player.name)
        return f"{player.name} {player.state.name} {player.log[-3:]}: {member and member.current}"

    def has_target(self, player):
        """Whether the coordinator has nothing left for it to do."""
        group = self.core.state.groups.get("g")
        member = group and group.members.get(player.name)
        if not member or group.epoch != group.assignment_epoch:
            return False
        held = {span[:3] for span in member.current.assigned}
        return (
            member.current.member_epoch == group.epoch
            and partitions(held) == partitions(group.targets.get(player.name, ()))
            and not member.current.pending
        )


def partitions(spans):
    """The partitions of spans, as (topic id, partition)."""
    return {(key.topic_id, p) for key, first, end in spans for p in range(first, end)}


def named(player):
    """What a player was asked to do, in short: heartbeats by epoch, steps by their kind."""
    found = []
    for action in player.log:
        if isinstance(action, SendHeartbeat):
            found.append(f"beat {action.request.member_epoch}")
        else:
            found.append(type(action).__name__.removesuffix("Partitions"))
    return found


__all__ = ["REBALANCE_MS", "CommitOffsets", "Player", "World", "named", "partitions"]
