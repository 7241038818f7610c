"""Follow `__cluster_metadata` as an observer, without I/O: what to ask for, and what answers mean.

The active controller hands out what it has written, also what no majority has yet. Only what is
below the high watermark is replayed; the rest waits here, and may be cut off again.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from uuid import UUID

from coordinator.kraft.metadata_image import MetadataImage
from coordinator.kraft.metadata_records import MetadataError, read_metadata_record
from coordinator.watcher.record_batches import BatchError, RecordBatch, read_batches

METADATA_ID = UUID(int=1)
METADATA_NAME = "__cluster_metadata"
FETCH_BYTES = 1 << 20
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75


class SnapshotId(NamedTuple):
    """A snapshot: the offset that follows it, and the epoch of what is before."""

    end_offset: int
    epoch: int


class MetadataLog:
    """The metadata of a cluster, as far as it was read.

    Attributes
    ----------
    image
        What was decided: all records below `applied`.
    applied
        The offset of the record that is replayed next.
    leader_epoch
        Of the active controller, as far as it is known.
    """

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.applied = 0
        self.leader_epoch = 0
        self.high_watermark = -1
        self._applied_epoch = 0
        self._waiting: list[RecordBatch] = []

    @property
    def fetch_offset(self) -> int:
        """What is asked for next."""
        return self._waiting[-1].last_offset + 1 if self._waiting else self.applied

    @property
    def is_caught_up(self) -> bool:
        """Whether all that was decided by the last answer is in the image."""
        return 0 <= self.high_watermark <= self.applied

    def request(self, node_id: int, cluster_id: str, directory_id: UUID, wait_ms: int) -> Any:  # noqa: ANN401
        """Return the fields of the next Fetch."""
        epoch = self._waiting[-1].leader_epoch if self._waiting else self._applied_epoch
        partition = {
            "partition": 0,
            "current_leader_epoch": self.leader_epoch,
            "fetch_offset": self.fetch_offset,
            "last_fetched_epoch": epoch,
            "log_start_offset": 0,
            "partition_max_bytes": FETCH_BYTES,
            "replica_directory_id": directory_id,
        }
        return {
            "cluster_id": cluster_id,
            "replica_state": {"replica_id": node_id, "replica_epoch": -1},
            "max_wait": wait_ms,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES,
            "topics": [{"topic_id": METADATA_ID, "partitions": [partition]}],
            "forgotten_topics_data": [],
        }

    def learn_epoch(self, found: Any) -> bool:  # noqa: ANN401 - of an answer
        """Whether an answer names a newer epoch of the controllers: then it says nothing else."""
        if found.leader_epoch <= self.leader_epoch:
            return False
        self.leader_epoch = found.leader_epoch
        return True

    def take(self, found: Any) -> SnapshotId | None:  # noqa: ANN401 - a partition of an answer
        """Take an answer without an error; a snapshot, where that must be read first.

        Raises
        ------
        MetadataError
            It cannot be read, or contradicts what was decided before.
        """
        if found.snapshot_id.end_offset >= 0:
            return SnapshotId(found.snapshot_id.end_offset, found.snapshot_id.epoch)
        if found.diverging_epoch.end_offset >= 0:
            self._cut(found.diverging_epoch.end_offset)
            return None
        try:
            self._waiting += read_batches(bytes(found.records or b""))
        except BatchError as error:
            raise MetadataError(f"the cluster's metadata cannot be read: {error}") from None
        self.high_watermark = max(self.high_watermark, found.high_watermark)
        decided = 0
        for batch in self._waiting:
            if batch.last_offset >= self.high_watermark:
                break
            self._replay(batch)
            decided += 1
        del self._waiting[:decided]
        return None

    def _cut(self, end_offset: int) -> None:
        """Forget what another controller has not taken over."""
        if end_offset < self.applied:
            raise MetadataError(
                f"the controllers say that their metadata ends at {end_offset}, but had decided up "
                f"to {self.applied}: they lost some"
            )
        self._waiting = [one for one in self._waiting if one.last_offset < end_offset]

    def begin_snapshot(self, snapshot: SnapshotId) -> None:
        """Forget all; what follows is of a snapshot."""
        self.__init__()  # type: ignore[misc]
        self.applied, self._applied_epoch = snapshot

    def take_snapshot(self, data: bytes) -> None:
        """Replay a part of a snapshot: whole batches.

        Raises
        ------
        MetadataError
            It cannot be read.
        """
        try:
            for batch in read_batches(data):
                self._replay_records(batch)
        except BatchError as error:
            raise MetadataError(f"a snapshot of the metadata cannot be read: {error}") from None

    def _replay(self, batch: RecordBatch) -> None:
        self._replay_records(batch)
        self.applied, self._applied_epoch = batch.last_offset + 1, batch.leader_epoch

    def _replay_records(self, batch: RecordBatch) -> None:
        for record in batch.records:
            # What has a key is the controllers' own: a new leader, a snapshot's head, their voters.
            if record.key is None and record.value is not None:
                self.image.replay(read_metadata_record(record.value))
