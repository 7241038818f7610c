"""Follow a cluster by what it answers about its groups, where its topic of them may not be read.

Asked every few seconds: what happened in between, and when, nobody tells.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from coordinator.clock import wall_ms
from coordinator.core.state.partition_spans import Spans, TopicKey, spans_of
from coordinator.core.state.records import (
    ClassicGroupWritten,
    ClassicMemberWritten,
    KafkaWatched,
    OffsetCommitted,
    Record,
    Tombstone,
)
from coordinator.core.watched.lags import Place
from coordinator.core.watched_events import KafkaWrote
from coordinator.errors import GroupError
from coordinator.runtime.topic_catalog import TopicCatalog
from coordinator.status import LOST
from coordinator.watcher.client_settings import ClientSettings
from coordinator.watcher.described_groups import (
    Committed,
    DescribedGroup,
    DescribedMember,
    compare_classic,
    compare_groups,
    compare_offsets,
    end_group,
)
from coordinator.watcher.described_state import KnownGroup, find_known
from coordinator.watcher.kafka_brokers import KafkaBrokers, ask_cluster
from coordinator.watcher.kafka_records import Names, read_classic_member
from coordinator.watcher.lag_notes import follow_lags
from coordinator.watcher.watched_store import TOPIC, WatchedStore
from coordinator.wire.call import from_uuid
from coordinator.wire.codec import Api

CONSUMER = "consumer"
GROUPS_A_REQUEST = 100
NOT_THERE = {16, 69}
"""NOT_COORDINATOR, GROUP_ID_NOT_FOUND: the group has moved, or gone, since it was listed."""
SETTLED = {"Stable", "Empty"}
"""States of a classic group in which Kafka says what its members have."""
REFUSED = {29, 30, 31}
"""Kafka's errors where something may not be read: of a topic, a group, the cluster."""
logger = logging.getLogger("muster.watch")


class DescribeSource:
    """A Kafka cluster that is asked about its groups.

    Parameters
    ----------
    servers
        host:port of some brokers, with or without kafka:// before them.
    settings
        Of the client, in librdkafka's names.
    poll_ms
        How often it is asked.
    lag_ms
        How often the lag of groups is noted; 0 for never.

    Raises
    ------
    ConfigError
        An address or a setting is none.
    """

    topics: TopicCatalog | None = None
    is_live = True

    def __init__(
        self,
        servers: str,
        settings: Mapping[str, str] | None = None,
        *,
        poll_ms: int = 5_000,
        lag_ms: int = 0,
    ) -> None:
        self._settings = ClientSettings.read(servers, settings or {})
        self._poll_s = poll_ms / 1000
        self._lag_ms = lag_ms

    def find_cluster(self) -> KafkaWatched:
        """Return which cluster it is; see `Source`."""
        return KafkaWatched(ask_cluster(self._settings, TOPIC).cluster_id, "describe", wall_ms())

    def follow(self, store: WatchedStore, stop: threading.Event) -> None:
        """Write to the store what differs between answers; see `Source`."""
        asyncio.run(self._follow(store, stop))

    async def _follow(self, store: WatchedStore, stop: threading.Event) -> None:
        cluster_id = store.watched.cluster.cluster_id
        brokers = KafkaBrokers(self._settings, cluster_id=cluster_id)
        known, said = None, ""
        store.note_live()

        def follow_lag() -> asyncio.Task[None]:
            return asyncio.create_task(follow_lags(brokers, store, _work_here, self._lag_ms))

        lags = follow_lag()
        try:
            while not stop.is_set():
                try:
                    if lags.done():
                        lags.result()
                    if known is None:
                        known = store.coordinator.look(find_known)
                    await self._poll(brokers, store, known)
                    store.has_caught_up = True
                    said = ""
                except OSError as error:
                    if str(error) != said:
                        logger.warning("the cluster does not answer, trying again: %s", error)
                    said = str(error)
                except GroupError as error:
                    if store.coordinator.status in LOST:
                        raise
                    logger.warning("asking again, from where the store is: %s", error)
                    known = None
                    if lags.done():
                        lags = follow_lag()
                await asyncio.to_thread(stop.wait, self._poll_s)
        finally:
            lags.cancel()
            await asyncio.gather(lags, return_exceptions=True)
            await brokers.close()

    async def _poll(
        self, brokers: KafkaBrokers, store: WatchedStore, known: dict[str, KnownGroup]
    ) -> None:
        """Ask once, and write what differs."""
        topics = (await brokers.describe(TOPIC)).topics
        store.report_topics(topics, 0)
        names = Names(str, lambda name: topics[name].topic_id if name in topics else "")
        listed: set[str] = set()
        for node_id in brokers.node_ids:
            answer = await brokers.ask(node_id, Api.LIST_GROUPS, states_filter=[], types_filter=[])
            _check(int(answer.error_code), "DESCRIBE on the cluster, or on its groups")
            for some in _chunks(answer.groups):
                now = await _Asking(brokers, node_id, names).describe(some)
                listed |= {str(one.group_id) for one in some}
                events = [_compare(known, group_id, found) for group_id, found in now.items()]
                store.write([event for event in events if event is not None])
                known |= now
        gone = [(group_id, known[group_id]) for group_id in sorted(known.keys() - listed)]
        store.write([KafkaWrote(tuple(_end(*one)), wall_ms(), explains=False) for one in gone])
        for group_id, _ in gone:
            del known[group_id]


async def _work_here(work: Callable[[], None]) -> None:
    """Do it in the loop's thread, as all that writes to the store here."""
    work()


class _Asking:
    """Questions to one broker about groups that it coordinates."""

    def __init__(self, brokers: KafkaBrokers, node_id: int, names: Names) -> None:
        self._brokers, self._node_id, self._names = brokers, node_id, names

    async def describe(self, listed: Sequence[Any]) -> dict[str, KnownGroup]:
        """Return groups as they are; one that cannot be described now is left out."""
        kinds = {str(one.group_id): getattr(one, "group_type", "classic") for one in listed}
        consumer = [one for one, kind in kinds.items() if kind.lower() == CONSUMER]
        classic = [one for one, kind in kinds.items() if kind.lower() == "classic"]
        found: dict[str, KnownGroup] = {}
        if consumer:
            answer = await self._ask(
                Api.CONSUMER_GROUP_DESCRIBE,
                group_ids=consumer,
                include_authorized_operations=False,
            )
            for one in answer.groups:
                if _is_there(one):
                    found[str(one.group_id)] = KnownGroup(consumer=_consumer_group(one))
        if classic:
            answer = await self._ask(
                Api.DESCRIBE_GROUPS, groups=classic, include_authorized_operations=False
            )
            for one in answer.groups:
                if _is_there(one) and one.group_state in SETTLED:
                    made = _classic_group(one, self._names)
                    found[str(one.group_id)] = KnownGroup(classic=made)
        for group_id, offsets in (await self._offsets(list(found))).items():
            found[group_id].offsets = offsets
        return found

    async def _offsets(self, group_ids: list[str]) -> dict[str, dict[Place, Committed]]:
        if not group_ids:
            return {}
        wanted = [
            {"group_id": one, "member_id": None, "member_epoch": -1, "topics": None}
            for one in group_ids
        ]
        answer = await self._ask(Api.OFFSET_FETCH, groups=wanted, require_stable=False)
        return {
            str(group.group_id): {
                (str(topic.name), int(one.partition_index)): Committed(
                    int(one.committed_offset),
                    int(one.committed_leader_epoch),
                    one.metadata or "",
                )
                for topic in group.topics
                for one in topic.partitions
                if int(one.error_code) == 0 and int(one.committed_offset) >= 0
            }
            for group in answer.groups
            if int(group.error_code) == 0
        }

    async def _ask(self, api: Api, **fields: object) -> Any:  # noqa: ANN401 - kio's message
        return await self._brokers.ask(self._node_id, api, **fields)


def _compare(known: Mapping[str, KnownGroup], group_id: str, now: KnownGroup) -> KafkaWrote | None:
    """Return the change of a group since it was answered last; None without one."""
    at_ms = wall_ms()
    before = known.get(group_id, KnownGroup())
    records: list[Record] = []
    explains = True
    if before.consumer is not None and now.consumer is None:
        records += end_group(before.consumer)
    if before.classic is not None and now.classic is None:
        records.append(Tombstone(ClassicGroupWritten.kind, group_id))
    if now.consumer is not None:
        made, explains = compare_groups(before.consumer, now.consumer)
        records += made
    if now.classic is not None:
        records += compare_classic(before.classic, now.classic)
    records += compare_offsets(group_id, before.offsets, now.offsets, at_ms)
    return KafkaWrote(tuple(records), at_ms, explains=explains) if records else None


def _end(group_id: str, known: KnownGroup) -> Iterator[Record]:
    """Yield the records that end a group that is listed no more."""
    for topic, partition in sorted(known.offsets):
        yield Tombstone(OffsetCommitted.kind, group_id, name=topic, partition=partition)
    if known.consumer is not None:
        yield from end_group(known.consumer)
    if known.classic is not None:
        yield Tombstone(ClassicGroupWritten.kind, group_id)


def _is_there(group: Any) -> bool:  # noqa: ANN401 - kio's message
    code = int(group.error_code)
    if code in NOT_THERE:
        return False
    _check(code, f"DESCRIBE on group {group.group_id}")
    return code == 0


def _check(code: int, right: str) -> None:
    if code in REFUSED:
        raise OSError(f"the cluster refuses to say: allow {right} (Kafka's error {code})")


def _consumer_group(found: Any) -> DescribedGroup:  # noqa: ANN401 - kio's message
    members = {
        one.member_id: DescribedMember(
            one.member_id,
            one.instance_id,
            one.rack_id,
            int(one.member_epoch),
            one.client_id,
            one.client_host,
            tuple(sorted(one.subscribed_topic_names)),
            one.subscribed_topic_regex or "",
            int(getattr(one, "member_type", -1)) == 0,
            _spans(one.assignment.topic_partitions),
            _spans(one.target_assignment.topic_partitions),
        )
        for one in found.members
    }
    return DescribedGroup(
        str(found.group_id),
        int(found.group_epoch),
        int(found.assignment_epoch),
        found.assignor_name,
        members,
    )


def _spans(topics: Iterable[Any]) -> Spans:
    return spans_of(
        (TopicKey(str(one.topic_name), from_uuid(one.topic_id)), int(number))
        for one in topics
        for number in one.partitions
    )


def _classic_group(found: Any, names: Names) -> ClassicGroupWritten:  # noqa: ANN401 - kio's message
    is_consumer = found.protocol_type == CONSUMER
    members = tuple(
        ClassicMemberWritten(
            one.member_id,
            one.group_instance_id,
            one.client_id,
            one.client_host,
            subscription=one.member_metadata,
            assignment=one.member_assignment,
        )
        for one in sorted(found.members, key=lambda one: one.member_id)
    )
    if is_consumer:
        members = tuple(read_classic_member(one, names) for one in members)
    return ClassicGroupWritten(
        str(found.group_id),
        protocol_type=found.protocol_type,
        protocol=found.protocol_data or None,
        members=members,
    )


def _chunks(groups: Iterable[Any]) -> Iterator[list[Any]]:
    left = iter(groups)
    while some := list(islice(left, GROUPS_A_REQUEST)):
        yield some
