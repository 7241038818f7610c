"""Shorten errors of other libraries to one line."""

from __future__ import annotations

import re

DECORATION = re.compile(r"\x1b\[\d+m|↳")
STACK_TRACE = re.compile(r"\s*\d+: ")
JAVA_CAUSE = re.compile(r"^(?:: |Caused by: )(.+)$", re.MULTILINE)
"""The lines of a Java stack trace that have a message."""
PYTHON_CAUSE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
"""A Python stack trace, as Spark quotes that of a worker, and the line after it."""
TRACE_FOLLOWS = "Traceback (most recent call last):"


def one_line(error: Exception) -> str:
    """Return an error's message without the colours, line breaks and stack traces of delta-rs."""
    lines = []
    for line in DECORATION.sub("", str(error)).splitlines():
        if STACK_TRACE.match(line):
            break
        lines.append(line.strip())
    return ": ".join(filter(None, lines)) or type(error).__name__


def gist(error: Exception) -> str:
    """Return the messages of a Java error and its causes, or the first line of any other error.

    Of an error in a Python worker that Spark quotes, its own message.
    """
    text = str(error).strip()
    causes = [one for one in JAVA_CAUSE.findall(text) if not one.endswith(TRACE_FOLLOWS)]
    causes += PYTHON_CAUSE.findall(text)[-1:]
    return ": ".join(dict.fromkeys(causes)) or text.partition("\n")[0] or type(error).__name__
