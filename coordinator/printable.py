"""Names that others chose, made safe to print on a terminal.

Ids come from anybody who may join a group. A control character in one would command the operator's
terminal, a bidirectional mark would show another id than it is: both are printed as their escapes.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from typing import Any


def visible(text: str) -> str:
    r"""Return text with an escape for each character that is not seen, such as \x1b or \u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """Return text of several lines so."""
    return "\n".join(map(visible, text.split("\n")))


def visible_values(value: Any) -> Any:  # noqa: ANN401 - whatever a row has
    """Return rows, lists and texts with visible texts."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible_values(name): visible_values(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [visible_values(one) for one in value]
    return value


def as_json(value: object) -> str:
    """Return one line of JSON: exact, for what is not seen has an escape in JSON too.

    Bytes are base64, as in Kafka's JSON.
    """
    text = json.dumps(value, ensure_ascii=False, default=_encode_bytes)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _encode_bytes(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise TypeError(f"{value!r} is no value of JSON")


class VisibleFormatter(logging.Formatter):
    """Formats a message on one line, and the lines of its traceback, if it has one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the line of a record."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802 - logging's
        """Return a traceback."""
        return visible_lines(super().formatException(ei))
