"""Shorten errors of other libraries to one line."""

from __future__ import annotations

import re

DECORATION = re.compile(r"\x1b\[\d+m|↳")
STACK_TRACE = re.compile(r"\s*\d+: ")
JAVA_CAUSE = re.compile(r"^(?:: |Caused by: )(.+)$", re.MULTILINE)
"""The lines of a Java stack trace that have a message."""


def one_line(error: Exception) -> str:
    """Return an error's message without the colours, line breaks and stack traces of delta-rs."""
    lines = []
    for line in DECORATION.sub("", str(error)).splitlines():
        if STACK_TRACE.match(line):
            break
        lines.append(line.strip())
    return ": ".join(filter(None, lines)) or type(error).__name__


def gist(error: Exception) -> str:
    """Return the messages of a Java error and its causes, or the first line of any other error."""
    text = str(error).strip()
    causes = dict.fromkeys(JAVA_CAUSE.findall(text))
    return ": ".join(causes) or text.partition("\n")[0] or type(error).__name__
