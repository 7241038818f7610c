"""A node as a member of the group of the nodes: the real state machine, driven by threads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from coordinator.clock import monotonic_ms
from coordinator.core.events import Answer
from coordinator.errors import GroupError
from coordinator.member.application import Stop
from coordinator.member.driver import REQUEST_TIMEOUT_S, expand
from coordinator.member.events import (
    Action,
    AssignPartitions,
    CommitOffsets,
    CoordinatorMoved,
    Event,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatUnanswered,
    Leave,
    LosePartitions,
    MemberSettings,
    RevokePartitions,
    SendHeartbeat,
    StepDone,
    Subscribe,
    Wake,
)
from coordinator.member.membership import Membership
from coordinator.member.states import BEATING, ENDED, ClientState
from coordinator.member.transport import TopicPartition
from tests.sim.network import Request

from .machine import Condition, Task
from .network import Finder

if TYPE_CHECKING:
    from .world import ShardWorld

LONG_MS = 3_600_000
Work = Callable[[TopicPartition, Stop], object]


class NodeMember:
    """As `Member`, as far as a node uses it."""

    def __init__(
        self,
        world: ShardWorld,
        _address: str,
        *,
        group_id: str,
        topics: Sequence[str],
        client_id: str,
        member_id: str,
        session_timeout_ms: int,
        keeps_ms: int,
        **_access: Any,
    ) -> None:
        self._world, self._machine = world, world.machine
        self._process = world.machine.check()
        self._topics = tuple(topics)
        self._membership = Membership(
            MemberSettings(
                group_id,
                member_id,
                client_id=client_id,
                session_timeout_ms=session_timeout_ms,
                keeps_ms=keeps_ms,
            )
        )
        self._finder = Finder(world, world.host_of(self._process))
        self._changed = Condition(self._machine)
        self._steps: deque[Action] = deque()
        self._work: Work | None = None
        self._mine: set[TopicPartition] = set()
        self._runs: dict[TopicPartition, tuple[Stop, Task]] = {}
        self._ended = False
        self._failure: BaseException | None = None

    def __enter__(self) -> Self:
        self._begin(self._pace, "member")
        self._begin(self._do_steps, "steps")
        self._tell(Subscribe(self._topics))
        return self

    def __exit__(self, *_error: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Leave the group, and wait until that is done."""
        self._tell(Leave())
        self._wait_until_ended()

    @property
    def waits_ms(self) -> int:
        """For how long its heartbeats have not been answered."""
        since = self._membership.waits_since_ms
        return 0 if since is None else monotonic_ms() - since

    def find_coordinator(self) -> None:
        """Ask again who coordinates the nodes, and send it a heartbeat at once."""
        self._finder = Finder(self._world, self._world.host_of(self._process))
        self._tell(CoordinatorMoved())

    def run(self, work: Work) -> None:
        """Have work done on every partition that it owns, until it leaves."""
        self._work = work
        self._start(sorted(self._mine))
        self._wait_until_ended()
        if self._failure is not None:
            raise self._failure

    def _wait_until_ended(self) -> None:
        while not self._ended:
            with self._changed:
                self._changed.wait(1.0)

    def _begin(self, run: Callable[[], object], name: str) -> Task:
        return self._machine.begin(self._process, run, name)

    # Its state machine ---------------------------------------------------------------------------

    def _tell(self, event: Event) -> None:
        for action in self._membership.handle(event, monotonic_ms()):
            if isinstance(action, SendHeartbeat):
                self._begin(lambda action=action: self._send(action), "heartbeat")  # type: ignore[misc]
                continue
            if isinstance(action, CommitOffsets):
                self._stop(expand(action.partitions))
            elif isinstance(action, LosePartitions):
                self._stop([*self._mine, *self._runs])
            self._steps.append(action)
        if self._membership.state is ClientState.FATAL and self._failure is None:
            self._failure = self._membership.fatal
        if self._membership.state in ENDED and not self._steps:
            self._ended = True
        self._changed.notify()

    def _pace(self) -> None:
        """Wake the state machine when it wants to be."""
        while not self._ended:
            left = self._membership.wake_at_ms - monotonic_ms()
            if left <= 0:
                self._tell(Wake())
                continue
            with self._changed:
                self._changed.wait(min(left, LONG_MS) / 1000)

    def _send(self, action: SendHeartbeat) -> None:
        world, number = self._world, action.number
        name = ("node", self._membership.settings.member_id, number)
        answers: list[Answer] = []
        answered = Condition(self._machine)

        def reply(answer: Answer, _host: object) -> None:
            def take() -> None:
                answers.append(answer)
                answered.notify()

            self._machine.within(self._process, take)

        self._finder.send(Request(name, action.request, reply))
        patience_s = min(REQUEST_TIMEOUT_S, self._membership.session_ms / 3_000)
        until = monotonic_ms() + int(patience_s * 1000)
        while not answers and monotonic_ms() < until:
            with answered:
                answered.wait((until - monotonic_ms()) / 1000)
        jitter = world.chance.draw("jitter", *name)
        if not answers or isinstance(answers[0], GroupError):
            why = answers[0].code.name if answers else "silence"  # type: ignore[union-attr]
            world.tell(f"{self._process.name}: as a node, #{number} meets {why}")
        if not answers:
            self._finder = Finder(world, world.host_of(self._process))
            self._tell(HeartbeatUnanswered(number, jitter))
        elif isinstance(answers[0], GroupError):
            self._tell(HeartbeatRefused(number, answers[0], jitter))
        else:
            session_ms = self._membership.settings.session_timeout_ms
            self._tell(HeartbeatAnswered(number, answers[0].response, session_ms))

    # Its work ------------------------------------------------------------------------------------

    def _do_steps(self) -> None:
        """Do the steps that are asked for, one after the other."""
        while not self._ended:
            if not self._steps:
                with self._changed:
                    self._changed.wait(None)
                continue
            action = self._steps[0]
            assert not isinstance(action, SendHeartbeat)
            partitions = list(expand(action.partitions))
            if isinstance(action, CommitOffsets):
                self._wait_for(partitions)
            elif isinstance(action, AssignPartitions):
                if self._membership.state is ClientState.RECONCILING:
                    self._mine.update(partitions)
                    self._start(partitions)
            elif isinstance(action, LosePartitions):
                self._wait_for(list(self._runs))
            else:
                assert isinstance(action, RevokePartitions)
            self._steps.popleft()
            self._tell(StepDone(action.number))

    def _start(self, partitions: Sequence[TopicPartition]) -> None:
        work = self._work
        for partition in partitions if work is not None else ():
            stop = Stop(self._is_over)

            def run(partition: TopicPartition = partition, stop: Stop = stop) -> None:
                assert work is not None
                try:
                    work(partition, stop)
                except Exception as error:  # noqa: BLE001 - it ends the member
                    self._world.bugs.append(f"the work on {partition} fails: {error!r}")
                    self._failure = error
                    self._tell(Leave())

            if partition not in self._runs or self._runs[partition][1].done:
                self._runs[partition] = stop, self._begin(run, f"shard-{partition.partition}")

    def _is_over(self) -> bool:
        membership = self._membership
        return membership.state in BEATING and monotonic_ms() >= membership.uses_until_ms

    def _stop(self, partitions: object) -> None:
        found = set(partitions)  # type: ignore[call-overload]
        self._mine -= found
        for partition in sorted(found & self._runs.keys()):
            self._runs[partition][0].set()

    def _wait_for(self, partitions: Sequence[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self._runs:
                task = self._runs[partition][1]
                self._machine.wait_for(lambda task=task: task.done, task.joiners, None)  # type: ignore[misc]
                self._runs.pop(partition, None)
