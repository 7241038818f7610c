"""The pure core with a classic group "g": its members, their requests, and who waits for what.

A member is called as in the test: one that is not in the group yet gets that id. A request that has
to wait returns its number; `heard` has the answer once there is one, None where none will come.
"""

from __future__ import annotations

from coordinator.core.classic_events import (
    WAITING,
    ClassicHeartbeat,
    GroupsLoaded,
    JoinGroup,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
)
from coordinator.core.events import OffsetCommit
from coordinator.core.state.classic_group import ClassicState
from coordinator.core.state.embedded import Subscription, write_subscription
from coordinator.errors import GroupError
from tests.support import invariants
from tests.support.coordinator_core import Core

DELAY, POLICY = "group.initial.rebalance.delay.ms", "group.consumer.migration.policy"
MAX_SIZE = "group.max.size"
SESSION_MS, REBALANCE_MS = 10_000, 60_000
Empty, Preparing, Completing = ClassicState.EMPTY, ClassicState.PREPARING, ClassicState.COMPLETING
Stable, Dead = ClassicState.STABLE, ClassicState.DEAD


def topics(*names, version=1, **fields):
    """The bytes of a consumer's subscription."""
    return write_subscription(Subscription(version, names, **fields))


class ClassicCore(Core):
    """One coordinator's core; settings are Kafka's, but for an initial delay of 0."""

    def __init__(self, **kafka):
        super().__init__()
        self.configure(**{DELAY: 0} | kafka)
        self.heard = {}
        self._number = 0

    def run(self, event):
        """As `Core.run`; a member that no longer waits is in `heard`."""
        result = super().run(event)
        self.heard |= dict(result.completed) | dict.fromkeys(result.superseded)
        return result

    # Requests ------------------------------------------------------------------------------------

    def join(self, member, *names, version=3, member_id=None, instance=None, **fields):
        """JoinGroup with these protocols: names, or pairs of name and bytes; `range` without any."""
        self._number += 1
        known = self._group is not None and (
            member in self._group.members or member in self._group.pending_joins
        )
        fields = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS} | fields
        protocols = fields.pop("protocols", None)
        if protocols is None:
            protocols = names or ["range"]
        event = JoinGroup(
            fields.pop("group_id", "g"),
            member_id if member_id is not None else member if known else "",
            fields.pop("protocol_type", "consumer"),
            [Protocol(one, topics("a")) if isinstance(one, str) else one for one in protocols],
            request_id=self._number,
            drawn_id=member,
            drawn_consumer_id=member,
            instance_id=instance,
            knows_member_id=version >= 4,
            knows_skipping=version >= 9,
            **fields,
        )
        return self._ask(event)

    def join_consumer(self, member, *names, **fields):
        """Join by a heartbeat, with these topics."""
        return super().join(member, *names, **fields)

    def sync(self, member, generation=None, *, instance=None, kind=None, name=None, **given):
        """SyncGroup in the running generation unless another is given; `given` is the leader's."""
        self._number += 1
        if generation is None:
            generation = self.g.generation
        return self._ask(
            SyncGroup("g", member, generation, self._number, given, instance, kind, name)
        )

    def ping(self, member, generation=None, instance=None):
        """The code that a classic heartbeat is answered."""
        if generation is None:
            generation = self.g.generation
        return self._ask(ClassicHeartbeat("g", member, generation, instance))

    def leave(self, *leavers):
        """The codes that leavers are answered: member ids, or pairs of member id and instance id."""
        found = [Leaver(one) if isinstance(one, str) else Leaver(*one) for one in leavers]
        return [code for _, code in self.run(LeaveGroup("g", found)).response.members]

    def commit(self, member, generation, *, instance=None, topic="a", offset=5):
        """The code that the commit of one offset is answered."""
        event = OffsetCommit(
            "g", member, generation, {topic: {0: (offset, "")}}, instance_id=instance
        )
        found = self._ask(event)
        return found[topic][0] if isinstance(found, dict) else found

    def _ask(self, event):
        """A response, the number of a request that waits, or the code of a refusal."""
        try:
            response = self.run(event).response
        except GroupError as error:
            return error.code
        return event.request_id if response is WAITING else response

    # Lives ---------------------------------------------------------------------------------------

    def generation_of(self, *members, instances=(), **fields):
        """Let members join a generation; instances are those that the first of them have."""
        held = [*instances, *[None] * len(members)]
        waiting = [
            self.join(member, instance=instance, **fields)
            for member, instance in zip(members, held, strict=False)
        ]
        if self.g.state is not Completing:
            self.advance(0)
        assert self.g.state is Completing
        return waiting

    def stable(self, *members, **fields):
        """Let members come to a generation in which each is assigned its own name."""
        self.generation_of(*members, **fields)
        self.assign()

    def assign(self):
        """Let all sync that have not, the leader last."""
        pending = [*self.g.pending_syncs]
        for member in pending:
            if member != self.g.leader:
                self.sync(member)
        leader = self.g.leader
        if leader in pending:
            self.sync(leader, **{member: member.encode() for member in self.g.members})
        assert self.g.state is Stable

    def fail_over(self):
        """Let another coordinator replay the log."""
        self.timers.clear()
        self.state = invariants.replayed(self.records)
        self.run(GroupsLoaded())

    # Looking -------------------------------------------------------------------------------------

    @property
    def _group(self):
        return self.state.classic.get("g")

    @property
    def g(self):
        """The group "g"."""
        return self.state.classic["g"]

    def code(self, answer):
        """The error code of an answer, or of what a request that waited was answered."""
        found = self.heard[answer] if type(answer) is int else answer
        return getattr(found, "error_code", found)
