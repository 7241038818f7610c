"""A node: one process that coordinates the groups of the shards that it has.

The nodes of a store are members of one group, and the shards are the partitions that this group
divides. The node with the lease of the root coordinates that group, the others stand by. A node
that is given a shard claims its log; the one before answers until then, and the claim fences it.
So a shard moves without a pause, and nothing rests on a clock.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Self

from coordinator.config import Config, ConfigError
from coordinator.core.classic_events import JoinGroup
from coordinator.core.events import Answer, Event, Heartbeat, RecordAudit
from coordinator.core.state.groups import Topic, TopicView
from coordinator.engines.engine import Engine
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.status import STUCK, Status
from coordinator.extras import require
from coordinator.member.client_settings import read_access
from coordinator.member.member import Member
from coordinator.runtime.coordinator import Coordinator
from coordinator.runtime.threads_left import leave
from coordinator.runtime.topic_catalog import DictCatalog, TopicCatalog, catalog_for, topic_id_of
from coordinator.shards.catalog import SharedCatalog
from coordinator.shards.inbox_rounds import InboxRounds
from coordinator.shards.looks_ahead import LooksAhead
from coordinator.shards.node_metrics import NodeMetrics
from coordinator.shards.reach import Reach
from coordinator.shards.root import Root, session_ms_of
from coordinator.shards.router import Router
from coordinator.shards.shard_loads import ShardLoads
from coordinator.shards.shards_here import (
    LOOK_LOST_S,
    LOOK_S,
    RETRY_S,
    ShardsHere,
    refuse_elsewhere,
)
from coordinator.storage.delta_log import make_root
from coordinator.storage.nodes import Node as StoreNode
from coordinator.storage.nodes import StoreNodes
from coordinator.storage.shards import (
    FILE,
    NODES,
    ROOT,
    SHARDS_TOPIC,
    Shards,
    refuse_other_count,
)
from coordinator.storage.tables.store_files import is_remote
from coordinator.telemetry.start import start_telemetry
from coordinator.wire.call import ClusterNode, FindOffsets
from coordinator.wire.codec import Api
from coordinator.wire.listener import RunningServer, as_node, serve
from coordinator.wire.quotas import BURST_S, TokenBucket

if TYPE_CHECKING:
    from coordinator.member.client_tokens import Login
    from coordinator.web.server import WebServer

LINGER_S, LINGER_LEASES = 10.0, 1.5
"""How long a node that ends waits until others have claimed its shards, at least; where its goodbye
was lost, they claim them a session and a heartbeat later, which is a lease."""
KEEPS_LEASES = 1.5
"""For how long it keeps its shards while it hears of no root: longer than the root takes to move.
It ends before a shard that another has claimed would be claimed back, a lease after that."""
ROOT_S = 5.0
"""How long it waits until it has given the root back."""
STRANGER = GroupError(
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    f"Only the nodes of the store are members of {NODES}: choose another group id.",
)
logger = logging.getLogger("muster.shards")


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
    make_engine
        As `ShardsHere` takes it.

    Raises
    ------
    ConfigError
        The store is a backup, or a copy that is not whole; its nodes have another number of shards;
        or nodes.kafka does not say how nodes reach each other.
    """

    def __init__(
        self,
        store: str,
        shards: Shards,
        config: Config,
        topics: TopicCatalog | Mapping[str, int] | str | None = None,
        make_engine: Callable[[], Engine] | None = None,
    ) -> None:
        self._root, self._shards, self.config = make_root(store), shards, config
        self._tls, self._login = _read_access(config)
        catalog = catalog_for(topics, config) or DictCatalog()
        self._catalog = SharedCatalog(
            catalog,
            max(1, config.topics.poll_ms - 500),
            Topic.of(SHARDS_TOPIC, topic_id_of(SHARDS_TOPIC), shards.count, ()),
        )
        self.metrics = NodeMetrics(config.metrics.groups_max)
        self._leaving, self._ending = threading.Event(), threading.Event()
        """The first comes before: it has left the group, and answers until others claim."""
        self._ahead = LooksAhead(self._root, config, lambda: self.nodes, self._start)
        self.here = ShardsHere(
            self._root,
            shards,
            config,
            self._catalog,
            self.metrics,
            self._start,
            self._tell,
            self._ending,
            make_engine,
            lambda shard: self.nodes.owner_of(shard)[1],
            self._ahead.take,
        )
        self._router = Router(self._find, self.here.list_open, self._refuse_stranger)
        self._closing, self._when_closed = threading.Lock(), list[Callable[[], object]]()
        self._threads: list[threading.Thread] = []
        self._holding: threading.Thread | None = None
        self._serving: RunningServer | None = None
        self._looked = 0.0
        self._quota = _make_quota() if is_remote(self._root) else None
        self.loads = ShardLoads(self.here.list_asked)
        self.nodes = StoreNodes(
            self._root,
            config.lease,
            epoch=self._root_epoch,
            shards=self.here.claims,
            loads=self.loads.measure,
            of=shards.count,
            misses=lambda: self._reach.misses(),  # noqa: PLW0108 - made below
        )
        self._refuse_other_count()
        self._holds = Root(
            *(self._root, shards, config, self.nodes, self._tell, self._follow_root),
            *(self._ahead.see, self._ahead.see_late),
        )
        self._reach = Reach(config, self._holds, self._ahead, self.here, self.nodes, self._start)
        self.metrics.watch_shards(self.here.count, self._root_epoch)
        self.looks = {
            Api.METADATA: self._look_at_nodes,
            Api.FIND_COORDINATOR: self._look_at_nodes,
        }
        self._catalog.topics()

    def _refuse_other_count(self) -> None:
        """Refuse a file of shards that was changed: a group would be in several of them."""
        try:
            refuse_other_count(self._root, self._shards)
        except OSError as error:
            logger.warning("how many shards %s was made with is unknown: %s", self._root, error)
        self._read_nodes()
        other = {one.of: one.address for one in self.nodes.others if one.of}
        other.pop(self._shards.count, None)
        for count, address in other.items():
            raise ConfigError(
                f"{self._root}/{FILE} says {self._shards.count} shards, and {address} serves the "
                f"store with {count}, which never changes: restore the file as it was"
            )

    @property
    def address(self) -> str:
        """Where clients and the other nodes find it; "" before it serves."""
        return self.here.address

    @property
    def owned(self) -> list[int]:
        """The shards that it has claimed, and those of its own that have no log yet."""
        return sorted(self.here.claims())

    # What a server asks --------------------------------------------------------------------------

    @property
    def status(self) -> str:
        """Active, until it ends."""
        return (Status.CLOSED if self._ending.is_set() else Status.ACTIVE).value

    @property
    def health(self) -> str:
        """Active; else what is wrong with one of its shards, which another node does better."""
        found = {one.health for one in self.here.list_open()} & {STUCK, Status.BROKEN.value}
        return min(found, default=self.status)

    def confirm_status(self, patience_s: float = 1.0) -> str:  # noqa: ARG002 - as a coordinator's
        """Return the status: each shard looks at its log by itself."""
        return self.status

    @property
    def topics_unread_since(self) -> int | None:
        """Since when the source of topics cannot be read; None while it can."""
        found = (one.topics_unread_since for one in self.here.list_open())
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
        """Refuse a client that is not a node and asks for shards, which it would not serve.

        A node that is new may be known at its next heartbeat.
        """
        if not isinstance(event, Heartbeat | JoinGroup) or event.group_id != NODES:
            return None
        nodes = {self.here.address, *(one.address for one in self.nodes.others)}
        if event.client_id not in nodes:
            return STRANGER
        self._holds.heard.note(event.client_id)
        return None

    def is_large(self, event: Event) -> bool:
        """Whether others had better not wait for an event."""
        return self._router.is_large(event)

    def coordinator_of(self, group_id: str) -> ClusterNode | None:
        """Return which node coordinates a group, as far as the nodes say."""
        assert self._serving is not None
        if group_id == NODES:
            if self._holds.coordinator is not None:
                return self._serving.node
            found = self._find_root()
        else:
            shard = self._shards.shard_of(group_id)
            found, epoch = self.nodes.owner_of(shard)
            if self.here.is_here(shard, epoch):
                return self._serving.node
            self.here.ask(shard, has_owner=found is not None)
        return None if found is None else as_node(found)

    def _find_root(self) -> StoreNode | None:
        """Return the node that has the root, as far as its lease and the nodes say."""
        found, holder = self.nodes.coordinator(), self._holds.holder
        if holder is None or (found and found.coordinator_epoch >= holder.coordinator_epoch):
            return found
        return next((one for one in self.nodes.others if one.address == holder.address), found)

    def _knows_who_claimed(self) -> bool:
        """Whether another node has claimed each shard that was ours."""
        lost = self.here.list_lost()
        return all(self.nodes.owner_of(shard)[1] > epoch for shard, epoch in lost.items())

    def _find(self, group_id: str) -> Coordinator | GroupError:
        """Return the coordinator of a group, or the error that refuses its requests."""
        if group_id == NODES:
            return self._holds.coordinator or refuse_elsewhere(group_id, "the root")
        return self.here.find(group_id)

    def _find_part(self, part: str) -> Coordinator | None:
        """Return the coordinator of a shard, or of the root, by its name in the inbox."""
        return self._holds.coordinator if part == ROOT else self.here.get(int(part))

    def _look_at_nodes(self) -> None:
        """Read what the other nodes have, unless that was done just now.

        Whose shard was claimed learns from the log that it was, and from the nodes by whom: its
        members wait for that answer.
        """
        now_s = time.monotonic()
        age_s = now_s - self._looked
        if age_s < LOOK_S and (age_s < LOOK_LOST_S or self._knows_who_claimed()):
            return
        if self._quota is not None:
            self._quota.take(0.0, now_s)
            if self._quota.left < 1:
                return
            self._quota.take(1.0, now_s)
        self._read_nodes()

    def _read_nodes(self) -> None:
        try:
            self.nodes.look()
            self._looked = time.monotonic()
        except OSError as error:
            logger.warning("cannot read the nodes of %s: %s", self._root, error)

    def _root_epoch(self) -> int:
        return self._holds.epoch

    def serve_web(self) -> WebServer:
        """Show the groups of all shards to browsers, whichever nodes have them.

        Raises
        ------
        ConfigError, OSError
            As `Coordinator.serve_web`.
        """
        require("the pages of a node", "web")
        from coordinator.web.server import WebServer  # noqa: PLC0415 - an extra

        return WebServer(
            self._root,
            self.config,
            audit=lambda records: self.submit([RecordAudit(records)]),
            status=lambda: self.status,
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
        self.when_closed(start_telemetry(self.config, self.metrics))
        self.here.address = serving.address
        self.here.owner = f"node-{serving.node.node_id}-{uuid.uuid4().hex[:8]}"
        hold = partial(self._holds.hold, self.address, self._leaving, self._ending)
        self._holding = self._start(hold, "muster-root")
        self._start(self._take_part, "muster-node")
        self._start(lambda: self._reach.watch(self._leaving), "muster-reach")
        rounds = InboxRounds(self._root, self._shards, self.config, self._find_part)
        self._start(lambda: rounds.run(self._ending), "muster-inbox")
        return serving

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave: the shards go to other nodes, which claim them; then stop. Twice is no fault."""
        with self._closing:
            if not self._ending.is_set():
                self._close()

    def when_closed(self, work: Callable[[], object]) -> None:
        """Have something done once the node has closed."""
        self._when_closed.append(work)

    def _close(self) -> None:
        self._leaving.set()
        if self._reach.member is not None:
            self._reach.member.leave()
        self._read_nodes()
        if self.nodes.others:
            self._wait_for_claims()
        root = self._holds.coordinator
        self._ending.set()
        self.here.close()
        if root is not None:
            root.close()
        if self._holding is not None:  # it may be opening the root, and would keep its lease
            self._holding.join(ROOT_S)
        for thread in self._threads:
            if thread.is_alive():
                leave(thread)
        if self._serving is not None:
            self._serving.close()
        for work in self._when_closed:
            work()

    def _wait_for_claims(self) -> None:
        """Answer on until others have claimed what was ours, or it takes too long."""
        lease_s = self.config.lease.ttl_ms / 1000
        until = time.monotonic() + max(LINGER_S, LINGER_LEASES * lease_s)
        while time.monotonic() < until:
            if self.here.has_none():
                return
            time.sleep(LOOK_S)

    def _start(self, run: Callable[[], object], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        self._threads = [one for one in self._threads if one.is_alive()]
        self._threads.append(thread)
        thread.start()
        return thread

    # Shards --------------------------------------------------------------------------------------

    def _take_part(self) -> None:
        """Be a member of the group of the nodes, for as long as this one serves."""
        while not self._leaving.is_set():
            if self._reach.is_cut_off():
                self._leaving.wait(RETRY_S)
                continue
            member = Member(
                self.here.address,
                tls=self._tls,
                login=self._login,
                group_id=NODES,
                topics=[SHARDS_TOPIC],
                server_assignor="weighted",
                client_id=self.here.address,
                member_id=self.here.owner,
                session_timeout_ms=session_ms_of(self.config),
                # The next claim of a shard fences us, and the root may move meanwhile.
                keeps_ms=int(KEEPS_LEASES * self.config.lease.ttl_ms),
            )
            try:
                with member:
                    self._reach.member = member
                    member.run(lambda partition, stop: self.here.have(partition.partition, stop))
            except Exception:
                logger.exception("the node is no longer a member of %s: joining again", NODES)
            self._leaving.wait(RETRY_S)

    def _follow_root(self) -> None:
        """Send a heartbeat to the root, which is elsewhere now."""
        member = self._reach.member
        if member is not None:
            with suppress(RuntimeError):  # it has left
                member.find_coordinator()

    def _tell(self) -> None:
        """Tell the other nodes what we have."""
        try:
            self.nodes.renew()
        except OSError as error:
            logger.warning("cannot tell the other nodes what this one has: %s", error)


def _make_quota() -> TokenBucket:
    """Return how often an object store is listed because clients ask who coordinates.

    Ten times in a row, where a shard has just moved, and once a second for long.
    """
    return TokenBucket(1.0, BURST_S, time.monotonic())


def _read_access(config: Config) -> tuple[ssl.SSLContext | None, Login | None]:
    """Return the TLS and the login by which a node reaches the others, which serve as it does.

    Raises
    ------
    ConfigError
        nodes.kafka does not fit the TLS and the logins of [server], or is invalid.
    """
    settings, server = config.nodes.kafka, config.server
    wanted = "SASL_" if server.sasl_mechanisms else ""
    wanted += "SSL" if server.tls_certificate else "PLAINTEXT"
    given = settings.get("security.protocol", "PLAINTEXT").upper()
    if given.removesuffix("PLAINTEXT") != wanted.removesuffix("PLAINTEXT"):
        raise ConfigError(
            f"nodes.kafka has the security.protocol {given}, and nodes serve with {wanted} "
            "(server.tls_certificate, server.sasl_mechanisms): say how a node reaches the others "
            "(guide: several nodes on one store)"
        )
    return read_access(settings, "nodes.kafka")
