"""A member of a classic group as clients are: it joins, syncs, heartbeats, commits, and leaves.

What it is assigned it reads from the committed offset on. It gives everything up before it joins
again, commits only what it was assigned in its generation, and answers each error as Kafka's
clients do. The leader assigns what its topics have.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coordinator.core.classic_events import (
    ClassicHeartbeat,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    Leaver,
    Protocol,
    SyncGroup,
    SyncGroupResponse,
)
from coordinator.core.events import Answer, Event, OffsetCommit, OffsetFetch
from coordinator.core.state.embedded import (
    Assignment,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from coordinator.errors import ErrorCode, GroupError
from tests.sim.network import Request
from tests.sim.node import Node

if TYPE_CHECKING:
    from .world import ClassicWorld

BACKOFF_MS, HEARTBEAT_MS, REQUEST_TIMEOUT_MS = 200, 500, 1_500
JOIN_MORE_MS = 5_000
"""So much longer than a rebalance may take does a client wait for its join."""
COMMITS_SHARE = 0.3
"""Of heartbeats, in how many it commits, too."""
KIND, NAMES = "consumer", ("range", "roundrobin")
FORGETS = {ErrorCode.UNKNOWN_MEMBER_ID}
AGAIN = {ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS}
ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
}


class ClassicMember:
    """One process.

    Attributes
    ----------
    member_id
        What the coordinator called it, "" before that.
    generation
        In which it owns something; -1: it is not in the group, for all it knows.
    owned
        The partitions that it reads and commits.
    """

    def __init__(
        self,
        world: ClassicWorld,
        group_id: str,
        name: str,
        instance_id: str | None,
        *,
        version: int,
        topics: tuple[str, ...],
        session_ms: int,
        rebalance_ms: int,
    ) -> None:
        self.world = world
        self.group_id, self.name, self.instance_id = group_id, name, instance_id
        self.topics, self.version = topics, version
        self.session_ms, self.rebalance_ms = session_ms, rebalance_ms
        self.member_id = ""
        self.generation = -1
        self.owned: set[tuple[str, int]] = set()
        self.gone = False
        self.paused = False
        self._joined = -1
        """The generation whose sync is under way."""
        self._number = 0
        self._awaits = 0
        """The request whose answer counts; 0: none."""
        self._mailbox: list[Callable[[], None]] = []
        self._node: Node = world.coordinator()
        self._offsets: dict[tuple[str, int], int] = {}
        self._commits = 0
        """The commit or fetch that is under way; 0: none."""
        self._led: tuple[set[str], dict[str, int]] | None = None
        """The topics that its group subscribes to, and what it assigned of them, as leader."""

    @property
    def settled(self) -> bool:
        """Whether it has what it was assigned and waits for nothing but its next heartbeat."""
        return not self.gone and self.generation != -1 and self._joined == -1

    def tell(self, text: str) -> None:
        """Note what happened to it."""
        self.world.tell(f"{self.group_id}/{self.name}: {text}")

    # Asking --------------------------------------------------------------------------------------

    def _send(self, event: Event, take: Callable[[Answer, Node], None], timeout_ms: int) -> None:
        """Ask something whose answer counts, and nothing else until it is there, or time is over."""
        self._number += 1
        number = self._awaits = self._number
        wait = self.world.pause_ms(self, "before", event, number)
        if wait:
            self._mailbox.append(lambda: self._send(event, take, timeout_ms))
            self._stop_for(wait)
            return
        self._ask(event, lambda answer, node: self._hear(number, take, answer, node))
        self.world.schedule.after(timeout_ms, self._timed_out, number)
        wait = self.world.pause_ms(self, "after", event, number)
        if wait:
            self._stop_for(wait)

    def _stop_for(self, ms: int) -> None:
        self.pause()
        self.world.schedule.after(ms, self.resume)

    def _ask(self, event: Event, reply: Callable[[Answer, Node], None]) -> None:
        name = (self.group_id, self.name, type(event).__name__, self._number, id_of(event))
        self.world.network.send(Request(name, event, reply), self._node)

    def _hear(
        self, number: int, take: Callable[[Answer, Node], None], answer: Answer, node: Node
    ) -> None:
        if self.paused:
            self._mailbox.append(lambda: self._hear(number, take, answer, node))
            return
        if self.gone or self._awaits != number:
            return
        self._awaits = 0
        if answer is None:
            self._rediscover()
        else:
            take(answer, node)

    def _timed_out(self, number: int) -> None:
        if self.paused:
            self._mailbox.append(lambda: self._timed_out(number))
        elif not self.gone and self._awaits == number:
            self._awaits = 0
            self._rediscover()

    def _rediscover(self) -> None:
        """Find the coordinator, and go on: with a heartbeat, if it has a generation, else a join."""
        self._node = self.world.coordinator()
        self._wake(BACKOFF_MS)

    def _wake(self, after_ms: int) -> None:
        self._number += 1
        number = self._awaits = self._number
        self.world.schedule.after(after_ms, self._go_on, number)

    def _go_on(self, number: int) -> None:
        if self.paused:
            self._mailbox.append(lambda: self._go_on(number))
            return
        if self.gone or self._awaits != number:
            return
        if self.generation != -1:
            self._beat()
        else:
            self.join()

    # Joining -------------------------------------------------------------------------------------

    def join(self) -> None:
        """Give everything up, and join."""
        self._give_up()
        raw = write_subscription(Subscription(1, self.topics))
        event = JoinGroup(
            self.group_id,
            self.member_id,
            KIND,
            [Protocol(name, raw) for name in NAMES],
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            request_id=0,
            drawn_id=self.instance_id or self.name,
            drawn_consumer_id="",
            instance_id=self.instance_id,
            knows_member_id=self.version >= 4,
            knows_skipping=self.version >= 9,
        )
        self._send(event, self._joined_group, self.rebalance_ms + JOIN_MORE_MS)

    def _give_up(self) -> None:
        self.generation = self._joined = -1
        self.owned, self._offsets = set(), {}

    def _joined_group(self, answer: Answer, _node: Node) -> None:
        if isinstance(answer, GroupError):
            self._refused("join", answer.code)
            return
        found = answer.response
        assert isinstance(found, JoinGroupResponse)
        if found.error_code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = found.member_id
            self.join()
            return
        if found.error_code is not ErrorCode.NONE:
            self._refused("join", found.error_code)
            return
        self.member_id = found.member_id
        self._joined = found.generation
        self.tell(f"is {found.member_id} in generation {found.generation}, {found.leader} leads")
        assignments: dict[str, bytes] = {}
        self._led = None
        if found.leader == found.member_id:
            names = {n for one in found.members for n in read_subscription(one.metadata).topics}
            self._led = names, {}  # after a restart it does not know what it assigned from
            if not found.skip_assignment:
                self._led = names, self._count(names)
                assignments = self._assign(found.members)
                self.world.checker.assigns(self, found.generation, found.member_id, assignments)
        event = SyncGroup(
            self.group_id, found.member_id, found.generation, 0, assignments, self.instance_id,
            found.protocol_type, found.protocol_name,
        )  # fmt: skip
        self._send(event, self._synced, self.rebalance_ms + JOIN_MORE_MS)

    def _count(self, names: set[str]) -> dict[str, int]:
        topics = self.world.topics.topics()
        return {name: topics[name].partitions for name in sorted(names) if name in topics}

    def _assign(self, members: tuple[JoinedMember, ...]) -> dict[str, bytes]:
        """Deal the partitions of each topic to those who subscribe to it."""
        assert self._led is not None
        shares: dict[str, dict[str, list[int]]] = {one.member_id: {} for one in members}
        for name, count in self._led[1].items():
            who = [m.member_id for m in members if name in read_subscription(m.metadata).topics]
            for partition in range(count):
                # Others in each generation, so that partitions change hands.
                found = shares[who[(partition + self._joined) % len(who)]]
                found.setdefault(name, []).append(partition)
        return {one: write_assignment(Assignment(1, share)) for one, share in shares.items()}

    def _synced(self, answer: Answer, node: Node) -> None:
        if isinstance(answer, GroupError):
            self._refused("sync", answer.code)
            return
        found = answer.response
        assert isinstance(found, SyncGroupResponse)
        if found.error_code is not ErrorCode.NONE:
            self._refused("sync", found.error_code)
            return
        self.generation, self._joined = self._joined, -1
        share = read_assignment(found.assignment).partitions if found.assignment else {}
        self.owned = {(topic, p) for topic, numbers in share.items() for p in numbers}
        self.world.checker.owns(self, self.owned)
        self.tell(f"owns {sorted(self.owned)} in generation {self.generation}")
        self._fetch(node)
        self._wake(HEARTBEAT_MS)

    # Staying -------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._led is not None and self._count(self._led[0]) != self._led[1]:
            self.tell("leads, and sees other topics")
            self.join()
            return
        event = ClassicHeartbeat(self.group_id, self.member_id, self.generation, self.instance_id)
        self._send(event, self._beaten, REQUEST_TIMEOUT_MS)
        name = (self.group_id, self.name, self._number)
        if self._offsets and self.world.chance.likely(COMMITS_SHARE, "commits", *name):
            self._commit()

    def _beaten(self, answer: Answer, _node: Node) -> None:
        code = answer.code if isinstance(answer, GroupError) else answer.response
        if code is ErrorCode.NONE:
            self._wake(HEARTBEAT_MS)
        else:
            self._refused("heartbeat", code)

    def _fetch(self, node: Node) -> None:
        """Ask where to begin, whom it asked for its share."""
        if not self.owned:
            return
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(self.owned):
            topics.setdefault(topic, []).append(partition)
        self._commits += 1
        number, generation, life = self._commits, self.generation, node.life

        def fetched(answer: Answer, answered_by: Node) -> None:
            same = answered_by is node and node.life == life and self.generation == generation
            if self._commits != number or self.gone or self.paused:
                return
            if answer is None or isinstance(answer, GroupError) or not same:
                self._offsets = {}  # reads nothing in this generation
                return
            self._offsets = {
                (topic, p): 0 if one is None else one.offset
                for topic, found in answer.response.items()
                for p, one in found.items()
            }

        self._node = node
        self._ask(OffsetFetch(self.group_id, topics), fetched)

    def _commit(self) -> None:
        """Commit a little further than last time, one request at a time."""
        self._commits += 1
        number, generation = self._commits, self.generation
        further = {one: offset + 1 for one, offset in self._offsets.items()}
        offsets: dict[str, dict[int, tuple[int, str]]] = {}
        mark = f"{generation} {self.name}"
        for (topic, partition), offset in sorted(further.items()):
            offsets.setdefault(topic, {})[partition] = (offset, mark)
        event = OffsetCommit(
            self.group_id, self.member_id, generation, offsets, self.instance_id, knows_epochs=False
        )

        def committed(answer: Answer, _node: Node) -> None:
            if answer is None or isinstance(answer, GroupError) or self.gone:
                return
            if self._commits == number and self.generation == generation:
                self._offsets = further

        self._ask(event, committed)

    def _refused(self, what: str, code: ErrorCode) -> None:
        """Do what clients do about an error."""
        self.tell(f"{what}: {code.name}")
        if code is ErrorCode.FENCED_INSTANCE_ID and self.world.has_successor(self):
            self.die()
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            # A join of its own that was doubled has its place: as after a restart it joins again.
            self.member_id = ""
            self._give_up()
            self._wake(BACKOFF_MS)
        elif code in ELSEWHERE:
            self._joined = -1
            self._rediscover()
        elif code in FORGETS | AGAIN:
            if code in FORGETS:
                self.member_id = ""
            self._give_up()
            self._wake(BACKOFF_MS if what == "join" else 1)
        else:
            self.world.checker.fail(f"{self.name} is answered {code.name} to its {what}")

    # Going ---------------------------------------------------------------------------------------

    def leave(self) -> None:
        """Leave as clients do when they are closed; the answer no longer matters."""
        self.tell("leaves")
        self.gone = True
        self._give_up()
        if self.member_id:
            leaver = Leaver(self.member_id, self.instance_id)
            self._ask(LeaveGroup(self.group_id, [leaver]), lambda *_: None)

    def die(self) -> None:
        """Be gone, without a word."""
        self.tell("dies")
        self.gone = True
        self._give_up()

    def pause(self) -> None:
        """Stop as by a signal, or in a loop that does not poll."""
        self.tell("stops")
        self.paused = True

    def resume(self) -> None:
        """Go on with what came in meanwhile."""
        if not self.paused:
            return
        self.tell("goes on")
        self.paused = False
        mailbox, self._mailbox = self._mailbox, []
        for letter in mailbox:
            letter()


def id_of(event: Event) -> int:
    """Return what tells commits of one heartbeat apart from other requests."""
    return getattr(event, "generation", getattr(event, "member_epoch", 0))
