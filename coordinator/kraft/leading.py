"""What a leader knows of its partition: who has what, and what of it counts. No I/O, no clock.

As Kafka's `Partition` and `Replica`. A record counts (it is below the high watermark) once every
replica in sync has it; a follower has all that is before the offset from which it fetches.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from coordinator.clock import monotonic_ms
from coordinator.kraft.metadata_image import Partition
from coordinator.kraft.partition_log import NO_EPOCH, EpochEnd, PartitionLog

NONE, OUT_OF_RANGE, FENCED_EPOCH, UNKNOWN_EPOCH = 0, 1, 74, 75
NOT_ATTEMPTED, INELIGIBLE_REPLICA = 55, 107
GIVEN_UP = {NOT_ATTEMPTED, INELIGIBLE_REPLICA}
"""Errors of AlterPartition that say for sure that the replicas in sync stay as they are."""
MARK_MAX = 2**63 - 1
"""What a follower says as its high watermark that does not tell it."""


@dataclass(slots=True)
class Follower:
    """A replica that follows.

    Attributes
    ----------
    epoch
        Its broker epoch, as its fetches say; -1 before the first.
    end
        It has everything before this offset.
    caught_up_s
        When it had all that there was.
    answered_s
        When its last fetch was answered: it was sent later, so the follower knew no other leader.
    """

    epoch: int = -1
    end: int = -1
    caught_up_s: float = 0.0
    answered_s: float = float("-inf")
    fetched_s: float = 0.0
    leader_end: int = 0
    proved_s: float = float("-inf")


class Fetched(NamedTuple):
    """What answers a fetch of a partition.

    Attributes
    ----------
    error
        Kafka's, 0 for none.
    diverging
        Where the log of the one who asks is another one; then there are no records.
    begin, end
        Where in the file the records are.
    """

    error: int
    diverging: EpochEnd | None = None
    begin: int = 0
    end: int = 0


class IsrChange(NamedTuple):
    """Which replicas are to be in sync, each with its broker epoch."""

    partition_epoch: int
    replicas: dict[int, int]


class Leadership:
    """One partition in one epoch, as its leader.

    Parameters
    ----------
    log
        Of the partition; nothing but the leader writes it meanwhile.
    partition
        As the metadata has it.
    isr_least
        How many replicas must be in sync for a record to count: `min.insync.replicas`.
    lag_s
        For how long a follower may lack something before it is no longer in sync.

    Attributes
    ----------
    start
        Where the epoch begins.
    isr
        The replicas in sync, as the controller has decided.
    """

    def __init__(
        self,
        log: PartitionLog,
        node_id: int,
        partition: Partition,
        isr_least: int,
        now_s: float,
        lag_s: float,
    ) -> None:
        self.log, self.node_id, self.epoch = log, node_id, partition.leader_epoch
        self.isr_least, self.lag_s = isr_least, lag_s
        self.start = log.end
        log.begin_epoch(self.epoch, log.end)
        self.replicas, self.isr = partition.replicas, partition.isr
        self.partition_epoch = partition.partition_epoch
        self._asked: IsrChange | None = None
        self.followers: dict[int, Follower] = {}
        self._add_followers(now_s)
        self.advance()

    def _add_followers(self, now_s: float) -> None:
        others = set(self.replicas) - {self.node_id}
        for node_id in self.followers.keys() - others:
            del self.followers[node_id]
        for node_id in others - self.followers.keys():
            self.followers[node_id] = Follower(caught_up_s=now_s)

    @property
    def is_writable(self) -> bool:
        """Whether so many replicas are in sync that what is written can count."""
        return len(self.isr) >= min(self.isr_least, len(self.replicas))

    @property
    def isr_most(self) -> set[int]:
        """The replicas that are in sync, or may be by now: all of them must have what counts."""
        return set(self.isr) | (self._asked.replicas.keys() if self._asked else set())

    def advance(self) -> bool:
        """Raise the high watermark as far as it goes; whether it has moved."""
        if not self.is_writable:
            return False
        ends = [self._end_of(node_id) for node_id in self.isr_most]
        moved = min(ends, default=self.log.end) > self.log.high_watermark
        if moved:
            self.log.high_watermark = min(ends, default=self.log.end)
        return moved

    def _end_of(self, node_id: int) -> int:
        if node_id == self.node_id:
            return self.log.end
        follower = self.followers.get(node_id)
        return self.log.start if follower is None else follower.end

    # Fetches -------------------------------------------------------------------------------------

    def check_epoch(self, current_epoch: int) -> int:
        """Return the error of a request by what epoch it takes this for; -1 for any."""
        if current_epoch in {NO_EPOCH, self.epoch}:
            return NONE
        return FENCED_EPOCH if current_epoch < self.epoch else UNKNOWN_EPOCH

    def note_fetch(self, node_id: int, broker_epoch: int, offset: int, now_s: float) -> bool:
        """Note what a follower has; whether the high watermark has moved.

        The fetch must be in this epoch, and of the same log up to that offset.
        """
        one = self.followers.get(node_id)
        if one is None or broker_epoch < one.epoch:
            return False
        if offset >= self.log.end:
            one.caught_up_s = now_s
        elif offset >= one.leader_end:
            one.caught_up_s = max(one.caught_up_s, one.fetched_s)
        one.epoch, one.end = broker_epoch, offset
        one.fetched_s, one.leader_end = now_s, self.log.end
        one.proved_s = max(one.proved_s, one.answered_s)
        return self.advance()

    def note_answer(self, node_id: int, now_s: float) -> None:
        """Note that a follower's fetch is answered now."""
        one = self.followers.get(node_id)
        if one is not None:
            one.answered_s = now_s

    @property
    def led_since_s(self) -> float:
        """Until when it is sure that no other replica in sync led: each has fetched since."""
        others = [self.followers[n] for n in self.isr if n in self.followers]
        return min((one.proved_s for one in others), default=float("-inf"))

    def fetch(
        self,
        offset: int,
        current_epoch: int,
        last_epoch: int,
        bytes_max: int,
        *,
        replica: bool,
        committed: bool = False,
    ) -> Fetched:
        """Return what answers a fetch: of a replica all that there is, of others what counts.

        Parameters
        ----------
        last_epoch
            Of the last record that the one who asks has; -1 where it does not say.
        committed
            Whether it is not to have what transactions that are open wrote, nor anything behind.
        """
        log = self.log
        if error := self.check_epoch(current_epoch):
            return Fetched(error)
        if last_epoch != NO_EPOCH:
            ours = log.end_of(last_epoch)
            if ours.end_offset < 0 or offset < log.start:
                return Fetched(OUT_OF_RANGE)
            if ours.epoch < last_epoch or ours.end_offset < offset:
                return Fetched(NONE, ours)
        until = log.end if replica else log.stable_end if committed else log.high_watermark
        if not log.start <= offset <= log.end:
            return Fetched(OUT_OF_RANGE)
        begin, end = log.span(offset, bytes_max)
        return Fetched(NONE, None, begin, max(begin, min(end, log.size_below(until))))

    # Replicas in sync ----------------------------------------------------------------------------

    def follow(self, partition: Partition, now_s: float) -> bool:
        """Take what the metadata says now, in the same epoch; whether the mark has moved."""
        self.replicas = partition.replicas
        self._add_followers(now_s)
        self.settle(partition.isr, partition.partition_epoch)
        return self.advance()

    def settle(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        """Take a decision of the controller; one that is older than what is known says nothing."""
        if partition_epoch > self.partition_epoch:
            self.isr, self.partition_epoch, self._asked = isr, partition_epoch, None

    def ask_isr(self, alive: Mapping[int, int], now_s: float) -> IsrChange | None:
        """Return which replicas should be in sync; None where they are, or an answer is awaited.

        Parameters
        ----------
        alive
            Brokers that may be in sync, with their epochs.
        """
        if self._asked is not None:
            return self._asked if self._asked.partition_epoch == self.partition_epoch else None
        wanted = {self.node_id: alive.get(self.node_id, -1)}
        for node_id, one in self.followers.items():
            if node_id in self.isr:
                late = one.end < self.log.end and now_s - one.caught_up_s > self.lag_s
                if not late:
                    wanted[node_id] = one.epoch
            elif self._can_join(node_id, one, alive):
                wanted[node_id] = one.epoch
        if wanted.keys() == set(self.isr):
            return None
        self._asked = IsrChange(self.partition_epoch, wanted)
        return self._asked

    def _can_join(self, node_id: int, one: Follower, alive: Mapping[int, int]) -> bool:
        reached = max(self.log.high_watermark, self.start)
        return 0 <= one.epoch == alive.get(node_id, -1) and one.end >= reached

    def take_isr(self, found: Any) -> bool:  # noqa: ANN401 - a partition of kio's answer
        """Take the answer to AlterPartition; whether the high watermark has moved.

        After an error that leaves open what was decided, the replicas asked for count as in sync
        until the metadata say more.
        """
        code = int(found.error_code)
        if not code and found.leader_epoch == self.epoch:
            self._asked = None
            self.settle(tuple(map(int, found.isr)), found.partition_epoch)
        elif code in GIVEN_UP:
            self._asked = None
        return self.advance()


def find_alive(image_brokers: Mapping[int, Any], replicas: Collection[int]) -> dict[int, int]:
    """Return the replicas that may be in sync, with their broker epochs."""
    return {
        node_id: one.epoch
        for node_id in replicas
        if (one := image_brokers.get(node_id)) is not None
        and not one.is_fenced
        and not one.is_shutting_down
    }


class Standing:
    """How long ago it was certain that this node leads what it takes itself to lead.

    That is so if the controllers count it as alive, and it has read their metadata since.

    Parameters
    ----------
    session_ms
        Less than the time after which controllers fence a node of which they have heard nothing.
    """

    def __init__(self, session_ms: int) -> None:
        self._session_ms = session_ms
        self._sent_ms: int | None = None
        self._read_ms: int | None = None
        self._asked_ms: int | None = None

    def hear(self, sent_ms: int, *, is_fenced: bool) -> None:
        """Note the answer to a heartbeat that was sent at a time."""
        self._sent_ms = None if is_fenced else sent_ms

    def hear_metadata(self) -> None:
        """Note that the metadata was read, by a request that was sent after the one before."""
        self._read_ms, self._asked_ms = self._asked_ms, monotonic_ms()

    @property
    def is_sure(self) -> bool:
        """Whether it is certain."""
        since_ms = monotonic_ms() - self._session_ms
        return all(at is not None and at > since_ms for at in (self._sent_ms, self._read_ms))
