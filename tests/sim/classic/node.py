"""A coordinator whose answers may have to wait, and that dies where a rebalance is most in need of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from coordinator.core.classic_events import WAITING, JoinGroup, JoinGroupResponse, SyncGroup
from coordinator.core.events import Answer, Event, Result
from coordinator.core.state.classic_group import ClassicGroup, ClassicState
from coordinator.errors import ErrorCode, GroupError
from tests.sim.logs import Crash
from tests.sim.network import Request
from tests.sim.node import Node

if TYPE_CHECKING:
    from .world import ClassicWorld

BROKEN_MS = 20
"""So soon a client hears that its connection broke."""


class ClassicNode(Node):
    """A coordinator process with members of classic groups."""

    world: ClassicWorld

    def __init__(self, world: ClassicWorld, name: str) -> None:
        super().__init__(world, name)
        self._waiting: dict[int, Request] = {}
        self._numbers = 0
        self._looks = 0

    def start(self) -> None:
        """Begin a new life, where another one may still be."""
        self._break()
        super().start()

    def die(self, why: str) -> None:
        """End this life."""
        self._break()
        super().die(why)

    def _break(self) -> None:
        """Let those who wait hear that their connection broke."""
        broken, self._waiting = self._waiting, {}
        for request in broken.values():
            if not request.decided and request.reply is not None:
                request.decided = True
                self.world.schedule.after(BROKEN_MS, request.reply, None, self)

    def _ask(self, requests: list[Request]) -> None:
        processor, checker = self.processor, self.world.checker
        assert processor is not None
        events = [self._number(request.event) for request in requests]
        before = dict(processor.state.classic)
        self._look(before.values())
        checker.asked(requests)
        try:
            answers = processor.run(events)
        finally:
            checker.settled()
        checker.answered(self, requests, answers)
        for request, event, answer in zip(requests, events, answers, strict=True):
            if isinstance(answer, Result) and answer.response is WAITING:
                assert isinstance(event, JoinGroup | SyncGroup)
                self._waiting[event.request_id] = request
            else:
                checker.answered(self, request, answer)
                self._reply(request, answer)
        self._hand_out()

    def _number(self, event: Event) -> Event:
        if not isinstance(event, JoinGroup | SyncGroup):
            return event
        self._numbers += 1
        name = f"{self.name}.{self.life}.{self._numbers}"
        drawn = {"request_id": self._numbers}
        if isinstance(event, JoinGroup):
            # Before the coordinator's name, so that no two lives ever draw the same id.
            drawn |= {"drawn_id": f"{event.drawn_id}-{name}", "drawn_consumer_id": name}
        return replace(event, **drawn)

    def _done(self) -> None:
        self._hand_out()
        super()._done()

    def _hand_out(self) -> None:
        """Answer those that no longer wait; sometimes die in the middle of it."""
        processor = self.processor
        if processor is None:
            return
        for number, response in processor.parked.take_answered():
            request = self._waiting.pop(number, None)
            if request is None:
                continue  # refused in the step that let it wait: the log was no longer ours
            answer: Answer = (
                GroupError(ErrorCode.REBALANCE_IN_PROGRESS, "superseded")
                if response is None
                else Result(response=response)
            )
            self.world.checker.answered(self, request, answer)
            is_join = isinstance(response, JoinGroupResponse)
            self._die_in("answering joins" if is_join else "answering syncs")
            self._reply(request, answer)
        self.world.checker.waiting(self, self._waiting)

    def _look(self, groups) -> None:
        """Die in the phase that a group is in, where that is to happen."""
        phases = {phase_of(group) for group in groups}
        for phase in sorted(phases - {""}):
            self._die_in(phase)

    def _die_in(self, phase: str) -> None:
        self._looks += 1
        if self.busy and self.world.dies_in(phase, self.name, self.life, self._looks):
            self.world.tell(f"{self.name}: dies while {phase}")
            raise Crash(f"while {phase}")


def phase_of(group: ClassicGroup) -> str:
    """Return what a group is in the middle of."""
    match group.state:
        case ClassicState.PREPARING if group.parked_joins == 0:
            return "telling"
        case ClassicState.PREPARING:
            return "joining"
        case ClassicState.COMPLETING if len(group.pending_syncs) == len(group.members):
            return "joined"
        case ClassicState.COMPLETING:
            return "syncing"
        case ClassicState.STABLE if group.pending_syncs:
            return "synced"
    return ""


PHASES = (
    "telling", "joining", "answering joins", "joined", "syncing", "answering syncs", "synced",
)  # fmt: skip
"""Of a rebalance, in their order (W-87)."""
