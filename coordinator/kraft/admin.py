"""Give a node partitions, and take them back: done by requests to the cluster, then checked."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from assignors import SpecError
from coordinator.clock import wall_ms
from coordinator.kraft.links import Controllers, Links, check_right
from coordinator.kraft.membership import Move, move_elsewhere, takes_replicas
from coordinator.kraft.metadata_image import BROKER, MetadataImage
from coordinator.kraft.node import find_cluster_id
from coordinator.kraft.node_files import NodeFiles
from coordinator.kraft.observer import NO_NODE, Observer
from coordinator.kraft.registration import TOPIC, WINDOW_SETTING, can_cordon, find_strays
from coordinator.member.client_settings import ClientSettings
from coordinator.wire.codec import Api

WINDOW_S, CORDON_S, REASSIGN_MS = 30.0, 10.0, 10_000
LOOK_S = 0.2
NO_REASSIGNMENT, ELECTION_NOT_NEEDED = 85, 84
PREFERRED = 0
SET, DELETE = 0, 1
"""What is done to a setting."""


class ClusterState(NamedTuple):
    """A cluster as it is now.

    Attributes
    ----------
    operations
        Which operations on the cluster the user may do, as bits.
    """

    cluster_id: str
    operations: int
    image: MetadataImage


class ClusterAdmin:
    """Requests about a node, of a command that ends; one asyncio loop uses it.

    Its methods raise OSError where the cluster does not answer, and RefusedError where a right is
    missing.
    """

    def __init__(self, brokers: ClientSettings, controllers: ClientSettings) -> None:
        self._links = Links(brokers, REASSIGN_MS / 1000 + 5)
        self._controllers = Controllers(brokers, controllers)
        self._servers, self._brokers = brokers.servers, brokers
        self._observer: Observer | None = None

    async def read(self) -> ClusterState:
        """Read the cluster, as it is now."""
        answer = await self._ask(
            Api.DESCRIBE_CLUSTER,
            include_cluster_authorized_operations=True,
            include_fenced_brokers=False,
        )
        operations = max(int(answer.cluster_authorized_operations), 0)
        return ClusterState(str(answer.cluster_id), operations, await self.image())

    async def image(self) -> MetadataImage:
        """Return the metadata as it is decided now."""
        if self._observer is None:
            cluster_id = await find_cluster_id(self._brokers)
            self._observer = Observer(self._controllers, cluster_id, NO_NODE, uuid.uuid4())
        else:
            await self._observer.step()
        return (await self._observer.catch_up()).image

    async def move(self, moves: Iterable[Move]) -> None:
        """Change the replicas of partitions.

        Raises
        ------
        SpecError
            The controllers refuse one.
        """
        by_topic: dict[str, list[dict[str, object]]] = {}
        for one in moves:
            partition = {"partition_index": one.partition, "replicas": one.after}
            by_topic.setdefault(one.topic, []).append(partition)
        if not by_topic:
            return
        answer = await self._ask(
            Api.ALTER_PARTITION_REASSIGNMENTS,
            timeout=REASSIGN_MS,
            topics=[{"name": name, "partitions": some} for name, some in by_topic.items()],
        )
        check_right(answer.error_code, "the replicas stay", "ALTER")
        if int(answer.error_code):
            raise SpecError(f"the replicas stay: {answer.error_message or answer.error_code.name}")
        for topic in answer.responses:
            for one in topic.partitions:
                if int(one.error_code) not in {0, NO_REASSIGNMENT}:
                    why = one.error_message or one.error_code.name
                    raise SpecError(f"{topic.name}-{one.partition_index} stays: {why}")

    async def elect(self, partitions: Collection[int]) -> None:
        """Have partitions of the topic of groups led by their first replicas, which are in sync.

        Raises
        ------
        SpecError
            The controllers refuse it.
        """
        answer = await self._ask(
            Api.ELECT_LEADERS,
            election_type=PREFERRED,
            topic_partitions=[{"topic": TOPIC, "partitions": sorted(partitions)}],
            timeout=REASSIGN_MS,
        )
        check_right(answer.error_code, "the leaders stay", "ALTER")
        if int(answer.error_code):
            raise SpecError(f"the leaders stay: {answer.error_code.name}")
        for topic in answer.replica_election_results:
            for one in topic.partition_result:
                if int(one.error_code) not in {0, ELECTION_NOT_NEEDED}:
                    why = one.error_message or one.error_code.name
                    raise SpecError(f"{topic.topic}-{one.partition_id} keeps its leader: {why}")

    async def unregister(self, node_id: int) -> None:
        """Unregister a node.

        Raises
        ------
        SpecError
            The controllers refuse it.
        """
        answer = await self._ask(Api.UNREGISTER_BROKER, broker_id=node_id)
        check_right(answer.error_code, f"node {node_id} stays registered", "ALTER")
        if int(answer.error_code):
            why = answer.error_message or answer.error_code.name
            raise SpecError(f"node {node_id} stays registered: {why}")

    async def let_in(self, nodes: Iterable[int], until_ms: int | None) -> None:
        """Have other nodes take new replicas for a while; None: no longer.

        Raises
        ------
        SpecError
            The controllers refuse it.
        """
        operation, value = (DELETE, None) if until_ms is None else (SET, str(until_ms))
        setting = {"name": WINDOW_SETTING, "config_operation": operation, "value": value}
        resources = [
            {"resource_type": BROKER, "resource_name": str(one), "configs": [setting]}
            for one in sorted(nodes)
        ]
        if not resources:
            return
        answer = await self._controllers.ask(
            Api.INCREMENTAL_ALTER_CONFIGS, resources=resources, validate_only=False
        )
        for one in answer.responses:
            what = f"broker {one.resource_name} stays cordoned"
            check_right(one.error_code, what, "ALTER_CONFIGS")
            if int(one.error_code):
                raise SpecError(f"{what}: {one.error_message or one.error_code.name}")

    async def wait_until(
        self, holds: Callable[[MetadataImage], bool], patience_s: float
    ) -> MetadataImage | None:
        """Wait until something holds of the metadata; None where it did not in time."""
        until = time.monotonic() + patience_s
        while not holds(image := await self.image()):
            if time.monotonic() > until:
                return None
            await asyncio.sleep(LOOK_S)
        return image

    async def _ask(self, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's message
        why: OSError = ConnectionError("no address is given")
        for address in self._servers:
            try:
                return await self._links.ask(address, api, **fields)
            except OSError as error:
                why = error
        raise why

    async def close(self) -> None:
        """Close all connections."""
        await self._links.close()
        await self._controllers.close()


async def move_replicas(
    admin: ClusterAdmin, files: NodeFiles, node_id: int, moves: list[Move]
) -> list[Move]:
    """Change the replicas of partitions, in a window in which no node among them is cordoned.

    Controllers refuse an assignment that names a cordoned broker, even where it has the partition
    already. A topic that is made in the window may be placed on such a node: these replicas are
    moved away again, and returned.

    Parameters
    ----------
    files, node_id
        Of the node that this is about, which finds its window there. Others find theirs in the
        cluster's settings.

    Raises
    ------
    SpecError
        A node does not take replicas, or a controller refuses: nothing has changed then.
    """
    image = await admin.image()
    after = {one for move in moves for one in move.after}
    closed = {one for one in after if not takes_replicas(image, one)}
    before = _list_strays(image, closed)
    try:
        if node_id in closed:
            files.open_window(WINDOW_S)
        await admin.let_in(closed - {node_id}, wall_ms() + round(WINDOW_S * 1000))
        opened = await admin.wait_until(
            lambda image: all(takes_replicas(image, one) for one in closed), CORDON_S
        )
        if opened is None:
            raise SpecError(_explain_closed(await admin.image(), closed, node_id))
        await admin.move(moves)
    finally:
        files.close_window()
        await admin.let_in(closed - {node_id}, None)
    if can_cordon(image):
        await admin.wait_until(
            lambda image: not any(takes_replicas(image, one) for one in closed), CORDON_S
        )
    image = await admin.image()
    strays = [
        move_elsewhere(name, number, image, one)
        for one, name, number in sorted(_list_strays(image, closed) - before)
    ]
    await admin.move(one for one in strays if one.after)
    return strays


def _list_strays(image: MetadataImage, nodes: Iterable[int]) -> set[tuple[int, str, int]]:
    return {(one, topic.name, number) for one in nodes for topic, number in find_strays(image, one)}


def _explain_closed(image: MetadataImage, closed: Iterable[int], node_id: int) -> str:
    late = min(one for one in closed if not takes_replicas(image, one))
    if late == node_id:
        return f"node {late} takes no replicas: run this where `muster node` runs, with its --store"
    return (
        f"broker {late} has these partitions too, and is cordoned: see that it runs, if it is a "
        "node of Muster's; else uncordon it"
    )
