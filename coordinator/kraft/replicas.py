"""The replicas of a node: each follows its leader, into a log of its own.

One task fetches from each broker, for all partitions that it leads, as Kafka's fetcher threads do.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import time
from typing import Any
from uuid import UUID

from coordinator.errors import GroupError
from coordinator.errors.trouble import Trouble
from coordinator.kraft.cleaner.cleaner import clean, is_worth_it
from coordinator.kraft.following import (
    Append,
    AskOffsets,
    Decision,
    Restart,
    Truncate,
    Wait,
    decide,
    decide_offsets,
)
from coordinator.kraft.links import Address, Links
from coordinator.kraft.log_files import LogFile
from coordinator.kraft.metadata_image import TOPIC as TOPIC_SETTINGS
from coordinator.kraft.metadata_image import MetadataImage, Partition
from coordinator.kraft.registration import TOPIC, find_replicas
from coordinator.wire.codec import Api

EARLIEST, LATEST = -2, -1
WAIT_MS, LOOK_S, PAUSE_S, MARKS_S = 500, 0.05, 0.5, 5.0
CLEAN_S = 15.0
"""How long the cleaner rests, as Kafka's `log.cleaner.backoff.ms`."""
FETCH_BYTES, PARTITION_BYTES, FETCH_S = 10 << 20, 1 << 20, 30.0
"""As Kafka's brokers fetch: so much arrives in that time over any link."""
TOMBSTONES_MS = 86_400_000
"""How long a cleaned topic keeps tombstones by Kafka's default of `delete.retention.ms`."""
logger = logging.getLogger("muster.node")


class Replica:
    """A partition that is followed.

    Attributes
    ----------
    partition
        As the metadata has it now.
    is_in_sync
        Whether its leader counts it among the replicas in sync.
    cannot_write
        Whether the disk did not take what its leader had last.
    """

    def __init__(self, number: int, partition: Partition, file: LogFile) -> None:
        self.number, self.partition, self.file = number, partition, file
        self.is_in_sync = self.cannot_write = False
        self.again_s = 0.0
        self.trouble = Trouble(logger.warning, "%s-%d cannot be followed: %s", TOPIC, number)


class Replicas:
    """All replicas of a node, of Kafka's topic of groups.

    Parameters
    ----------
    folder
        Where their logs are.
    links
        To brokers; used by no other task.

    Attributes
    ----------
    has_lost
        Whether a log lacks what the cluster counts on, since the first update: the node was in sync
        when it ended, or may be chosen as a leader.
    cannot_write
        Whether the disk does not take what a leader has: until the node is fenced, commits there
        wait for it.
    """

    def __init__(self, folder: str, node_id: int, links: Links) -> None:
        self._folder, self._node_id, self._links = folder, node_id, links
        self._held: dict[int, Replica] = {}
        self._addresses: dict[int, Address] = {}
        self._fetchers: dict[int, asyncio.Task[None]] = {}
        self._topic_id: UUID | None = None
        self._cleaning: asyncio.Task[None] | None = None
        self._is_fresh = True
        self._marks_trouble = Trouble(logger.warning, "logs have no new marks, trying again: %s")
        self._opening = Trouble(logger.warning, f"{TOPIC}-%d has no log here, trying again: %s")
        self.broker_epoch = -1
        self.has_lost = False

    @property
    def held(self) -> dict[int, Replica]:
        """The replicas, by their partitions' numbers."""
        return self._held

    @property
    def cannot_write(self) -> bool:
        """As the class says."""
        own = {self._node_id, -1}
        held = list(self._held.values())
        return any(one.cannot_write and one.partition.leader not in own for one in held)

    def update(self, image: MetadataImage) -> None:
        """Follow what the metadata says now: which replicas there are, and who leads."""
        topic = image.topic(TOPIC)
        if topic is None or topic.topic_id != self._topic_id:
            self._drop_all()
        self._topic_id = None if topic is None else topic.topic_id
        wanted = find_replicas(image, self._node_id)
        for number in self._held.keys() - wanted.keys():
            self._drop(number)
        if self._is_fresh:
            self._remove_folders(wanted)
        for number, partition in wanted.items():
            try:
                self._update_one(number, partition, image)
            except OSError as error:  # it is tried again at the next look at the metadata
                if self._is_fresh:
                    raise
                self._opening.note(error, number)
        if self._is_fresh:
            self.has_lost = any(
                one.file.has_lost
                for one in self._held.values()
                if self._node_id in (*one.partition.isr, *one.partition.eligible_leaders)
            )
            self._is_fresh = False
        self._addresses = {
            node_id: address
            for node_id in image.brokers
            if (address := find_address(image, node_id, self._links)) is not None
        }
        leaders = {one.partition.leader for one in self._held.values()} - {self._node_id, -1}
        for node_id in leaders - self._fetchers.keys():
            self._fetchers[node_id] = asyncio.create_task(self._fetch_from(node_id))

    def _update_one(self, number: int, partition: Partition, image: MetadataImage) -> None:
        replica = self._held.get(number)
        if replica is None:
            assert self._topic_id is not None
            keep = image.setting(TOPIC_SETTINGS, TOPIC, "delete.retention.ms")
            keep_ms = int(keep) if keep and keep.isdecimal() else TOMBSTONES_MS
            file = LogFile(self._folder_of(number), self._topic_id, keep_ms / 2)
            replica = self._held[number] = Replica(number, partition, file)
            logger.info("%s-%d: a replica here, from offset %d", TOPIC, number, file.log.end)
            self._opening.end()
        if partition.leader_epoch != replica.partition.leader_epoch:
            replica.again_s = 0.0
        replica.partition = partition
        is_in_sync = self._node_id in partition.isr
        if is_in_sync != replica.is_in_sync:
            words = "in sync" if is_in_sync else "no longer in sync"
            logger.info("%s-%d: %s, at offset %d", TOPIC, number, words, replica.file.log.end)
            if is_in_sync and not self._is_fresh:  # before, a loss is not known yet
                self._keep_marks(replica)
        replica.is_in_sync = is_in_sync

    def _folder_of(self, number: int) -> str:
        return os.path.join(self._folder, f"{TOPIC}-{number}")

    def _remove_folders(self, wanted: dict[int, Partition]) -> None:
        """Remove the logs of what this node is not a replica of since it ended."""
        kept = {os.path.basename(self._folder_of(number)) for number in wanted}
        for name in os.listdir(self._folder):
            if name.startswith(f"{TOPIC}-") and name not in kept:
                shutil.rmtree(os.path.join(self._folder, name), ignore_errors=True)

    def _drop(self, number: int) -> None:
        self._held.pop(number).file.delete()
        logger.info("%s-%d: no longer a replica here: its log is removed", TOPIC, number)

    def _drop_all(self) -> None:
        for number in list(self._held):
            self._drop(number)

    # Fetching ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Keep the marks of all logs, until cancelled; fail if a fetcher does."""
        kept_s = time.monotonic()
        while True:
            await asyncio.sleep(LOOK_S)
            for task in self._fetchers.values():
                if task.done():
                    task.result()
            if time.monotonic() - kept_s >= MARKS_S:
                kept_s = time.monotonic()
                for one in self._held.values():
                    if one.is_in_sync:
                        self._keep_marks(one)
            if self._cleaning is None or self._cleaning.done():
                self._cleaning = asyncio.create_task(self._clean())

    def _keep_marks(self, replica: Replica) -> None:
        """Keep the marks of a log; where that fails the old ones stay, as after a kill."""
        try:
            replica.file.keep_marks()
        except OSError as error:
            self._marks_trouble.note(error)
        else:
            self._marks_trouble.end()

    async def _clean(self) -> None:
        """Clean the log that has most to be cleaned, if one has; then rest."""
        dirty = [one for one in self._held.values() if is_worth_it(one.file)]
        if dirty:
            one = max(dirty, key=lambda one: one.file.log.size - one.file.cleaned_bytes)
            name = f"{TOPIC}-{one.number}"
            await asyncio.to_thread(clean, one.file, 2 * one.file.keep_ms, name)
        await asyncio.sleep(CLEAN_S)

    async def close(self) -> None:
        """Stop following, and flush everything to the disk."""
        tasks = [*self._fetchers.values(), *([self._cleaning] if self._cleaning else ())]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        held, self._held = self._held, {}
        with contextlib.ExitStack() as ends:  # each is closed, also where another one fails
            for one in held.values():
                ends.callback(one.file.close)
            await self._links.close()

    async def _fetch_from(self, node_id: int) -> None:
        """Fetch what a broker leads, as long as there is anything."""
        while True:
            asked = self._asked_of(node_id)
            address = self._addresses.get(node_id)
            if not asked or address is None or self.broker_epoch < 0:
                await asyncio.sleep(LOOK_S)
                continue
            try:
                answer = await self._links.ask(address, Api.FETCH, **self._request(asked))
                if int(answer.error_code):
                    raise ConnectionError(f"broker {node_id} answers {answer.error_code.name}")
                for found in answer.responses[0].partitions if answer.responses else ():
                    replica, epoch = asked[found.partition_index]
                    if self._is_current(replica, epoch):
                        await self._try(address, replica, found)
            except (OSError, GroupError) as error:
                for replica, _ in asked.values():
                    self._pause(replica, str(error))

    def _asked_of(self, node_id: int) -> dict[int, tuple[Replica, int]]:
        now_s = time.monotonic()
        return {
            number: (one, one.partition.leader_epoch)
            for number, one in self._held.items()
            if one.partition.leader == node_id and one.again_s <= now_s
        }

    def _is_current(self, replica: Replica, epoch: int) -> bool:
        """Whether an answer still counts: its leader leads, and the log is still ours."""
        is_held = self._held.get(replica.number) is replica
        return is_held and replica.partition.leader_epoch == epoch

    def _request(self, asked: dict[int, tuple[Replica, int]]) -> dict[str, object]:
        partitions = [
            {
                "partition": number,
                "current_leader_epoch": epoch,
                "fetch_offset": one.file.log.end,
                "last_fetched_epoch": one.file.log.last_epoch,
                "log_start_offset": one.file.log.start,
                "partition_max_bytes": PARTITION_BYTES,
            }
            for number, (one, epoch) in sorted(asked.items())
        ]
        return {
            "replica_state": {"replica_id": self._node_id, "replica_epoch": self.broker_epoch},
            "max_wait": WAIT_MS,
            "min_bytes": 1,
            "max_bytes": FETCH_BYTES,
            "topics": [{"topic_id": self._topic_id, "partitions": partitions}],
            "forgotten_topics_data": [],
        }

    async def _try(self, address: Address, replica: Replica, found: Any) -> None:  # noqa: ANN401
        """Take an answer; what fails of one partition, as at its file, holds no other up."""
        try:
            await self._take(address, replica, found)
        except (OSError, GroupError) as error:
            self._pause(replica, str(error))

    async def _take(self, address: Address, replica: Replica, found: Any) -> None:  # noqa: ANN401 - kio's
        epoch = replica.partition.leader_epoch
        decision = decide(replica.file.log, epoch, found)
        if isinstance(decision, AskOffsets):
            start = await self._ask_offset(address, replica, EARLIEST)
            end = await self._ask_offset(address, replica, LATEST)
            if not self._is_current(replica, epoch):
                return
            decision = decide_offsets(replica.file.log, start, end)
        self._do(replica, decision)

    def _do(self, replica: Replica, decision: Decision) -> None:
        replica.cannot_write = True  # until it has been
        self._write(replica, decision)
        replica.cannot_write = False

    def _write(self, replica: Replica, decision: Decision) -> None:
        file, name = replica.file, f"{TOPIC}-{replica.number}"
        match decision:
            case Append():
                file.append(decision.accepted)
                file.log.follow_marks(decision.high_watermark, decision.start)
                replica.trouble.end()
            case Truncate():
                logger.warning(
                    "%s: its leader has other records: offsets %d to %d are cut off",
                    name, decision.offset, file.log.end,
                )  # fmt: skip
                file.truncate(decision.offset)
            case Restart():
                logger.info("%s: its leader's log begins at %d", name, decision.offset)
                file.restart(decision.offset)
            case Wait():
                self._pause(replica, decision.why)

    def _pause(self, replica: Replica, why: str) -> None:
        replica.trouble.note(why)
        replica.again_s = time.monotonic() + PAUSE_S

    async def _ask_offset(self, address: Address, replica: Replica, at: int) -> int:
        partition = {
            "partition_index": replica.number,
            "current_leader_epoch": replica.partition.leader_epoch,
            "timestamp": at,
        }
        answer = await self._links.ask(
            address,
            Api.LIST_OFFSETS,
            replica_id=self._node_id,
            isolation_level=0,
            timeout=WAIT_MS,
            topics=[{"name": TOPIC, "partitions": [partition]}],
        )
        found = answer.topics[0].partitions[0]
        if int(found.error_code):
            raise ConnectionError(f"ListOffsets: {found.error_code.name}")
        return int(found.offset)


def find_address(image: MetadataImage, node_id: int, links: Links) -> Address | None:
    """Return where a broker listens for what the node's client speaks; None for nowhere.

    Of several such listeners it is the one that the servers of the client have, if one does.
    """
    settings = links.settings
    protocol = (1 if settings.tls else 0) + (2 if settings.login else 0)
    named = {
        one.name
        for broker in image.brokers.values()
        for one in broker.endpoints
        if (one.host, one.port) in settings.servers
    }
    found = [one for one in image.brokers[node_id].endpoints if one.security_protocol == protocol]
    found.sort(key=lambda one: (one.name not in named, one.name))
    return (found[0].host, found[0].port) if found else None
