"""A member: the state machine that users run, with chance for its network and its application.

What it owns, it uses. How its heartbeats travel, how long its callbacks take and when its process
stops is the simulation's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from msgspec.structs import replace

from coordinator.core.events import Answer, Heartbeat, OffsetCommit
from coordinator.core.state.partition_spans import Spans, TopicKey
from coordinator.errors import GroupError
from coordinator.member.events import (
    Action,
    AssignPartitions,
    Event,
    HeartbeatAnswered,
    HeartbeatRefused,
    HeartbeatUnanswered,
    Leave,
    MemberSettings,
    RevokePartitions,
    SendHeartbeat,
    StepDone,
    Subscribe,
    Wake,
)
from coordinator.member.membership import NEVER_MS, Membership
from coordinator.member.states import ENDED, ClientState
from coordinator.runtime.responses import heartbeat_answer

from .network import Request

if TYPE_CHECKING:
    from .node import Node
    from .world import World

Partition: TypeAlias = tuple[TopicKey, int]

REQUEST_TIMEOUT_MS = 1_500
BACKOFF_MS, BACKOFF_MAX_MS = 200, 1_000
PAUSED_MS = 100
"""How often a process that is stopped sees whether it goes on."""


class Member:
    """One incarnation of a member.

    Attributes
    ----------
    released
        Of what it owns, what it has let go of according to a request from the past.
    gone
        Whether it has left, was refused for good, or died.
    untold
        Not 0 when a request that it no longer waited for moved its assignment: it cannot know (no
        client of this protocol could) until everything is answered to a newer one than this.
    number
        Of its newest heartbeat.
    """

    def __init__(
        self,
        world: World,
        group_id: str,
        member_id: str,
        instance_id: str | None = None,
        *,
        names: tuple[str, ...],
        regex: str,
        rebalance_timeout_ms: int,
        wish: str | None,
        first_number: int = 0,
    ) -> None:
        self.world = world
        self.group_id, self.member_id, self.instance_id = group_id, member_id, instance_id
        self.names, self.regex, self.wish = names, regex, wish
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.released: set[Partition] = set()
        self.gone = False
        self.paused = False
        self.untold = 0
        self.number = self._first = first_number
        self._membership = Membership(
            MemberSettings(
                group_id,
                member_id,
                instance_id,
                rebalance_timeout_ms=rebalance_timeout_ms,
                session_timeout_ms=world.checker.session_ms(group_id),
                backoff_ms=BACKOFF_MS,
                backoff_max_ms=BACKOFF_MAX_MS,
            )
        )
        self._expanded: tuple[Spans, set[Partition]] = ((), set())
        self._in_flight: tuple[int, bool, int] = (0, False, 0)
        """Of the newest heartbeat: its number, whether it said everything, the session since."""
        self._node = world.coordinator()
        self._mailbox: list[Callable[[], None]] = []
        self._wakes = 0
        self._offset = 0

    @property
    def name(self) -> tuple[str, str]:
        """Who it says it is."""
        return self.group_id, self.member_id

    @property
    def epoch(self) -> int:
        """As the coordinator gave it."""
        return self._membership.epoch

    @property
    def owned(self) -> set[Partition]:
        """The partitions that it uses."""
        if self.gone:
            return set()
        spans, expanded = self._expanded
        if spans is not self._membership.owned:
            spans = self._membership.owned
            expanded = _expand(spans)
            self._expanded = spans, expanded
        return expanded

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do for it."""
        return not self.gone and self._membership.has_settled

    @property
    def uses_until(self) -> int:
        """When it must stop using its partitions, unless an answer comes."""
        return self._membership.uses_until_ms

    def waits_for(self, number: int) -> bool:
        """Whether this is the heartbeat whose answer counts."""
        return not self.gone and self._membership.awaited == number - self._first

    def session_is(self, ms: int) -> None:
        """The group's session timeout is another one."""
        number, full, session_ms = self._in_flight
        self._in_flight = (number, full, min(session_ms, ms))
        self._membership.session_ms = min(self._membership.session_ms, ms)

    # What happens to it --------------------------------------------------------------------------

    def begin(self) -> None:
        """Join."""
        self._happens(Subscribe(self.names, self.regex, self.wish))

    def resubscribe(self, names: tuple[str, ...], regex: str) -> None:
        """Subscribe to something else."""
        self._tell(f"subscribes to {names} and {regex!r}")
        self.names, self.regex = names, regex
        self.begin()

    def connect_again(self) -> None:
        """Say everything once more, as on a new connection."""
        self.begin()

    def leave(self, *, for_a_while: bool) -> None:
        """Leave; it is gone when its last heartbeat is answered, or given up."""
        self._tell("leaves" + (" for a while" if for_a_while else ""))
        self._happens(Leave(for_a_while=for_a_while))

    def die(self) -> None:
        """Be gone, without a word."""
        self._tell("dies")
        self.gone = True

    def pause(self) -> None:
        """Stop as by a signal."""
        self._tell("stops")
        self.paused = True

    def resume(self) -> None:
        """Go on: first look at the clock, then at what came in meanwhile."""
        if not self.paused:
            return
        self._tell("goes on")
        self.paused = False
        self._happens(Wake())
        mailbox, self._mailbox = self._mailbox, []
        for letter in mailbox:
            letter()

    def _tell(self, text: str) -> None:
        self.world.tell(f"{self.group_id}/{self.member_id}: {text}")

    # Its driver ----------------------------------------------------------------------------------

    def _happens(self, event: Event) -> None:
        """Let the state machine decide, and do what it says."""
        if self.gone:
            return
        membership = self._membership
        began = membership.state is not ClientState.UNSUBSCRIBED or isinstance(event, Subscribe)
        for action in membership.handle(event, self.world.schedule.now):
            self._perform(action)
        if membership.state is ClientState.FATAL:
            assert membership.fatal is not None
            self._tell(f"ends: {membership.fatal.code.name} is fatal")
            self.world.checker.fatal(self, membership.fatal.code)
        if began and membership.state in ENDED:
            self.gone = True
            return
        self._wakes += 1
        if membership.wake_at_ms < NEVER_MS:
            self.world.schedule.at(membership.wake_at_ms, self._wake, self._wakes)

    def _wake(self, number: int) -> None:
        if number == self._wakes and not self.paused:
            self._happens(Wake())

    def _perform(self, action: Action) -> None:
        if isinstance(action, SendHeartbeat):
            self._send(action)
            return
        if isinstance(action, AssignPartitions):
            self.world.checker.begins(self, _expand(action.partitions))
            self._tell(f"at epoch {self.epoch} uses {by_topic(self.owned)}")
        takes_ms = self._takes_ms(action)
        if takes_ms < NEVER_MS:
            self.world.schedule.after(takes_ms, self._hear, StepDone(action.number))

    def _takes_ms(self, action: Action) -> int:
        """Return how long the application takes for a step; never, until it is lost."""
        chance, name = self.world.chance, (self.group_id, self.member_id, self.number)
        if isinstance(action, RevokePartitions):
            if chance.happens("never revokes", *name):
                return NEVER_MS
            if chance.happens("revokes slowly", *name):
                return chance.between(100, 2 * self.rebalance_timeout_ms, "revokes", *name)
        return chance.between(0, 50, type(action).__name__, *name)

    def _hear(self, event: Event) -> None:
        """Let something come in, or wait until the process goes on."""
        if self.paused:
            self._mailbox.append(lambda: self._happens(event))
        else:
            self._happens(event)

    # Heartbeats ----------------------------------------------------------------------------------

    def _send(self, action: SendHeartbeat) -> None:
        self.number = number = self._first + action.number
        full = action.request.subscribed_topic_names is not None
        self._in_flight = (number, full, self.world.checker.session_ms(self.group_id))
        name = (self.group_id, self.member_id, number)
        event = self._dressed(action.request, full=full)
        request = Request(name, event, self._replied(number), self, number)
        self.world.network.send(request, self._node)
        self.world.schedule.after(REQUEST_TIMEOUT_MS, self._timed_out, number)
        if self.owned and self.world.chance.happens("commits offsets", *name):
            self._commit_offsets(*name)

    def _dressed(self, request: Heartbeat, *, full: bool) -> Heartbeat:
        """Return a heartbeat as stories can tell it: by topic names, with what a client adds."""
        owned = None if request.topic_partitions is None else by_topic(self.owned)
        found = replace(
            request,
            topic_partitions=owned,
            by_topic_id=False,
            client_id="client",
            client_host="localhost/127.0.0.1",
        )
        return replace(found, rack_id="rack-1" if self.number % 2 else None) if full else found

    def _replied(self, number: int) -> Callable[[Answer, Node], None]:
        def replied(answer: Answer, node: Node) -> None:
            if self.paused:
                self._mailbox.append(lambda: self._take(number, answer, node))
            else:
                self._take(number, answer, node)

        return replied

    def _take(self, number: int, answer: Answer, node: Node) -> None:
        """Take the answer to the heartbeat that is in flight; others came too late."""
        if not self.waits_for(number):
            return
        own = number - self._first
        if isinstance(answer, GroupError):
            self._tell(f"#{number} is refused by {node.name}: {answer.code.name}")
            if answer.retriable:
                self._node = self.world.coordinator(self)
            self._happens(HeartbeatRefused(own, answer, self._jitter()))
            return
        found = heartbeat_answer(answer)
        self.world.checker.confirmed(self, found)
        _, full, session_ms = self._in_flight
        if full and number > self.untold:
            self.untold = 0
        self._happens(HeartbeatAnswered(own, answer.response, session_ms))

    def _timed_out(self, number: int) -> None:
        """Give a heartbeat up; the next one says everything, perhaps to another coordinator."""
        if not self.waits_for(number):
            return
        if self.paused:
            self.world.schedule.after(PAUSED_MS, self._timed_out, number)
            return
        self._node = self.world.coordinator(self)
        self._happens(HeartbeatUnanswered(number - self._first, self._jitter()))

    def _jitter(self) -> float:
        return self.world.chance.draw("jitter", self.group_id, self.member_id, self.number)

    def _commit_offsets(self, *name: object) -> None:
        """Commit the offsets of what it uses."""
        self._offset += 1
        offsets = {
            topic: dict.fromkeys(partitions, (self._offset, ""))
            for topic, partitions in by_topic(self.owned).items()
        }
        event = OffsetCommit(self.group_id, self.member_id, self.epoch, offsets)
        self.world.network.send(Request((*name, "offsets"), event, _ignore), self._node)


def _expand(spans: Spans) -> set[Partition]:
    return {(key, p) for key, first, end in spans for p in range(first, end)}


def by_topic(partitions: set[Partition]) -> dict[str, list[int]]:
    """Return partitions by the name of their topic, as a request carries them."""
    found: dict[str, list[int]] = {}
    for key, partition in sorted(partitions):
        found.setdefault(key.name, []).append(partition)
    return found


def _ignore(_answer: Answer, _node: Node) -> None:
    """Wait for nothing."""
