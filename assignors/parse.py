"""Read specs: a dict or JSON text in, checked columns for `GroupSpec` out.

Everything a user can get wrong about form is refused here, whole, with the value and the remedy.
What only makes sense of a whole group (overlaps, sizes, owners) is refused by `GroupSpec` itself.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from assignors.arrays import PARTITIONS_MAX, Longs, offsets_of
from assignors.errors import SpecError

SPEC_KEYS = (
    "id", "assignor", "topics", "members", "weights", "move_costs", "racks", "constraints", "kafka",
)  # fmt: skip
"""Fields of a spec; `kafka` holds Kafka's answer in the golden cases, and is not read."""
MEMBER_KEYS = ("subscribed", "owned", "instance_id", "rack", "capacity", "state", "process")

INT32_MAX = 2**31 - 1
_SHOWN_MAX = 80


def _refuse_same_key(pairs: list[tuple[str, object]]) -> dict[str, object]:
    out = dict(pairs)
    if len(out) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise SpecError(f"{key!r} appears twice in one object: give it once")
            seen.add(key)
    return out


def _refuse_nan(text: str) -> NoReturn:
    raise SpecError(f"not JSON: {text} is not a JSON number")


_STRICT = json.JSONDecoder(object_pairs_hook=_refuse_same_key, parse_constant=_refuse_nan)


_GROUP = "topics and members"
"""What the object of a group has."""


def parse_json_object(text: str | bytes, has: str = _GROUP) -> dict[str, Any]:
    """Parse one JSON object; refuse anything else, keys given twice, NaN and infinities.

    Parameters
    ----------
    has
        What it should have, in messages.

    Raises
    ------
    SpecError
        What is wrong, and where in the text.
    """
    found = parse_json_objects(text, has)
    if len(found) != 1:
        raise SpecError(f"expected one JSON object with {has}, got {len(found)}: give one")
    return found[0][1]


def parse_json_objects(text: str | bytes, has: str = _GROUP) -> list[tuple[int, dict[str, Any]]]:
    """Parse JSON objects that follow one another, as JSON lines do, all or nothing.

    Parameters
    ----------
    has
        As in `parse_json_object`.

    Returns
    -------
    list of (line, object)
        Lines count from 1.

    Raises
    ------
    SpecError
        What is wrong, and where in the text.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise SpecError(f"not JSON: not UTF-8: {error}") from None
    found: list[tuple[int, dict[str, Any]]] = []
    at = line = 0
    while (start := _skip_space(text, at)) < len(text):
        line += text.count("\n", at, start)
        try:
            value, at = _STRICT.raw_decode(text, start)
        except SpecError as error:
            raise SpecError(f"line {line + 1}: {error}") from None
        except RecursionError:
            raise SpecError(f"line {line + 1}: not JSON that can be read: too deep") from None
        except ValueError as error:  # its message has the line and column
            raise SpecError(f"not JSON: {error}") from None
        if not isinstance(value, dict):
            raise SpecError(
                f"line {line + 1}: expected a JSON object with {has}, "
                f"got {kind_of(value)}: {show(value)}"
            )
        found.append((line + 1, value))
        line += text.count("\n", start, at)
    return found


def parse_json_rows(text: str | bytes) -> list[dict[str, Any]]:
    """Parse a JSON array of objects, or objects that follow one another, all or nothing.

    Raises
    ------
    SpecError
        What is wrong, and where in the text.
    """
    if isinstance(text, bytes):
        text = text.removeprefix(codecs.BOM_UTF8)
    start = text.lstrip()[:1]
    if start not in ("[", b"["):
        return [row for _, row in parse_json_objects(text)]
    try:
        rows = json.loads(text, object_pairs_hook=_refuse_same_key, parse_constant=_refuse_nan)
    except SpecError:
        raise
    except RecursionError:
        raise SpecError("not JSON that can be read: too deep") from None
    except ValueError as error:  # its message has the line and column
        raise SpecError(f"not JSON: {error}") from None
    for at, row in enumerate(rows):
        if not isinstance(row, dict):
            raise SpecError(f"row {at}: expected a JSON object, got {kind_of(row)}: {show(row)}")
    return list(rows)


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def parse_dict(spec: Mapping[str, object]) -> dict[str, Any]:
    """Turn a spec (docs/reference/formats.md#assignment-spec) into columns of `GroupSpec`."""
    if not isinstance(spec, Mapping):
        raise SpecError(f"expected an object with topics and members, got {kind_of(spec)}")
    for key in ("topics", "members"):
        if key not in spec:
            raise SpecError(f"{key!r} is missing: a group has topics and members")
    unknown = [key for key in spec if key not in SPEC_KEYS]
    if unknown:
        raise SpecError(
            f"unknown field {show(unknown[0])}: the fields of a group are {', '.join(SPEC_KEYS)}"
        )
    topics, partitions = _parse_topics(
        check_mapping(spec["topics"], "topics", "{name: partitions}")
    )
    members = check_mapping(spec["members"], "members", '{member id: {"subscribed": [topic, …]}}')
    ids = parse_names(members, "member id")
    fields = [_check_member(member, value) for member, value in members.items()]
    lists = [parse_subscribed(member, field) for member, field in zip(members, fields, strict=True)]
    offsets = offsets_of(np.fromiter(map(len, lists), dtype=np.int64, count=len(lists)))
    flat = parse_names(chain.from_iterable(lists), "topic")
    at = pc.index_in(flat, value_set=topics)
    if at.null_count:
        row = int(np.flatnonzero(np.asarray(pc.is_null(at)))[0])
        who = ids[int(np.searchsorted(offsets, row, side="right")) - 1].as_py()
        refuse_unknown_topic(who, flat[row].as_py())
    return {
        "member_id": ids,
        "instance_id": parse_optional_names(members, fields, "instance_id"),
        "rack": parse_optional_names(members, fields, "rack"),
        "subscription": np.arange(len(ids)),
        "list_offsets": offsets,
        "list_topics": np.asarray(at, dtype=np.int64),
        "topics": topics,
        "partitions": partitions,
        **_parse_owned(list(members), fields, topics),
    }


def _parse_topics(topics: Mapping[str, object]) -> tuple[pa.StringArray, Longs]:
    names = parse_names(topics, "topic")
    for topic, count in topics.items():
        check_partition_count(topic, count)
    order = pc.sort_indices(names)
    counts = np.fromiter(topics.values(), dtype=np.int64, count=len(topics))
    return names.take(order), counts[np.asarray(order)]


def _check_member(member: str, value: object) -> Mapping[str, object]:
    fields = check_mapping(value, f"member {member!r}", '{"subscribed": [topic, …]}')
    for key in fields:
        if key not in MEMBER_KEYS:
            raise SpecError(
                f"member {member!r} has an unknown field {key!r}: "
                f"the fields are {', '.join(MEMBER_KEYS)}"
            )
    return fields


def parse_subscribed(member: str, fields: Mapping[str, object]) -> Sequence[str]:
    """Return the topics that a member lists; their names are not looked at."""
    topics = fields.get("subscribed")
    if not isinstance(topics, list | tuple):
        shown = "is missing" if topics is None else f"is {show(topics)}"
        raise SpecError(
            f"member {member!r}: subscribed {shown}; give a list of topics, [] for none"
        )
    return topics


def _parse_owned(
    members: Sequence[str], fields: Sequence[Mapping[str, object]], topics: pa.StringArray
) -> dict[str, Any]:
    place = {name: at for at, name in enumerate(topics.to_pylist())}
    owner: list[str] = []
    topic: list[int] = []
    parts: list[Longs] = []
    for member, field in zip(members, fields, strict=True):
        owned = field.get("owned")
        if not owned:
            if owned is not None and owned != {}:
                check_mapping(owned, f"owned of member {member!r}", "{topic: [partition, …]}")
            continue
        for name, partitions in check_mapping(
            owned, f"owned of member {member!r}", "{topic: [partition, …]}"
        ).items():
            if name not in place:
                raise SpecError(
                    f"member {member!r} owns partitions of topic {name!r}, which is not in "
                    "topics: add it to topics, or drop the claim"
                )
            owner.append(member)
            topic.append(place[name])
            parts.append(_parse_partitions(member, name, partitions))
    lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    rows = np.concatenate(parts) if parts else np.zeros((0, 2), dtype=np.int64)
    return {
        "owner": pa.array(owner, pa.string()).take(
            pa.array(np.repeat(np.arange(len(owner)), lengths))
        ),
        "owned_topic": np.repeat(np.array(topic, dtype=np.int64), lengths),
        "owned_first": rows[:, 0],
        "owned_count": rows[:, 1],
    }


def _parse_partitions(member: str, topic: str, partitions: object) -> Longs:
    """Read [partition, …] or [[first, count], …] as ranges, shape (n, 2)."""
    if isinstance(partitions, range | np.ndarray):
        partitions = np.asarray(partitions).tolist()
    if not isinstance(partitions, list | tuple):
        _refuse_partitions(member, topic, partitions)
    kinds = set(map(type, partitions))
    if kinds <= {int}:
        bad = [value for value in partitions if not 0 <= value < INT32_MAX]
        if bad:
            _refuse_partitions(member, topic, bad[0])
        rows = np.ones((len(partitions), 2), dtype=np.int64)
        rows[:, 0] = partitions
        return rows
    if not kinds <= {list, tuple}:
        _refuse_partitions(member, topic, next(v for v in partitions if type(v) is not int))
    bad = [pair for pair in partitions if not _is_range(pair)]
    if bad:
        _refuse_partitions(member, topic, bad[0])
    return np.array(partitions, dtype=np.int64).reshape(-1, 2)


def _is_range(pair: Sequence[Any]) -> bool:
    if len(pair) != 2 or set(map(type, pair)) != {int}:  # noqa: PLR2004 - a pair
        return False
    first, count = int(pair[0]), int(pair[1])
    return first >= 0 and count > 0 and first + count <= INT32_MAX


def parse_names(values: Iterable[object], what: str) -> pa.StringArray:
    """Read names: text that is valid Unicode."""
    items = list(values)
    if set(map(type, items)) <= {str}:
        try:
            return pa.array(items, pa.string())
        except UnicodeEncodeError:
            bad = next(item for item in items if _is_not_unicode(item))
            raise SpecError(f"{what} {bad!r} is not valid Unicode: use another name") from None
    bad = next(item for item in items if type(item) is not str)
    raise SpecError(f"{what} {show(bad)} is {kind_of(bad)}: expected text")


def _is_not_unicode(text: object) -> bool:
    try:
        str(text).encode()
    except UnicodeEncodeError:
        return True
    return False


def parse_optional_names(
    members: Mapping[str, object], fields: Sequence[Mapping[str, object]], key: str
) -> pa.StringArray:
    """Read a field that members may have: text or null."""
    values = [field.get(key) for field in fields]
    for member, value in zip(members, values, strict=True):
        if value is not None and (not isinstance(value, str) or _is_not_unicode(value)):
            raise SpecError(f"member {member!r}: {key} is {show(value)}, expected text or null")
    return pa.array(values, pa.string())


def check_mapping(value: object, what: str, expected: str) -> Mapping[str, object]:
    """Refuse what is no object."""
    if not isinstance(value, Mapping):
        raise SpecError(f"{what} is {show(value)}, expected an object {expected}")
    return value


def check_partition_count(topic: object, count: object) -> None:
    """Refuse what is no number of partitions."""
    if type(count) is not int or not 0 <= count <= PARTITIONS_MAX:
        refuse_partition_count(topic, count)


def refuse_partition_count(topic: object, count: object) -> NoReturn:
    """Say what a number of partitions may be."""
    raise SpecError(
        f"topic {topic!r} has partition count {show(count)}: "
        f"give a whole number from 0 to {PARTITIONS_MAX} (2^30)"
    )


def refuse_unknown_topic(member: str, topic: str) -> NoReturn:
    """Refuse a subscription to an unknown topic."""
    raise SpecError(
        f"member {member!r} subscribes to topic {topic!r}, which is not in topics: "
        "add it to topics, or drop the subscription"
    )


def _refuse_partitions(member: str, topic: str, found: object) -> NoReturn:
    raise SpecError(
        f"owned of member {member!r}, topic {topic!r}: found {show(found)}; expected a list of "
        "partitions (whole numbers from 0) or of [first, count] pairs"
    )


def show(value: object) -> str:
    """Return a value as text, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number or a nesting too long to print
        return kind_of(value)
    return text if len(text) <= _SHOWN_MAX else text[: _SHOWN_MAX - 1] + "…"


def kind_of(value: object) -> str:
    """Return what a value is, in JSON's words."""
    names = {dict: "an object", list: "a list", str: "text", bool: "a boolean", type(None): "null"}
    if isinstance(value, int | float) and not isinstance(value, bool):
        return "a number"
    return names.get(type(value), type(value).__name__)
