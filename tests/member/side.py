"""One member's side without a driver: what tests tell it, and what it asks for."""

from __future__ import annotations

from coordinator.core.events import HeartbeatResponse
from coordinator.core.state.partition_spans import TopicKey
from coordinator.errors import GroupError
from coordinator.member.events import (
    HeartbeatAnswered,
    HeartbeatRefused,
    MemberSettings,
    SendHeartbeat,
    StepDone,
)
from coordinator.member.membership import Membership
from coordinator.member.states import ClientState

A = TopicKey("a", "id-a")
INTERVAL_MS = 5_000


def spans(*bounds):
    return tuple((A, first, end) for first, end in bounds)


class Side:
    """A member, its clock, and what it asked for last."""

    def __init__(self, **settings):
        self.membership = Membership(MemberSettings("g", "m", **settings))
        self.now = 1_000_000
        self.sent = None
        self.steps = []

    @property
    def state(self):
        return self.membership.state

    def tell(self, event, after_ms=0):
        """Return the actions for an event that comes after `after_ms`."""
        self.now += after_ms
        actions = self.membership.handle(event, self.now)
        for action in actions:
            if isinstance(action, SendHeartbeat):
                self.sent = action
            else:
                self.steps.append(action)
        return actions

    def answer(self, epoch, assignment=None, after_ms=0):
        """Answer the heartbeat that is under way."""
        number = self.sent.number
        response = HeartbeatResponse("m", epoch, INTERVAL_MS, assignment)
        return self.tell(HeartbeatAnswered(number, response), after_ms)

    def refuse(self, code):
        return self.tell(HeartbeatRefused(self.sent.number, GroupError(code, "because")))

    def done(self):
        """The oldest step is done."""
        return self.tell(StepDone(self.steps.pop(0).number))

    def settle(self, epoch, assignment):
        """Get an assignment and go all the way to STABLE."""
        self.answer(epoch, assignment)
        while self.steps:
            self.done()
        self.answer(epoch)
        assert self.state is ClientState.STABLE
        return self


def kinds(actions):
    return [type(action) for action in actions]
