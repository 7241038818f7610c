"""A node of a Kafka cluster: registers, stays alive, observes the metadata, follows its leaders."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from coordinator.clock import monotonic_ms, wall_ms
from coordinator.config import Config, ConfigError
from coordinator.core.events import Answer, DecidePlan
from coordinator.errors import ErrorCode, GroupError
from coordinator.errors.trouble import Trouble
from coordinator.extras import require
from coordinator.kraft.leading import Standing
from coordinator.kraft.links import ANSWER_S, Controllers, Links, Quorum, RefusedError, check_right
from coordinator.kraft.metadata_image import MetadataImage
from coordinator.kraft.node_files import Identity, NodeFiles
from coordinator.kraft.observer import Observer
from coordinator.kraft.registration import (
    TOPIC,
    Place,
    choose_rack,
    find_misplaced,
    find_strays,
    heartbeat,
    is_let_in,
    must_not_lead,
    registration,
)
from coordinator.kraft.replicas import FETCH_S, Replicas
from coordinator.member.client_settings import ClientSettings
from coordinator.shards.node_metrics import NodeMetrics
from coordinator.wire.codec import Api
from coordinator.wire.listener import join_address, serve

if TYPE_CHECKING:
    from coordinator.kraft.leader import LeaderOf
    from coordinator.kraft.requests.access import ClusterAccess
    from coordinator.kraft.served import Listeners
    from coordinator.runtime.coordinator import Coordinator

HEARTBEAT_S, FENCED_HEARTBEAT_S = 1.0, 0.25
SURE_MS = 4_000
"""How long a heartbeat proves that the node is not fenced: controllers wait longer for one, 9 s by
Kafka's default of `broker.session.timeout.ms`."""
REGISTER_S, SHUTDOWN_S, LOSS_S = 1.0, 30.0, 10.0
PORT = 9
"""Of a listener on which no one asks."""
STALE_EPOCH, DUPLICATE, NOT_REGISTERED = 77, 101, 102
PASSING = {14, 41, DUPLICATE}
"""Errors of a registration that end: no controller yet, and the last session of the same id."""
logger = logging.getLogger("muster.node")


class ClusterNode:
    """A node, which is one while `run` runs.

    Parameters
    ----------
    brokers, controllers
        How they are reached.
    files
        Held by the caller.
    node_id
        None for the one that it was.
    rack
        None where brokers have none.
    config
        Of the groups that it coordinates where it leads.
    listen
        Where brokers and clients reach it, as `served.read_listeners` takes it; "" for a node that
        only follows.

    Attributes
    ----------
    metrics
        Of what it leads.
    """

    def __init__(
        self,
        brokers: ClientSettings,
        controllers: ClientSettings,
        files: NodeFiles,
        node_id: int | None = None,
        rack: str | None = None,
        config: Config | None = None,
        listen: str = "",
    ) -> None:
        self._config, self._listen = config or Config(), listen
        self.metrics = NodeMetrics(self._config.metrics.groups_max)
        self._leader: LeaderOf | None = None
        self._access: ClusterAccess | None = None
        self._shown = MetadataImage(), -1
        self._history: Coordinator | None = None
        self._standing = Standing(SURE_MS)
        self._brokers, self._controllers, self._files = brokers, controllers, files
        self._node_id, self._rack = node_id, rack
        self._quorum = Quorum()
        self._control, self._isr_control = (
            Controllers(brokers, controllers, quorum=self._quorum) for _ in range(2)
        )
        self._epoch = -1
        self._is_fenced = True
        self._named: set[tuple[str, int]] = set()

    @property
    def is_ready(self) -> bool:
        """Whether it is alive in the cluster, and serves all that it leads."""
        return not self._is_fenced and (self._leader is None or self._leader.is_loaded)

    def keep_records(self, history: Coordinator | None) -> None:
        """Keep there, from now on, what Kafka's topic has no record for; None: nowhere."""
        self._history = history
        if self._leader is not None:
            self._leader.keeper.open(history)

    def decide_plan(self, event: DecidePlan) -> Answer:
        """Decide what another process asks of a plan: see `LeaderOf.decide_plan`."""
        if self._leader is None:
            return GroupError(ErrorCode.NOT_COORDINATOR, "The node leads nothing: ask again later.")
        return self._leader.decide_plan(event)

    async def run(self, stop: asyncio.Event) -> str:
        """Be a node until a stop, or until the cluster does without it; return why it ended.

        Raises
        ------
        ConfigError
            It cannot be a node there: the message says what to change.
        MetadataError
            The metadata cannot be read, by this version of Muster.
        OSError, GroupError
            The cluster cannot be reached, at the start.
        """
        cluster_id = await find_cluster_id(self._brokers)
        was = self._files.read_state()
        identity = self._files.begin(cluster_id, self._node_id)
        watching = Controllers(self._brokers, self._controllers, quorum=self._quorum)
        observer = Observer(watching, cluster_id, identity.node_id, identity.directory_id)
        replicas = Replicas(self._files.logs, identity.node_id, Links(self._brokers, FETCH_S))
        try:
            image = (await observer.catch_up()).image
            if was is None or not was.is_known:
                check_id_is_free(image, identity)
            replicas.update(image)
            if replicas.has_lost:
                logger.warning(
                    "a log lacks what it had: the node comes back as another incarnation"
                )
                identity = self._files.forget(identity)
            async with self._served(observer, identity, replicas) as listeners:
                await self._register(image, identity, listeners)
                replicas.broker_epoch = self._epoch
                return await self._work(observer, identity, replicas, stop)
        except RefusedError as error:
            raise ConfigError(str(error)) from None
        finally:
            await replicas.close()
            await watching.close()
            await self._isr_control.close()
            await self._control.close()

    @asynccontextmanager
    async def _served(
        self, observer: Observer, identity: Identity, replicas: Replicas
    ) -> AsyncIterator[Listeners]:
        """Serve followers and clients, where the node may lead; give where that is."""
        if not self._listen:
            yield {}
            return
        require("a node that leads", "kafka")
        from coordinator.kraft.leader import LeaderOf  # noqa: PLC0415 - an extra
        from coordinator.kraft.requests.access import open_access  # noqa: PLC0415 - an extra
        from coordinator.kraft.requests.broker_apis import Folder  # noqa: PLC0415 - an extra
        from coordinator.kraft.requests.metadata_apis import Seen  # noqa: PLC0415 - an extra
        from coordinator.kraft.served import Node, NodeFront, read_listeners  # noqa: PLC0415

        def measure() -> Folder:
            held = list(replicas.held.items())
            return Folder(self._files.logs, {number: one.file.size for number, one in held})

        node_id, image = identity.node_id, observer.log.image
        self._shown = image, observer.log.applied - 1
        listeners = read_listeners(image, self._listen, node_id)
        self._access = access = await open_access(self._config, image, node_id, self._brokers)
        self._leader = leader = LeaderOf(
            node_id,
            self._config,
            self._standing,
            metrics=self.metrics,
            store=os.path.dirname(self._files.folder),
        )
        leader.keeper.open(self._history)
        node = Node(
            node_id,
            identity.cluster_id,
            lambda: Seen(*self._shown),
            lambda: self._epoch,
            measure,
            self._brokers,
            self._controllers,
            self._quorum,
        )
        front = NodeFront(leader, listeners, access, node)
        with serve(
            leader, join_address(*next(iter(listeners.values()))), insecure=True, front=front
        ):
            try:
                yield front.listeners
            finally:
                leader.close()

    # Registration --------------------------------------------------------------------------------

    async def _register(
        self, image: MetadataImage, identity: Identity, listeners: Listeners
    ) -> None:
        rack = choose_rack(image, identity.node_id, self._rack)
        place = Place(socket.gethostname(), PORT, rack, listeners)
        trouble = Trouble(logger.warning, "node %d waits to be registered: %s", identity.node_id)
        while True:
            try:
                answer = await self._control.ask(
                    Api.BROKER_REGISTRATION, **registration(image, identity, place)
                )
            except OSError as error:
                why = str(error)
            else:
                code = answer.error_code
                if not int(code):
                    break
                check_right(code, "the node may not register", "CLUSTER_ACTION")
                if int(code) not in PASSING:
                    raise ConfigError(
                        f"the controllers refuse to register node {identity.node_id}: {code.name}; "
                        "`muster node check` says what a node needs"
                    )
                why = f"{code.name}"
            trouble.note(why)
            await asyncio.sleep(REGISTER_S)
        self._epoch = answer.broker_epoch
        self._files.keep_epoch(self._epoch)
        logger.info("registered as node %d, epoch %d", identity.node_id, self._epoch)

    # At work -------------------------------------------------------------------------------------

    async def _work(
        self, observer: Observer, identity: Identity, replicas: Replicas, stop: asyncio.Event
    ) -> str:
        def changed() -> None:
            self._standing.hear_metadata()
            log = observer.log
            seen = log.image.brokers.get(identity.node_id)
            # Before our own registration is replayed, the image may be of a time before it.
            if log.is_caught_up:  # a snapshot that is being read is not shown
                self._shown = log.image, log.applied - 1
            if self._access is not None and log.is_caught_up:
                self._access.update(log.image)
            if log.is_caught_up and seen is not None and seen.epoch == self._epoch:
                if self._leader is not None:
                    self._leader.end_others(log.image)
                replicas.update(log.image)
                if self._leader is not None:
                    self._leader.begin_ours(log.image, replicas.held)
                self._tell_strays(log.image, identity.node_id)

        stopping = asyncio.Event()
        alive = asyncio.create_task(self._stay_alive(observer, identity, replicas, stopping))
        tasks = [
            alive,
            asyncio.create_task(observer.follow(changed)),
            asyncio.create_task(replicas.run()),
        ]
        if self._leader is not None:
            isr = self._leader.keep_isr(self._isr_control, lambda: observer.log.image, self._epoch)
            tasks.append(asyncio.create_task(isr))
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
            if stopped.done() and not any(task.done() for task in tasks):
                stopping.set()
                await asyncio.wait([alive], timeout=SHUTDOWN_S)
                if self._leader is not None:
                    self._leader.close()
                await replicas.close()
                self._files.end()
                return "stopped"
            return next(str(task.result()) for task in tasks if task.done())
        finally:
            for task in (*tasks, stopped):
                task.cancel()
            await asyncio.gather(*tasks, stopped, return_exceptions=True)

    async def _stay_alive(
        self, observer: Observer, identity: Identity, replicas: Replicas, stopping: asyncio.Event
    ) -> str:
        """Send heartbeats until the cluster lets the node go; return why it did."""
        trouble = Trouble(logger.warning, "no heartbeat is taken, trying again: %s")
        while True:
            log = observer.log
            fields = heartbeat(
                log.image,
                identity,
                self._epoch,
                log.applied - 1,
                takes_replicas=self._files.is_window_open()
                or is_let_in(log.image, identity.node_id, wall_ms()),
                shuts_down=stopping.is_set(),
                wants_fence=self._wants_fence(log.image, identity.node_id, replicas),
            )
            sent_ms = monotonic_ms()
            try:
                answer = await self._control.ask(Api.BROKER_HEARTBEAT, **fields)
            except (OSError, GroupError) as error:
                trouble.note(error)
                await asyncio.sleep(FENCED_HEARTBEAT_S)
                continue
            code = int(answer.error_code)
            if code in {NOT_REGISTERED, STALE_EPOCH}:
                return await self._find_loss(observer, identity.node_id)
            if code:  # an error answers "fenced", too, which then means nothing
                trouble.note(f"the controller answers {answer.error_code.name}")
                await asyncio.sleep(FENCED_HEARTBEAT_S)
                continue
            trouble.end()
            self._take_heartbeat(answer)
            self._standing.hear(sent_ms, is_fenced=answer.is_fenced)
            await self._name_directory(log.image, identity)
            if answer.should_shut_down and stopping.is_set():
                return "stopped"
            is_waiting = answer.is_fenced or stopping.is_set()
            await asyncio.sleep(FENCED_HEARTBEAT_S if is_waiting else HEARTBEAT_S)

    def _wants_fence(self, image: MetadataImage, node_id: int, replicas: Replicas) -> bool:
        """Whether the cluster is better off without the node for now: commits wait for it."""
        if self._leader is None:
            return replicas.cannot_write or must_not_lead(image, node_id)
        return replicas.cannot_write or self._leader.must_step_down

    async def _find_loss(self, observer: Observer, node_id: int) -> str:
        """Return that the node was unregistered; controllers say the same of another registration.

        Raises
        ------
        ConfigError
            Another process has registered the id since.
        """
        until = time.monotonic() + LOSS_S
        while time.monotonic() < until:
            broker = observer.log.image.brokers.get(node_id)
            if broker is None:
                return f"node {node_id} was unregistered: it has ended"
            if broker.epoch != self._epoch:
                break
            await asyncio.sleep(FENCED_HEARTBEAT_S)
        raise ConfigError(
            f"node {node_id} was registered by another process since: stop one of them, and give "
            "each node an id of its own"
        )

    def _take_heartbeat(self, answer: Any) -> None:  # noqa: ANN401 - kio's message
        if answer.is_fenced != self._is_fenced:
            logger.info("the node is %s", "fenced" if answer.is_fenced else "alive in the cluster")
        self._is_fenced = answer.is_fenced

    async def _name_directory(self, image: MetadataImage, identity: Identity) -> None:
        """Say in which directory replicas are that controllers look for in another."""
        misplaced = find_misplaced(image, identity)
        if not misplaced:
            return
        topics = [
            {"topic_id": topic_id, "partitions": [{"partition_index": one} for one in numbers]}
            for topic_id, numbers in misplaced.items()
        ]
        with contextlib.suppress(OSError, GroupError):  # the next heartbeat comes here again
            await self._control.ask(
                Api.ASSIGN_REPLICAS_TO_DIRS,
                broker_id=identity.node_id,
                broker_epoch=self._epoch,
                directories=[{"id_": identity.directory_id, "topics": topics}],
            )
            logger.info("replicas have another directory now: %s", identity.directory_id)

    def _tell_strays(self, image: MetadataImage, node_id: int) -> None:
        found = {(topic.name, number) for topic, number in find_strays(image, node_id)}
        for name, number in sorted(found - self._named):
            logger.warning(
                "%s-%d was placed on this node, which follows %s only: move it away with "
                "kafka-reassign-partitions",
                name, number, TOPIC,
            )  # fmt: skip
        self._named = found


def check_id_is_free(image: MetadataImage, identity: Identity) -> None:
    """See that a new node takes no other broker's id.

    Raises
    ------
    ConfigError
        A broker has it.
    """
    node_id = identity.node_id
    broker = image.brokers.get(node_id)
    if broker is not None and broker.incarnation_id != identity.incarnation_id:
        how = "which is down" if broker.is_fenced else "which is alive"
        raise ConfigError(
            f"--node-id is {node_id}, but that is a broker of the cluster, {how}: give another id; "
            "or name the store of that node, if it is Muster's"
        )


async def find_cluster_id(brokers: ClientSettings, answer_s: float = ANSWER_S) -> str:
    """Ask the brokers for the id of their cluster.

    Raises
    ------
    OSError
        None answers.
    """
    links = Links(brokers, answer_s)
    try:
        answer = await links.ask_any(
            Api.DESCRIBE_CLUSTER,
            include_cluster_authorized_operations=False,
            include_fenced_brokers=False,
        )
        return str(answer.cluster_id)
    finally:
        await links.close()
