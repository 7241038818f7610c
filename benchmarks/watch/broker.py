"""A broker that has one topic, made as it is asked for: as much of one as a watcher asks."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any
from uuid import UUID

from kio.index import load_request_schema, load_response_schema

from benchmarks.watch.topic import BATCH, TOPIC, TOPIC_ID, TopicBytes
from coordinator.clock import wall_ms
from coordinator.wire.codec import Api
from coordinator.wire.decoder import entity_reader
from coordinator.wire.encoder import entity_writer

SERVED = {Api.FETCH: 12, Api.LIST_OFFSETS: 7, Api.METADATA: 12, Api.API_VERSIONS: 0}
NODE = {"partition_index": 0, "leader_id": 1, "replica_nodes": (1,), "isr_nodes": (1,)}
TICK_S = 0.005
END = 1 << 40
HEADER = struct.Struct(">hhih")


class Broker:
    """Serves a topic of groups; one thread with a loop does it.

    Attributes
    ----------
    port
        Where, on loopback; 0 before it serves for one that is free.
    fetched
        Whether a client has fetched.
    answers
        Whether who fetches gets an answer.
    """

    def __init__(self, topic: TopicBytes, ends: Mapping[int, int], port: int = 0) -> None:
        self.topic = topic
        self._ends = dict(ends)
        self._more: dict[int, list[bytes]] = {number: [] for number in ends}
        self._grown = asyncio.Event()
        self._commits = 0
        self._turns = dict.fromkeys(ends, 0)
        self.fetched = threading.Event()
        self.answers = threading.Event()
        self.answers.set()
        self.port = port
        self._loop = asyncio.new_event_loop()

    def grow(self, ends: Mapping[int, int]) -> None:
        """Have more batches, made when they are asked for, before any that were appended."""
        self._ends = dict(ends)

    def append(self, partition: int, make: Callable[[int], bytes]) -> None:
        """Write a batch at the end, made for the offset that it gets."""
        self._loop.call_soon_threadsafe(self._append, partition, make)

    def commit(self, records_a_second: int) -> None:
        """Write so many offset commits a second from now on."""
        self._commits = records_a_second

    def _append(self, partition: int, make: Callable[[int], bytes]) -> None:
        more = self._more[partition]
        more.append(make((self._ends[partition] + len(more)) * BATCH))
        self._grown.set()

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve; yield the address."""
        started = threading.Event()
        thread = threading.Thread(target=self._run, args=(started,), daemon=True)
        thread.start()
        started.wait()
        try:
            yield f"127.0.0.1:{self.port}"
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", self.port)
        )
        self.port = server.sockets[0].getsockname()[1]
        committing = self._loop.create_task(self._write_commits())
        committing.add_done_callback(lambda done: done.cancelled() or done.result())
        started.set()
        self._loop.run_forever()
        server.close()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _write_commits(self) -> None:
        written, begun = 0, self._loop.time()
        while True:
            await asyncio.sleep(TICK_S)
            if not self._commits:
                written, begun = 0, self._loop.time()
            due = int((self._loop.time() - begun) * self._commits) // BATCH
            for number in range(written, due):
                partition = number % self.topic.partitions
                make = partial(self.topic.commits, partition, self._turns[partition], wall_ms())
                self._turns[partition] += 1
                self._append(partition, make)
            written = due

    # Answers -------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                (length,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(length)
                writer.write(await self._answer(frame))
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, frame: bytes) -> bytes:
        key, version, number, name = HEADER.unpack_from(frame)
        at = HEADER.size + max(name, 0)
        asked = entity_reader(_schemas(key, version)[0])(frame, at + (version >= 6))[0]
        if key == Api.FETCH:
            self.fetched.set()
            while not self.answers.is_set():  # noqa: ASYNC110 - another thread sets it
                await asyncio.sleep(TICK_S)
            values = await self._fetch(asked)
        elif key == Api.METADATA:
            values = self._metadata()
        elif key == Api.LIST_OFFSETS:
            values = self._list_offsets(asked)
        else:
            values = {"error_code": 0, "api_keys": [_served(*one) for one in SERVED.items()]}
        out = bytearray(struct.pack(">ii", 0, number))
        if version >= 6:
            out.append(0)
        _schemas(key, version)[1](out, values)
        struct.pack_into(">i", out, 0, len(out) - 4)
        return bytes(out)

    def _metadata(self) -> dict[str, Any]:
        own = [{**NODE, "error_code": 0, "partition_index": p} for p in self._ends]
        theirs = [{**NODE, "error_code": 0, "partition_index": p} for p in range(100)]
        return {
            "throttle_time": 0,
            "brokers": [{"node_id": 1, "host": "127.0.0.1", "port": self.port}],
            "cluster_id": "benchmark",
            "topics": [
                _topic("__consumer_offsets", UUID(int=2), own), _topic(TOPIC, TOPIC_ID, theirs)
            ],
        }  # fmt: skip

    def _list_offsets(self, asked: Any) -> dict[str, Any]:
        """Answer that each partition ends at `END`, even if more was committed."""
        found = [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": one.partition_index, "error_code": 0, "offset": END,
                     "timestamp": -1, "leader_epoch": 0}
                    for one in topic.partitions
                ],
            }
            for topic in asked.topics
        ]  # fmt: skip
        return {"throttle_time": 0, "topics": found}

    async def _fetch(self, asked: Any) -> dict[str, Any]:
        wait_s = asked.max_wait.total_seconds() if hasattr(asked.max_wait, "total_seconds") else 0.5
        end = self._loop.time() + wait_s
        while True:
            self._grown.clear()
            found = self._take(asked)
            left = end - self._loop.time()
            if left <= 0 or any(one["records"] for one in found):
                break
            try:
                await asyncio.wait_for(self._grown.wait(), left)
            except TimeoutError:
                continue
        return {
            "throttle_time": 0,
            "error_code": 0,
            "responses": [{"topic": "__consumer_offsets", "partitions": found}],
        }

    def _take(self, asked: Any) -> list[dict[str, Any]]:
        left, found = asked.max_bytes, []
        for one in asked.topics[0].partitions:
            raw = self._read(
                one.partition, one.fetch_offset // BATCH, min(left, one.partition_max_bytes)
            )
            left -= len(raw)
            high = (self._ends[one.partition] + len(self._more[one.partition])) * BATCH
            found.append(
                {
                    "partition_index": one.partition, "error_code": 0, "high_watermark": high,
                    "last_stable_offset": high, "log_start_offset": 0,
                    "aborted_transactions": None, "records": raw,
                }
            )  # fmt: skip
        return found

    def _read(self, partition: int, number: int, most: int) -> bytes:
        parts, size = [], 0
        end, more = self._ends[partition], self._more[partition]
        while size < most and number < end + len(more):
            made = number < end
            raw = self.topic.batch(partition, number) if made else more[number - end]
            parts.append(raw)
            size += len(raw)
            number += 1
        return b"".join(parts)


@cache
def _schemas(key: int, version: int) -> Any:
    return load_request_schema(key, version), entity_writer(load_response_schema(key, version))


def _served(api: Api, version: int) -> dict[str, int]:
    return {"api_key": api, "min_version": version, "max_version": version}


def _topic(name: str, topic_id: UUID, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"error_code": 0, "name": name, "topic_id": topic_id, "partitions": partitions}
