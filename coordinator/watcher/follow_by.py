"""How a Kafka cluster is followed: apart from what does so, which needs what `[kafka]` installs."""

from __future__ import annotations

from enum import StrEnum


class FollowBy(StrEnum):
    """Read its topic of groups, or describe the groups where that topic may not be read."""

    TOPIC = "topic"
    DESCRIBE = "describe"
