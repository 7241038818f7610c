"""The transport over Kafka's wire: to `muster serve`, or to a Kafka 4 broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Collection, Sequence
from typing import Any
from uuid import UUID

from coordinator.core.events import JOIN, Heartbeat, HeartbeatResponse
from coordinator.core.state.partition_spans import TopicKey, spans_of
from coordinator.errors import ErrorCode, GroupError, UnavailableError
from coordinator.member.client_tokens import Login
from coordinator.member.events import MemberSettings
from coordinator.member.kafka_connection import NO_ERROR, KafkaConnection
from coordinator.member.requests import UNHEARD
from coordinator.member.transport import Offsets, TopicPartition
from coordinator.wire.call import from_uuid, to_uuid
from coordinator.wire.codec import Api
from coordinator.wire.sasl import MECHANISMS

GROUP_RESOURCE = 32
MOVED = {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
NAMES_TRIES, NAMES_PAUSE_S = 5, 0.1


def parse_addresses(servers: str | Sequence[str]) -> list[tuple[str, int]]:
    """Return the (host, port) of brokers; ValueError names an invalid one."""
    texts = servers.split(",") if isinstance(servers, str) else list(servers)
    found = []
    for text in texts:
        host, _, port = str(text).strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{text!r} is not an address: give host:port")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("the address is missing: give host:port")
    return found


def check_access(tls: Any, login: Any) -> None:  # noqa: ANN401 - users give anything
    """Refuse what opens no connection."""
    if tls is not None and not isinstance(tls, ssl.SSLContext):
        raise ValueError(f"tls is {tls!r}: give a context, as of ssl.create_default_context()")
    if login is None or callable(login):
        return
    if not isinstance(login, tuple) or [type(part) for part in login] != [str] * 3:
        raise ValueError(
            "login is not (mechanism, user, password): give three texts, or a function that "
            "returns a token"
        )
    if login[0] not in MECHANISMS:
        known = ", ".join(MECHANISMS)
        raise ValueError(f"unknown mechanism {login[0]!r}: give one of {known}")


class Kafka:
    """Requests of one member on a connection to its group's coordinator.

    Parameters
    ----------
    servers
        Where to ask which broker the coordinator is; any of them.
    settings
        Whose requests.
    tls
        For the connections; None: plain.
    login
        (mechanism, user, password); None: none.

    Raises
    ------
    ValueError
        An address or a mechanism is invalid.
    """

    def __init__(
        self,
        servers: str | Sequence[str],
        settings: MemberSettings,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> None:
        self._servers = parse_addresses(servers)
        check_access(tls, login)
        self._settings, self._tls, self._login = settings, tls, login
        self._connection: KafkaConnection | None = None
        self._connecting = asyncio.Lock()
        self._topics: dict[UUID, TopicKey] = {}
        self._unnamed: Any = None
        """The last assignment, while not all its topics have a name."""
        self.session_ms: int | None = None

    async def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    # Requests ------------------------------------------------------------------------------------

    async def heartbeat(self, request: Heartbeat) -> HeartbeatResponse:
        """Send a heartbeat; cancelled, its connection is closed, so that it is not read later."""
        try:
            if request.member_epoch == JOIN:
                self.session_ms = await self._session_timeout_ms()
            answer = await self._ask(Api.CONSUMER_GROUP_HEARTBEAT, **_heartbeat_fields(request))
        except asyncio.CancelledError:
            await asyncio.shield(self.close())
            raise
        if int(answer.error_code) in MOVED:
            await self.close()  # the next request finds where the coordinator is
        _raise_for(answer.error_code, answer.error_message)
        assignment = self._unnamed if answer.assignment is None else answer.assignment
        spans = None
        if assignment is not None:
            named = await self._name_topics({one.topic_id for one in assignment.topic_partitions})
            self._unnamed = None if named else assignment
            spans = spans_of(
                (self._topics[one.topic_id], partition)
                for one in assignment.topic_partitions
                if one.topic_id in self._topics
                for partition in one.partitions
            )
        interval_ms = round(answer.heartbeat_interval.total_seconds() * 1_000)
        return HeartbeatResponse(request.member_id, answer.member_epoch, interval_ms, spans)

    async def commit(self, settings: MemberSettings, epoch: int, offsets: Offsets) -> None:
        """Commit offsets; the first that is refused is raised."""
        for error in (await self.commit_each(settings, epoch, offsets)).values():
            raise error

    async def commit_each(
        self, settings: MemberSettings, epoch: int, offsets: Offsets
    ) -> dict[TopicPartition, GroupError]:
        """Commit offsets; return why those that are refused are."""
        topics: dict[str, list[dict[str, object]]] = {}
        for partition, (offset, metadata) in offsets.items():
            fields = {"partition_index": partition.partition, "committed_offset": offset}
            topics.setdefault(partition.topic, []).append(
                {**fields, "committed_leader_epoch": -1, "committed_metadata": metadata}
            )
        answer = await self._ask(
            Api.OFFSET_COMMIT,
            group_id=settings.group_id,
            generation_id_or_member_epoch=epoch,
            member_id=settings.member_id,
            group_instance_id=settings.instance_id,
            topics=[{"name": name, "partitions": found} for name, found in topics.items()],
        )
        refused = {}
        for topic in answer.topics:
            for found in topic.partitions:
                place = TopicPartition(topic.name, found.partition_index)
                text = f"{place}: its offset is refused: {found.error_code.name.upper()}"
                if (error := error_of(found.error_code, text)) is not None:
                    refused[place] = error
        if any(int(error.code) in MOVED for error in refused.values()):
            await self.close()
        return refused

    async def committed(
        self, group_id: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int]:
        """Return committed offsets."""
        numbers: dict[str, list[int]] = {}
        for place in partitions:
            numbers.setdefault(place.topic, []).append(place.partition)
        topics = [{"name": name, "partition_indexes": found} for name, found in numbers.items()]
        group = {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": topics}
        fields = {"group_id": group_id, "topics": topics}  # before Kafka 3.0
        answer = await self._ask(Api.OFFSET_FETCH, groups=[group], require_stable=False, **fields)
        (found,) = getattr(answer, "groups", [answer])
        if int(found.error_code) in MOVED:
            await self.close()
        _raise_for(found.error_code, f"the answer lacks the offsets of {group_id}")
        offsets = {}
        for topic in found.topics:
            for one in topic.partitions:
                place = TopicPartition(topic.name, one.partition_index)
                _raise_for(one.error_code, f"the answer lacks the offset of {place}")
                if one.committed_offset >= 0:
                    offsets[place] = int(one.committed_offset)
        return offsets

    # Names and settings --------------------------------------------------------------------------

    async def _name_topics(self, ids: set[UUID]) -> bool:
        """Learn the names of topics; whether all are known now. New ones may take a moment."""
        for attempt in range(NAMES_TRIES):
            wanted = sorted(ids - self._topics.keys())
            if not wanted:
                return True
            if attempt:
                await asyncio.sleep(NAMES_PAUSE_S)
            answer = await self._ask(
                Api.METADATA,
                topics=[{"topic_id": one, "name": None} for one in wanted],
                allow_auto_topic_creation=False,
                include_topic_authorized_operations=False,
            )
            self._topics |= {
                topic.topic_id: TopicKey(topic.name, from_uuid(topic.topic_id))
                for topic in answer.topics
                if topic.name is not None and int(topic.error_code) == NO_ERROR
            }
        return ids <= self._topics.keys()

    async def _session_timeout_ms(self) -> int | None:
        """Return the group's session timeout; None where the coordinator does not tell it.

        One that is not ready yet is asked again, with the next heartbeat.
        """
        name = "consumer.session.timeout.ms"
        resource = {
            "resource_type": GROUP_RESOURCE,
            "resource_name": self._settings.group_id,
            "configuration_keys": [name],
        }
        try:
            answer = await self._ask(
                Api.DESCRIBE_CONFIGS,
                resources=[resource],
                include_synonyms=False,
                include_documentation=False,
            )
        except GroupError as error:
            if error.code in UNHEARD:
                raise
            return None
        for found in answer.results:
            # It would be as long as this member's own, and another may have its partitions sooner.
            if int(found.error_code) in UNHEARD:
                await self.close()
                _raise_for(found.error_code, found.error_message)
        values = {one.name: one.value for found in answer.results for one in found.configs}
        return int(values[name]) if str(values.get(name)).isdecimal() else None

    # The connection ------------------------------------------------------------------------------

    async def _ask(self, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's message
        connection = await self._connect()
        try:
            return await connection.ask(api, **fields)
        except OSError:
            await self._forget(connection)
            raise

    async def _forget(self, connection: KafkaConnection) -> None:
        """Reconnect with the next request."""
        if self._connection is connection:
            self._connection = None
        await connection.close()

    async def _connect(self) -> KafkaConnection:
        """Return the connection to the coordinator; find it by any broker that answers."""
        async with self._connecting:
            if self._connection is not None:
                return self._connection
            failure: OSError | GroupError = ConnectionError("no broker")
            for _ in range(len(self._servers)):
                server = self._servers[0]
                self._servers.append(self._servers.pop(0))
                try:
                    self._connection = await self._connect_by(server)
                except UnavailableError as error:
                    failure = error
                except OSError as error:
                    failure = ConnectionError(self._describe(server, error))
                else:
                    return self._connection
            raise failure

    def _describe(self, server: tuple[str, int], error: OSError) -> str:
        """Return where and how a connection was tried, and what came of it."""
        how = "without TLS" if self._tls is None else "over TLS"
        return f"{server[0]}:{server[1]} {how}: {str(error) or type(error).__name__}"

    async def _connect_by(self, server: tuple[str, int]) -> KafkaConnection:
        """Connect to the coordinator that a broker names."""
        broker = await KafkaConnection.open(
            server, self._settings.client_id, self._tls, self._login
        )
        try:
            answer = await broker.ask(
                Api.FIND_COORDINATOR,
                key_type=0,
                coordinator_keys=[self._settings.group_id],
                key=self._settings.group_id,  # before Kafka 3.0
            )
            (found,) = getattr(answer, "coordinators", [answer])
            _raise_for(found.error_code, found.error_message)
            if (found.host, found.port) == server:
                return broker
        except BaseException:
            await broker.close()
            raise
        await broker.close()
        return await KafkaConnection.open(
            (found.host, found.port), self._settings.client_id, self._tls, self._login
        )


def _raise_for(code: Any, message: str | None) -> None:  # noqa: ANN401 - kio's enum
    """Raise the error of a code."""
    if (error := error_of(code, message)) is not None:
        raise error


def error_of(code: Any, message: str | None) -> GroupError | None:  # noqa: ANN401 - kio's enum
    """Return the error of a code, if it is one; an unknown one is as retriable as Kafka says."""
    if int(code) == NO_ERROR:
        return None
    try:
        known = ErrorCode(int(code))
    except ValueError:
        known = ErrorCode.UNKNOWN_SERVER_ERROR
        if code.retriable:
            known = ErrorCode.COORDINATOR_NOT_AVAILABLE
        message = f"{code.name}: {message}"
    return GroupError(known, message or known.name)


def _heartbeat_fields(request: Heartbeat) -> dict[str, object]:
    """Return a heartbeat as kio's message has it."""
    owned = request.topic_partitions
    return {
        "group_id": request.group_id,
        "member_id": request.member_id,
        "member_epoch": request.member_epoch,
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "rebalance_timeout": request.rebalance_timeout_ms,
        "subscribed_topic_names": request.subscribed_topic_names,
        "subscribed_topic_regex": request.subscribed_topic_regex,
        "server_assignor": request.server_assignor,
        "topic_partitions": None
        if owned is None
        else [
            {"topic_id": to_uuid(topic_id), "partitions": partitions}
            for topic_id, partitions in owned.items()
        ],
    }
