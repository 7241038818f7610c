"""Why group epochs and generations begin: texts for people, and a code of each for programs.

Records have the texts. A text that a release has written stays as it is, since views of old logs
read it; where one is about something, such as a plan, `{}` stands for that.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

SEPARATOR = ", "
"""Between the texts of several reasons; no text has it."""
OTHER = "other"
"""The code of any other text."""


class Reason(StrEnum):
    """A reason: its value is the text, its name in lower case the code."""

    MEMBER_JOINED = "member joined"
    MEMBER_JOINED_AGAIN = "member joined again"
    MEMBER_LEFT = "member left"
    STATIC_MEMBER_RETURNED = "static member returned"
    SESSION_TIMEOUT = "session timeout"
    REBALANCE_TIMEOUT = "rebalance timeout"
    HEARTBEAT_TIMEOUT = "heartbeat timeout"
    JOIN_TIMEOUT = "join timeout"
    SYNC_TIMEOUT = "sync timeout"
    SUBSCRIPTION_CHANGED = "subscription changed"
    TOPICS_CHANGED = "topics changed"
    TOPICS_MATCHED = "topics matched"
    ASSIGNOR_CHANGED = "assignor changed"
    WEIGHTS_CHANGED = "weights changed"
    CONSTRAINTS_CHANGED = "constraints changed"
    FINISHING_MOVES = "finishing moves"
    PLAN_APPLIED = "plan {} applied"
    TARGET_WAS_LOST = "target was lost"
    GROUP_MAX_SIZE_FELL = "group.max.size fell"
    CLASSIC_GROUP_CONVERTED = "classic group converted"
    CONSUMER_GROUP_CONVERTED = "consumer group converted"
    MEMBER_GONE = "member left or timed out"
    """Of a group that Kafka coordinates, whose records do not tell one from the other."""
    UNKNOWN = "reason not known"

    @property
    def code(self) -> str:
        """For programs."""
        return self.name.lower()

    def about(self, what: str) -> str:
        """Return the text of a reason that is about something."""
        return self.value.replace("{}", what)


@lru_cache(maxsize=1024)
def codes_of(text: str) -> tuple[str, ...]:
    """Return the codes of the reasons in a text, each once."""
    return tuple(dict.fromkeys(_code_of(one) for one in text.split(SEPARATOR) if one))


def _code_of(text: str) -> str:
    for reason in Reason:
        before, about, after = reason.partition("{}")
        if text == reason or (about and text.startswith(before) and text.endswith(after)):
            return reason.code
    return OTHER
