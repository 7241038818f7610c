"""Watch a Kafka cluster that runs: a group of the demo's own comes and goes in it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coordinator.config import KAFKA, ConfigError
from coordinator.errors import GroupError
from coordinator.history import frame

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from coordinator.watcher.watch import Watch

PARTITIONS = 6
PATIENCE_S = 60.0
LOOK_S = 0.1


class Cluster:
    """A cluster in which the demo has a topic and a group, while it is entered.

    Parameters
    ----------
    address
        host:port of some brokers, with or without kafka:// before them.

    Attributes
    ----------
    name
        Of the topic and of the group, as no other has it.
    """

    def __init__(self, address: str) -> None:
        self.servers = address.removeprefix(KAFKA)
        self.name = f"muster-demo-{uuid.uuid4().hex[:8]}"
        self._settings: dict[str, Any] = {"bootstrap.servers": self.servers}
        self._members: list[Consumer] = []

    @property
    def url(self) -> str:
        """As `muster watch` takes it."""
        return f"{KAFKA}{self.servers}"

    @contextmanager
    def entered(self) -> Iterator[Cluster]:
        """Make the topic, and take it and the group away in the end."""
        from confluent_kafka import KafkaException  # noqa: PLC0415 - the command's help needs none
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - the same
        from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415 - the same

        admin: Any = AdminClient(self._settings)
        try:
            made = admin.create_topics([NewTopic(self.name, PARTITIONS)], request_timeout=30)
            made[self.name].result(PATIENCE_S)
        except KafkaException as error:
            raise ConfigError(
                f"a topic for the demo cannot be made at {self.servers}: {error}"
            ) from None
        try:
            yield self
        finally:
            for one in self._members:
                with suppress(KafkaException, RuntimeError):
                    one.close()
            for gone in (
                *admin.delete_consumer_groups([self.name]).values(),
                *admin.delete_topics([self.name]).values(),
            ):
                with suppress(KafkaException):
                    gone.result(PATIENCE_S)

    def join(self) -> Consumer:
        """Have one more member join."""
        from confluent_kafka import Consumer  # noqa: PLC0415 - the command's help needs none

        settings = {
            "group.id": self.name,
            "group.protocol": "consumer",
            "enable.auto.commit": False,
        }
        member = Consumer(self._settings | settings)
        member.subscribe([self.name])
        self._members.append(member)
        return member

    def wait(self, condition: Callable[[], bool]) -> bool:
        """Keep the members alive until something holds; whether it came to."""
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            for one in list(self._members):
                one.poll(LOOK_S)
            if condition():
                return True
            time.sleep(LOOK_S)
        return False

    def leave(self, member: Consumer) -> None:
        """Have a member leave."""
        self._members.remove(member)
        member.close()


def play_group(cluster: Cluster, watching: Watch) -> bool:
    """Have two members join, one commit, and one leave; whether the store showed each of it."""
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - the command's help needs none

    first = cluster.join()
    if not cluster.wait(lambda: sizes(cluster, watching) == [PARTITIONS]):
        return False
    second = cluster.join()
    if not cluster.wait(lambda: sizes(cluster, watching) == [PARTITIONS // 2] * 2):
        return False
    first.commit(
        offsets=[TopicPartition(cluster.name, first.assignment()[0].partition, 42)],
        asynchronous=False,
    )
    cluster.leave(second)
    return cluster.wait(lambda: sizes(cluster, watching) == [PARTITIONS])


def sizes(cluster: Cluster, watching: Watch) -> list[int]:
    """Return how many partitions each member of the group has, as the store says."""
    watching.wait(0)  # what ended the watch is raised
    try:
        (found,) = watching.coordinator.consumer_group_describe(cluster.name)
        found.raise_for_error()
    except GroupError:
        return []
    return sorted(
        sum(len(topic["partitions"]) for topic in member["assignment"]["topic_partitions"])
        for member in found["members"]
    )


def read_reasons(store: Path, group_id: str) -> list[tuple[int, str]]:
    """Return the epochs of a group, and why each began."""
    rows = frame(store, "epochs", group_id=group_id).select(["group_epoch", "reason"])
    return [(row["group_epoch"], row["reason"]) for row in rows.to_pylist()]
