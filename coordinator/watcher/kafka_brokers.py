"""The brokers of a cluster, as one that only reads needs them: who leads what, and requests."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from coordinator.config import ConfigError
from coordinator.core.events import CatalogTopic
from coordinator.core.watched.lags import Place
from coordinator.errors import GroupError
from coordinator.member.client_settings import ClientSettings
from coordinator.member.kafka import error_of
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.wire.call import from_uuid
from coordinator.wire.codec import Api

ANSWER_S = 30.0
INTERNAL = "__"
NO_LEADER = ANY = -1
EARLIEST, LATEST = -2, -1
"""Timestamps that stand for a place, in Kafka's requests and in Spark's offsets."""
PLACES_A_REQUEST = 10_000
READ_UNCOMMITTED = 0
TOPIC_RESOURCE = 2
GROUP = 0
"""What a coordinator is asked for."""
ONLY_NAMES = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
"""Of a request for metadata: no topic is made by it."""


class ClusterMetadata(NamedTuple):
    """What a broker says of its cluster.

    Attributes
    ----------
    leaders
        Of the partitions of the topic that was asked for, by number; -1 for none.
    error
        Kafka's code for that topic, 0 for none.
    """

    cluster_id: str
    leaders: dict[int, int]
    error: int
    topics: dict[str, CatalogTopic]


class KafkaBrokers:
    """Connections to brokers, each opened when it is needed; one asyncio loop uses them.

    Parameters
    ----------
    cluster_id
        Of the cluster that is asked: another one at the same address is as none. Empty for any.

    Every method raises OSError where a broker cannot be reached or does not answer, and GroupError
    where it refuses the login or is too old.
    """

    def __init__(
        self, settings: ClientSettings, answer_s: float = ANSWER_S, cluster_id: str = ""
    ) -> None:
        self._settings = settings
        self._answer_s, self._cluster_id = answer_s, cluster_id
        self._addresses: dict[int, tuple[str, int]] = {}
        self._open: dict[int, KafkaConnection] = {}
        self._any: KafkaConnection | None = None
        self._opening: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By broker, `ANY` for `_any`: of two that ask at once, one opens what both use."""

    async def describe(self, topic: str) -> ClusterMetadata:
        """Ask any broker for the cluster, its topics, and who leads the partitions of one."""
        answer = await self._ask_metadata(None)
        racks = {int(one.node_id): one.rack for one in answer.brokers}
        found = {one.name: one for one in answer.topics if one.name is not None}
        own = found.get(topic)
        return ClusterMetadata(
            answer.cluster_id or "",
            {p.partition_index: int(p.leader_id) for p in own.partitions} if own else {},
            int(own.error_code) if own else 3,
            {
                name: _catalog_topic(one, racks)
                for name, one in found.items()
                if not name.startswith(INTERNAL) and int(one.error_code) == 0
            },
        )

    async def leaders(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """Ask any broker who leads the partitions of topics; one that is not there is left out.

        Raises
        ------
        GroupError
            A topic may not be seen.
        """
        answer = await self._ask_metadata([{"topic_id": None, "name": name} for name in topics])
        found = {}
        for topic in answer.topics:
            error = error_of(topic.error_code, f"topic {topic.name}: {topic.error_code.name}")
            if error is not None and not error.retriable:
                raise error
            if topic.partitions:
                found[topic.name] = {p.partition_index: int(p.leader_id) for p in topic.partitions}
        return found

    async def coordinators(self, group_ids: Sequence[str]) -> dict[str, int]:
        """Ask any broker who coordinates groups; a group without a coordinator is left out."""
        answer = await self._ask_any(
            Api.FIND_COORDINATOR, key_type=GROUP, coordinator_keys=list(group_ids), key=""
        )
        found = [one for one in answer.coordinators if not int(one.error_code)]
        self._addresses |= {int(one.node_id): (one.host, one.port) for one in found}
        return {str(one.key): int(one.node_id) for one in found}

    async def end_offsets(self, places: Iterable[Place]) -> dict[Place, int]:
        """Ask where partitions end, as Kafka's own tools do for a lag: at the high watermark.

        One that has no leader now, or may not be seen, is left out.
        """
        wanted: defaultdict[str, set[int]] = defaultdict(set)
        for topic, partition in places:
            wanted[topic].add(partition)
        led: defaultdict[int, list[Place]] = defaultdict(list)
        for topic, leaders in (await self.leaders(wanted) if wanted else {}).items():
            for partition in sorted(wanted[topic] & leaders.keys()):
                led[leaders[partition]].append((topic, partition))
        found: dict[Place, int] = {}
        for node_id in sorted(led.keys() - {NO_LEADER}):
            left = iter(led[node_id])
            while some := list(islice(left, PLACES_A_REQUEST)):
                answer = await self.ask(node_id, Api.LIST_OFFSETS, **offsets_asked(some, LATEST))
                found |= {
                    (topic.name, int(one.partition_index)): int(one.offset)
                    for topic in answer.topics
                    for one in topic.partitions
                    if not int(one.error_code)
                }
        return found

    async def _ask_metadata(self, topics: Sequence[object] | None) -> Any:  # noqa: ANN401 - kio's
        """Ask any broker for topics, all for None, and note where the brokers are."""
        answer = await self._ask_any(Api.METADATA, topics=topics, **ONLY_NAMES)
        self._addresses = {int(one.node_id): (one.host, one.port) for one in answer.brokers}
        return answer

    async def ask(self, node_id: int, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's
        """Ask one broker."""
        async with self._opening[node_id]:
            connection = self._open.get(node_id)
            if connection is None:
                if node_id not in self._addresses:
                    raise ConnectionError(f"broker {node_id} is not known")
                connection = await self._connect(self._addresses[node_id])
                self._open[node_id] = connection
        return await self._ask(connection, api, fields)

    async def topic_setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic; None where this user may not see it."""
        resource = {
            "resource_type": TOPIC_RESOURCE,
            "resource_name": topic,
            "configuration_keys": [name],
        }
        try:
            answer = await self._ask_any(
                Api.DESCRIBE_CONFIGS,
                resources=[resource],
                include_synonyms=False,
                include_documentation=False,
            )
        except (OSError, GroupError):
            return None
        values = {one.name: one.value for found in answer.results for one in found.configs}
        return values.get(name)

    @property
    def addresses(self) -> Mapping[int, tuple[str, int]]:
        """Where the brokers in the last answer are."""
        return self._addresses

    @property
    def node_ids(self) -> Sequence[int]:
        """The brokers in the last answer."""
        return sorted(self._addresses)

    async def _ask_any(self, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's message
        failure: Exception = ConnectionError("no broker")
        if self._any is not None:
            try:
                return await self._ask(self._any, api, fields)
            except OSError as error:
                failure = error
        known = [*self._settings.servers, *self._addresses.values()]
        for address in dict.fromkeys(known):
            try:
                async with self._opening[ANY]:
                    connection = self._any or await self._connect(address)
                    self._any = connection
                return await self._ask(connection, api, fields)
            except OSError as error:
                text = str(error) or f"no answer of Kafka's within {self._answer_s:.0f} s"
                failure = ConnectionError(f"{address[0]}:{address[1]}: {text}")
        raise failure

    async def _ask(
        self, connection: KafkaConnection, api: Api, fields: Mapping[str, object]
    ) -> Any:  # noqa: ANN401 - kio's message
        """Ask on a connection; one that fails is closed, and no longer used."""
        try:
            async with asyncio.timeout(self._answer_s):
                return await connection.ask(api, **fields)
        except (OSError, asyncio.CancelledError):  # a timeout is an OSError
            for node_id in [one for one, used in self._open.items() if used is connection]:
                del self._open[node_id]
            if self._any is connection:
                self._any = None
            await _close(connection)
            raise

    async def _connect(self, address: tuple[str, int]) -> KafkaConnection:
        settings = self._settings
        async with asyncio.timeout(self._answer_s):
            found = await KafkaConnection.open(
                address, settings.client_id, settings.tls, settings.login
            )
            if self._cluster_id:
                try:
                    await self._check_cluster(found)
                except BaseException:
                    await _close(found)
                    raise
            return found

    async def _check_cluster(self, connection: KafkaConnection) -> None:
        answer = await connection.ask(Api.METADATA, topics=(), **ONLY_NAMES)
        if answer.cluster_id != self._cluster_id:
            raise ConnectionError(
                f"this is now Kafka cluster {answer.cluster_id}, but the store shows "
                f"{self._cluster_id}: give the address of that cluster"
            )

    async def close(self) -> None:
        """Close all connections."""
        found = [*self._open.values(), *([self._any] if self._any else [])]
        self._open, self._any = {}, None
        for connection in found:
            await _close(connection)


def ask_cluster(settings: ClientSettings, topic: str) -> ClusterMetadata:
    """Ask a cluster once, before it is followed.

    Raises
    ------
    ConfigError
        The address is not that of a cluster.
    OSError, GroupError
        As for `KafkaBrokers`.
    """

    async def ask() -> ClusterMetadata:
        brokers = KafkaBrokers(settings)
        try:
            return await brokers.describe(topic)
        finally:
            await brokers.close()

    found = asyncio.run(ask())
    if not found.cluster_id:
        raise ConfigError("the cluster has no id: give the address of a Kafka broker")
    return found


def offsets_asked(
    places: Iterable[Place], at: int, isolation: int = READ_UNCOMMITTED
) -> dict[str, object]:
    """Return the fields of a request for where partitions begin (EARLIEST) or end (LATEST)."""
    asked: defaultdict[str, list[object]] = defaultdict(list)
    for topic, partition in places:
        asked[topic].append({"partition_index": partition, "timestamp": at})
    topics = [{"name": topic, "partitions": some} for topic, some in asked.items()]
    return {"replica_id": -1, "isolation_level": isolation, "topics": topics}


async def _close(connection: KafkaConnection) -> None:
    with contextlib.suppress(OSError, GroupError):
        await connection.close()


def _catalog_topic(topic: Any, racks: dict[int, str | None]) -> CatalogTopic:  # noqa: ANN401
    partitions = sorted(topic.partitions, key=lambda one: one.partition_index)
    known = tuple(
        tuple(sorted({rack for node in one.replica_nodes if (rack := racks.get(int(node)))}))
        for one in partitions
    )
    return CatalogTopic(from_uuid(topic.topic_id), len(partitions), known if any(known) else ())
