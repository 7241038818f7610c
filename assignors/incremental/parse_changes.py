"""Read changes of a group: a dict or JSON in, checked fields for `GroupChanges` out.

What can be wrong about form is refused here, whole, with the value and the remedy; what only makes
sense of a group (unknown members, topics that are not there) is refused when it changes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assignors.errors import SpecError
from assignors.parse import (
    check_mapping,
    check_partition_count,
    kind_of,
    parse_names,
    parse_optional_names,
    parse_subscribed,
    show,
)

CHANGE_KEYS = (
    "left", "joined", "resubscribed", "topics", "removed_topics", "lists", "renamed", "weights",
)  # fmt: skip
"""Fields of changes, as those of `GroupChanges`."""
_JOINED_KEYS, _RESUBSCRIBED_KEYS = ("subscribed", "instance_id", "rack"), ("subscribed",)
_MEMBER = '{"subscribed": [topic, …]}'


@dataclass(slots=True)
class ChangedMembers:
    """Members that subscribe to the same topics, by id, with their fields."""

    subscribed: list[str]
    fields: dict[str, Mapping[str, object]] = field(default_factory=dict)


def parse_changes(changes: Mapping[str, object]) -> dict[str, Any]:
    """Turn changes (docs/reference/formats.md#changes-of-a-group) into fields of `GroupChanges`.

    Members that joined or resubscribed are `ChangedMembers`.

    Raises
    ------
    SpecError
        A field is unknown, or not of its form.
    """
    fields = check_mapping(changes, "changes", "with some of " + ", ".join(CHANGE_KEYS))
    _refuse_unknown(fields, "changes", CHANGE_KEYS)
    topics = check_mapping(fields.get("topics", {}), "topics", "{name: partitions}")
    parse_names(topics, "topic")
    for topic, count in topics.items():
        check_partition_count(topic, count)
    removed = _parse_list(fields.get("removed_topics", []), "removed_topics", "topic")
    for topic in removed:
        if topic in topics:
            raise SpecError(f"topic {topic!r} is in topics and in removed_topics: name it once")
    renamed = check_mapping(fields.get("renamed", {}), "renamed", "{old member id: new one}")
    parse_names(renamed, "member id")
    lists = _check_list(fields.get("lists", []), "lists", '[{"before": […], "after": […]}]')
    return {
        "left": _parse_list(fields.get("left", []), "left", "member id"),
        "joined": _parse_members(fields, "joined", _JOINED_KEYS),
        "resubscribed": _parse_members(fields, "resubscribed", _RESUBSCRIBED_KEYS),
        "topics": dict(topics),
        "removed_topics": removed,
        "lists": [_parse_lists(at, pair) for at, pair in enumerate(lists)],
        "renamed": dict(zip(renamed, parse_names(renamed.values(), "member id").to_pylist(),
                            strict=True)),
        "weights": _parse_weights(fields.get("weights", {})),
    }  # fmt: skip


def _parse_weights(value: object) -> dict[str, dict[int, float | None]]:
    """Read weights by topic and partition; in JSON, partitions are texts."""
    found: dict[str, dict[int, float | None]] = {}
    for topic, some in check_mapping(value, "weights", "{topic: {partition: weight}}").items():
        what = f"weights of topic {show(topic)}"
        found[topic] = {}
        for partition, weight in check_mapping(some, what, "{partition: weight}").items():
            if isinstance(weight, bool) or not isinstance(weight, int | float | None):
                raise SpecError(
                    f"{what}: partition {show(partition)} has {show(weight)}, "
                    f"{kind_of(weight)}: give a number, or null if it is unknown"
                )
            found[topic][_parse_partition(partition, what)] = weight
    return found


def _parse_partition(value: object, what: str) -> int:
    """Read the number of a partition: an integer, or its digits."""
    if isinstance(value, str) and re.fullmatch("0|[1-9][0-9]{0,9}", value):
        return int(value)
    if type(value) is int:
        return value
    raise SpecError(f"{what}: partition {show(value)}: give the number of a partition")


def _parse_members(
    fields: Mapping[str, object], name: str, keys: tuple[str, ...]
) -> list[ChangedMembers]:
    """Read members by id, those that subscribe alike together."""
    members = check_mapping(fields.get(name, {}), name, f"{{member id: {_MEMBER}}}")
    parse_names(members, "member id")
    found: dict[frozenset[str], ChangedMembers] = {}
    for member, value in members.items():
        one = check_mapping(value, f"member {member!r}", _MEMBER)
        _refuse_unknown(one, f"member {member!r}", keys)
        topics = parse_names(parse_subscribed(member, one), "topic").to_pylist()
        found.setdefault(frozenset(topics), ChangedMembers(topics)).fields[member] = one
    listed = {name: one for some in found.values() for name, one in some.fields.items()}
    for key in keys[1:]:
        parse_optional_names(listed, list(listed.values()), key)
    return list(found.values())


def _parse_lists(at: int, pair: object) -> tuple[list[str], list[str]]:
    what, keys = f"row {at} of lists", ("before", "after")
    fields = check_mapping(pair, what, '{"before": [topic, …], "after": [topic, …]}')
    _refuse_unknown(fields, what, keys)
    for key in keys:
        if key not in fields:
            raise SpecError(f"{what}: {key!r} is missing: give the topics before and after")
    before, after = (_parse_list(fields[key], f"{key} of {what}", "topic") for key in keys)
    return before, after


def _parse_list(value: object, what: str, of: str) -> list[str]:
    names: list[str] = parse_names(_check_list(value, what, f"[{of}, …]"), of).to_pylist()
    return names


def _check_list(value: object, what: str, expected: str) -> list[object]:
    if not isinstance(value, list | tuple):
        raise SpecError(f"{what} is {show(value)}, {kind_of(value)}: expected a list {expected}")
    return list(value)


def _refuse_unknown(fields: Mapping[str, object], what: str, keys: tuple[str, ...]) -> None:
    for key in fields:
        if key not in keys:
            raise SpecError(f"{what}: unknown field {show(key)}: the fields are {', '.join(keys)}")
