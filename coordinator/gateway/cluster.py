"""The Kafka cluster behind a gateway: its topics, its brokers, and which APIs they have."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator.core.events import CatalogTopic
from coordinator.errors import GroupError
from coordinator.gateway.offer import Versions
from coordinator.member.client_settings import ClientSettings
from coordinator.member.kafka_connection import KafkaConnection
from coordinator.watcher.kafka_brokers import KafkaBrokers

CONNECT_S = 10.0
logger = logging.getLogger("muster.gateway")


@dataclass(frozen=True, slots=True)
class SeenCluster:
    """What was seen of a cluster last.

    Attributes
    ----------
    addresses
        Where the brokers are that the cluster names, by id.
    versions
        Of each broker that could be asked, the APIs that it has.
    """

    addresses: Mapping[int, tuple[str, int]] = field(default_factory=dict)
    versions: Mapping[int, Versions] = field(default_factory=dict)


class KafkaBehind:
    """A cluster that is asked again and again; its topics are those of the groups.

    Attributes
    ----------
    seen
        What was seen last. Any thread may read it.
    changed
        Called, in the thread that has looked, when it is another.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.seen = SeenCluster()
        self.changed: Callable[[], object] = lambda: None
        self._lock = threading.Lock()
        self._looks = 0

    def topics(self) -> Mapping[str, CatalogTopic]:
        """Ask the cluster for its topics, and look at its brokers.

        Raises
        ------
        OSError
            No broker answers.
        """
        with self._lock:
            try:
                topics, seen = asyncio.run(self._look())
            except GroupError as error:
                raise OSError(f"Kafka refuses the gateway: {error}") from error
            before, self.seen = self.seen, seen
        if before != seen:
            self.changed()
        return topics

    async def _look(self) -> tuple[Mapping[str, CatalogTopic], SeenCluster]:
        brokers = KafkaBrokers(self.settings, CONNECT_S)
        try:
            found = await brokers.describe("")
            addresses = dict(brokers.addresses)
        finally:
            await brokers.close()
        return found.topics, SeenCluster(addresses, await self._ask_versions(addresses))

    async def _ask_versions(self, addresses: Mapping[int, tuple[str, int]]) -> dict[int, Versions]:
        """Return the APIs of each broker: of those that are new, and of one of the others in turn.

        A broker may have been upgraded between two looks.
        """
        known = {one: self.seen.versions[one] for one in addresses if one in self.seen.versions}
        again = sorted(known)[self._looks % len(known)] if known else None
        self._looks += 1
        asked = [one for one in addresses if one not in known or one == again]
        answers = await asyncio.gather(*(self._ask(addresses[one]) for one in asked))
        return known | {one: found for one, found in zip(asked, answers, strict=True) if found}

    async def _ask(self, address: tuple[str, int]) -> Versions | None:
        settings = self.settings
        try:
            async with asyncio.timeout(CONNECT_S):
                connection = await KafkaConnection.open(
                    address, settings.client_id, settings.tls, settings.login
                )
                await connection.close()
        except (OSError, GroupError) as error:
            logger.warning("broker %s:%d does not say which APIs it has: %s", *address, error)
            return None
        return connection.served
