"""Offsets in transactions, and their ends: TxnOffsetCommit and WriteTxnMarkers, as brokers do them.

Whether a producer has an open transaction, only the coordinator of its transactions knows: the
broker that leads its transactional id's partition of `__transaction_state`. It is asked by
AddPartitionsToTxn, once a transaction: to verify that the partition is part of it, or, of producers
that leave that to us (version 5), to add it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec
from kio.schema.errors import ErrorCode as Code

from coordinator.core.events import (
    Answer,
    EndTransaction,
    Event,
    OffsetCommit,
    Result,
    TxnOffsetCommit,
    Unverified,
)
from coordinator.core.java_hash import place_of
from coordinator.core.state.transactions import Producer
from coordinator.errors import ErrorCode, GroupError
from coordinator.kraft.links import Links
from coordinator.kraft.metadata_image import MetadataImage
from coordinator.kraft.registration import TOPIC, TRANSACTIONS
from coordinator.kraft.replica_apis import Leaders
from coordinator.kraft.replicas import find_address
from coordinator.kraft.requests.working import Working
from coordinator.wire.apis.group_apis import (
    by_topic,
    find_missing,
    find_names,
    outcome_fields,
    read_offsets,
)
from coordinator.wire.call import Call, Cluster, respond_with
from coordinator.wire.codec import Api, Request, Values

STALE_SINCE, ADDS_SINCE, ABORTABLE_SINCE, LOADING_SINCE = 6, 5, 4, 2
"""Versions of TxnOffsetCommit: that know STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND, and name topics
by their ids; whose producers leave it to us to add the partition; that know TRANSACTION_ABORTABLE;
that know COORDINATOR_LOAD_IN_PROGRESS."""
TRIES = 3
"""How often a transaction may end between the question whether it is open, and its offsets."""
FOR_CLIENTS = {
    Code.network_exception: Code.coordinator_load_in_progress,
    Code.unknown_topic_or_partition: Code.coordinator_not_available,
    Code.not_enough_replicas: Code.coordinator_not_available,
    Code.request_timed_out: Code.coordinator_not_available,
    Code.not_leader_or_follower: Code.not_coordinator,
    Code.kafka_storage_error: Code.not_coordinator,
    Code.cluster_authorization_failed: Code.invalid_txn_state,
    Code.producer_fenced: Code.invalid_producer_epoch,
}
"""What a producer gets in place of errors that are between brokers."""
NOT_READY = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
"""Errors that the coordinator of transactions does not expect: it hears that another leads."""


class Coordinators(Protocol):
    """The groups of a node, and what it leads."""

    leaders: Leaders | None

    def submit(self, events: Sequence[Event]) -> Future[list[Answer]]:
        """Submit events, each to the partition of its group."""

    def find_at(self, number: int) -> Any:  # noqa: ANN401 - a coordinator, or its refusal
        """Return the coordinator of a partition, or the error that refuses its requests."""


class TransactionApis:
    """Answers producers, and the coordinators of their transactions; in a server's loop.

    Parameters
    ----------
    links
        To brokers.
    image
        Asked for the metadata as it is now.
    """

    def __init__(
        self,
        groups: Coordinators,
        links: Links,
        image: Callable[[], MetadataImage | None],
    ) -> None:
        self._groups, self._links, self._image = groups, links, image
        self._loop = asyncio.get_running_loop()
        self._working = Working()

    def handlers(self) -> Mapping[Api, Callable[[Request, Cluster], Call]]:
        """Return what answers each API."""
        return {
            Api.TXN_OFFSET_COMMIT: self.commit,
            Api.WRITE_TXN_MARKERS: lambda request, _: self.end(request),
        }

    def close(self) -> None:
        """Answer nothing more; connections to brokers end in the loop's own time."""
        self._working.close()
        self._closing = self._loop.create_task(self._links.close())

    # TxnOffsetCommit -----------------------------------------------------------------------------

    def commit(self, request: Request, cluster: Cluster) -> Call:
        """TxnOffsetCommit; an error of the whole request is that of each partition that exists."""
        asked, version = request.body, request.version
        topics = find_names(asked.topics, cluster)
        refused = find_missing(topics, cluster)
        named = by_topic(topics, refused)
        producer = Producer(int(asked.producer_id), int(asked.producer_epoch))
        code = None
        if not named:
            code = Code.unknown_topic_or_partition
        elif not asked.group_id:
            code = Code.invalid_group_id
        elif min(producer) < 0:
            code = Code.invalid_producer_id_mapping
        if code is not None:
            return respond_with(outcome_fields(topics, code, refused))
        event = TxnOffsetCommit(
            OffsetCommit(
                group_id=asked.group_id,
                member_id=getattr(asked, "member_id", ""),
                member_epoch=int(getattr(asked, "generation_id", -1)),
                offsets=read_offsets(named),
                instance_id=getattr(asked, "group_instance_id", None),
                as_kafka=True,
            ),
            producer,
            knows_stale=version >= STALE_SINCE,
        )
        transactional_id = asked.transactional_id

        def respond(answers: Sequence[Answer]) -> Values:
            return outcome_fields(topics, _for_client(answers[0], version), refused)

        def later() -> Future[Answer]:
            return self._working.start(self._commit(event, transactional_id, version))

        return Call(respond, later=later)

    async def _commit(self, event: TxnOffsetCommit, transactional_id: str, version: int) -> Answer:
        for _ in range(TRIES):
            (answer,) = await asyncio.wrap_future(self._groups.submit([event]))
            if isinstance(answer, GroupError) or not isinstance(answer.response, Unverified):
                return answer
            code = await self._verify(event, transactional_id, version)
            if code:
                return Result(response=code)
            event = msgspec.structs.replace(event, ended=answer.response.ended)
        return Result(response=Code.coordinator_load_in_progress)

    async def _verify(self, event: TxnOffsetCommit, transactional_id: str, version: int) -> Code:
        """Ask whether a transaction is open that has the group's partition; return the error."""
        image, leaders = self._image(), self._groups.leaders
        states = image.topic(TRANSACTIONS) if image else None
        if image is None or states is None or leaders is None:
            return Code.coordinator_not_available
        leader = states.partitions[place_of(transactional_id, len(states.partitions))].leader
        address = find_address(image, leader, self._links) if leader in image.brokers else None
        if address is None:
            return Code.coordinator_not_available
        number = place_of(event.group_id, len(leaders.known))
        asked = {
            "transactional_id": transactional_id,
            "producer_id": event.producer.producer_id,
            "producer_epoch": event.producer.epoch,
            "verify_only": version < ADDS_SINCE,
            "topics": [{"name": TOPIC, "partitions": [number]}],
        }
        try:
            found = await self._links.ask(address, Api.ADD_PARTITIONS_TO_TXN, transactions=[asked])
        except (OSError, GroupError):
            return Code.coordinator_load_in_progress
        return _read_verdict(found, version)

    # WriteTxnMarkers -----------------------------------------------------------------------------

    def end(self, request: Request) -> Call:
        """WriteTxnMarkers: each marker ends a transaction in each of its partitions."""
        markers = request.body.markers
        events: dict[int, list[EndTransaction]] = {}
        codes: dict[tuple[int, str, int], Code] = {}
        waiting: dict[int, list[tuple[int, str, int]]] = {}
        for at, marker in enumerate(markers):
            event = _event_of(marker)
            for topic in marker.topics:
                for number in topic.partition_indexes:
                    place = at, topic.name, number
                    codes[place] = self._refuse(topic.name, number, event)
                    if not codes[place]:
                        events.setdefault(number, []).append(event)
                        waiting.setdefault(number, []).append(place)

        async def end() -> Answer:
            for number, of_one in events.items():
                answers = await self._end(number, of_one)
                codes.update(zip(waiting[number], answers, strict=True))
            return Result()

        def respond(_answers: Sequence[Answer]) -> Values:
            return {"markers": [_marker_fields(at, one, codes) for at, one in enumerate(markers)]}

        if not events:
            return respond_with(respond(()))
        return Call(respond, later=lambda: self._working.start(end()))

    def _refuse(self, name: str, number: int, event: EndTransaction) -> Code:
        """Return why a marker is not written; what is not known here may be led by another."""
        leaders = self._groups.leaders
        if name != TOPIC:
            return Code.unknown_topic_or_partition
        if leaders is not None and number not in leaders.known:
            return Code.unknown_topic_or_partition
        if min(event.producer) < 0:
            return Code.invalid_producer_id_mapping
        return Code.none

    async def _end(self, number: int, events: Sequence[EndTransaction]) -> list[Code]:
        """Write markers into a partition; return what came of each."""
        found = self._groups.find_at(number)
        if isinstance(found, GroupError):
            return [Code.not_leader_or_follower] * len(events)
        answers: list[Answer] = await asyncio.wrap_future(found.submit(events))
        return [_for_coordinator(one) for one in answers]


def _event_of(marker: Any) -> EndTransaction:  # noqa: ANN401 - kio's
    return EndTransaction(
        Producer(int(marker.producer_id), int(marker.producer_epoch)),
        int(marker.coordinator_epoch),
        bool(marker.transaction_result),
        int(getattr(marker, "transaction_version", 0)),
    )


def _marker_fields(at: int, marker: Any, codes: Mapping[tuple[int, str, int], Code]) -> Values:  # noqa: ANN401 - kio's
    return {
        "producer_id": marker.producer_id,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": number, "error_code": codes[at, topic.name, number]}
                    for number in topic.partition_indexes
                ],
            }
            for topic in marker.topics
        ],
    }


def _read_verdict(found: Any, version: int) -> Code:  # noqa: ANN401 - kio's message
    """Return the error of an AddPartitionsToTxn of one partition; no answer verifies nothing."""
    verdicts = [
        int(one.partition_error_code)
        for transaction in found.results_by_transaction
        for topic in transaction.topic_results
        for one in topic.results_by_partition
    ]
    code = Code(int(found.error_code) or max(verdicts, key=abs, default=Code.network_exception))
    if code is Code.transaction_abortable and version < ABORTABLE_SINCE:
        return Code.invalid_txn_state
    return FOR_CLIENTS.get(code, code)


def _for_client(answer: Answer, version: int) -> Answer | Code:
    """Return the answer for a producer; a code stands for all of its partitions."""
    code = answer.code if isinstance(answer, GroupError) else answer.response
    if not isinstance(code, int):
        return answer
    is_loading = int(code) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if is_loading and version < LOADING_SINCE:
        return Code.coordinator_not_available
    return Code(int(code))


def _for_coordinator(answer: Answer) -> Code:
    if not isinstance(answer, GroupError):
        return Code.none
    return Code.not_leader_or_follower if answer.code in NOT_READY else Code(int(answer.code))
