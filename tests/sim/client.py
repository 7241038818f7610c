"""A member as Kafka's client is one (M-1…M-31, G-170); what it owns, it uses.

It sends one heartbeat at a time, keeps what it owns until it has revoked it, acknowledges by what
it reports, and gives everything up when it is fenced. It also stops using its partitions when it
had no successful answer for its session timeout, or could not revoke within its rebalance timeout:
both counted from when it sent, so never later than the coordinator, who counts from what it got.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from coordinator.core.events import JOIN, LEAVE, LEAVE_FOR_A_WHILE, Answer, Heartbeat, OffsetCommit
from coordinator.core.partition_spans import TopicKey
from coordinator.errors import ErrorCode, GroupError
from coordinator.runtime.responses import HeartbeatAnswer, heartbeat_answer

from .network import Request

if TYPE_CHECKING:
    from .node import Node
    from .world import World

Partition: TypeAlias = tuple[TopicKey, int]

REQUEST_TIMEOUT_MS = 1_500
BACKOFF_MS = 200
PATIENCE_MS = 1_000
NEVER = 2**62
START_OVER = {
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
}
TRY_AGAIN = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNRELEASED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}


@dataclass
class Sent:
    """The heartbeat that is not answered yet.

    Attributes
    ----------
    full
        Whether it gave everything, so that everything is answered.
    owned
        What the coordinator knows, once this is answered, that we own.
    session_ms
        The shortest session timeout of the group since it was sent.
    """

    number: int
    at: int
    full: bool
    owned: set[Partition]
    session_ms: int


class Member:
    """One incarnation of a member.

    Attributes
    ----------
    owned
        The partitions that it uses.
    released
        Of these, those that a request from the past told the coordinator that it has let go of.
    untold
        Not 0 when a request that it no longer waited for moved its assignment: it cannot know (no
        client of this protocol could) until everything is answered to a newer one than this.
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
        self.epoch = JOIN
        self.owned: set[Partition] = set()
        self.released: set[Partition] = set()
        self.gone = False
        self.paused = False
        self.untold = 0
        self.number = first_number
        """Of its newest heartbeat."""
        self.session_ms = 0
        """The shortest session timeout of the group since the last successful answer."""
        self._assigned: set[Partition] = set()
        self._revoking: set[Partition] = set()
        self._revoke_by = NEVER
        self._confirmed_at = 0
        self._waits_since: int | None = None
        """When the first request after the last successful answer was sent."""
        self._in_flight: Sent | None = None
        self._full = True
        self._told_owned: set[Partition] | None = None
        self._node = world.coordinator()
        self._mailbox: list[tuple[int, Answer, Node]] = []
        self._wakes = 0
        self._offset = 0

    @property
    def name(self) -> tuple[str, str]:
        """Who it says it is."""
        return self.group_id, self.member_id

    @property
    def joined(self) -> bool:
        """Whether it is in the group, for all it knows."""
        return not self.gone and self.epoch > 0

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.joined and not self._revoking and self._assigned == self.owned

    @property
    def uses_until(self) -> int:
        """The time at which it stops using its partitions, unless an answer comes.

        A request that is not answered may have told the coordinator to wait for a revocation.
        """
        asked = NEVER if self._waits_since is None else self._waits_since
        revoke_by = min(self._revoke_by, asked + self.rebalance_timeout_ms)
        return min(self._confirmed_at + self.session_ms, revoke_by)

    def _tell(self, text: str) -> None:
        self.world.tell(f"{self.group_id}/{self.member_id}: {text}")

    # Waking --------------------------------------------------------------------------------------

    def wake_after(self, ms: int) -> None:
        """Wake up after a while, and not before."""
        self._wakes += 1
        self.world.schedule.after(ms, self._wake, self._wakes)

    def _wake(self, number: int) -> None:
        if number != self._wakes or self.gone or self.paused:
            return
        self._lapse()
        if self._in_flight is None:
            self._beat()

    def _lapse(self) -> None:
        """Stop using everything when the time is over; join again."""
        if (self.owned or self._assigned) and self.world.schedule.now >= self.uses_until:
            self._tell("has heard nothing for too long, or revoked for too long: gives all up")
            self._start_over()
            self.wake_after(1)

    def _start_over(self) -> None:
        """Give up everything, and join again under the same member id."""
        self.owned, self._assigned, self._revoking = set(), set(), set()
        self._revoke_by = NEVER
        self.epoch = JOIN
        self._in_flight = None
        self._full = True

    # Heartbeats ----------------------------------------------------------------------------------

    def _beat(self) -> None:
        chance, schedule = self.world.chance, self.world.schedule
        self.number += 1
        full = self._full or self.epoch == JOIN
        self._full = False  # again when this one fails, or when something else is wanted meanwhile
        session_ms = self.world.checker.session_ms(self.group_id)
        self._in_flight = Sent(self.number, schedule.now, full, set(self.owned), session_ms)
        if self._waits_since is None:
            self._waits_since = schedule.now
        name = (self.group_id, self.member_id, self.number)
        self.world.network.send(
            Request(name, self._request(full=full), self._answered(self.number), self, self.number),
            self._node,
        )
        schedule.after(REQUEST_TIMEOUT_MS, self._timed_out, self.number)
        if self.owned and chance.happens("commits offsets", *name):
            self._commit_offsets(*name)

    def _request(self, *, full: bool) -> Heartbeat:
        changed = self._told_owned != self.owned
        everything = {
            "rack_id": "rack-1" if self.number % 2 else None,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "subscribed_topic_names": list(self.names),
            "subscribed_topic_regex": self.regex,
            "server_assignor": self.wish,
        }
        return Heartbeat(
            self.group_id,
            self.member_id,
            self.epoch,
            self.instance_id,
            topic_partitions=by_topic(self.owned) if full or changed else None,
            client_id="client",
            client_host="localhost/127.0.0.1",
            **(everything if full else {}),
        )

    def _answered(self, number: int):
        def answered(answer: Answer, node: Node) -> None:
            if self.paused:
                self._mailbox.append((number, answer, node))
            else:
                self._take(number, answer, node)

        return answered

    def _take(self, number: int, answer: Answer, node: Node) -> None:
        """Take the answer to the heartbeat that is in flight; others came too late."""
        if not self.waits_for(number):
            return
        sent, self._in_flight = self._in_flight, None
        found = heartbeat_answer(answer)
        if isinstance(answer, GroupError):
            self._tell(f"#{number} is refused by {node.name}: {found.error}")
            self._refused(answer.code)
        else:
            self._accepted(found, sent)

    def waits_for(self, number: int) -> bool:
        """Whether this is the heartbeat whose answer counts."""
        return not self.gone and self._in_flight is not None and self._in_flight.number == number

    def session_is(self, ms: int) -> None:
        """The group's session timeout is another one."""
        self.session_ms = min(self.session_ms, ms)
        if self._in_flight is not None:
            self._in_flight.session_ms = min(self._in_flight.session_ms, ms)

    def _accepted(self, answer: HeartbeatAnswer, sent: Sent) -> None:
        self.world.checker.confirmed(self, answer)
        self._confirmed_at, self.session_ms = sent.at, sent.session_ms
        since, self._waits_since = self._waits_since, None
        self.epoch = answer.member_epoch
        self._told_owned = sent.owned
        if not self._revoking and sent.owned == self.owned:
            self._revoke_by = NEVER  # not before: the coordinator waits until it has heard of it
        if sent.full and sent.number > self.untold:
            self.untold = 0
        if answer.ranges is not None:
            self._assigned = {(k, p) for k, first, end in answer.ranges for p in range(first, end)}
            self._tell(f"at epoch {self.epoch} may use {by_topic(self._assigned)}")
        self._lapse()
        if self.epoch != JOIN:
            self._reconcile(sent.at if since is None else since)
        hurry = self._told_owned != self.owned
        self.wake_after(1 if hurry else answer.heartbeat_interval_ms)

    def _reconcile(self, since: int) -> None:
        """Revoke first; begin to use what is new when nothing is left to revoke (M-10)."""
        lost = self.owned - self._assigned - self._revoking
        if lost:
            if not self._revoking:
                self._revoke_by = since + self.rebalance_timeout_ms
                self.world.schedule.after(self._callback_ms(), self._revoked, self._revoke_by)
            self._revoking |= lost
        if not self._revoking:
            self._begin()

    def _callback_ms(self) -> int:
        """Return how long the application takes to let go of partitions."""
        chance, name = self.world.chance, (self.group_id, self.member_id, self.number)
        if chance.happens("never revokes", *name):
            return NEVER
        if chance.happens("revokes slowly", *name):
            return chance.between(100, 2 * self.rebalance_timeout_ms, "revokes", *name)
        return chance.between(0, 50, "revokes", *name)

    def _revoked(self, revoke_by: int) -> None:
        """Have let go: stop using, acknowledge at once (M-25)."""
        if self.gone or not self._revoking or revoke_by != self._revoke_by:
            return
        if self.paused:
            self.world.schedule.after(100, self._revoked, revoke_by)
            return
        self._lapse()
        if not self._revoking:
            return
        self.owned -= self._revoking
        self._revoking = set()
        self._begin()
        self.wake_after(1)

    def _begin(self) -> None:
        """Begin to use what is assigned."""
        new = self._assigned - self.owned
        if new:
            self.owned |= new
            self.world.checker.begins(self, new)

    def _refused(self, code: ErrorCode) -> None:
        self._full = True
        if code in START_OVER:
            self._start_over()
            self.wake_after(1)
        elif code in TRY_AGAIN:
            if code in {ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}:
                self.wake_after(PATIENCE_MS)
                return
            self._node = self.world.coordinator(self)
            self.wake_after(BACKOFF_MS)
        else:
            self._tell(f"ends: {code.name} is fatal")
            self.owned = set()
            self.gone = True
            self.world.checker.fatal(self, code)

    def _timed_out(self, number: int) -> None:
        """Give a heartbeat up; the next one says everything, perhaps to another coordinator."""
        if not self.waits_for(number):
            return
        if self.paused:
            self.world.schedule.after(REQUEST_TIMEOUT_MS, self._timed_out, number)
            return
        self._in_flight = None
        self._full = True
        self._node = self.world.coordinator(self)
        self.wake_after(BACKOFF_MS)

    def _commit_offsets(self, *name: object) -> None:
        """Commit the offsets of what it uses."""
        self._offset += 1
        offsets = {
            topic: dict.fromkeys(partitions, (self._offset, ""))
            for topic, partitions in by_topic(self.owned).items()
        }
        event = OffsetCommit(self.group_id, self.member_id, self.epoch, offsets)
        self.world.network.send(Request((*name, "offsets"), event, _ignore), self._node)

    # What happens to a member --------------------------------------------------------------------

    def resubscribe(self, names: tuple[str, ...], regex: str) -> None:
        """Subscribe to something else; the next heartbeat says so."""
        self.names, self.regex = names, regex
        self._full = True
        self._tell(f"subscribes to {names} and {regex!r}")

    def connect_again(self) -> None:
        """Forget the connection, and say everything once more."""
        self._full = True

    def leave(self, *, for_a_while: bool) -> None:
        """Stop using everything, and say goodbye; nobody waits for the answer."""
        epoch = LEAVE_FOR_A_WHILE if for_a_while else LEAVE
        self._tell(f"leaves with {epoch}")
        self.owned = set()
        self.gone = True
        self.number += 1
        event = Heartbeat(self.group_id, self.member_id, epoch, self.instance_id)
        name = (self.group_id, self.member_id, self.number)
        request = Request(name, event, _ignore, self, self.number)
        self.world.network.send(request, self._node)

    def die(self) -> None:
        """Be gone, without a word."""
        self._tell("dies")
        self.owned = set()
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
        self._lapse()
        mailbox, self._mailbox = self._mailbox, []
        for letter in mailbox:
            self._take(*letter)
        if self._in_flight is None:
            self.wake_after(0)


def by_topic(partitions: set[Partition]) -> dict[str, list[int]]:
    """Return partitions by the name of their topic, as a request carries them."""
    found: dict[str, list[int]] = {}
    for key, partition in sorted(partitions):
        found.setdefault(key.name, []).append(partition)
    return found


def _ignore(_answer: Answer, _node: Node) -> None:
    """Wait for nothing."""
