"""Follow a cluster by what it answers about its groups, where its topic of them may not be read.

The cluster is asked every few seconds, so what happened in between is not known.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from coordinator.core.watched_events import KafkaWrote, Unreadable
from coordinator.errors import GroupError
from coordinator.errors.status import LOST
from coordinator.errors.trouble import Trouble
from coordinator.member.client_settings import ClientSettings
from coordinator.runtime.topic_catalog import TopicCatalog
from coordinator.watcher.described_groups import (
    Committed,
    DescribedGroup,
    DescribedMember,
    compare_classic,
    compare_groups,
    compare_offsets,
    end_group,
)
from coordinator.watcher.described_state import KnownGroup, find_known, unread_group
from coordinator.watcher.kafka_brokers import KafkaBrokers, ask_cluster
from coordinator.watcher.kafka_records import (
    IdOf,
    Names,
    UndecodableError,
    check_partition,
    read_classic_member,
)
from coordinator.watcher.lag_notes import follow_lags
from coordinator.watcher.watched_store import TOPIC, WatchedStore
from coordinator.wire.call import from_uuid
from coordinator.wire.codec import Api

CONSUMER = "consumer"
CONSUMER_GROUPS = (Api.CONSUMER_GROUP_DESCRIBE, "group_ids")
CLASSIC_GROUPS = (Api.DESCRIBE_GROUPS, "groups")
"""What describes groups of either protocol, and its field of their ids."""
GROUPS_A_REQUEST = 100
GROUP_ID_NOT_FOUND = 69
SETTLED = {"Stable", "Empty"}
"""States of a classic group in which Kafka says what its members have."""
DEAD = "Dead"
"""The state of a classic group that there is not."""
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
        An address or a setting is invalid.
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
        known = None
        trouble = Trouble(logger.warning, "the cluster does not answer, trying again: %s")
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
                    trouble.end()
                except OSError as error:
                    trouble.note(error)
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
        """Ask once, and write what differs: what is not answered now stays as it was."""
        topics = (await brokers.describe(TOPIC)).topics
        store.report_topics(topics, 0)
        asking = _Asking(brokers, lambda name: topics[name].topic_id if name in topics else "")
        listed: set[str] = set()
        is_whole = True
        for node_id in brokers.node_ids:
            answer = await brokers.ask(node_id, Api.LIST_GROUPS, states_filter=[], types_filter=[])
            code = int(answer.error_code)
            is_whole &= not code  # one that has not loaded all of its groups yet says so
            asking.check(code, "DESCRIBE on the cluster, or on its groups")
            for some in _chunks(answer.groups):
                listed |= {str(one.group_id) for one in some}
                now = await asking.describe(node_id, some, known)
                self._write(store, known, now)
        missing = sorted(known.keys() - listed) if is_whole else []
        gone = [(one, known.pop(one)) for one in await asking.find_gone(missing, known)]
        store.write([KafkaWrote(tuple(_end(*one)), wall_ms(), explains=False) for one in gone])
        if asking.refused:
            raise OSError(asking.refused[0])

    def _write(
        self,
        store: WatchedStore,
        known: dict[str, KnownGroup],
        now: Mapping[str, KnownGroup | Unreadable],
    ) -> None:
        """Write how groups differ from what is known of them, and know it."""
        unread = store.watched.unread
        events: list[KafkaWrote | None] = []
        for group_id, found in now.items():
            if isinstance(found, Unreadable):
                known[group_id] = unread_group(group_id)
                if group_id not in unread:
                    events.append(KafkaWrote((), wall_ms(), unreadable=(found,)))
            elif group_id not in unread:
                events.append(_compare(known.get(group_id), group_id, found))
                known[group_id] = found
            elif known.get(group_id) != found:  # all of it, in case that it can be read by now
                whole = _compare(None, group_id, found)
                events.append(whole and replace(whole, explains=False, replaces=True))
                known[group_id] = found
        store.write([event for event in events if event is not None])


async def _work_here(work: Callable[[], None]) -> None:
    """Do it in the loop's thread, as all that writes to the store here."""
    work()


class _Asking:
    """Questions of one round to the brokers.

    Attributes
    ----------
    refused
        What may not be read, each with the right that it takes.
    """

    def __init__(self, brokers: KafkaBrokers, id_of: IdOf) -> None:
        self._brokers, self._names = brokers, Names(str, id_of)
        self.refused: list[str] = []

    def check(self, code: int, right: str) -> bool:
        """Whether an answer has no error; note what is refused."""
        if code in REFUSED:
            self.refused.append(f"the cluster refuses to say: allow {right} (Kafka's error {code})")
        return code == 0

    async def describe(
        self, node_id: int, listed: Sequence[Any], known: Mapping[str, KnownGroup]
    ) -> dict[str, KnownGroup | Unreadable]:
        """Return groups as they are; one that cannot be described now is left out."""
        kinds = {str(one.group_id): getattr(one, "group_type", "classic") for one in listed}
        consumer = [one for one, kind in kinds.items() if kind.lower() == CONSUMER]
        classic = [one for one, kind in kinds.items() if kind.lower() == "classic"]
        found: dict[str, KnownGroup] = {}
        faulty: dict[str, Unreadable] = {}
        for one in await self._described(node_id, CONSUMER_GROUPS, consumer):
            group_id = str(one.group_id)
            if self._is_there(one):
                try:
                    found[group_id] = KnownGroup(consumer=_consumer_group(one))
                except UndecodableError as error:
                    faulty[group_id] = Unreadable(group_id, -1, str(error))
        for one in await self._described(node_id, CLASSIC_GROUPS, classic):
            if self._is_there(one) and one.group_state in SETTLED:
                made = _classic_group(one, self._names)
                found[str(one.group_id)] = KnownGroup(classic=made)
        found = {group_id: found[group_id] for group_id in kinds if group_id in found}
        for group_id, one in found.items():
            one.offsets = known[group_id].offsets if group_id in known else {}
        for group in await self._offsets(node_id, list(found)):
            if int(group.error_code) == 0 and group.group_id in found:
                one = found[group.group_id]
                one.offsets = _committed(group, one.offsets)
        return found | faulty

    async def find_gone(self, missing: Sequence[str], known: Mapping[str, KnownGroup]) -> list[str]:
        """Return those of missing groups that are gone, as their coordinators say.

        While a coordinator moves, no broker lists its groups.
        """
        led: dict[int, list[str]] = {}
        for some in _chunks(missing):
            for group_id, node_id in (await self._brokers.coordinators(some)).items():
                led.setdefault(node_id, []).append(group_id)
        gone: list[str] = []
        for node_id, theirs in led.items():
            consumer = [one for one in theirs if known[one].consumer is not None]
            classic = [one for one in theirs if known[one].consumer is None]
            gone += [
                str(one.group_id)
                for one in await self._described(node_id, CONSUMER_GROUPS, consumer)
                if int(one.error_code) == GROUP_ID_NOT_FOUND
            ]
            gone += [
                str(one.group_id)
                for one in await self._described(node_id, CLASSIC_GROUPS, classic)
                if int(one.error_code) == GROUP_ID_NOT_FOUND
                or (self._is_there(one) and one.group_state == DEAD)
            ]
        return [one for one in gone if one in missing]

    async def _described(
        self, node_id: int, kind: tuple[Api, str], group_ids: Sequence[str]
    ) -> Sequence[Any]:
        if not group_ids:
            return ()
        api, field = kind
        answer = await self._brokers.ask(
            node_id, api, **{field: list(group_ids)}, include_authorized_operations=False
        )
        return answer.groups  # type: ignore[no-any-return]

    async def _offsets(self, node_id: int, group_ids: Sequence[str]) -> Sequence[Any]:
        if not group_ids:
            return ()
        wanted = [
            {"group_id": one, "member_id": None, "member_epoch": -1, "topics": None}
            for one in group_ids
        ]
        answer = await self._brokers.ask(
            node_id, Api.OFFSET_FETCH, groups=wanted, require_stable=False
        )
        return answer.groups  # type: ignore[no-any-return]

    def _is_there(self, group: Any) -> bool:  # noqa: ANN401 - kio's message
        return self.check(int(group.error_code), f"DESCRIBE on group {group.group_id}")


def _committed(group: Any, before: Mapping[Place, Committed]) -> dict[Place, Committed]:  # noqa: ANN401
    """Return the offsets of an answer; for one that is missing now, the known one."""
    found: dict[Place, Committed] = {}
    for topic in group.topics:
        for one in topic.partitions:
            place, offset = (str(topic.name), int(one.partition_index)), int(one.committed_offset)
            if int(one.error_code):
                found |= {place: before[place]} if place in before else {}
            elif offset >= 0:
                epoch = int(one.committed_leader_epoch)
                found[place] = Committed(offset, epoch, one.metadata or "")
    return found


def _compare(before: KnownGroup | None, group_id: str, now: KnownGroup) -> KafkaWrote | None:
    """Return the change of a group since it was answered last; None without one."""
    at_ms = wall_ms()
    before = before or KnownGroup()
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
    """Yield the records that end a group that is no longer listed."""
    for topic, partition in sorted(known.offsets):
        yield Tombstone(OffsetCommitted.kind, group_id, name=topic, partition=partition)
    if known.consumer is not None:
        yield from end_group(known.consumer)
    if known.classic is not None:
        yield Tombstone(ClassicGroupWritten.kind, group_id)


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
        (key, check_partition(number, key.name))
        for one in topics
        for key in (TopicKey(str(one.topic_name), from_uuid(one.topic_id)),)
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
