"""Topics as the catalog reports them, and the topics that regular expressions match (G-148).

See docs/design/behaviours.md#regular-expressions.
"""

from __future__ import annotations

from collections.abc import Sequence

from coordinator.core.events import CatalogTopic, RegexesResolved, Result, TopicsReported
from coordinator.core.offsets import end_of_offset, places_of
from coordinator.core.reasons import Reason
from coordinator.core.state.groups import Group, State
from coordinator.core.state.records import (
    GroupMetadata,
    Record,
    RegexResolved,
    Tombstone,
    TopicChanged,
)
from coordinator.core.state.subscriptions import hash_with, matched_now


def update_topics(state: State, event: TopicsReported) -> Result:
    """Record the topics that changed; offsets of those that went end at once (G-128).

    Groups notice at their next heartbeat, by the hash.
    """
    if event.gone is None:
        gone = sorted(state.topics.keys() - event.topics.keys())
    else:
        gone = sorted(state.topics.keys() & set(event.gone))
    records: list[Record] = [Tombstone(TopicChanged.kind, name=name) for name in gone]
    for name in sorted(name for name, seen in event.topics.items() if _is_other(state, name, seen)):
        seen, old = event.topics[name], state.topics.get(name)
        version = state.topics_version + len(records) + 1
        if old is not None and old.key.topic_id == seen.topic_id:
            version = old.version
        elif old is not None:
            gone.append(name)
        records.append(TopicChanged(name, seen.topic_id, seen.partitions, seen.racks, version))
    dead = set(gone)
    records += [
        end_of_offset(group_id, topic, partition)
        for group_id in sorted(state.offsets.keys() | state.transactions.groups if dead else ())
        for topic, partition in sorted(places_of(state, group_id))
        if topic in dead
    ]
    return Result(records)


def _is_other(state: State, name: str, seen: CatalogTopic) -> bool:
    """Whether a topic is new, or another one than is known."""
    old = state.topics.get(name)
    return old is None or (old.key.topic_id, old.partitions, old.racks) != (
        seen.topic_id,
        seen.partitions,
        seen.racks,
    )


def update_regexes(state: State, event: RegexesResolved) -> Result:
    """Store what regexes stand for; another meaning moves the group epoch (G-82, G-85)."""
    group = state.groups.get(event.group_id)
    if group is None or event.topics is None:
        return Result()
    records: list[Record] = []
    changed = False
    idle: set[str] = set()
    """New ones that match nothing."""
    come: list[Sequence[str]] = []
    gone: list[Sequence[str]] = []
    for regex, topics in sorted(event.topics.items()):
        if group.regex_members[regex] == 0:
            continue
        new = tuple(sorted(topics))
        old = group.regexes.get(regex)
        found = RegexResolved(group.group_id, regex, new, event.version, event.started_ms)
        records.append(found)
        before = old.topics if old else ()
        if before == new:
            if old is None:
                idle.add(regex)
            continue
        changed = True
        more, fewer = matched_now(group, found)
        come.append(more)
        gone.append(fewer)
    metadata_hash = hash_with(state, group, come, gone)
    changed = changed or (bool(idle) and _holds_unsubscribed(group, idle))
    if changed or metadata_hash != group.metadata_hash:
        reason = Reason.TOPICS_MATCHED if changed else Reason.TOPICS_CHANGED
        records.append(GroupMetadata(group.group_id, group.epoch + 1, metadata_hash, reason))
    return Result(records)


def _holds_unsubscribed(group: Group, idle: set[str]) -> bool:
    """Whether the target gives a member of a regex that matches nothing what another one matched.

    One pass over the members, however many such regexes there are.

    Kafka 4.4.0 does not look: it leaves such partitions without a member until something else moves
    the group epoch.
    """
    return any(
        not subscribes(key.name)
        for member_id, member in group.members.items()
        if member.meta.subscribed_topic_regex in idle
        for subscribes in (group.subscriptions(member.meta),)
        for key, _, _ in group.targets.get(member_id, ())
    )
