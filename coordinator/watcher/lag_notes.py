"""The lag of the groups of a Kafka cluster, asked for and noted again and again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from coordinator.clock import wall_ms
from coordinator.core.watched.lags import Behind, Place, find_behind, note_lags
from coordinator.core.watched_events import KafkaWrote
from coordinator.errors import GroupError
from coordinator.errors.trouble import Trouble
from coordinator.watcher.kafka_brokers import KafkaBrokers
from coordinator.watcher.watched_store import WatchedStore

LOOK_S = 0.1
RECORDS_A_WRITE = 1_000
logger = logging.getLogger("muster.watch")


async def follow_lags(
    brokers: KafkaBrokers,
    store: WatchedStore,
    write: Callable[[Callable[[], None]], Awaitable[None]],
    lag_ms: int,
) -> None:
    """Note how far groups are behind the ends of their topics, where that differs, until cancelled.

    It begins once all is read that there was at the start. While the cluster does not say, lags
    stay as they were noted.

    Parameters
    ----------
    write
        Has something done by the one that writes to the store.
    lag_ms
        How often; 0 for never.

    Raises
    ------
    GroupError
        The store does not take them.
    """
    trouble = Trouble(logger.warning, "lags stay as they were noted: %s")
    while lag_ms:
        if not store.has_caught_up:
            await asyncio.sleep(LOOK_S)
            continue
        behind = await asyncio.to_thread(store.coordinator.look, find_behind)
        # Of topics that are not there Kafka would say only that; ends are asked for afterwards, so
        # that no offset that was committed is beyond one.
        known = store.coordinator.topics.by_name
        try:
            ends = await brokers.end_offsets(one for one in behind.places() if one[0] in known)
        except (OSError, GroupError) as error:
            trouble.note(error)
        else:
            trouble.end()
            await write(partial(_note, store, behind, ends))
        await asyncio.sleep(lag_ms / 1000)


def _note(store: WatchedStore, behind: Behind, ends: Mapping[Place, int]) -> None:
    records = note_lags(behind, ends, wall_ms())
    for first in range(0, len(records), RECORDS_A_WRITE):
        some = tuple(records[first : first + RECORDS_A_WRITE])
        store.write([KafkaWrote(some, 0, explains=False)])
