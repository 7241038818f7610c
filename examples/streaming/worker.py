"""A worker: a member of the group, in a process of its own.

It works on the partitions that it owns and no others, from where the last owner stopped, writes
their rows to the output, and commits its offsets, which the coordinator refuses once a partition is
somebody else's.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from files import TOPIC, folder_of, read
from output import Output, RefusedError

from coordinator import Member, TopicPartition
from coordinator.member.application import Stop

BATCH = 1_000
PAUSE_S = 0.05


def main(name: str, address: str, data: str, output: str) -> None:
    """Work until SIGTERM; then leave the group."""

    def work(partition: TopicPartition, stop: Stop) -> None:
        """Write the next rows of a partition, then commit, until it goes to somebody else."""
        folder, out = folder_of(Path(data), *partition), Output(Path(output))
        offset = None
        while not stop.is_set():
            if offset is None:  # what a dead worker wrote it may not have committed
                offset = max(member.committed(partition) or 0, out.next_offset(*partition))
            values = read(folder, offset, BATCH)
            if not values:
                stop.wait(PAUSE_S)
                continue
            try:
                out.write(*partition, offset, values, name)
            except RefusedError as error:
                say(f"stops with {partition}: {error}")
                offset = None
                continue
            offset += len(values)
            member.commit({partition: offset})

    def say(what: str) -> None:
        print(f"{name}: {what}", flush=True)

    def tell(_partitions: object) -> None:
        say(f"owns {sorted(partition for _, partition in member.owned)}")

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    member = Member(
        address, group_id="ingest", topics=[TOPIC], client_id=name, on_assigned=tell, on_lost=tell
    )
    with member:
        member.run(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
