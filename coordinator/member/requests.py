"""The requests that a member sends, and what their errors mean."""

from __future__ import annotations

from typing import Any

from coordinator.core.events import Heartbeat
from coordinator.core.state.partition_spans import Spans, kafka_id, partitions_by
from coordinator.errors import ErrorCode
from coordinator.member.events import MemberSettings, Subscribe

JOIN_AGAIN = frozenset(
    {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
)
"""The member is no longer in the group."""
WAIT = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)
"""The same heartbeat may be served later: the last two end with another member's session."""
UNHEARD = WAIT - {ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_MAX_SIZE_REACHED}
"""The one who answered does not coordinate the group, or not yet."""
LATE_MS = 30_000
"""For so long a heartbeat without an answer may still come to its coordinator: as long as a request
waits there (log.answer_ms), and on its way."""


def make_heartbeat(
    settings: MemberSettings, epoch: int, owned: Spans | None, subscription: Subscribe | None
) -> Heartbeat:
    """Return a heartbeat.

    Parameters
    ----------
    settings
        Whose it is.
    epoch
        The member's; 0 joins, −1 and −2 leave.
    owned
        What it owns; None: unchanged since its last report.
    subscription
        What it subscribes to; None: unchanged. A request with a subscription is a full one, and
        so is its answer.
    """
    everything: dict[str, Any] = {}
    if subscription is not None:
        everything = {
            "rack_id": settings.rack_id,
            "rebalance_timeout_ms": settings.rebalance_timeout_ms,
            "subscribed_topic_names": subscription.names,
            "subscribed_topic_regex": subscription.pattern,
            "server_assignor": subscription.server_assignor,
        }
    return Heartbeat(
        settings.group_id,
        settings.member_id,
        epoch,
        settings.instance_id,
        topic_partitions=None if owned is None else by_topic_id(owned),
        client_id=settings.client_id,
        by_topic_id=True,
        **everything,
    )


def by_topic_id(spans: Spans) -> dict[str, list[int]]:
    """Return partitions by the id of their topic, as Kafka has ids."""
    return partitions_by(lambda topic: kafka_id(topic.topic_id), spans)
