"""A worker: a member of the group, in a process of its own.

It works on the partitions that it owns and no others, from where the output ends, and writes each
row once: what another owner has written, `ExactlyOnceTable` leaves out or refuses.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pyarrow as pa
from files import SCHEMA, TOPIC, folder_of, read

from muster import ExactlyOnceTable, Member, Stop, TopicPartition


def main(name: str, address: str, data: str, output: str) -> None:
    """Work until SIGTERM; then leave the group."""

    def work(partition: TopicPartition, stop: Stop) -> None:
        """Write the next rows of a partition, until it goes to another worker."""
        table = ExactlyOnceTable(member, output)
        offset = table.next_offset(partition)
        while not stop.wait(0.05):
            values = read(folder_of(Path(data), *partition), offset, 1_000)
            places = enumerate(values, offset)
            rows = [dict(zip(SCHEMA.names, (*partition, *p, name), strict=True)) for p in places]
            offset = table.write(partition, offset, pa.Table.from_pylist(rows, SCHEMA))

    def tell(_partitions: object) -> None:
        print(f"{name}: owns {sorted(n for _, n in member.owned)}", flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    member = Member(
        address, group_id="ingest", topics=[TOPIC], client_id=name, on_assigned=tell, on_lost=tell
    )
    with member:
        member.run(work)


if __name__ == "__main__":
    main(*sys.argv[1:])
