"""A node: one process that coordinates the groups of the shards that it has.

The nodes of a store are members of one group, and the shards are the partitions that this group
divides. Whoever has the lease of the root coordinates that group, the others stand by. A node that
is given a shard claims its log; who had it before answers until then, and is fenced by the claim.
So a shard moves without a pause, and nothing rests on a clock.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Self

from coordinator.clock import wall_ms
from coordinator.config import Config, ConfigError
from coordinator.core.classic_events import JoinGroup
from coordinator.core.events import LEAVE, Answer, Event, Heartbeat
from coordinator.core.state.groups import Topic, TopicView
from coordinator.errors import ErrorCode, GroupError
from coordinator.kafka_config import kafka_config
from coordinator.member.application import Stop
from coordinator.member.member import Member
from coordinator.member.transport import TopicPartition
from coordinator.runtime.coordinator import Coordinator
from coordinator.runtime.metrics import Metrics
from coordinator.runtime.threads_left import leave
from coordinator.runtime.topic_catalog import DictCatalog, TopicCatalog, catalog_for, topic_id_of
from coordinator.shards.catalog import SharedCatalog
from coordinator.shards.router import Router
from coordinator.status import LOST, STUCK, Status
from coordinator.storage.log_ahead import LogAhead
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.record_log import LogError
from coordinator.storage.shards import NODES, SHARDS_TOPIC, Shards, root_at, shard_at
from coordinator.storage.tables.recovery import log_folder
from coordinator.storage.tables.store_files import files_at, root_of
from coordinator.wire.call import ClusterNode, FindOffsets
from coordinator.wire.codec import Api
from coordinator.wire.listener import RunningServer, as_node, serve

if TYPE_CHECKING:
    from coordinator.web.server import WebServer

LOADS_AT_ONCE = 4
LOOK_S = 0.2
"""How often it is looked whether a shard was lost, and how long ago nodes may have been read."""
RETRY_S = 1.0
LINGER_S = 10.0
"""How long a node that ends waits until others have claimed its shards."""
STRANGER = GroupError(
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    f"Only the nodes of the store are members of {NODES}: choose another group id.",
)
logger = logging.getLogger("muster.shards")


class _CountedShard(Metrics):
    """Metrics of all shards of a node: that one is another's now is no end of the node."""

    def fenced(self) -> None:
        """Ignore it."""


class Node:
    """A process that has some shards of a store, and takes part in dividing them.

    Parameters
    ----------
    store
        Of shards: a folder, or its URL.
    shards
        Of that store.
    config
        The settings; `server.listen` is where clients come.
    topics
        As `Coordinator.open` takes them.
    """

    def __init__(
        self,
        store: str,
        shards: Shards,
        config: Config,
        topics: TopicCatalog | Mapping[str, int] | str | None = None,
    ) -> None:
        self._root, self._shards, self.config = root_of(store), shards, config
        catalog = catalog_for(topics, config) or DictCatalog()
        self._catalog = SharedCatalog(
            catalog,
            max(1, config.topics.poll_ms - 500),
            Topic.of(SHARDS_TOPIC, topic_id_of(SHARDS_TOPIC), shards.count, ()),
        )
        self.metrics: Metrics = _CountedShard(config.metrics.groups_max)
        self._here: dict[int, Coordinator] = {}
        self._loading: set[int] = set()
        self._claimed: dict[int, int] = {}
        """The claims, by their epochs, of shards whose logs are not loaded yet."""
        self._empty: set[int] = set()
        """Shards that it owns, which have no log yet: the first request makes one."""
        self._changing = threading.RLock()
        self._room = threading.Semaphore(LOADS_AT_ONCE)
        self._router = Router(self._find, self._list_open, self._refuse_stranger)
        self._coordinates: Coordinator | None = None
        """Of the group of the nodes, where this one has the root."""
        self._leaving, self._ending = threading.Event(), threading.Event()
        """The first comes before: it has left the group, and answers until others claim."""
        self._threads: list[threading.Thread] = []
        self._member: Member | None = None
        self._owner = ""
        self._address = ""
        self._serving: RunningServer | None = None
        self._looked = 0.0
        self.nodes = StoreNodes(
            self._root, config.lease, epoch=self._root_epoch, shards=self._list_claims
        )
        self.looks = {
            Api.METADATA: self._look_at_nodes,
            Api.FIND_COORDINATOR: self._look_at_nodes,
        }
        self._catalog.topics()

    @property
    def address(self) -> str:
        """Where clients and the other nodes find it; "" before it serves."""
        return self._address

    @property
    def owned(self) -> list[int]:
        """The shards that it has claimed, and those of its own that have no log yet."""
        return sorted(self._list_claims())

    # What a server asks --------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """Active, until it ends."""
        return (Status.CLOSED if self._ending.is_set() else Status.ACTIVE).value

    @property
    def health(self) -> str:
        """Active; else what is wrong with one of its shards, which another node does better."""
        found = {one.health for one in self._list_open()} & {STUCK, Status.BROKEN.value}
        return min(found, default=self.status)

    def confirm_status(self, patience_s: float = 1.0) -> str:  # noqa: ARG002 - as a coordinator's
        """Return the status: each shard looks at its log by itself."""
        return self.status

    @property
    def topics_unread_since(self) -> int | None:
        """Since when the source of topics cannot be read; None while it can."""
        found = (one.topics_unread_since for one in self._list_open())
        return min((since for since in found if since is not None), default=None)

    @property
    def topics(self) -> TopicView:
        """The topics there are."""
        return self._catalog.view

    @property
    def find_offsets(self) -> FindOffsets | None:
        """What asks the Kafka cluster that has the topics; None where none has."""
        return self._catalog.find_offsets

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Submit events, each to the shard of its group."""
        return self._router.submit(events)

    def _refuse_stranger(self, event: Event) -> GroupError | None:
        """Refuse a client that is no node, and asks to be given shards, which it would not serve.

        A node that is new may be known at its next heartbeat.
        """
        if not isinstance(event, Heartbeat | JoinGroup) or event.group_id != NODES:
            return None
        nodes = {self._address, *(one.address for one in self.nodes.others)}
        return None if event.client_id in nodes else STRANGER

    def is_large(self, event: Event) -> bool:
        """Whether others had better not wait for an event."""
        return self._router.is_large(event)

    def coordinator_of(self, group_id: str) -> ClusterNode | None:
        """Return which node coordinates a group, as far as the nodes say."""
        assert self._serving is not None
        if group_id == NODES:
            if self._coordinates is not None:
                return self._serving.node
            found = self.nodes.coordinator()
        else:
            shard = self._shards.shard_of(group_id)
            found, epoch = self.nodes.owner_of(shard)
            if shard in self._empty or self._list_claims().get(shard, -1) >= epoch:
                return self._serving.node
        return None if found is None else as_node(found)

    def _look_at_nodes(self) -> None:
        """Read what the other nodes have, unless that was done just now."""
        if time.monotonic() - self._looked < LOOK_S:
            return
        try:
            self.nodes.look()
            self._looked = time.monotonic()
        except OSError as error:
            logger.warning("cannot read the nodes of %s: %s", self._root, error)

    def _find(self, group_id: str) -> Coordinator | GroupError:
        """Return the coordinator of a group, or the error that refuses its requests."""
        if group_id == NODES:
            return self._coordinates or _refuse(group_id, "the root")
        shard = self._shards.shard_of(group_id)
        is_ours = shard in self._claimed or shard in self._empty
        found = self._here.get(shard)
        if found is not None:
            return found
        if not is_ours:  # whoever has it answers until we have claimed it
            return _refuse(group_id, f"shard {shard}")
        if shard not in self._loading:
            self._start(lambda: self._try_to_claim(shard), f"muster-shard-{shard}")
        return GroupError(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"Shard {shard}, which has group {group_id}, is being loaded: try again.",
        )

    def _list_open(self) -> list[Coordinator]:
        with self._changing:
            return [self._here[shard] for shard in sorted(self._here)]

    def _list_claims(self) -> dict[int, int]:
        """Return the shards that are here, each with the epoch of its claim; 0 without a log."""
        with self._changing:
            claimed = {n: one.epoch for n, one in self._here.items() if one.status not in LOST}
            return dict.fromkeys(self._empty, 0) | self._claimed | claimed

    def _root_epoch(self) -> int:
        return 0 if self._coordinates is None else self._coordinates.epoch

    def serve_web(self) -> WebServer:
        """Refuse: pages show one log.

        Raises
        ------
        ConfigError
            Always.
        """
        raise ConfigError(
            f"{self._root} is a store of shards, which have no page together: leave --web "
            "(web.listen) out, and show a shard with `muster web`"
        )

    # Its life ------------------------------------------------------------------------------------

    def serve(self, listen: str | None = None) -> RunningServer:
        """Serve clients, and begin to take part.

        Returns
        -------
        RunningServer
            Its `address` is where clients and the other nodes find this one.
        """
        self._serving = serving = serve(self, listen)
        self._address = serving.address
        self._owner = f"node-{serving.node.node_id}-{uuid.uuid4().hex[:8]}"
        self._start(self._hold_root, "muster-root")
        self._start(self._take_part, "muster-node")
        return serving

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave: the shards go to other nodes, which claim them; then stop."""
        self._leaving.set()
        if self._member is not None:
            self._member.leave()
        if self.nodes.others:
            self._wait_for_claims()
        self._ending.set()
        for coordinator in self._list_open():
            coordinator.close()
        if self._coordinates is not None:
            self._coordinates.close()
        for thread in self._threads:
            if thread.is_alive():
                leave(thread)
        if self._serving is not None:
            self._serving.close()

    def _wait_for_claims(self) -> None:
        """Answer on until others have claimed what was ours, or it takes too long."""
        until = time.monotonic() + LINGER_S
        while time.monotonic() < until:
            if all(one.confirm_status() in LOST for one in self._list_open()):
                return
            time.sleep(LOOK_S)

    def _start(self, run: Callable[[], object], name: str) -> None:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()

    # The root ------------------------------------------------------------------------------------

    def _hold_root(self) -> None:
        """Stand by for the root, and coordinate the nodes while it is ours."""
        while not self._ending.is_set():
            try:
                opened = Coordinator.open(
                    root_at(self._root),
                    config=_config_of_nodes(self.config),
                    topics={SHARDS_TOPIC: self._shards.count},
                    address=self._address,
                )
            except (LogError, OSError, ConfigError) as error:
                logger.warning("the root of %s cannot be opened: %s", self._root, error)
                self._ending.wait(RETRY_S)
                continue
            self._remove_predecessor(opened)
            self._coordinates = opened
            self._tell()
            logger.info("coordinates the nodes of %s", self._root)
            while not self._ending.wait(LOOK_S):
                if opened.status in LOST:
                    break
            self._coordinates = None
            opened.close()

    def _remove_predecessor(self, opened: Coordinator) -> None:
        """Let its shards go at once: whoever had the root last has been waited for already.

        It did not renew its lease for as long as a node's session is; a second session need not
        pass. If it is alive all the same it joins again, and has its shards until others claim
        them.
        """
        try:
            self.nodes.look()
        except OSError as error:
            logger.warning("cannot read the nodes of %s: %s", self._root, error)
        former = self.nodes.coordinator()
        if former is None or former.coordinator_epoch != opened.epoch - 1:
            return
        (described,) = opened.consumer_group_describe(NODES)
        for member in described.get("members", ()):
            if member["client_id"] == former.address:
                opened.consumer_group_heartbeat(
                    group_id=NODES, member_id=member["member_id"], member_epoch=LEAVE
                )

    # Shards --------------------------------------------------------------------------------------

    def _take_part(self) -> None:
        """Be a member of the group of the nodes, for as long as this one serves."""
        while not self._leaving.is_set():
            member = Member(
                self._address,
                group_id=NODES,
                topics=[SHARDS_TOPIC],
                client_id=self._address,
                member_id=self._owner,
                session_timeout_ms=self.config.lease.ttl_ms,
            )
            try:
                with member:
                    self._member = member
                    member.run(self._work)
            except Exception:
                logger.exception("the node is no longer a member of %s: joining again", NODES)
            self._leaving.wait(RETRY_S)

    def _work(self, partition: TopicPartition, stop: Stop) -> None:
        """Have a shard until it is to go; then whoever claims it next ends our service of it."""
        shard = partition.partition
        if not self._has_log(shard):
            with self._changing:
                self._empty.add(shard)
            self._tell()
        self._make_way(shard, on=False)
        try:
            while not stop.is_set():
                if shard in self._empty or self._try_to_claim(shard):
                    self._wait_until_lost(shard, stop)
                else:
                    stop.wait(RETRY_S)
        finally:
            with self._changing:
                self._empty.discard(shard)
            self._make_way(shard, on=True)

    def _make_way(self, shard: int, *, on: bool) -> None:
        """Let another node claim a shard that is here, or no longer."""
        ours = self._here.get(shard)
        if ours is not None:
            ours.make_way(on=on)

    def _wait_until_lost(self, shard: int, stop: Stop) -> None:
        """Wait until a shard is to go, or another has claimed it, and for as long as a session.

        Whoever lost a shard may be late to learn that it is another's.
        """
        while not stop.wait(LOOK_S):
            ours = self._here.get(shard)
            if ours is not None and ours.status in LOST:
                stop.wait(self.config.lease.ttl_ms / 1000)
                return

    def _has_log(self, shard: int) -> bool:
        path = shard_at(self._root, shard)
        return files_at(path).is_folder(log_folder(f"{path}/log"))

    def _try_to_claim(self, shard: int) -> bool:
        """Claim a shard; False where its store does not let us, which may pass."""
        try:
            self._claim(shard)
        except (LogError, OSError) as error:
            logger.warning("shard %d cannot be claimed: %s", shard, error)
            return False
        return True

    def _claim(self, shard: int) -> None:
        """Claim a shard's log and serve its groups; one that is served stays."""
        with self._changing:
            ours = self._here.get(shard)
            if shard in self._loading or (ours is not None and ours.status not in LOST):
                return
            self._loading.add(shard)
            self._here.pop(shard, None)
        try:
            with self._room:
                opened = self._open(shard)
            with self._changing:
                self._here[shard] = opened
                self._empty.discard(shard)
        finally:
            with self._changing:
                self._claimed.pop(shard, None)
                self._loading.discard(shard)
        if ours is not None:
            ours.close()
        self._tell()

    def _open(self, shard: int) -> Coordinator:
        """Read the log while another still answers, claim it, and load what came meanwhile."""
        log = LogAhead.open(shard_at(self._root, shard), self.config.log)
        self._read(log)
        epoch = log.claim(self._owner, self._address, wall_ms())
        with self._changing:
            self._claimed[shard] = epoch
        self._start(self._tell, f"muster-claimed-{shard}")
        return self._load(log)

    def _read(self, log: LogAhead) -> None:
        log.read_ahead()

    def _load(self, log: LogAhead) -> Coordinator:
        return Coordinator.open(
            None, config=self.config, topics=self._catalog, log=log, metrics=self.metrics
        )

    def _tell(self) -> None:
        """Tell the other nodes what we have."""
        try:
            self.nodes.renew()
        except OSError as error:
            logger.warning("cannot tell the other nodes what this one has: %s", error)


def _refuse(group_id: str, what: str) -> GroupError:
    return GroupError(
        ErrorCode.NOT_COORDINATOR,
        f"Another node has {what}, and group {group_id} with it: find the coordinator.",
    )


def _config_of_nodes(config: Config) -> Config:
    """Return the settings of the coordinator of the nodes: a node's session is a lease."""
    ttl_ms = config.lease.ttl_ms
    beat_ms = max(1, ttl_ms // 5)
    return replace(
        config,
        kafka=kafka_config(
            {
                "group.consumer.assignors": ["uniform"],
                "group.consumer.assignment.interval.ms": 0,
                "group.consumer.min.session.timeout.ms": ttl_ms,
                "group.consumer.session.timeout.ms": ttl_ms,
                "group.consumer.min.heartbeat.interval.ms": beat_ms,
                "group.consumer.heartbeat.interval.ms": beat_ms,
            }
        ),
    )
