"""What a Kafka cluster says of topics: their partitions, and where those begin and end."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from coordinator.errors import GroupError
from coordinator.member import loop_thread
from coordinator.member.client_settings import ClientSettings
from coordinator.member.kafka import check_access, error_of, parse_addresses
from coordinator.member.transport import TopicPartition
from coordinator.watcher.kafka_brokers import KafkaBrokers, offsets_asked
from coordinator.wire.codec import Api

ANSWER_S = 10.0
PATIENCE_S, PAUSE_S, PAUSE_MAX_S = 30.0, 0.1, 2.0
T = TypeVar("T")


def kafka_settings(
    kafka: str | Sequence[str],
    tls: ssl.SSLContext | None,
    login: tuple[str, str, str] | None,
    client_id: str = "muster",
) -> ClientSettings:
    """Return how to reach a cluster; ValueError for an invalid address or login."""
    check_access(tls, login)
    return ClientSettings(parse_addresses(kafka), tls, login, client_id)


def as_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as options of Spark's Kafka source have them."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, {})[str(number)] = offset
    return json.dumps(topics)


def ask_patiently(ask: Callable[[], Coroutine[Any, Any, T]], timeout_s: float = PATIENCE_S) -> T:
    """Return what a coroutine does, in the thread of this process's members: notebooks have a loop.

    It is asked again for so many seconds while what it raises may pass.
    """

    async def again() -> T:
        until_s, pause_s = asyncio.get_running_loop().time() + timeout_s, PAUSE_S
        while True:
            try:
                return await ask()
            except (GroupError, OSError) as error:
                if isinstance(error, GroupError) and not error.retriable:
                    raise
                if asyncio.get_running_loop().time() + pause_s > until_s:
                    raise
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    thread = loop_thread.acquire()
    try:
        return thread.ask(again())
    finally:
        loop_thread.release(thread)


class KafkaTopics:
    """Topics of a cluster, asked for in one asyncio loop.

    Its methods raise OSError where a broker cannot be reached, and GroupError for what is refused.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._brokers = KafkaBrokers(settings, ANSWER_S)
        self._leaders: dict[TopicPartition, int] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self._brokers.close()

    async def partitions(self, topics: Collection[str]) -> dict[str, list[int]]:
        """Return the partitions of topics by number; a topic that is not there is left out."""
        found = await self._brokers.leaders(topics)
        self._leaders |= {
            TopicPartition(topic, number): leader
            for topic, of_topic in found.items()
            for number, leader in of_topic.items()
        }
        return {topic: sorted(of_topic) for topic, of_topic in found.items()}

    async def offsets(
        self, partitions: Collection[TopicPartition], at: int, *, committed_only: bool = False
    ) -> dict[TopicPartition, int]:
        """Return where partitions begin (EARLIEST) or end (LATEST), of those that can be asked for.

        A partition is left out while it has no leader, and once it no longer exists.
        """
        if any(place not in self._leaders for place in partitions):
            await self.partitions({place.topic for place in partitions})
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in partitions:
            by_leader.setdefault(self._leaders.get(place, -1), []).append(place)
        by_leader.pop(-1, None)
        try:
            answers = await asyncio.gather(
                *[self._ask(*one, at, int(committed_only)) for one in by_leader.items()]
            )
        except (OSError, GroupError):
            self._leaders.clear()
            raise
        found = {place: offset for one in answers for place, offset in one.items()}
        for place in set(partitions) - found.keys():
            self._leaders.pop(place, None)  # asked for again
        return found

    async def _ask(
        self, node_id: int, places: Sequence[TopicPartition], at: int, isolation: int
    ) -> dict[TopicPartition, int]:
        asked = offsets_asked(places, at, isolation)
        answer: Any = await self._brokers.ask(node_id, Api.LIST_OFFSETS, **asked)
        found = {}
        for topic in answer.topics:
            for one in topic.partitions:
                place = TopicPartition(topic.name, one.partition_index)
                error = error_of(one.error_code, f"{place}: {one.error_code.name}")
                if error is None:
                    found[place] = int(one.offset)
                elif not error.retriable:
                    raise error
        return found
