"""What must hold of nodes and shards, whatever breaks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from coordinator.core.events import Answer, Event
from coordinator.core.state.records import OffsetCommitted, Record
from coordinator.errors.status import Status
from coordinator.shards.root import config_of_nodes
from coordinator.storage.record_log import Batch
from coordinator.storage.shards import NODES
from tests.sim.checkers import SOMETIMES, Checker, Violation, _is_stale
from tests.sim.client import Member, Partition
from tests.sim.network import Request

if TYPE_CHECKING:
    from .host import Host
    from .processor import CheckedProcessor
    from .world import ShardWorld

WATCH_MS = 100
"""How often it is looked which shards have a coordinator."""
PLANNED_MS = 500
"""For how long a shard may have no coordinator where all that happens was planned."""
NAMED_MS = 500
"""The same for how long nodes may name another one after a claim."""


@dataclass
class Speaker:
    """Who answers, as the checker of one log knows coordinators."""

    name: str
    processor: CheckedProcessor


@dataclass
class Asked:
    """A batch that is being decided."""

    began: int
    requests: list[Request]
    before: dict[tuple[str, str], set[int]]
    stale: list[tuple[Member, set[Partition], object]]


class View:
    """The world as the checker of one log sees it."""

    nodes = ()

    def __init__(self, world: ShardWorld, path: str) -> None:
        self._world, self._path = world, path
        self.store = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def batches(self, after: int) -> Iterable[Batch]:
        """Return what was committed after a position."""
        found = self._world.records[self._path].batches
        at = len(found)
        while at and found[at - 1].position > after:
            at -= 1
        return found[at:]

    def plain(self, text: str) -> str:
        """Return a text with the log that it is about."""
        return f"{self._path}: {text}"


class LogChecker(Checker):
    """Looks at one log, and at those who write it: several at a time, all but one in vain."""

    def __init__(self, world: ShardWorld, path: str, shard: int | None) -> None:
        super().__init__(View(world, path))  # type: ignore[arg-type] # as much of it as is used
        self._shard, self._shards = shard, world.shards.count
        self._claimed: list[tuple[int, int]] = []
        """Each claim, and when it was made."""
        self._asked = Asked(0, [], {}, [])
        self.offsets: defaultdict[tuple[str, str, int], list[tuple[int, int]]] = defaultdict(list)
        """What was committed for each partition, and where it is in the log."""

    def fail(self, what: str) -> None:
        """Stop the simulation, in whosever thread this is."""
        try:
            super().fail(what)
        except Violation as found:
            self.world.machine.errors.append(found)  # type: ignore[attr-defined] # a View
            raise

    def _one_writer(self, batch: Batch) -> None:
        newest = self.newest
        super()._one_writer(batch)
        if self.newest > newest:
            self._claimed.append((self.newest, self.world.schedule.now))

    def _epochs_rise(self, record: Record) -> None:
        super()._epochs_rise(record)
        group_id = getattr(record, "group_id", None)
        if (
            group_id
            and self._shard is not None
            and _shard_of(group_id, self._shards) != self._shard
        ):
            self.fail(f"group {group_id} is in a shard that is not its own")
        if isinstance(record, OffsetCommitted):
            place = (record.group_id, record.topic, record.partition)
            self.offsets[place].append((self.position, record.offset))

    # Batches -------------------------------------------------------------------------------------

    def begins_batch(self, processor: CheckedProcessor, events: Sequence[Event]) -> Asked:
        """Be called before a coordinator decides; it may take its time, and others decide, too."""
        self.follow()
        self._unacknowledged[processor.log.epoch] = Counter()
        known = self.world.requests  # type: ignore[attr-defined]
        requests = [known.get(id(event)) or Request((), event, None) for event in events]
        asked = Asked(self.world.schedule.now, requests, {}, [])
        for at, request in enumerate(requests):
            if request.member is None:
                continue
            asked.before[request.member.name] = self._epochs_of(request.member)
            for member in self.world.members:
                if _is_stale(request, member, again=request in requests[:at]):
                    asked.stale.append((member, self._held(member), self._known(member)))
        return asked

    def ends_batch(
        self, processor: CheckedProcessor, asked: Asked, answers: Sequence[Answer]
    ) -> None:
        """Be called when answers are about to leave."""
        self._asked, self._before = asked, asked.before
        speaker = Speaker(processor.process.name, processor)
        self.follow()
        self._bugs()
        self.answered(speaker, asked.requests, answers)  # type: ignore[arg-type]
        self._compared += 1
        if self.world.chance.draw("compare", self._compared) < SOMETIMES:
            self._compare(speaker)

    def left(self, asked: Asked) -> None:
        """Be called when a batch was decided, even if the process died of it."""
        self._stale = asked.stale
        self.settled()

    def loaded(self, processor: CheckedProcessor) -> None:
        """Be called after a load."""
        self.follow()
        self._compare(Speaker(processor.process.name, processor))

    def _compare(self, speaker: Speaker) -> None:
        processor = speaker.processor
        if processor.status is Status.ACTIVE and processor.log.epoch == self.newest:
            self.same(speaker)  # type: ignore[arg-type]

    def _still_ours(self, node: Any) -> None:
        """No answer is of a time when another had claimed the log, but for that between two looks.

        The root is looked at less often than a shard, whose next claim is what fences.
        """
        epoch = node.processor.log.epoch
        lost_at = next((at for claim, at in self._claimed if claim > epoch), None)
        if lost_at is None:
            return
        late, config = self._asked.began - lost_at, self.world.config
        looks = config if self._shard is not None else config_of_nodes(config)
        if late > looks.lease.check_ms:
            self.fail(f"{node.name} answers what was asked {late} ms after it was fenced")


class Checkers:
    """The checkers of all logs, for those who know a group, and what is about no single log."""

    def __init__(self, world: ShardWorld) -> None:
        self._world = world
        self._unserved: dict[int, int] = {}

    def begins(self, member: Member, partitions: set[Partition]) -> None:
        """As `Checker.begins`."""
        self._of(member).begins(member, partitions)

    def confirmed(self, member: Member, answer: Any) -> None:
        """As `Checker.confirmed`."""
        self._of(member).confirmed(member, answer)

    def fatal(self, member: Member, code: Any) -> None:
        """As `Checker.fatal`."""
        self._of(member).fatal(member, code)

    def session_ms(self, group_id: str) -> int:
        """As `Checker.session_ms`."""
        return self._world.checker_of_group(group_id).session_ms(group_id)

    @property
    def excused(self) -> int:
        """As `Checker.excused`, of all."""
        return sum(one.excused for one in self._world.all_checkers())

    def _of(self, member: Member) -> LogChecker:
        return self._world.checker_of_group(member.group_id)

    def loses(self, member: Member) -> None:
        """A member lost its partitions: never where all that happened was planned."""
        world = self._world
        if world.is_planned and not world.chance.calm:
            self._of(member).fail(f"{member.name} is fenced, though nothing broke")

    def watch(self) -> None:
        """Look which shards have a coordinator, and for how long others have not had one."""
        world = self._world
        now = world.schedule.now
        world.schedule.after(WATCH_MS, self.watch)
        healthy = [host for host in world.hosts if host.healthy]
        for shard in range(world.shards.count):
            path = world.path_of(shard)
            epoch = world.records[path].epoch
            reached = [host for host in world.hosts if not world.network.is_cut(host)]
            if epoch == 0 or any(_serves(host, shard, epoch) for host in reached):
                self._unserved.pop(shard, None)
                world.left_behind.discard(path)
                continue
            since = self._unserved.setdefault(shard, now)
            is_planned = world.is_planned and path not in world.left_behind
            if not is_planned:
                since = max(since, world.disturbed_at)
            bound = PLANNED_MS if is_planned else world.bound_ms()
            if healthy and now - since > bound:
                checker = world.checker_of(world.path_of(shard))
                checker.fail(f"no coordinator for {now - since} ms, and {healthy[0].name} is well")

    def named(self, host: Host, group_id: str, address: str | None) -> None:
        """A node was asked who coordinates a group: soon after a claim it is who made it."""
        world = self._world
        path = world.path_of(world.shards.shard_of(group_id))
        if not world.is_planned or group_id == NODES or path not in world.claims:
            return
        at, owner = world.claims[path]
        late = world.schedule.now - at
        if late > NAMED_MS and address != owner.address and owner.healthy and host.healthy:
            checker = world.checker_of(path)
            checker.fail(
                f"{host.name} says that {group_id} is at {address}, {late} ms after the claim by "
                f"{owner.name}"
            )

    def fetched(self, place: tuple[str, str, int], offset: int | None, floor: int) -> None:
        """An offset that was fetched is none from before the last one that was acknowledged."""
        checker = self._world.checker_of_group(place[0])
        checker.follow()
        if floor and offset not in {one for at, one in checker.offsets[place] if at >= floor}:
            checker.fail(f"{place} has the offset {offset}, after later ones were acknowledged")


def _serves(host: Any, shard: int, epoch: int) -> bool:
    found = host.here().get(shard) if host.runs else None
    return found is not None and found.status == Status.ACTIVE.value and found.epoch == epoch


def _shard_of(group_id: str, count: int) -> int:
    """Return Kafka's place of a group, letter by letter."""
    found = 0
    for letter in group_id:
        found = (31 * found + ord(letter)) & 0xFFFFFFFF
    return abs(found - (1 << 32) if found >> 31 else found) % count
