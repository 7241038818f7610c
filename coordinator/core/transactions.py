"""Offsets in transactions: taken while one is open, and its end (KIP-447, KIP-890).

As Kafka 4.4.0's `OffsetMetadataManager`, and its log's checks of producers' epochs
(`ProducerAppendInfo`). Whether a transaction is open, its own coordinator knows; it is asked
between two tries of the same request.
"""

from __future__ import annotations

import msgspec

from coordinator.config import Config
from coordinator.core import offsets
from coordinator.core.events import EndTransaction, Result, TxnOffsetCommit, Unverified
from coordinator.core.state.groups import State
from coordinator.core.state.records import OffsetCommitted, Record
from coordinator.core.state.transactions import (
    OffsetPending,
    Producer,
    ProducerState,
    TransactionEnded,
)
from coordinator.errors import ErrorCode, GroupError

OWN_EPOCHS = 2
"""The transaction.version from which on each transaction has an epoch of its own."""
EPOCH_MAX = 32767
"""The last epoch of a producer: its transaction ends by the epoch that it had."""
UNKNOWN_TO_CLIENTS = {ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}


def commit_offsets(state: State, config: Config, event: TxnOffsetCommit, now_ms: int) -> Result:
    """Hold offsets until their transaction ends; the response is that of OffsetCommit.

    It is `Unverified` where no transaction of the producer is open here, unless that was asked
    since one ended: else a late request would open one that is never ended.

    Raises
    ------
    GroupError
        INVALID_PRODUCER_EPOCH; UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION, or the
        codes that it stands for.
    """
    known = _find(state, event.producer)
    is_open = known.is_open and known.epoch == event.producer.epoch
    if not is_open and event.ended != known.ended:
        return Result(response=Unverified(known.ended))
    if event.producer.epoch < known.epoch:
        raise _refuse_epoch(event.producer, known)
    try:
        commit = msgspec.structs.replace(event.commit, in_transaction=True)
        decided = offsets.commit_offsets(state, config, commit, now_ms)
    except GroupError as error:
        if error.code in UNKNOWN_TO_CLIENTS and not event.knows_stale:
            raise GroupError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
        raise
    records: list[Record] = [
        OffsetPending(event.producer, one)
        for one in decided.records
        if isinstance(one, OffsetCommitted)
    ]
    return Result(records, decided.response)


def end_transaction(state: State, event: EndTransaction, now_ms: int) -> Result:
    """Commit or abort what a producer has here; a marker is written even if it has nothing.

    Raises
    ------
    GroupError
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
    """
    known = _find(state, event.producer)
    epoch = event.producer.epoch
    if event.version >= OWN_EPOCHS:
        is_again = epoch == known.epoch and (not known.is_open or epoch == EPOCH_MAX)
        is_old = epoch <= known.epoch and not is_again
    else:
        is_old = epoch < known.epoch
    if is_old:
        raise _refuse_epoch(event.producer, known)
    if event.coordinator_epoch < known.coordinator_epoch:
        raise GroupError(
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            f"Received coordinator epoch {event.coordinator_epoch} for producer "
            f"{event.producer.producer_id}, the last one is {known.coordinator_epoch}.",
        )
    ended = TransactionEnded(event.producer, event.coordinator_epoch, event.committed, now_ms)
    return Result([ended], ErrorCode.NONE)


def _find(state: State, producer: Producer) -> ProducerState:
    return state.transactions.producers.get(producer.producer_id) or ProducerState()


def _refuse_epoch(producer: Producer, known: ProducerState) -> GroupError:
    return GroupError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Received epoch {producer.epoch} of producer {producer.producer_id}, the last one is "
        f"{known.epoch}.",
    )
