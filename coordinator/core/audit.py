"""Audit records: who deleted or altered something, or was refused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coordinator.core.events import (
    AlterConfig,
    Caller,
    ConfigureGroup,
    DeleteGroup,
    Event,
    OffsetDelete,
)
from coordinator.core.state.partition_spans import TopicKey, spans_of
from coordinator.core.state.records import Audited, Record, Tombstone

GROUP_DELETED, OFFSETS_DELETED = "group_deleted", "offsets_deleted"
CONFIG_ALTERED = "group_config_altered"
LOGIN_FAILED, DENIED = "login_failed", "authorization_denied"
THROTTLED = "client_throttled"
REFUSALS = (LOGIN_FAILED, DENIED, THROTTLED)
ACTIONS = (*REFUSALS, GROUP_DELETED, OFFSETS_DELETED, CONFIG_ALTERED)
"""All that is recorded."""
TEXT_MAX, DETAILS_MAX = 256, 100
"""What a stranger writes may be long; of one thing done, so many details are kept."""
DEFAULT = "(default)"


def with_audit(event: Event, records: list[Record]) -> list[Record]:
    """Return the records of a step, and who it was that deleted or altered something by it."""
    if not records or not isinstance(
        event, DeleteGroup | OffsetDelete | AlterConfig | ConfigureGroup
    ):
        return records
    if event.by is None:
        return records
    match event:
        case DeleteGroup():
            audited = audit_record(GROUP_DELETED, event.group_id, event.by)
        case OffsetDelete():
            audited = audit_record(
                OFFSETS_DELETED, event.group_id, event.by, _list_ended_offsets(records)
            )
        case AlterConfig():
            changes = {
                name: DEFAULT if value is None else value for name, value in event.changes.items()
            }
            audited = audit_record(CONFIG_ALTERED, event.group_id, event.by, changes)
        case ConfigureGroup():
            audited = audit_record(CONFIG_ALTERED, event.group_id, event.by, event.settings)
    return [*records, audited]


def audit_record(
    action: str, group_id: str, by: Caller, details: Mapping[str, str] | None = None
) -> Audited:
    """Return the record of a change or a refusal."""
    kept = list((details or {}).items())[:DETAILS_MAX]
    return Audited(
        group_id=group_id,
        reason=action,
        owner=shorten(by.principal),
        client_id=shorten(by.client_id),
        client_host=shorten(by.client_host),
        settings={shorten(name): shorten(value) for name, value in kept},
    )


def shorten(text: str) -> str:
    """Return a text that is not too long for the log."""
    return text if len(text) <= TEXT_MAX else f"{text[: TEXT_MAX - 1]}…"


def _list_ended_offsets(records: Iterable[Record]) -> dict[str, str]:
    """Return the partitions whose offsets ended, as {topic: "0-5,7"}."""
    ends = [record for record in records if isinstance(record, Tombstone)]
    spans = spans_of((TopicKey(end.name or "", ""), end.partition or 0) for end in ends)
    found: dict[str, list[str]] = {}
    for topic, first, end in spans:
        text = str(first) if first + 1 == end else f"{first}-{end - 1}"
        found.setdefault(topic.name, []).append(text)
    return {name: ",".join(texts) for name, texts in found.items()}
