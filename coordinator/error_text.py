"""Errors of other libraries as one line."""

from __future__ import annotations

import re

DECORATION = re.compile(r"\x1b\[\d+m|↳")
STACK_TRACE = re.compile(r"\s*\d+: ")
JAVA_CAUSE = re.compile(r"^(?:: |Caused by: )(.+)$", re.MULTILINE)
"""The lines of a Java stack trace that say something."""


def one_line(error: Exception) -> str:
    """Return a message without delta-rs's colours, arrows, lines and stack traces."""
    lines = []
    for line in DECORATION.sub("", str(error)).splitlines():
        if STACK_TRACE.match(line):
            break
        lines.append(line.strip())
    return ": ".join(filter(None, lines)) or type(error).__name__


def gist(error: Exception) -> str:
    """Return what failed in Java and of what causes; of any other error, its first line."""
    text = str(error).strip()
    causes = dict.fromkeys(JAVA_CAUSE.findall(text))
    return ": ".join(causes) or text.partition("\n")[0] or type(error).__name__
