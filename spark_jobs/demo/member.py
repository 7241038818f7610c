"""A member of the demo's small group: an unchanged Kafka client in a process of its own.

`python -m spark_jobs.demo.member ADDRESS GROUP TOPIC NAME` joins. It leaves at SIGTERM, or when the
demo's process ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

POLL_S = 0.1


def main(address: str, group_id: str, topic: str, name: str) -> None:
    """Poll until stopped; the Kafka client does the rest."""
    from confluent_kafka import Consumer  # noqa: PLC0415 - the extra `kafka`

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group_id,
            "group.protocol": "consumer",
            "client.id": name,
            "log_level": 2,
        }
    )
    consumer.subscribe([topic])
    demo = os.getppid()
    while not stop.is_set() and os.getppid() == demo:
        consumer.poll(POLL_S)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
