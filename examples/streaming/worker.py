"""A worker: a member of the group, in a process of its own, on an unchanged Kafka client.

It reads the partitions that it owns and no others, from where the last owner stopped, writes their
rows to the output, and commits its offsets, which the coordinator refuses once a partition is
somebody else's.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition
from files import TOPIC, folder_of, read
from output import Output, RefusedError

BATCH = 1_000
PATIENCE_S = 5.0


class Worker:
    """Works on what it owns, between two polls."""

    def __init__(self, name: str, address: str, data: Path, output: Path) -> None:
        self.name, self.data = name, data
        self.output = Output(output)
        self.owned: dict[int, int | None] = {}
        """The offset where each owned partition goes on; None until it was asked for."""
        self.consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": "ingest",
                "group.protocol": "consumer",
                "client.id": name,
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,  # that a driver is gone for a while is no news
            }
        )
        self.consumer.subscribe(
            [TOPIC], on_assign=self.assigned, on_revoke=self.gone, on_lost=self.gone
        )

    def assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Take partitions on."""
        self.owned |= {one.partition: None for one in partitions}
        self.say(f"owns {sorted(self.owned)}")

    def gone(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Let go; nothing of them is under way, for this runs between two pieces of work."""
        for one in partitions:
            self.owned.pop(one.partition, None)
        self.say(f"owns {sorted(self.owned)}")

    def work(self) -> None:
        """Write the next rows of each partition, then commit."""
        for partition in sorted(self.owned):
            try:
                self._work_on(partition)
            except (RefusedError, KafkaException) as error:
                self.say(f"stops with {partition}: {error}")
                self.owned[partition] = None  # asked for again, if it is still ours

    def _work_on(self, partition: int) -> None:
        offset = self.owned[partition]
        if offset is None:
            asked = [TopicPartition(TOPIC, partition)]
            (committed,) = self.consumer.committed(asked, PATIENCE_S)
            offset = max(committed.offset, self.output.next_offset(TOPIC, partition), 0)
        values = read(folder_of(self.data, TOPIC, partition), offset, BATCH)
        if values:
            self.output.write(TOPIC, partition, offset, values, self.name)
            offset += len(values)
            done = [TopicPartition(TOPIC, partition, offset)]
            self.consumer.commit(offsets=done, asynchronous=False)
        self.owned[partition] = offset

    def say(self, what: str) -> None:
        """Tell whoever watches."""
        print(f"{self.name}: {what}", flush=True)


def main(name: str, address: str, data: str, output: str) -> None:
    """Work until SIGTERM; then leave the group."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    worker = Worker(name, address, Path(data), Path(output))
    while not stop.is_set():
        worker.consumer.poll(0.05)
        worker.work()
    worker.consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
