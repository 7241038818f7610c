"""Escape names that clients chose, so that they are safe to print on a terminal.

Ids come from any client that may join a group. A control character in an id could control the
operator's terminal, and a bidirectional mark could disguise the id. Both are printed as escapes.
"""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Mapping
from typing import Any

from coordinator.display.times import format_time


def visible(text: str) -> str:
    r"""Escape each invisible character of a text, such as \x1b or \u202e."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """Escape the invisible characters of each line of a text."""
    return "\n".join(map(visible, text.split("\n")))


def visible_values(value: Any) -> Any:  # noqa: ANN401 - a row has anything
    """Escape the invisible characters of all texts in a value, at any depth."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible_values(name): visible_values(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [visible_values(one) for one in value]
    return value


def as_json(value: object) -> str:
    """Return one line of JSON. No text is changed: JSON has its own escapes.

    Bytes are base64, as in Kafka's JSON.
    """
    text = json.dumps(value, ensure_ascii=False, default=_encode_bytes)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def _encode_bytes(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    raise TypeError(f"{value!r} is not a JSON value")


class VisibleFormatter(logging.Formatter):
    """Formats a log record as one line, followed by its traceback if it has one."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Return the message of a record, with invisible characters escaped."""
        return visible(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: ANN401, N802 - logging's
        """Return a traceback, with invisible characters escaped."""
        return visible_lines(super().formatException(ei))


class JsonFormatter(logging.Formatter):
    """Formats each event as one JSON object in one line, for collectors of logs."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record; times are UTC."""
        fields = {
            "time": format_time(int(record.created * 1000)),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return as_json(fields)
