"""Observe the metadata of a cluster, as brokers do: Fetch and FetchSnapshot of a controller."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from coordinator.errors import GroupError
from coordinator.errors.trouble import Trouble
from coordinator.kraft.links import (
    FENCED,
    NOT_LEADER,
    UNKNOWN_EPOCH,
    Controllers,
    check_right,
)
from coordinator.kraft.metadata_log import METADATA_NAME, MetadataLog, SnapshotId
from coordinator.wire.codec import Api

WAIT_MS = 500
PAUSES_S = (0.1, 0.3, 1.0)
SNAPSHOT_BYTES = 1 << 20

NO_NODE = -1
"""An observer that is no node."""
MOVED = {NOT_LEADER, FENCED, UNKNOWN_EPOCH}
logger = logging.getLogger("muster.node")


class Observer:
    """One reading of the metadata.

    Parameters
    ----------
    controllers
        used by no other task: a Fetch holds its connection up.
    cluster_id
        Of the cluster, as the controllers check it.
    node_id, directory_id
        As which broker to fetch; -1 for one that is none.
    """

    def __init__(
        self, controllers: Controllers, cluster_id: str, node_id: int, directory_id: UUID
    ) -> None:
        self.log = MetadataLog()
        self._controllers, self._cluster_id = controllers, cluster_id
        self._node_id, self._directory_id = node_id, directory_id

    async def follow(self, changed: Callable[[], None]) -> None:
        """Follow until cancelled; call `changed` after each answer.

        Raises
        ------
        MetadataError
            The metadata cannot be read, by this version of Muster.
        RefusedError
            The cluster does not let this user read it.
        """
        failed = 0
        trouble = Trouble(logger.warning, "the cluster's metadata cannot be read, trying again: %s")
        while True:
            try:
                await self.step()
            except (OSError, GroupError) as error:
                trouble.note(error)
                await asyncio.sleep(PAUSES_S[min(failed, len(PAUSES_S) - 1)])
                failed += 1
                continue
            if trouble.end():
                logger.warning("the cluster's metadata can be read now")
            failed = 0
            changed()

    async def catch_up(self) -> MetadataLog:
        """Read all that is decided now."""
        while not self.log.is_caught_up:
            await self.step()
        return self.log

    async def step(self) -> None:
        """Ask once, and take the answer."""
        asked = self.log.request(self._node_id, self._cluster_id, self._directory_id, WAIT_MS)
        answer = await self._controllers.ask(Api.FETCH, **asked)
        self._check(answer.error_code)
        found = answer.responses[0].partitions[0]
        if self.log.learn_epoch(found.current_leader):
            return
        if int(found.error_code) in MOVED:
            self._controllers.forget()
        self._check(found.error_code)
        snapshot = self.log.take(found)
        if snapshot is not None:
            await self._read_snapshot(snapshot)

    async def _read_snapshot(self, snapshot: SnapshotId) -> None:
        parts: list[bytes] = []
        position, size = 0, 1
        while position < size:
            found = await self._ask_snapshot(snapshot, position)
            data = bytes(found.unaligned_records or b"")
            if not data:
                raise ConnectionError(f"a snapshot of {found.size} bytes ends after {position}")
            parts.append(data)
            position, size = position + len(data), found.size
        logger.info("the metadata is read from a snapshot of %d bytes", size)
        self.log.begin_snapshot(snapshot)
        await asyncio.to_thread(self.log.take_snapshot, b"".join(parts))

    async def _ask_snapshot(self, snapshot: SnapshotId, position: int) -> Any:  # noqa: ANN401 - kio's
        partition = {
            "partition": 0,
            "current_leader_epoch": self.log.leader_epoch,
            "snapshot_id": snapshot._asdict(),
            "position": position,
            "replica_directory_id": self._directory_id,
        }
        answer = await self._controllers.ask(
            Api.FETCH_SNAPSHOT,
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            max_bytes=SNAPSHOT_BYTES,
            topics=[{"name": METADATA_NAME, "partitions": [partition]}],
        )
        self._check(answer.error_code)
        found = answer.topics[0].partitions[0]
        self._check(found.error_code)
        return found

    def _check(self, code: Any) -> None:  # noqa: ANN401 - kio's error code
        if not int(code):
            return
        check_right(code, "the cluster's metadata may not be read", "CLUSTER_ACTION")
        raise ConnectionError(f"the controller answers {code.name}")
