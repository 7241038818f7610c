"""The root of a store of shards: the group of its nodes, which one of them coordinates."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from coordinator.config import KAFKA, Config, ConfigError
from coordinator.config.kafka import kafka_config
from coordinator.core.events import LEAVE
from coordinator.errors import GroupError
from coordinator.errors.status import LOST
from coordinator.runtime.coordinator import Coordinator
from coordinator.runtime.plan_tasks.weight_source import open_weight_source
from coordinator.shards.inbox_rounds import config_of_part
from coordinator.shards.shard_loads import ShardWeights
from coordinator.shards.shards_here import LOOK_S, RETRY_S
from coordinator.storage.lease import Holder
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.record_log import LogError
from coordinator.storage.shards import NODES, SHARDS_TOPIC, Shards, root_at

logger = logging.getLogger("muster.shards")

LEAST_SHARE = "consumer.assignor.least.share"
"""The setting that says how much each node has at least, of its even share."""

BEATS, RENEWALS = 10, 5
"""Heartbeats of a node in the time of a lease, and renewals of the root's lease: a heartbeat asks
the store for nothing, and with the next one a node learns what it has to take."""

BEATS_MISSED = 2.5
"""After so many heartbeats a node is late."""
UNHEARD = 2 / 3
"""Of a session: for so long the root's owner hears of no other node before it asks the store."""
ASK_S = 1.0
"""How often it is asked what nodes say in the store that the root does not hear of."""


class _LeavesError(Exception):
    """Ends the waiting for a lease that we no longer want."""


class Heard:
    """When the root's owner heard of each node last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}
        self._since = clock()

    def start_over(self) -> None:
        """Count from now on: who had the root before has heard of them."""
        self._at, self._since = {}, self._clock()

    def note(self, address: str) -> None:
        """Note a heartbeat of the node at an address."""
        self._at[address] = self._clock()

    def silent_s(self, addresses: Iterable[str]) -> float:
        """Return for how long none of these nodes was heard of."""
        heard = [self._at.get(address, self._since) for address in addresses]
        return self._clock() - max(heard, default=self._clock())


class Root:
    """A node's side of the root: it stands by, or coordinates the nodes.

    Parameters
    ----------
    root
        Of the store.
    nodes
        Says who had the root before.
    tell
        Tells the other nodes that this one has it.
    moved
        Called when another owner of the root is seen, or this one has become it.
    see
        Called with the holder of the root's lease each time that it is looked at.
    see_late
        Called, where this one has the root, with the addresses of the nodes that are late.

    Attributes
    ----------
    coordinator
        Of the group of the nodes, where this one has the root.
    holder
        Who has the lease of the root, as far as it was seen while this node stood by.
    heard
        Of which nodes this one has heard, where it has the root.
    """

    def __init__(
        self,
        root: str,
        shards: Shards,
        config: Config,
        nodes: StoreNodes,
        tell: Callable[[], None],
        moved: Callable[[], object] = lambda: None,
        see: Callable[[Holder | None], object] = lambda _: None,
        see_late: Callable[[Sequence[str]], object] = lambda _: None,
    ) -> None:
        self._root, self._shards, self._config = root, shards, config
        self._nodes, self._tell, self._moved = nodes, tell, moved
        self._note_holder, self._note_late = see, see_late
        source = config.weights.source
        # A Kafka cluster knows the lag of topics, and nothing of nodes.
        rules = None if source.startswith(KAFKA) else open_weight_source(source)
        self._weights = ShardWeights(shards.count, nodes, rules, lambda: bool(self._list_late()))
        self.coordinator: Coordinator | None = None
        self.holder: Holder | None = None
        self.heard = Heard(time.monotonic)
        self._asked_s = 0.0
        self._unheard_s = UNHEARD * session_ms_of(config) / 1000

    @property
    def epoch(self) -> int:
        """Of the claim of the root; 0 while another has it."""
        ours = self.coordinator
        return 0 if ours is None else ours.epoch

    def hold(self, address: str, leaving: threading.Event, ending: threading.Event) -> None:
        """Stand by for the root until we leave, and coordinate the nodes while it is ours.

        What is opened after that is given back at once.
        """

        def stand_by(seconds: float, holder: Holder | None) -> None:
            self._see(holder)
            if leaving.wait(seconds):
                raise _LeavesError

        while not leaving.is_set():
            try:
                opened = Coordinator.open(
                    root_at(self._root),
                    config=config_of_nodes(self._config),
                    topics={SHARDS_TOPIC: self._shards.count},
                    weights=self._weights,
                    address=address,
                    stand_by=stand_by,
                )
            except _LeavesError:
                return
            except (LogError, OSError, ConfigError) as error:
                logger.warning("the root of %s cannot be opened: %s", self._root, error)
                leaving.wait(RETRY_S)
                continue
            reached = True
            try:
                if not leaving.is_set():
                    reached = self._coordinate(opened, address, ending)
            finally:
                self.coordinator = None
                opened.close()
            if not reached:  # others look at its lease as often as it was renewed
                leaving.wait(2 * config_of_nodes(self._config).lease.renew_ms / 1000)

    def _see(self, holder: Holder | None) -> None:
        """Note who has the root: heartbeats go there at once, not when the next one is due."""
        self._note_holder(holder)
        before, self.holder = self.holder, holder
        if holder is None or not holder.coordinator_epoch:  # it has not claimed the log yet
            return
        if before is None or holder.coordinator_epoch > before.coordinator_epoch:
            self._moved()

    def _coordinate(self, opened: Coordinator, address: str, ending: threading.Event) -> bool:
        """Coordinate the nodes until this one ends, or another has the root.

        Returns
        -------
        bool
            False where no other node reaches this one, which would keep the root for as long as it
            reaches the store. Its own shards go to them, too.
        """
        self.heard.start_over()
        self._begin(opened)
        self.coordinator = opened
        self._moved()
        self._tell()
        logger.info("coordinates the nodes of %s, by claim %d", self._root, opened.epoch)
        while not ending.wait(LOOK_S) and opened.status not in LOST:
            with suppress(GroupError):  # it is looked at again
                fill_drained(opened)
            late = self._list_ended()
            opened.name_late(late)
            self._note_late(late)
            if self._is_missed(opened.epoch):
                logger.warning("no node reaches the root of %s: others may have it", self._root)
                with suppress(GroupError):  # who has it next says so
                    remove_node(opened, address)
                return False
        return True

    def _is_missed(self, epoch: int) -> bool:
        """Whether some other node says that the root does not answer, and none is heard of."""
        now_s = time.monotonic()
        silent_s = self.heard.silent_s(one.address for one in self._nodes.others)
        if silent_s < self._unheard_s or now_s - self._asked_s < ASK_S:
            return False
        self._asked_s = now_s
        with suppress(OSError):  # it is asked again
            self._nodes.look()
            return any(one.misses == epoch for one in self._nodes.others)
        return False

    def _list_late(self) -> list[str]:
        """Return the nodes that the store knows and were not heard of for some heartbeats."""
        late_s = BEATS_MISSED * self._config.lease.ttl_ms / BEATS / 1000
        known = [one.address for one in self._nodes.others]
        return [address for address in known if self.heard.silent_s([address]) > late_s]

    def _list_ended(self) -> list[str]:
        """Return the late nodes that may have ended: where all are late, our link is cut."""
        late = self._list_late()
        return late if len(late) < max(2, len(self._nodes.others)) else []

    def _begin(self, opened: Coordinator) -> None:
        try:
            self._remove_predecessor(opened)
        except GroupError as error:  # a commit failed: its session ends all the same
            logger.warning("the root's last owner keeps its shards for a while: %s", error)
        try:
            set_least_share(opened)
        except GroupError as error:  # the next one that has the root sets it
            logger.warning("nodes may be without shards: %s", error)

    def _remove_predecessor(self, opened: Coordinator) -> None:
        """Let its shards go at once: the root's last owner has been waited for already.

        It did not renew its lease for as long as a node's session is; a second session need not
        pass. If it is alive all the same it joins again, and has its shards until others claim
        them.
        """
        former = self._nodes.with_claim(opened.epoch - 1)  # its file has aged as long as its lease
        if former is None:
            try:
                self._nodes.look()
            except OSError as error:
                logger.warning("cannot read the nodes of %s: %s", self._root, error)
            former = self._nodes.with_claim(opened.epoch - 1)
        if former is None:
            return
        remove_node(opened, former.address)


def remove_node(root: Coordinator, address: str) -> None:
    """Let the shards of the node at an address go to others.

    Raises
    ------
    GroupError
        A commit failed.
    """
    (described,) = root.consumer_group_describe(NODES)
    for member in described.get("members", ()):
        if member["client_id"] == address:
            root.consumer_group_heartbeat(
                group_id=NODES, member_id=member["member_id"], member_epoch=LEAVE
            )


def fill_drained(root: Coordinator) -> None:
    """Let drained nodes have shards where no other node is left: else no one would have them.

    Raises
    ------
    GroupError
        Some node is not drained, so the next target has shards; or a commit failed.
    """
    (described,) = root.consumer_group_describe(NODES)
    members = described.get("members", ())
    if not members or any(one["target_assignment"]["topic_partitions"] for one in members):
        return
    why = "no other node is left"
    plan = root.plan(NODES, undrain=[one["member_id"] for one in members], reason=why)
    root.apply_plan(plan, reason=why)
    logger.warning("the nodes that are drained get shards again: %s", why)


def set_least_share(root: Coordinator) -> None:
    """Let each node have shards, even where another one has as many either way."""
    settings = root.describe_group_config(NODES)
    if LEAST_SHARE not in settings:
        root.alter_group_config(NODES, settings | {LEAST_SHARE: "80%"})


def session_ms_of(config: Config) -> int:
    """Return for how long the root waits for a node that is not heard of."""
    return max(3, config.lease.ttl_ms - 2 * max(1, config.lease.ttl_ms // RENEWALS))


def config_of_nodes(config: Config) -> Config:
    """Return the settings of the coordinator of the nodes.

    A session ends well before a lease does: with their next heartbeat the others learn of it, and
    then they load. So does the lease of the root, in whose stead another waits for its holder. They
    may: what fences a node is the next claim of a shard, and no clock.
    """
    beat_ms, session_ms = max(1, config.lease.ttl_ms // BEATS), session_ms_of(config)
    renew_ms = min(config.lease.renew_ms, max(1, config.lease.ttl_ms // RENEWALS))
    return replace(
        config_of_part(config),
        lease=replace(
            config.lease,
            ttl_ms=session_ms,
            renew_ms=renew_ms,
            # Who had the root answers nothing that counts: a claim of a shard does.
            check_ms=max(config.lease.check_ms, renew_ms),
        ),
        weights=replace(config.weights, source=""),
        kafka=kafka_config(
            {
                "group.consumer.assignors": ["weighted"],
                "group.consumer.assignment.interval.ms": 0,
                "group.consumer.min.session.timeout.ms": session_ms,
                "group.consumer.session.timeout.ms": session_ms,
                "group.consumer.min.heartbeat.interval.ms": beat_ms,
                "group.consumer.heartbeat.interval.ms": beat_ms,
            }
        ),
    )
