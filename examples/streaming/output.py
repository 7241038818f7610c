"""The output: a Delta table of rows, each written once whoever dies, repeats itself, or wakes up.

A batch of a partition is one transaction whose app id is the partition and whose version is the
batch's last offset. Delta keeps that version, so a batch that was written before is known by it.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("value", pa.string()),
        ("worker", pa.string()),
    ]
)


class RefusedError(RuntimeError):
    """Somebody else has written these rows, or later ones: the partition is not ours any more."""


class Output:
    """The table, as one worker writes it."""

    def __init__(self, path: Path) -> None:
        DeltaTable.create(str(path), SCHEMA, mode="ignore")
        self._table = DeltaTable(str(path))

    def next_offset(self, topic: str, partition: int) -> int:
        """Return the offset after the last one written: a dead worker may not have committed it."""
        self._table.update_incremental()
        last = self._table.transaction_version(f"{topic}-{partition}")
        return 0 if last is None else last + 1

    def write(
        self, topic: str, partition: int, offset: int, values: list[str], worker: str
    ) -> None:
        """Write rows from an offset on, all or none, once.

        Raises
        ------
        RefusedError
            The table is not at this offset.
        """
        count = len(values)
        rows = pa.table(
            [
                [topic] * count,
                pa.array([partition] * count, pa.int32()),
                range(offset, offset + count),
                values,
                [worker] * count,
            ],
            schema=SCHEMA,
        )
        done = Transaction(f"{topic}-{partition}", offset + count - 1)
        while True:
            if self.next_offset(topic, partition) != offset:
                raise RefusedError(f"{topic}-{partition} is not at {offset} any more")
            try:
                # Without retries of Delta's own: they would not look at the offset again.
                properties = CommitProperties(app_transactions=[done], max_commit_retries=0)
                write_deltalake(self._table, rows, mode="append", commit_properties=properties)
            except CommitFailedError:
                continue  # another worker's commit came first, of another partition or of ours
            return
