"""Start a query where a group is."""

from __future__ import annotations

import ssl
from collections.abc import Sequence

from coordinator.errors import GroupError
from coordinator.member.events import MemberSettings
from coordinator.member.kafka import Kafka
from coordinator.member.options import check_texts
from coordinator.member.transport import TopicPartition
from coordinator.watcher.kafka_brokers import EARLIEST, LATEST
from spark_jobs.streams.kafka_topics import (
    KafkaTopics,
    as_json,
    ask_patiently,
    kafka_settings,
)

OTHERWISE = {"earliest": EARLIEST, "latest": LATEST}
"""Where to begin without a committed offset, as Spark has it."""


def starting_offsets(
    kafka: str | Sequence[str],
    group_id: str,
    topics: Sequence[str] | str,
    *,
    otherwise: str = "earliest",
    tls: ssl.SSLContext | None = None,
    login: tuple[str, str, str] | None = None,
) -> str:
    """Return the offsets that a group committed, as Spark's option `startingOffsets` takes them.

    >>> first = starting_offsets("kafka:9092", "billing", "clicks")  # doctest: +SKIP
    >>> spark.readStream.format("kafka").option("startingOffsets", first)  # doctest: +SKIP

    Spark heeds them in batches, and when a query starts with a new checkpoint.

    Parameters
    ----------
    kafka
        host:port of brokers of the topics and the group: Kafka 2.8 or later, or `muster serve`.
    group_id
        The group; it need not exist.
    topics
        The topics to read: all their partitions are in the answer, as Spark requires.
    otherwise
        Where to begin partitions without a committed offset: "earliest" or "latest".
    tls, login
        As for `Member`.

    Returns
    -------
    str
        JSON, {topic: {partition: offset}}; −2 or −1 where none is committed: `otherwise`.

    Raises
    ------
    ValueError
        A topic does not exist, or the address, the group or a topic is invalid.
    GroupError
        The offsets may not be read, or the login is refused.
    OSError
        No broker answers.
    """
    names = [topics] if isinstance(topics, str) else list(topics)
    check_texts(group_id=group_id, **{f"topics[{at}]": name for at, name in enumerate(names)})
    if not names:
        raise ValueError("topics is empty: name the topics that the query reads")
    if otherwise not in OTHERWISE:
        raise ValueError(f"otherwise is {otherwise!r}: give 'earliest' or 'latest'")
    settings = kafka_settings(kafka, tls, login)
    group = Kafka(kafka, MemberSettings(group_id, "", client_id=settings.client_id), tls, login)

    async def ask() -> dict[TopicPartition, int]:
        cluster = KafkaTopics(settings)
        try:
            partitions = await cluster.partitions(names)
            if absent := ", ".join(sorted(set(names) - partitions.keys())):
                raise ValueError(f"there is no topic {absent} at {kafka}: check the name")
            places = [TopicPartition(t, number) for t, of in partitions.items() for number in of]
            try:
                committed = await group.committed(group_id, places)
            except GroupError as error:
                text = f"the offsets of group {group_id} cannot be read: {error}"
                raise GroupError(error.code, text) from None
        finally:
            await cluster.close()
            await group.close()
        return {place: committed.get(place, OTHERWISE[otherwise]) for place in sorted(places)}

    return as_json(ask_patiently(ask))
