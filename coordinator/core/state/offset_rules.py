"""How records change the offsets of a state, those in transactions included.

`replay.py` calls these. An offset that is committed outside of a transaction is later than all that
wait there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from coordinator.core.state.groups import State
from coordinator.core.state.records import OffsetCommitted, Record, Tombstone
from coordinator.core.state.transactions import OffsetPending, ProducerForgotten, TransactionEnded


def _put(record: OffsetCommitted, state: State) -> None:
    place = record.topic, record.partition
    state.offsets.setdefault(record.group_id, {})[place] = record
    state.transactions.overtake(record.group_id, place)


def _hold(record: OffsetPending, state: State) -> None:
    state.offsets.setdefault(record.group_id, {})  # the group is there from now on, as in Kafka
    state.transactions.put(record)


def _end_transaction(record: TransactionEnded, state: State) -> None:
    for offset in state.transactions.end(record):
        of_group = state.offsets.setdefault(offset.group_id, {})
        of_group[offset.topic, offset.partition] = offset


def _forget(record: ProducerForgotten, state: State) -> None:
    state.transactions.forget(record.producer_id)


def end_offset(state: State, record: Tombstone) -> None:
    """Forget an offset; the group stays, as in Kafka, until it is deleted or expires."""
    place = record.name or "", record.partition or 0
    state.offsets.get(record.group_id, {}).pop(place, None)
    state.transactions.drop(record.group_id, place)


OFFSET_RULES: Mapping[type[Record], Callable[[Any, State], None]] = MappingProxyType(
    {
        OffsetCommitted: _put,
        OffsetPending: _hold,
        TransactionEnded: _end_transaction,
        ProducerForgotten: _forget,
    }
)
"""By kind of record, what it does."""
