"""Requests of a node to brokers and controllers, each address on a connection of its own."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from coordinator.errors import ErrorCode, GroupError
from coordinator.kraft.metadata_log import METADATA_NAME
from coordinator.member.client_settings import ClientSettings
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.wire.codec import Api

Address: TypeAlias = tuple[str, int]

SENT: dict[Api, tuple[int, int]] = {
    Api.FETCH: (17, 17),
    Api.LIST_OFFSETS: (5, 10),
    Api.SASL_HANDSHAKE: (1, 1),
    Api.API_VERSIONS: (0, 0),
    Api.SASL_AUTHENTICATE: (0, 2),
    Api.ALTER_PARTITION_REASSIGNMENTS: (0, 0),
    Api.DESCRIBE_QUORUM: (2, 2),
    Api.FETCH_SNAPSHOT: (1, 1),
    Api.DESCRIBE_CLUSTER: (1, 2),
    Api.BROKER_REGISTRATION: (3, 4),
    Api.BROKER_HEARTBEAT: (1, 2),
    Api.UNREGISTER_BROKER: (0, 0),
    Api.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    Api.ALTER_PARTITION: (3, 3),
    Api.ELECT_LEADERS: (2, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    Api.DESCRIBE_CONFIGS: (4, 4),
    Api.ENVELOPE: (0, 0),
    Api.ALLOCATE_PRODUCER_IDS: (0, 0),
    Api.ADD_PARTITIONS_TO_TXN: (4, 5),
    Api.FIND_COORDINATOR: (4, 6),
}
"""The versions that a node sends: those of Kafka 3.9, and later ones that say more."""
ANSWER_S, SOON_S = 5.0, 0.5
"""How long an answer is waited for, and until another server is asked who is active."""
NOT_CONTROLLER, NOT_AUTHORIZED = 41, 31
NOT_LEADER, FENCED, UNKNOWN_EPOCH = 6, 74, 75


class RefusedError(Exception):
    """The cluster refuses what a node needs; the message says which right is missing."""


def check_right(code: Any, what: str, right: str) -> None:  # noqa: ANN401 - kio's error code
    """See that an error is not a refusal.

    Raises
    ------
    RefusedError
        It is: the message names the right.
    """
    if int(code) == NOT_AUTHORIZED:
        raise RefusedError(f"{what} ({code.name}): the node's user needs {right} on the cluster")


class Links:
    """Connections, each opened when it is needed; one asyncio loop uses them.

    `ask` raises OSError where the other side cannot be reached or does not answer in time, and
    GroupError where it is too old or refuses the login.
    """

    def __init__(
        self,
        settings: ClientSettings,
        answer_s: float = ANSWER_S,
        sent: Mapping[Api, tuple[int, int]] = SENT,
    ) -> None:
        self.settings, self._answer_s, self._sent = settings, answer_s, sent
        self._open: dict[Address, KafkaConnection] = {}
        self._opening: defaultdict[Address, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def ask(self, address: Address, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's
        """Send a request, and return the answer."""
        try:
            async with asyncio.timeout(self._answer_s):
                async with self._opening[address]:
                    connection = self._open.get(address)
                    if connection is None:
                        connection = self._open[address] = await self._connect(address)
                return await connection.ask(api, **fields)
        except GroupError as error:
            if error.code == ErrorCode.UNSUPPORTED_VERSION:
                raise GroupError(
                    error.code,
                    f"{address[0]}:{address[1]} does not serve the versions of {api.name} that a "
                    "node sends: it needs Kafka 3.9 or later",
                ) from None
            raise
        except (OSError, asyncio.CancelledError) as error:
            await self._drop(address)
            if isinstance(error, OSError):
                why = str(error) or f"no answer within {self._answer_s:g} s"
                raise ConnectionError(f"{address[0]}:{address[1]}: {why}") from None
            raise

    async def ask_any(self, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's
        """Send a request to the first of the servers that answers; OSError where none does."""
        why = "no address is given"
        for address in self.settings.servers:
            try:
                return await self.ask(address, api, **fields)
            except OSError as error:
                why = str(error)
        raise ConnectionError(why)

    async def _connect(self, address: Address) -> KafkaConnection:
        settings = self.settings
        return await KafkaConnection.open(
            address, settings.client_id, settings.tls, settings.login, self._sent
        )

    def served_by(self, address: Address | None) -> Mapping[int, tuple[int, int]]:
        """Return the versions of each API that an address serves; none before it was asked."""
        connection = None if address is None else self._open.get(address)
        return {} if connection is None else connection.served

    async def _drop(self, address: Address) -> None:
        connection = self._open.pop(address, None)
        if connection is not None:
            with contextlib.suppress(OSError, GroupError):
                await connection.close()

    async def close(self) -> None:
        """Close all connections."""
        for address in list(self._open):
            await self._drop(address)


@dataclass(slots=True)
class Quorum:
    """What is known of the controllers; all that a node asks of them may share it, in any thread.

    Attributes
    ----------
    active
        Where the active one was found last; None while it is looked for.
    voters
        Where all are, as the last answer named them: they know who is active before brokers do.
    """

    active: Address | None = None
    voters: list[Address] = field(default_factory=list)


class Controllers:
    """Requests to the active controller; another one is looked for where it is no longer that one.

    Parameters
    ----------
    brokers
        How brokers are reached, which know the controllers.
    controllers
        How those are reached; its servers are asked before the brokers are.
    quorum
        Shared with others: what one of them finds out ends what another waits for in vain.
    """

    def __init__(
        self,
        brokers: ClientSettings,
        controllers: ClientSettings,
        answer_s: float = ANSWER_S,
        quorum: Quorum | None = None,
    ) -> None:
        self._brokers = Links(brokers, answer_s)
        self._links = Links(controllers, answer_s)
        self._quorum = quorum or Quorum()
        self._finding = asyncio.Lock()

    async def ask(self, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's message
        """Send a request, and return the answer.

        Raises
        ------
        OSError
            No controller is active, or it does not answer: try again.
        GroupError
            One is too old, or refuses the login.
        RefusedError
            The user may not ask who is active.
        """
        async with self._finding:  # once for all requests that wait for it
            active = self._quorum.active
            if active is None:
                active = self._quorum.active = await self._find()
        try:
            answer = await self._ask(active, api, fields)
        except OSError:
            self._forget(active)
            raise
        if int(getattr(answer, "error_code", 0)) == NOT_CONTROLLER:
            self._forget(active)
            raise ConnectionError(_has_moved(active))
        return answer

    async def _ask(self, active: Address, api: Api, fields: Mapping[str, object]) -> Any:  # noqa: ANN401
        """Ask, until there is an answer, or another controller was found to be the active one."""
        asking = asyncio.create_task(self._links.ask(active, api, **fields))
        try:
            while not (await asyncio.wait([asking], timeout=SOON_S))[0]:
                if self._quorum.active not in {None, active}:
                    raise ConnectionError(_has_moved(active))
            return asking.result()
        finally:
            asking.cancel()

    @property
    def served(self) -> Mapping[int, tuple[int, int]]:
        """The versions of each API that the active controller serves; none while none is known."""
        return self._links.served_by(self._quorum.active)

    def forget(self) -> None:
        """Look for the active controller before the next request."""
        self._quorum.active = None

    def _forget(self, address: Address) -> None:
        """Look for the active controller, unless another one was found meanwhile."""
        if self._quorum.active == address:
            self._quorum.active = None

    async def _find(self) -> Address:
        """Ask who is active: the controllers that are named, those that are known, the brokers.

        The next is asked as soon as one takes long: what hangs was perhaps the active controller
        itself, and is the broker that would be asked first, too.
        """
        named = [(self._links, one) for one in self._links.settings.servers]
        known = [(self._links, one) for one in self._quorum.voters]
        brokers = [(self._brokers, one) for one in self._brokers.settings.servers]
        asking: set[asyncio.Task[Address | str]] = set()
        trouble = ["no address is given"]
        try:
            for links, address in dict.fromkeys((*named, *known, *brokers)):
                asking.add(asyncio.create_task(self._ask_quorum(links, address)))
                found = await _first_found(asking, SOON_S, trouble)
                if found is not None:
                    return found
            while asking:
                found = await _first_found(asking, None, trouble)
                if found is not None:
                    return found
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        raise ConnectionError(f"the active controller cannot be found: {trouble[-1]}")

    async def _ask_quorum(self, links: Links, address: Address) -> Address | str:
        """Ask for the leader of the metadata; why not, where that is not known."""
        asked = {"topic_name": METADATA_NAME, "partitions": [{"partition_index": 0}]}
        where = f"{address[0]}:{address[1]}"
        answer = await links.ask(address, Api.DESCRIBE_QUORUM, topics=[asked])
        check_right(answer.error_code, "the active controller may not be asked for", "DESCRIBE")
        if int(answer.error_code):
            return f"{where}: {answer.error_code.name} ({answer.error_message or 'DescribeQuorum'})"
        partition = answer.topics[0].partitions[0]
        if int(partition.error_code) or partition.leader_id < 0:
            return f"{where}: {partition.error_code.name}, leader {partition.leader_id}"
        places = {
            node.node_id: (node.listeners[0].host, node.listeners[0].port)
            for node in answer.nodes
            if node.listeners
        }
        found = places.get(partition.leader_id)
        if found is None:
            return f"{where}: controller {partition.leader_id} has no address in its answer"
        self._quorum.voters = list(places.values())
        return found

    async def close(self) -> None:
        """Close all connections."""
        await self._brokers.close()
        await self._links.close()


def _has_moved(address: Address) -> str:
    return f"{address[0]}:{address[1]} is no longer the active controller"


async def _first_found(
    asking: set[asyncio.Task[Address | str]], wait_s: float | None, trouble: list[str]
) -> Address | None:
    """Return the first address that is found in time; what has no answer is taken out."""
    done, _ = await asyncio.wait(asking, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        asking.discard(task)
        try:
            found = task.result()
        except OSError as error:
            found = str(error)
        if not isinstance(found, str):
            return found
        trouble.append(found)
    return None
