"""Requests that ask for something odd: empty, doubled, negative, unknown, oversized, not allowed.

`record.py` asks a real Kafka, `tests/wire/odd/test_wire_cases.py` asks Muster. A request is plain values
by field name; where JSON has no value for one, a text with a mark stands for it:

- `{g}` is a group that no other case has;
- `$id:clicks` is that topic's id, `$id:nowhere` one that no topic has, `$id:` none;
- `$hex:00ff` are bytes, `$x:300` is a name of 300 letters, `$ü:300` one of 300 others.
"""

from __future__ import annotations

import uuid
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

from coordinator.wire.codec import CLASSIC_VERSIONS, VERSIONS, Api
from coordinator.wire.decoder import field_shape

TOPICS = {"clicks": 4, "hidden": 2, "orders": 2}
"""What there is. User alice may not see `hidden`, nor groups whose name does not begin with team-."""
SETTINGS = {"group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}
SERVED = VERSIONS | CLASSIC_VERSIONS
NOWHERE = uuid.UUID(int=99)
MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True)
class Case:
    """One request, for each version that has its fields.

    Attributes
    ----------
    before
        What is asked before it, by a user who may do everything: (API, version, fields).
    login
        Whether its connection has logged in.
    """

    name: str
    api: Api
    asked: dict[str, Any]
    user: str = "admin"
    before: tuple[tuple[Api, int, dict[str, Any]], ...] = ()
    versions: tuple[int, ...] | None = None
    login: bool = True

    def all_versions(self):
        """Return the versions that it is asked in: of two that say the same, each."""
        least, most = SERVED[self.api]
        return [v for v in range(least, most + 1) if not self.versions or v in self.versions]

    def group(self, version):
        """Return its own group."""
        own = f"{self.name.replace(' ', '-')}-{version}-{self.api.name.lower()}"
        return f"team-{own}"


@dataclass
class Peer:
    """What a server calls its things: between its words and those of the cases."""

    ids: dict[str, uuid.UUID]
    words: dict[str, str] = field(default_factory=dict)

    def plain(self, value, group):  # noqa: PLR0911
        """Return what a text of a case stands for."""
        if isinstance(value, dict):
            return {key: self.plain(one, group) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(one, group) for one in value]
        if not isinstance(value, str):
            return value
        if value.startswith("$id:"):
            name = value.removeprefix("$id:")
            return (self.ids | {"nowhere": NOWHERE})[name] if name else None
        if value.startswith("$hex:"):
            return bytes.fromhex(value.removeprefix("$hex:"))
        if value[:1] == "$" and value[2:3] == ":":
            return value[1] * int(value[3:])
        return value.replace("{g}", group)

    def shown(self, value, group, key=""):  # noqa: PLR0911
        """Return a part of an answer as plain values, in the words of the cases."""
        if is_dataclass(value):
            return {
                f.name: self.shown(getattr(value, f.name), group, f.name) for f in fields(value)
            }
        if isinstance(value, tuple | list):
            return [self.shown(one, group, key) for one in value]
        if isinstance(value, uuid.UUID):
            if not self.ids:
                return value
            names = {known: name for name, known in self.ids.items()} | {NOWHERE: "nowhere"}
            return f"$id:{names.get(value, 'drawn')}"
        if isinstance(value, bytes):
            return f"$hex:{value.hex()}"
        if isinstance(value, timedelta):
            return value // MILLISECOND
        if isinstance(value, datetime):
            return round(value.timestamp() * 1000)
        if isinstance(value, IntEnum):
            return int(value)
        if isinstance(value, str):
            return self._text(value, group)
        if key == "port" and str(value) in self.words:
            return self.words[str(value)]
        return value

    def _text(self, value, group):
        for own, word in self.words.items():
            value = value.replace(own, word)
        value = value.replace(group, "{g}") if group else value
        for at in range(len(value) - 35):
            if value[at + 8 : at + 9] == "-" and value[at + 13 : at + 14] == "-":
                try:
                    uuid.UUID(value[at : at + 36])
                except ValueError:
                    continue
                return value[:at] + "$drawn" + value[at + 36 :]
        long = len(value) > 200 and len(set(value)) == 1
        return f"${value[0]}:{len(value)}" if long else value


ZERO = {"string": "", "bytes": b"", "records": None, "bool": False, "uuid": None}


def with_defaults(entity, values):
    """Return the fields of a kio message, those that are not given as zero."""
    found = {}
    for one in fields(entity):
        shape = field_shape(one)
        if one.name in values:
            value = values[one.name]
            if is_dataclass(shape.kind) and value is not None:
                many = value if shape.array else [value]
                made = [with_defaults(shape.kind, part) for part in many]
                value = made if shape.array else made[0]
            found[one.name] = value
        elif one.default is MISSING:
            zero = ZERO.get(one.metadata.get("kafka_type", ""), 0)
            found[one.name] = () if shape.array else None if shape.optional else zero
    return found
