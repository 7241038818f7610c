"""A worker in a process of its own: `python examples/worker.py HOST:PORT GROUP TOPIC`.

The address is that of `muster serve`, or of a Kafka 4 broker; start as many as you like. Each
prints when it works on what, and commits how far it came. SIGTERM ends it: it leaves, and its
partitions go on elsewhere at once.
"""

from __future__ import annotations

import signal
import sys
import time

from muster import Member, Stop, TopicPartition


def main(address: str, group_id: str, topic: str) -> None:
    """Work until asked to stop."""

    def work(partition: TopicPartition, stop: Stop) -> None:
        offset = member.committed(partition) or 0
        while not stop.wait(0.05):  # time to work, unless the partition is to go
            offset += 1
            # a line in one piece: another partition's thread prints as well
            print(f"{time.monotonic():.3f} {partition} {offset}\n", end="", flush=True)
            member.commit({partition: offset})

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with Member(address, group_id=group_id, topics=[topic]) as member:
        member.run(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
