"""Read and check the fields of a trace's operations that both protocols share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from coordinator.core.events import CommittedOffset

Value = TypeVar("Value")


class TraceError(ValueError):
    """A line is not a valid operation. The message says what is wrong and what is expected."""


def or_default(value: Value | None, default: Value) -> Value:
    """Return a value, or the default for null."""
    return default if value is None else value


def read_object(op: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a field that is an object, or an empty one if it is absent.

    Raises
    ------
    TraceError
        It is not an object.
    """
    value = op.get(name) or {}
    if not isinstance(value, Mapping):
        raise TraceError(f"{name} is {value!r}: give an object")
    return value


def read_names(op: Mapping[str, Any], name: str, what: str = "names") -> list[str]:
    """Return a field that is a list of names, or an empty one if it is absent.

    Raises
    ------
    TraceError
        It is not a list of names.
    """
    value = op.get(name) or []
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise TraceError(f"{name} is {value!r}: give a list of {what}")
    return value


def read_group_ids(op: Mapping[str, Any]) -> list[str]:
    """Return the ids of an operation that names one or several groups.

    Raises
    ------
    TraceError
        They are not a list.
    """
    if op.get("groups") is None:
        return [op.get("group", "g")]
    return read_names(op, "groups", "group ids")


def read_offsets(op: Mapping[str, Any]) -> dict[str, dict[int, CommittedOffset]]:
    """Return the offsets that an operation commits, without metadata.

    Raises
    ------
    TraceError
        They do not have the form {topic: {partition: offset}}.
    """
    try:
        return {
            topic: {
                int(partition): CommittedOffset(offset) for partition, offset in partitions.items()
            }
            for topic, partitions in op["offsets"].items()
        }
    except (AttributeError, KeyError, ValueError):
        raise TraceError(
            f"offsets is {op.get('offsets')!r}: give {{topic: {{partition: offset}}}}"
        ) from None
