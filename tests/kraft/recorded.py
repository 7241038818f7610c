"""What a cluster of Kafka 4.4.0 wrote, as it lies in its files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

from coordinator.watcher.record_batches import HEAD, LENGTH

GOLDEN = Path(__file__).parents[1] / "golden/kraft"
METADATA = gzip.decompress((GOLDEN / "metadata.log.gz").read_bytes())
OFFSETS = gzip.decompress((GOLDEN / "offsets-0.log.gz").read_bytes())
TRANSACTIONS = gzip.decompress((GOLDEN / "transactions-0.log.gz").read_bytes())
SAID = json.loads((GOLDEN / "metadata.json").read_text())
"""What Kafka's admin API says of the same cluster."""
EPOCHS = [
    tuple(map(int, line.split()))
    for line in (GOLDEN / "offsets-0.epochs").read_text().splitlines()[2:]
]


def split(data):
    """The batches of a log: (first offset, last offset, bytes)."""
    found, at = [], 0
    while at < len(data):
        head = HEAD.unpack_from(data, at)
        end = at + LENGTH.size + head[1]
        found.append((head[0], head[0] + head[6], data[at:end]))
        at = end
    return found


def answer(records=b"", high_watermark=-1, **given):
    """A partition of an answer to a Fetch."""
    nothing = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": high_watermark,
        "log_start_offset": 0,
        "records": records,
        "diverging_epoch": SimpleNamespace(epoch=-1, end_offset=-1),
        "current_leader": SimpleNamespace(leader_id=-1, leader_epoch=-1),
        "snapshot_id": SimpleNamespace(epoch=-1, end_offset=-1),
    }
    return SimpleNamespace(**nothing | given)
