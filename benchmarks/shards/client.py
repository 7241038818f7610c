"""A client of nodes: it finds who coordinates a group, and goes on there when that changes."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Sequence

from benchmarks.shape import EPOCH
from coordinator.errors import ErrorCode
from coordinator.wire.codec import Api
from tests.support.wire_client import Client

PAUSE_S = 0.02
"""Between two tries, so that waits are measured to that; a client of Kafka waits for 100 ms."""
ELSEWHERE = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
GROUP_KEY = 0


class Beater:
    """Sends heartbeats of settled members; one thread uses it."""

    def __init__(self, addresses: Sequence[str], pause_s: float = PAUSE_S) -> None:
        self._bootstrap, self._pause_s = list(addresses), pause_s
        self._open: dict[str, Client] = {}
        self._owners: dict[str, str] = {}

    def close(self) -> None:
        for client in self._open.values():
            client.socket.close()

    def beat(self, group_id: str, member_id: str, patience_s: float = 120.0) -> float:
        """Send a heartbeat until it is answered well, and return how many seconds that took."""

        def ask(client: Client) -> int:
            return int(client.beat(group_id, member_id, EPOCH).error_code)

        return self._ask(group_id, ask, patience_s)

    def commit(
        self, group_id: str, member_id: str, offset: int, patience_s: float = 120.0
    ) -> float:
        """Commit an offset until that is acknowledged, and return how many seconds that took."""
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}

        def ask(client: Client) -> int:
            answer = client.ask(
                Api.OFFSET_COMMIT, 9, group_id=group_id, generation_id_or_member_epoch=EPOCH,
                member_id=member_id, topics=[{"name": "small", "partitions": [partition]}],
            )  # fmt: skip
            return int(answer.topics[0].partitions[0].error_code)

        return self._ask(group_id, ask, patience_s)

    def _ask(self, group_id: str, ask: Callable[[Client], int], patience_s: float) -> float:
        began = time.monotonic()
        while time.monotonic() - began < patience_s:
            owner = self._owners.get(group_id) or self.find(group_id)
            try:
                code = ask(self._client(owner))
            except (OSError, AssertionError, struct.error):  # it has ended
                self._forget(owner)
                code = ErrorCode.NOT_COORDINATOR
            if code == 0:
                return time.monotonic() - began
            if code not in ELSEWHERE:
                raise AssertionError(f"{group_id}: {ErrorCode(code).name}")
            self._owners.pop(group_id, None)
            time.sleep(self._pause_s)
        raise AssertionError(f"{group_id} was not answered for {patience_s} s")

    def find(self, group_id: str) -> str:
        """Return who coordinates a group, as the first node that answers says; "" for no one."""
        for address in self._bootstrap:
            try:
                answer = self._client(address).ask(
                    Api.FIND_COORDINATOR, 4, key_type=GROUP_KEY, coordinator_keys=[group_id]
                )
            except (OSError, AssertionError, struct.error):
                self._forget(address)
                continue
            (found,) = answer.coordinators
            if found.error_code == 0:
                self._owners[group_id] = f"{found.host}:{found.port}"
                return self._owners[group_id]
        return ""

    def _client(self, address: str) -> Client:
        if not address:
            raise ConnectionError("no node says who coordinates")
        if address not in self._open:
            self._open[address] = Client(address)
        return self._open[address]

    def _forget(self, address: str) -> None:
        client = self._open.pop(address, None)
        if client is not None:
            client.socket.close()
